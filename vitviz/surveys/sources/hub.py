"""A data set of the Hugging Face hub by its name, as hf:NAME, hf:NAME:SPLIT; needs the library datasets.

It is streamed: nothing but the pictures that are looked at is downloaded. Its identity is the revision that
the hub names, because its listing cannot be read without its pictures.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vitviz.errors import VitvizError
from vitviz.surveys.items import Described, Item


@dataclass(frozen=True)
class OnHub:
    """The first column of pictures, and the first of classes or called label."""

    name: str
    split: str = "train"
    kind: str = "Hugging Face data set"

    @property
    def where(self) -> str:
        return f"hf:{self.name}:{self.split}"

    def __iter__(self) -> Iterator[Item]:
        rows, image, label = self._columns()
        names = getattr(rows.features.get(label), "names", None) if label else None
        for number, row in enumerate(rows, start=1):
            data, told = row[image]["bytes"], row[label] if label else None
            told = names[told] if names and isinstance(told, int) and 0 <= told < len(names) else told
            yield Item(f"{self.split}/{row[image].get('path') or number}", data, told)

    def described(self) -> Described:
        """The number of pictures that the hub names, 0 where it names none, and the hash of name, split and
        revision.
        """
        rows = self._opened()
        checksums = sorted((rows.info.download_checksums or {}).items())
        told = f"{self.name}:{self.split}:{rows.info.version}:{checksums}"
        counts = rows.info.splits or {}
        count = counts[self.split].num_examples if self.split in counts else 0
        return Described(count, hashlib.sha256(told.encode()).hexdigest())

    def _columns(self) -> tuple[Any, str, str | None]:
        rows = self._opened()  # which says how the library is to be had
        from datasets import ClassLabel, Image

        image = next((name for name, kind in rows.features.items() if isinstance(kind, Image)), None)
        if image is None:
            raise VitvizError(
                f"The data set {self.name} has no column of pictures; it has {', '.join(rows.features)}."
            )
        classes = [name for name, kind in rows.features.items() if isinstance(kind, ClassLabel)]
        label = next((name for name in (*classes, "label") if name in rows.features), None)
        return rows.cast_column(image, Image(decode=False)), image, label

    def _opened(self) -> Any:
        try:
            import datasets
        except ImportError:
            raise VitvizError(
                "A data set of the hub needs the library datasets; install it with pip install 'vitviz[hub]'."
            ) from None
        try:
            rows = datasets.load_dataset(self.name, split=self.split, streaming=True)
        except Exception as error:  # the library raises nearly anything
            raise VitvizError(
                f"The data set {self.name} ({self.split}) is not to be had:"
                f" {str(error).splitlines()[0][:200]}"
            ) from None
        return rows if rows.features else rows._resolve_features()
