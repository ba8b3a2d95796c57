"""Estimate free memory and the memory of a checkpoint or an image, to refuse requests before they fail."""

import os
import re
from pathlib import Path

import torch

from vitviz.errors import OutOfMemory

CPU = torch.device("cpu")
_CONTROL_GROUPS = Path("/sys/fs/cgroup")
SMALLER = "Choose a smaller checkpoint or a smaller size."


def free_bytes(device: torch.device) -> int | None:
    """Return the free bytes of a device (for a CPU: of the machine or container); None if unknown."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    known = _free_in_the_machine(), free_in_the_container(_CONTROL_GROUPS)
    return min((free for free in known if free is not None), default=None)


def free_in_the_container(root: Path) -> int | None:
    """Return the bytes that a container's limit leaves; None without a limit.

    A Space is a container of 16 GB on a much larger machine, whose free memory does not help. Recently read
    file pages count as used but are dropped as soon as memory is needed.
    """
    for group, limit, used, dropped in (  # control groups of the second version, and of the first
        (root, "max", "current", "inactive_file"),
        (root / "memory", "limit_in_bytes", "usage_in_bytes", "total_inactive_file"),
    ):
        try:
            most, used_bytes, stat = ((group / f"memory.{one}").read_text() for one in (limit, used, "stat"))
            most, used_bytes = int(most), int(used_bytes)
            pages = re.search(rf"^{dropped} (\d+)$", stat, re.MULTILINE)
        except (OSError, ValueError):  # missing, or "max"
            continue
        return max(0, most - used_bytes + (int(pages[1]) if pages else 0))
    return None


def bytes_of_a_picture(tokens: int, width: int, layers: int) -> int:
    """Estimate the bytes of an image: its trace (q, k, v, tokens of every layer) and N x N for one view.

    >>> bytes_of_a_picture(197, 768, 12) // 10**6
    39
    """
    record = layers * tokens * width * 4 * 4
    passing = tokens * width * 4 * 6  # six widths: the MLP's four and two others
    return int(1.2 * (record + passing) + 8 * tokens**2)


def operations_of_a_picture(tokens: int, width: int, layers: int) -> int:
    """Estimate the multiplications of an image: tokens by weights, and tokens by tokens.

    >>> round(operations_of_a_picture(197, 768, 12) / 1e9, 1)
    17.4
    """
    return layers * (12 * tokens * width**2 + 2 * tokens**2 * width)


def bytes_to_load(parameters: int) -> int:
    """Return the peak bytes of main memory for loading a checkpoint.

    The file's tensors and the model coexist until the last tensor has been copied: twice 4 bytes a parameter.
    Measured with ViT-L/16 (304 million random parameters): the peak over what Python and torch had taken
    before was 2.02 x 4 bytes a parameter for a .pth file in float32, 2.02 for float16 .safetensors (widened
    to float32 first) and 2.02 for float32 .safetensors, half of it pages that can be dropped.

    >>> bytes_to_load(304_326_632) / 1e9
    2.434613056
    """
    return 2 * 4 * parameters


def require_memory(needed: int, device: torch.device, what: str, advice: str = SMALLER) -> None:
    """Raise OutOfMemory, with both figures, if more than four fifths of the free memory are needed."""
    free = free_bytes(device)
    if free is not None and needed > 0.8 * free:
        spare = "" if needed > free else ", a fifth of which is kept in reserve"
        raise OutOfMemory(
            f"{what} needs about {needed / 1e9:.1f} GB, but only {free / 1e9:.1f} GB are free{spare}."
            f" {advice}"
        )


def require_to_load(name: str, parameters: int | None, device: torch.device = CPU, itemsize: int = 4) -> None:
    """Raise OutOfMemory if this many parameters (None: unknown) fit neither this machine nor the device.

    `itemsize` is the bytes of a parameter on a CUDA device, which holds the model alone.
    """
    if parameters is None:
        return
    what = f"{name} with {parameters / 1e6:.3g} million parameters"
    advice = "Nothing was loaded. Choose a smaller checkpoint"
    also = f"{advice}, or close other programs."
    require_memory(bytes_to_load(parameters), CPU, f"Loading {what}", also)
    if device.type == "cuda":
        there = f"{advice}, --precision bfloat16 or --device cpu."
        require_memory(itemsize * parameters, device, f"Moving {what} to {device}", there)


def is_shortage(error: BaseException) -> bool:
    """Return True if an error reports a lack of memory; torch raises a RuntimeError for main memory."""
    reported = re.search(r"DefaultCPUAllocator|not enough memory|alloc_cpu", str(error)) is not None
    kinds = (MemoryError, torch.OutOfMemoryError, *([RuntimeError] if reported else []))
    return isinstance(error, kinds)


def _free_in_the_machine() -> int | None:
    """Return the bytes of free main memory; None if the operating system does not tell."""
    information = Path("/proc/meminfo")
    if information.exists():
        return 1024 * int(re.search(r"MemAvailable:\s+(\d+)", information.read_text())[1])
    if hasattr(os, "sysconf") and "SC_AVPHYS_PAGES" in os.sysconf_names:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return None
