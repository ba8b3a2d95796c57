"""Pictures handed over in Python: paths, PIL images, arrays, bytes, each alone or with its label."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from vitviz.sentence import Sentence
from vitviz.surveys.items import Item


@dataclass(frozen=True)
class Listed:
    """Named by their place, from 1; a path is named itself where `by_path`. What can be gone through once is,
    once.
    """

    pictures: Iterable[Any]
    by_path: bool = True
    kind: str = "list"
    where: str = "handed over in Python"

    def __iter__(self) -> Iterator[Item]:
        for number, given in enumerate(self.pictures, start=1):
            if isinstance(given, Item):
                yield given
                continue
            picture, label = given if isinstance(given, tuple) and len(given) == 2 else (given, None)
            path = self.by_path and isinstance(picture, str | os.PathLike)
            name = os.fspath(picture) if path else Sentence("Picture {number}", number=number)
            yield Item(name, picture, label)
