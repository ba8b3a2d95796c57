"""How much a file may ask for: what it says of itself is counted before anything of it is built or inflated.

A small file can ask for gigabytes, or for work without end, in a few bytes. The limits lie far above every
published Vision Transformer (its largest, of 22 billion parameters, has 48 blocks of some 15 tensors each).
"""

import zipfile
from collections.abc import Sized
from pathlib import Path

from vitviz.errors import CheckpointError

TENSORS = 5_000  # in one file
HEADER = 4_000_000  # bytes of a safetensors header or of a pickle's text; 100 to 200 a tensor are usual
JSON = 8_000_000  # bytes of a config or an index; the labels of ImageNet-21k take 2 million
SIDE = 4_096  # pixels of a model's own input
_INFLATED, _RATIO = 100_000_000, 10  # bytes, and how many times its own size an archive beyond that may take
_OVERLAP = 4  # how often the same numbers may be shared by tensors


def require_few(names: Sized, path: Path) -> None:
    """CheckpointError for more tensors in a file than any Vision Transformer has."""
    if len(names) > TENSORS:
        raise CheckpointError(
            f"{path.name} names {len(names):,} tensors; expected are at most {TENSORS:,}, and a Vision"
            " Transformer has some hundred. Save the model's weights alone."
        )


def require_depth(depth: object, tensors: Sized, name: str) -> None:
    """CheckpointError for a config with more blocks than its file has tensors: to build them takes long."""
    if isinstance(depth, int) and depth > len(tensors):
        raise CheckpointError(
            f"{name} describes a model that its file cannot fill: its config.json asks for a depth of"
            f" {depth:,}, and the file has {len(tensors):,} tensors. Correct it."
        )


def require_inflatable(path: Path, archive: zipfile.ZipFile) -> None:
    """CheckpointError for a small archive of something large: numbers hardly compress."""
    total, own = sum(entry.file_size for entry in archive.infolist()), path.stat().st_size
    if total > max(_INFLATED, _RATIO * own):
        raise CheckpointError(
            f"{path.name} has {size(own)} and would be inflated to {size(total)}, which trained weights never"
            f" are; at most {_RATIO} times its own size is read. Save the weights again, without compression."
        )


def require_held(asked: int, path: Path, own: int) -> None:
    """CheckpointError where tensors have many more bytes than their file: expanded, or sharing numbers."""
    if asked > _OVERLAP * own:
        raise CheckpointError(
            f"{path.name} has {size(own)}, but its tensors ask for {size(asked)}: they are expanded, or share"
            " their numbers. Save them with .contiguous().clone()."
        )


def size(count: int) -> str:
    """Bytes in words.

    >>> size(3_900_000), size(4 * 10**12)
    ('3.9 MB', '4,000.0 GB')
    """
    if count < 10**8:
        return f"{count / 1e6:.1f} MB" if count >= 10**5 else f"{count:,} bytes"
    return f"{count / 1e9:,.1f} GB"
