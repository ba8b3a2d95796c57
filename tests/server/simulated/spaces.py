"""A stand-in for the package that Spaces with shared GPUs preinstall; only as much of it as vitviz has to do
with.

As there: it has to be imported first; the main process seems to have CUDA and must not use it; a decorated
function runs in a forked process, to which arguments and results are pickled; a fork that is still alive is
used again; errors of schedule and quota are Gradio's, and of an error in the fork only the class's name comes
back. There is no GPU in it.
"""

import functools
import multiprocessing
import os
import sys
import time

too_early = {"torch", "gradio"} & set(sys.modules)
if too_early:
    raise ImportError(f"import spaces before {', '.join(sorted(too_early))}")
if "SPACES_ZERO_DEVICE_API_URL" not in os.environ:
    raise AssertionError("such a Space has SPACES_ZERO_DEVICE_API_URL")

import gradio as gr  # noqa: E402, after the look at what was imported too early
import torch  # noqa: E402, after the same look: imported above it, torch would itself be the one too early

calls: list[dict] = []  # what was asked for, for the test to read
schedule_error: Exception | None = None  # what the next call meets instead of a GPU
_has_cuda = torch.cuda.is_available
torch.cuda.is_available = lambda: True
_context = multiprocessing.get_context("fork")
_workers: list["_Worker"] = []


class _Worker:
    def __init__(self, task):
        self.asked, self.answers = _context.SimpleQueue(), _context.SimpleQueue()
        self.parent = os.getpid()
        self.process = _context.Process(target=self._work, args=[task], daemon=True)
        self.process.start()

    def _work(self, task):
        torch.cuda.is_available = _has_cuda
        while True:
            while not self.asked._reader.poll(1):
                if os.getppid() != self.parent:
                    os._exit(0)  # the server was killed
            args, kwargs = self.asked.get()
            try:
                answer = ("done", task(*args, **kwargs))
            except Exception as error:  # of any kind it is the asker's, by its name alone
                answer = ("failed", type(error).__name__)
            self.answers.put(answer)

    def ask(self, args, kwargs):
        self.asked.put((args, kwargs))
        given_up = time.monotonic() + 60  # a fork that waits for threads it does not have would wait for ever
        while not self.answers._reader.poll(0.1):
            if time.monotonic() > given_up:
                self.process.kill()
                self.process.join()
            if not self.process.is_alive():
                raise gr.Error("GPU task aborted", title="ZeroGPU worker error")
        kind, answer = self.answers.get()
        if kind == "failed":
            raise gr.Error(answer, title="ZeroGPU worker error")
        return answer


def GPU(task=None, *, duration=None, size=None):
    """The decorator, with or without arguments."""
    if task is None:
        return functools.partial(GPU, duration=duration, size=size)

    @functools.wraps(task)
    def wrapper(*args, **kwargs):
        global schedule_error
        if schedule_error is not None:
            error, schedule_error = schedule_error, None
            raise error
        wanted = duration(*args, **kwargs) if callable(duration) else duration
        if not _workers or not _workers[0].process.is_alive():
            _workers[:] = [_Worker(task)]
        calls.append(
            {
                "seconds": wanted,
                "pid": _workers[0].process.pid,
                "bytes": [len(arg) for arg in args if isinstance(arg, bytes)],
            }
        )
        if "SIMULATED_CALLS" in os.environ:
            with open(os.environ["SIMULATED_CALLS"], "a") as file:
                file.write(f"{task.__name__}\n")
        return _workers[0].ask(args, kwargs)

    return wrapper
