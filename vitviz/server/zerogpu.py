"""A Space with shared GPUs (ZeroGPU) lends one for seconds, to one function, in a process forked for it.

Its rules: `import spaces` before anything that touches CUDA; the function is decorated before the page is
launched; what goes in and comes out is pickled; whatever the function keeps, it keeps in the fork. So
checkpoints are loaded, pictures prepared and traces cached in the main process, on the CPU, and only forward
passes travel. A fork inherits the models that were loaded before it; one that is reused and misses a model is
sent it once. What is not asked for by a visitor's action (the warm-up, a figure's data, the tour's
experiments) runs on the CPU: hovering must not spend anybody's quota.

Tensors are pickled by value. By the library's own way each would travel as a file descriptor of shared
memory, held for as long as the trace is cached, and a process has about a thousand of them.
"""

from __future__ import annotations

import os
import pickle
import uuid
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary


def here() -> bool:
    """True on a ZeroGPU Space; accepts the same values as the `spaces` package."""
    return os.environ.get("SPACES_ZERO_GPU", "").lower() in ("1", "t", "true")


# before Gradio and torch; a fork in the middle of an import could never finish it, so the engine comes at
# once
if here():
    import spaces

    import vitviz.engine.inspector  # noqa: F401, to be in memory before a fork

import gradio as gr  # noqa: E402, after the above
import httpx  # noqa: E402, likewise
from gradio.context import LocalContext  # noqa: E402, likewise
from gradio.utils import LRUCache  # noqa: E402, likewise

from vitviz.errors import VitvizError  # noqa: E402, likewise

if TYPE_CHECKING:
    from vitviz.engine import Inspector
    from vitviz.engine.images.preprocess import Prepared
    from vitviz.engine.runner import ForwardRunner
    from vitviz.traces.trace import Trace

# seconds asked for: waking the GPU and moving a model there, and each picture; estimates, not measured
START, EACH = 20, 2
KEPT = 2  # models that a fork keeps on the GPU

_MAIN = os.getpid()
# by name; a fork has those of its birth
_lent: WeakValueDictionary[str, ForwardRunner] = WeakValueDictionary()
_moved: LRUCache[str, ForwardRunner] = LRUCache(KEPT)  # the fork's own, on the GPU


class Unavailable(VitvizError):
    """The Space's GPU is unavailable or was withdrawn."""


def lent(inspector: Inspector) -> Inspector:
    """Return an inspector whose passes run on the Space's GPU on request; elsewhere unchanged."""
    if here():
        name = uuid.uuid4().hex
        _lent[name] = inspector.forward
        inspector.forward.elsewhere = lambda forward, prepared, size: _traces(name, forward, prepared, size)
    return inspector


def seconds(name: str, work: bytes, pictures: int, model: bytes | None = None) -> int:
    """Return the GPU seconds to request for `passes`; smaller requests wait less and save quota."""
    return START + EACH * pictures


def passes(name: str, work: bytes, pictures: int, model: bytes | None = None) -> tuple[str, Any]:
    """In the fork, with a GPU: ("traces", pickled), ("refused", VitvizError), ("unknown", None) of a model.
    `work` is (prepared pictures, size) and `model` an inspector's passes, both pickled.
    """
    try:
        forward = _on_gpu(name, model)
        if forward is None:
            return "unknown", None
        prepared, size = pickle.loads(work)
        return "traces", pickle.dumps(forward.traces(prepared, size))
    except VitvizError as error:  # otherwise only its class's name would come back
        return "refused", error


if here():
    passes = spaces.GPU(passes, duration=seconds)


def _on_gpu(name: str, model: bytes | None) -> ForwardRunner | None:
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
) -> list[Trace] | None:
    """Return traces from the GPU; None if no visitor's action requests them."""
    if LocalContext.request.get(None) is None:
        return None
    work = pickle.dumps((prepared, size))
    try:
        kind, answer = passes(name, work, len(prepared))
        if kind == "unknown":
            kind, answer = passes(name, work, len(prepared), pickle.dumps(forward))
    except (gr.Error, RuntimeError, httpx.HTTPError) as error:  # quota, duration, queue, a fork that died
        raise Unavailable(_in_words(error)) from error
    if kind == "refused":
        raise answer
    return pickle.loads(answer)


def _in_words(error: Exception) -> str:
    title, said = getattr(error, "title", ""), str(getattr(error, "message", error)).strip().rstrip(".")
    reason = ": ".join(part for part in (title if title != "Error" else "", said) if part)
    return (
        f"The GPU that this Space shares is not to be had now ({reason}). What you see stays as it is. "
        "Try again later, or run vitviz on a machine of your own."
    )
