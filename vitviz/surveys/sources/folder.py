"""A folder of pictures, or of one folder a class."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass

from vitviz.errors import VitvizError
from vitviz.surveys.items import Item

SUFFIXES = (".jpg", ".jpeg", ".png", ".webp", ".gif", ".tif", ".tiff", ".bmp", ".avif")


@dataclass(frozen=True)
class Folder:
    """All pictures in it and below, by name; hidden ones are passed over, and files that are no pictures by
    their ending.

    Where no picture lies in the folder itself, the first folder on the way to one names its class.
    """

    where: str
    classes: bool

    @classmethod
    def of(cls, path: str | os.PathLike) -> Folder:
        """VitvizError for a folder without pictures."""
        for name in _walk(str(path), ""):
            return cls(str(path), classes="/" in name)  # a folder's own pictures come before those below it
        raise VitvizError(
            f"There is no picture in the folder {os.path.basename(path)}: expected files ending in"
            f" {', '.join(SUFFIXES)}."
        )

    @property
    def kind(self) -> str:
        return "folder of classes" if self.classes else "folder"

    def __iter__(self) -> Iterator[Item]:
        for name in _walk(self.where, ""):
            yield Item(
                name, os.path.join(self.where, *name.split("/")), name.split("/")[0] if self.classes else None
            )


def _walk(root: str, below: str) -> Iterator[str]:
    """Names relative to the root, with slashes on every system: a folder's own files first, then its
    folders'.
    """
    with os.scandir(os.path.join(root, below)) as entries:
        found = sorted(
            (entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries if entry.name[0] != "."
        )
    for name, is_folder in found:
        if not is_folder and name.lower().endswith(SUFFIXES):
            yield below + name
    for name, is_folder in found:
        if is_folder:
            yield from _walk(root, f"{below}{name}/")
