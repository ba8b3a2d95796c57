"""Weights in several files: an index says which tensor lies in which shard, as transformers and
huggingface_hub write it.

An index is text from anywhere, so it may name files only that lie beside it, and of its own kind: one of
safetensors never leads to a pickle. This module imports no torch, because the hub's needs it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from vitviz.engine.models.formats.folder import INDICES, read_json
from vitviz.errors import CheckpointError

_PLAIN = re.compile(r"[\w-][\w.-]*")


def is_index(path: Path) -> bool:
    """Whether a weights file is an index of others."""
    return path.name.endswith(INDICES)


def listed(index: Path) -> dict[str, set[str]]:
    """The shards of an index by file name, in order, each with the names of its tensors.

    Raises CheckpointError where the index names nothing, or what is no plain file name of its own kind.
    """
    tensors = read_json(index).get("weight_map")
    if not isinstance(tensors, dict) or not tensors:
        raise CheckpointError(
            f"{_place(index)} has no weight_map from tensors to files. Save or download it again."
        )
    ending = "." + index.name.removesuffix(".index.json").rpartition(".")[2]
    found: dict[str, set[str]] = {}
    for tensor, name in tensors.items():
        if not isinstance(name, str) or not _PLAIN.fullmatch(name) or not name.endswith(ending):
            raise CheckpointError(
                f"{_place(index)} leads to {name!r}, which was not opened: expected are names of {ending}"
                f" files in its own folder, such as model-00001-of-00002{ending}."
            )
        found.setdefault(name, set()).add(tensor)
    return dict(sorted(found.items()))


def shards(index: Path) -> dict[Path, set[str]]:
    """The same by path. Raises CheckpointError besides where a shard is missing, or a link that leads out of
    the folder.

    In the hub's cache index and shards are links alike into one folder of blobs; so a shard may also lie
    beside what the index itself is a link to.
    """
    names = listed(index)
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise CheckpointError(
            f"{_and(missing)} of {len(names)} shards {'is' if len(missing) == 1 else 'are'} missing from"
            f" {index.parent.name}/. Download or copy the rest of the checkpoint."
        )
    homes = (index.parent.resolve(), index.resolve().parent)
    for path in (index.parent / name for name in names):
        if not any(path.resolve().is_relative_to(home) for home in homes):
            raise CheckpointError(
                f"{_place(path)} was not opened: it is a link out of its folder. Put the file itself there."
            )
    return {index.parent / name: tensors for name, tensors in names.items()}


def bytes_of(weights: Path) -> int:
    """The size of a weights file, or of all the shards of an index."""
    return sum(path.stat().st_size for path in (shards(weights) if is_index(weights) else [weights]))


def _and(names: Iterable[str]) -> str:
    first, *more = names
    return f"{first} and {len(more)} more" if more else first


def _place(path: Path) -> str:
    return f"{path.parent.name}/{path.name}"
