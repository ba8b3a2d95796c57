"""NumPy archives, of which every array is counted before it is inflated."""

from __future__ import annotations

import zipfile
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from vitviz.engine.models.formats import limits
from vitviz.errors import CheckpointError

_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def arrays(path: Path) -> dict[str, Tensor]:
    """The arrays of an .npz file. CheckpointError for Python objects in it, which could run code, and for one
    that asks for too much.
    """
    _require_honest(path)
    try:
        with np.load(path, allow_pickle=False, mmap_mode=None) as archive:
            return {name: torch.from_numpy(archive[name]) for name in archive.files}
    except ValueError as error:
        if "pickle" not in str(error):
            raise
        raise CheckpointError(
            f"{path.name} was not opened: it holds Python objects, which could run code, where only arrays"
            " were expected."
        ) from error


def count(path: Path) -> int:
    """How many bytes the arrays of an .npz file take once they are inflated; 0 for a file that is none."""
    try:
        with zipfile.ZipFile(path) as archive:
            return sum(entry.file_size for entry in archive.infolist())
    except (OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
        return 0


def _require_honest(path: Path) -> None:
    """NumPy makes room for what an array's own header tells before it reads it, so that must be what the
    archive holds.
    """
    with zipfile.ZipFile(path) as archive:
        limits.require_few(archive.namelist(), path)
        limits.require_inflatable(path, archive)
        for entry in archive.infolist():
            with archive.open(entry) as file:
                read = _HEADERS.get(np.lib.format.read_magic(file))
                if read is None:  # names that are not ASCII, which only arrays of records have
                    raise CheckpointError(
                        f"{path.name} holds {entry.filename}, which is no array of numbers. Save it again."
                    )
                shape, _, dtype = read(file)
                said, there = prod(shape) * dtype.itemsize, entry.file_size - file.tell()
            if said != there and not dtype.hasobject:
                raise CheckpointError(
                    f"{path.name} is damaged: {entry.filename} tells of {said:,} bytes and holds {there:,}."
                    " Download or save it again."
                )
