"""Resource limits for untrusted checkpoint files, checked before a model is built or an archive inflated.

A few bytes in a file can request gigabytes of memory or endless work. The limits lie far above every
published Vision Transformer (the largest, with 22 billion parameters, has 48 blocks of about 15 tensors).
"""

import zipfile
from collections.abc import Sized
from pathlib import Path

from vitviz.errors import CheckpointError

TENSORS = 5_000  # per file
HEADER = 4_000_000  # bytes of a safetensors header or of a pickle; 100 to 200 per tensor are usual
JSON = 8_000_000  # bytes of a config or an index; the labels of ImageNet-21k take 2 million
SIDE = 4_096  # pixels per side of a model's input
_INFLATED, _RATIO = 100_000_000, 10  # bytes; above them, the largest allowed ratio to the archive's size
_OVERLAP = 4  # largest ratio of tensor bytes to file bytes (tensors may share storage)


def require_few(names: Sized, path: Path) -> None:
    """Raise CheckpointError if a file has more tensors than any Vision Transformer."""
    if len(names) > TENSORS:
        raise CheckpointError(
            f"{path.name} names {len(names):,} tensors; at most {TENSORS:,} are read, and a Vision"
            " Transformer has a few hundred. Save only the model's weights."
        )


def require_depth(depth: object, tensors: Sized, name: str) -> None:
    """Raise CheckpointError if a config has more blocks than its file has tensors; building them is slow."""
    if isinstance(depth, int) and depth > len(tensors):
        raise CheckpointError(
            f"{name} describes a model that its file cannot fill: its config.json specifies a depth of"
            f" {depth:,}, and the file has {len(tensors):,} tensors. Correct it."
        )


def require_inflatable(path: Path, archive: zipfile.ZipFile) -> None:
    """Raise CheckpointError if a small archive inflates to a large size; trained weights hardly compress."""
    total, own = sum(entry.file_size for entry in archive.infolist()), path.stat().st_size
    if total > max(_INFLATED, _RATIO * own):
        raise CheckpointError(
            f"{path.name} has {size(own)} and would expand to {size(total)}, which trained weights never do;"
            f" at most {_RATIO} times its own size is read. Save the weights again, without compression."
        )


def require_held(needed: int, path: Path, held: int) -> None:
    """Raise CheckpointError if tensors need far more bytes than their file (expanded or shared storage)."""
    if needed > _OVERLAP * held:
        raise CheckpointError(
            f"{path.name} has {size(held)}, but its tensors need {size(needed)}: they are expanded views or"
            " share storage. Save them with .contiguous().clone()."
        )


def size(count: int) -> str:
    """Format a number of bytes.

    >>> size(3_900_000), size(4 * 10**12)
    ('3.9 MB', '4,000.0 GB')
    """
    if count < 10**8:
        return f"{count / 1e6:.1f} MB" if count >= 10**5 else f"{count:,} bytes"
    return f"{count / 1e9:,.1f} GB"
