"""Which of a checkpoint's classes a source's label means. A label that might mean two is understood as
neither.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from vitviz.errors import VitvizError

Classes = Mapping[str, int | str] | Sequence[str] | None


class Labels:
    """Looked for in this order: `classes`, the checkpoint's labels, one of the names in a label, a number
    from 0.

    `classes` are the source's names in the order of the checkpoint's classes, or a mapping from them to a
    class's number or label. `required`: a label that is not there, or not understood, is an error.
    """

    def __init__(
        self, count: int, names: Sequence[str] = (), classes: Classes = None, required: bool = False
    ):
        self.count, self.required = count, required
        self._names = _unique([(_plain(name), number) for number, name in enumerate(names)])
        parts = [(_plain(part), number) for number, name in enumerate(names) for part in {*name.split(",")}]
        self._parts = _unique(parts)
        if classes is not None and not isinstance(classes, Mapping):
            classes = {name: number for number, name in enumerate(classes)}
        self._given = {str(name): self._of(value) for name, value in (classes or {}).items()}
        for name, number in self._given.items():
            if number is None:
                raise VitvizError(
                    f"The class given for {name!r} is none of the checkpoint's {count}; expected a number"
                    " from 0 or a label."
                )

    def number(self, label: str | int | None, picture: str = "A picture") -> int | None:
        """The class; None for no label, and for one that is not understood."""
        found = self._given.get(str(label)) if label is not None else None
        found = self._of(label) if found is None else found
        if found is None and self.required:
            said = (
                "has no label"
                if label is None
                else (
                    f"has the label {str(label)[:60]!r}, which is none of the checkpoint's {self.count}"
                    " classes"
                )
            )
            raise VitvizError(
                f"{picture} {said}; accuracy needs one for every picture. Say what the source's labels mean"
                " with classes (the command line: --classes), or leave accuracy out."
            )
        return found

    def _of(self, label: str | int | None) -> int | None:
        if not isinstance(label, str):  # a number, NumPy's too
            return None if label is None or not 0 <= int(label) < self.count else int(label)
        plain = _plain(label)
        for known in (self._names, self._parts):
            if plain in known:
                return known[plain]
        return int(label) if label.isdecimal() and int(label) < self.count else None


def _unique(pairs: Sequence[tuple[str, int]]) -> dict[str, int]:
    """Names that mean one class alone."""
    found: dict[str, set[int]] = {}
    for name, number in pairs:
        found.setdefault(name, set()).add(number)
    return {name: numbers.pop() for name, numbers in found.items() if len(numbers) == 1}


def _plain(name: str) -> str:
    return re.sub(r"[\s_-]+", " ", name).strip().casefold()


__all__ = ["Classes", "Labels"]
