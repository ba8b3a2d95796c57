"""How much memory there is, and how much a picture will take: said before it is too late."""

from __future__ import annotations

import os
import re
from pathlib import Path

import torch

from vitviz.errors import OutOfMemory


def free_bytes(device: torch.device) -> int | None:
    """What the device (for the CPU: the machine) can still give; None where that cannot be known."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    information = Path("/proc/meminfo")
    if information.exists():
        return 1024 * int(re.search(r"MemAvailable:\s+(\d+)", information.read_text())[1])
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None


def bytes_of_a_picture(tokens: int, width: int, layers: int) -> int:
    """About what one picture takes: its record (q, k, v and tokens of every layer), and N x N for one view at a time.

    >>> bytes_of_a_picture(197, 768, 12) // 10**6
    39
    """
    record = layers * tokens * width * 4 * 4
    passing = tokens * width * 4 * 6  # the MLP's four widths and what stands beside them
    return int(1.2 * (record + passing) + 8 * tokens**2)


def require(needed: int, device: torch.device, what: str) -> None:
    """Raises OutOfMemory, with both figures, where something needs more than four fifths of what is free."""
    free = free_bytes(device)
    if free is not None and needed > 0.8 * free:
        raise OutOfMemory(f"{what} needs about {_gigabytes(needed)}, but only {_gigabytes(free)} are free. Choose a smaller checkpoint or a smaller size.")


def _gigabytes(count: int) -> str:
    return f"{count / 1e9:.1f} GB"
