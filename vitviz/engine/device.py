"""Choose the device and precision of the model, and report a lack of memory."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import pairwise

import torch
from torch import Tensor

from vitviz.engine.defaults import tf32
from vitviz.engine.memory import is_shortage
from vitviz.errors import OutOfMemory, VitvizError, quoted

# precision -> type of weights and tokens; TF32 rounds only the factors of products
DTYPES = {"float32": torch.float32, "tf32": torch.float32, "bfloat16": torch.bfloat16}


def pick_device(name: str = "auto") -> torch.device:
    """Return the requested device, such as 'cuda:1'; for "auto" CUDA, else Apple's GPU, else the CPU.

    Raises VitvizError for a device that is not available.

    >>> pick_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError) as error:
        raise VitvizError(
            f"The device {quoted(name)} is not available here; expected auto, cpu, cuda, cuda:N or mps. Use"
            " --device auto."
        ) from error
    return device


def pick_dtype(name: str | torch.dtype, device: torch.device) -> torch.dtype:
    """Return a precision's dtype; raise VitvizError if it is unknown or the device cannot compute in it.

    >>> pick_dtype("bfloat16", torch.device("cpu")) is pick_dtype(torch.bfloat16, torch.device("cpu"))
    True
    """
    name = str(name).removeprefix("torch.")
    if name not in DTYPES:
        raise VitvizError(f"{quoted(name)} is not a precision; expected {', '.join(DTYPES)}.")
    if name == "tf32" and (device.type != "cuda" or torch.cuda.get_device_capability(device) < (8, 0)):
        raise VitvizError(
            f"{device_name(device)} does not compute in TF32; NVIDIA GPUs do, from Ampere on. Use --precision"
            " float32."
        )
    try:
        ones = torch.ones(2, 2, device=device, dtype=DTYPES[name])
        ones.mm(ones)
    except (RuntimeError, TypeError) as error:
        advice = "Use --precision float32."
        raise VitvizError(f"{device_name(device)} does not compute in {name}. {advice}") from error
    return DTYPES[name]


def device_name(device: torch.device) -> str:
    """Return the device's name for the page."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return {"mps": "Apple GPU"}.get(device.type, "CPU")


def synchronise(device: torch.device) -> None:
    """Wait until the device has finished its queued work, so that timings are correct."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    elif device.type == "mps":
        torch.mps.synchronize()


def copy_to_host(tensor: Tensor) -> Callable[[], Tensor]:
    """Begin to copy a tensor to the host; the returned function waits for it, not for later work."""
    if not (tensor.is_cuda and torch.cuda.is_available()):
        return tensor.cpu
    there = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    there.copy_(tensor, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()

    def wait() -> Tensor:
        copied.synchronize()
        return there

    return wait


class Stopwatch:
    """Seconds between marks in the work of a device; on CUDA read once the work is done."""

    def __init__(self, device: torch.device):
        self._queued, self._marks = device.type == "cuda" and torch.cuda.is_available(), []
        self.mark()

    def mark(self) -> None:
        """Mark the end of the work that has been queued so far."""
        mark = torch.cuda.Event(enable_timing=True) if self._queued else time.perf_counter()
        if self._queued:
            mark.record()
        self._marks.append(mark)

    def seconds(self) -> list[float]:
        """Return the seconds between the marks; waits for the last."""
        pairs = list(pairwise(self._marks))
        if not self._queued:
            return [end - start for start, end in pairs]
        self._marks[-1].synchronize()
        return [start.elapsed_time(end) / 1000 for start, end in pairs]


def exact_float32(device: torch.device, precision: str = "float32") -> AbstractContextManager[None]:
    """Return a context in which CUDA computes float32 exactly, or in TF32 if that is the precision.

    By default torch computes convolutions (patch embedding) in TF32, and a notebook may have allowed TF32
    for all products.
    """
    return tf32(precision == "tf32") if device.type == "cuda" else nullcontext()


@contextmanager
def inference_context(device: torch.device, precision: str = "float32") -> Iterator[None]:
    """Compute predictions: no gradients, the model's own precision whatever autocast says."""
    with torch.no_grad(), torch.autocast(device.type, enabled=False), exact_float32(device, precision):
        yield


def compute_alone() -> None:
    """Limit this process to one CPU thread.

    A forked process lacks its parent's threads and could wait for them for ever.
    """
    torch.set_num_threads(1)


def threads() -> int:
    """Return the number of CPU threads that this thread computes on."""
    return torch.get_num_threads()


@contextmanager
def limit_threads(count: int) -> Iterator[None]:
    """Compute on `count` CPU threads inside the block.

    Needed where other threads compute as well: torch gives a thread that it has not seen before the count
    that any thread was given last.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def memory_guard(device: torch.device, what: str) -> Iterator[None]:
    """Raise OutOfMemory with a message where memory runs out, and free the device's cached memory."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_shortage(error):
            raise
        if device.type == "cuda":
            torch.cuda.empty_cache()
        raise OutOfMemory(
            f"{what} needs more memory than {device_name(device)} has free. Choose a smaller checkpoint or a"
            " smaller size, or start with --device cpu."
        ) from error
