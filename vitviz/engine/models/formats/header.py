"""The header of a safetensors file: the names, types and shapes of its tensors, and where they lie.

The library that reads the tensors checks it, too; what it does not do is to refuse one that is unreasonably
large before it is parsed, or a file whose size is not the one that its header tells, before all of it is
read.
"""

from __future__ import annotations

import json
import operator
from pathlib import Path
from typing import Any

from vitviz.engine.models.formats import limits
from vitviz.errors import CheckpointError


def require_whole(path: Path) -> None:
    """CheckpointError for a safetensors file that is larger or smaller than its header says, or whose header
    is no such thing.
    """
    size = path.stat().st_size
    content, begin = _parsed(path)
    try:
        ends = [
            operator.index(entry["data_offsets"][1])
            for name, entry in content.items()
            if name != "__metadata__"
        ]
    except (KeyError, TypeError, IndexError) as error:
        raise CheckpointError(
            f"{path.name} is damaged: its header is none of safetensors. Download or save it again."
        ) from error
    limits.require_few(ends, path)
    expected = begin + max(ends, default=0)
    if expected != size:
        raise CheckpointError(
            f"{path.name} is damaged: its header tells of {expected:,} bytes, and it has {size:,}. Download"
            " or save it again."
        )


def shapes_in(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes; empty for a file that is damaged."""
    try:
        content, _ = _parsed(path)
        return {
            name: tuple(map(operator.index, entry["shape"]))
            for name, entry in content.items()
            if name != "__metadata__"
        }
    except (CheckpointError, OSError, KeyError, TypeError, AttributeError):
        return {}


def _parsed(path: Path) -> tuple[dict[str, Any], int]:
    """The header's content, and the byte at which the tensors begin."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise CheckpointError(
                f"{path.name} is damaged or not a .safetensors file. Download or save it again."
            )
        if length > limits.HEADER:
            raise CheckpointError(
                f"{path.name} has a header of {length:,} bytes; expected are at most {limits.HEADER:,}. Save"
                " the weights again, without the rest."
            )
        text = file.read(length)
    try:
        content = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path.name} is damaged or not a .safetensors file. Download or save it again."
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{path.name} is damaged: its header is none of safetensors. Download or save it again."
        )
    return content, 8 + length
