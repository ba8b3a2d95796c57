"""Support for Spaces with shared GPUs (ZeroGPU), which lend a GPU for seconds to one function in a fork.

Rules of ZeroGPU: `import spaces` before anything that touches CUDA; decorate the function before the page is
launched; arguments and results are pickled; anything that the function stores remains in the fork. So
checkpoints are loaded, images prepared and traces cached in the main process, on the CPU, and only forward
passes are sent. A fork inherits the models that were loaded before it; a reused fork that lacks a model
receives the model once. Work that no visitor's action requests (the warm-up, a figure's data, the tour's
experiments) runs on the CPU: hovering must not spend a visitor's quota.

Tensors are pickled by value. The library's default would send each as a file descriptor of shared memory,
held as long as the trace is cached, and a process has about a thousand descriptors.
"""

from __future__ import annotations

import os
import pickle
import uuid
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary


def on_zerogpu() -> bool:
    """True on a ZeroGPU Space; accepts the same values as the `spaces` package."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


# Before Gradio and torch. A fork during an import could never finish that import, so the engine is imported
# now.
if on_zerogpu():
    import spaces

    import vitviz.engine.inspector  # noqa: F401, in memory before any fork

import gradio as gr  # noqa: E402, after the above
import httpx  # noqa: E402, likewise
from gradio.context import LocalContext  # noqa: E402, likewise
from gradio.utils import LRUCache  # noqa: E402, likewise

from vitviz.errors import VitvizError  # noqa: E402, likewise

if TYPE_CHECKING:
    from vitviz.engine import Inspector
    from vitviz.engine.images.preprocess import Prepared
    from vitviz.engine.runner import ForwardRunner
    from vitviz.traces.trace import TraceBatch

# GPU seconds to request: for waking the GPU and moving a model, and per image; estimates, not measured
START, EACH = 20, 2
KEPT = 2  # models that a fork keeps on the GPU

_MAIN = os.getpid()
# by name; a fork has those that existed when it started
_lent: WeakValueDictionary[str, ForwardRunner] = WeakValueDictionary()
_moved: LRUCache[str, ForwardRunner] = LRUCache(KEPT)  # in the fork, on the GPU


class Unavailable(VitvizError):
    """The Space's GPU is unavailable or was withdrawn."""


def with_space_gpu(inspector: Inspector) -> Inspector:
    """Return an inspector whose passes run on the Space's GPU on request; elsewhere unchanged."""
    if on_zerogpu():
        name = uuid.uuid4().hex
        _lent[name] = inspector.forward
        inspector.forward.elsewhere = lambda forward, prepared, size: _traces(name, forward, prepared, size)
    return inspector


def gpu_seconds(name: str, work: bytes, pictures: int, model: bytes | None = None) -> int:
    """Return the GPU seconds to request for `run_passes`; smaller requests wait less and save quota."""
    return START + EACH * pictures


def run_passes(name: str, work: bytes, pictures: int, model: bytes | None = None) -> tuple[str, Any]:
    """Run passes in the fork, on the GPU. `work` is (prepared images, size), `model` a runner, both pickled.

    Returns:
        ("traces", pickled traces), ("refused", VitvizError), or ("unknown", None) for a missing model.
    """
    try:
        forward = _on_gpu(name, model)
        if forward is None:
            return "unknown", None
        prepared, size = pickle.loads(work)
        return "traces", pickle.dumps(forward.batch(prepared, size))
    except VitvizError as error:  # otherwise only the class name would come back
        return "refused", error


if on_zerogpu():
    run_passes = spaces.GPU(run_passes, duration=gpu_seconds)


def _on_gpu(name: str, model: bytes | None) -> ForwardRunner | None:
    """Return a checkpoint's runner on the fork's GPU, moved there at first use; None if unknown.

    `model` is the pickled runner, for a fork that has not inherited it.
    """
    from vitviz.engine.device import compute_alone

    if os.getpid() != _MAIN:
        compute_alone()
    if name not in _moved:
        forward = _lent.get(name) if model is None else pickle.loads(model)
        if forward is None:
            return None
        _moved[name] = forward.on("auto")
    _moved.move_to_end(name)
    return _moved[name]


def _traces(
    name: str, forward: ForwardRunner, prepared: list[Prepared], size: tuple[int, int]
) -> TraceBatch | None:
    """Return traces from the GPU; None if no visitor's action requests them."""
    if LocalContext.request.get(None) is None:
        return None
    work = pickle.dumps((prepared, size))
    try:
        kind, answer = run_passes(name, work, len(prepared))
        if kind == "unknown":
            kind, answer = run_passes(name, work, len(prepared), pickle.dumps(forward))
    except (gr.Error, RuntimeError, httpx.HTTPError) as error:  # quota, duration, queue, or a fork that died
        raise Unavailable(_unavailable_message(error)) from error
    if kind == "refused":
        raise answer
    return pickle.loads(answer)


def _unavailable_message(error: Exception) -> str:
    """Return the message for the visitor that the GPU is unavailable, with the reason in an error."""
    title, said = getattr(error, "title", ""), str(getattr(error, "message", error)).strip().rstrip(".")
    reason = ": ".join(part for part in (title if title != "Error" else "", said) if part)
    return (
        f"The GPU that this Space shares is not to be had now ({reason}). What you see stays as it is. "
        "Try again later, or run vitviz on a machine of your own."
    )
