"""Where pictures come from: one small file a kind, and the choice among them."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from PIL import Image

from vitviz.errors import VitvizError
from vitviz.surveys.items import Item, Source
from vitviz.surveys.sources.folder import SUFFIXES, Folder
from vitviz.surveys.sources.hub import OnHub
from vitviz.surveys.sources.listed import Listed
from vitviz.surveys.sources.table import Table
from vitviz.surveys.sources.tar import Shards

EXPECTED = (
    "a folder of pictures or of one folder a class, a list in .csv or .parquet, a .tar in webdataset's form"
    " or a folder of them, hf:NAME for a data set of the hub, or in Python several pictures"
)


def source_of(given: Any) -> Source:
    """The source that is meant; VitvizError for what is none. A source or list is taken as it is.

    >>> source_of([b"..."]).kind
    'list'
    """
    if isinstance(given, str) and given.startswith("hf:"):
        name, _, split = given[3:].partition(":")
        return OnHub(name, split or "train")
    if isinstance(given, str | os.PathLike):
        return _on_disk(Path(given).expanduser())
    if (
        isinstance(given, Image.Image | bytes)
        or not isinstance(given, Iterable)
        or hasattr(given, "__array__")
    ):
        raise VitvizError(
            f"Given {str(given)[:80]!r} for a set of pictures; expected {EXPECTED}, such as [picture]."
        )
    if hasattr(given, "kind") and hasattr(given, "where"):
        return given
    return Listed(given if isinstance(given, list | tuple) else list(given))


def _on_disk(path: Path) -> Source:
    name = path.name.lower()
    if path.is_dir():
        shards = sorted(str(one) for one in path.glob("*.tar"))
        return Shards(tuple(shards), str(path)) if shards else Folder.of(path)
    if not path.is_file():
        raise VitvizError(f"There is no folder or file {path.name}; expected {EXPECTED}.")
    if name.endswith(".tar"):
        return Shards((str(path),), str(path))
    if name.endswith((".csv", ".parquet", ".pq")):
        return Table(str(path))
    if name.endswith(SUFFIXES):
        raise VitvizError(
            f"Given the single picture {path.name} for a set of pictures; expected {EXPECTED}, such as"
            " [picture]."
        )
    raise VitvizError(f"{path.name} is no source of pictures; expected {EXPECTED}.")


__all__ = ["Item", "Source", "source_of"]
