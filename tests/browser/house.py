"""The app inside the test's own process, so that a test can hold a forward pass and look at what is still
taken.
"""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager

from tests.browser.conftest import free_port
from vitviz.server.options import parse_options
from vitviz.server.page.build import build_page, launch
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.traces import cancellation


class RunningApp:
    """A running app; `launch` hands it the page's own settings, but for blocking the caller."""

    def __init__(self, *arguments: str):
        options = parse_options(["--port", str(free_port()), "--device", "cpu", *arguments])
        self.url = f"http://127.0.0.1:{options.port}/"
        self.service = AnalysisService(options.settings)
        self.demo = build_page(self.service)
        launch(self, self.service, options)

    def __getattr__(self, name: str):
        if name == "demo":  # not built yet
            raise AttributeError(name)
        return getattr(self.demo, name)  # what `launch` reads of the page

    def queue(self, **given) -> None:
        self.demo.queue(**{**given, "default_concurrency_limit": 1})

    def launch(self, **given) -> None:
        self.demo.launch(**given, prevent_thread_lock=True, quiet=True)

    @property
    def running(self) -> list[str]:
        """The listeners at work."""
        return [events[0].fn.name for events in self.demo._queue.active_jobs if events]

    @property
    def idle(self) -> bool:
        """Whether nothing waits or runs, no generator is kept, and nobody is making an entry of a cache."""
        queue, service = self.demo._queue, self.service
        caches = (
            service.pictures._pictures,
            service.checkpoints._inspectors,
            service._traces,
            service._drawn,
            service.runs._runs,
            service.sets._surveys,
        )
        making = any(cache._making for cache in caches)
        return not (len(queue) or self.running or self.demo.app.iterators or making)

    def forget_traces(self) -> None:
        """Once nothing has been asked for half a second, so that the next pass is of what is done next."""
        since = time.monotonic()

        def calm() -> bool:
            nonlocal since
            since = since if self.idle else time.monotonic()
            return time.monotonic() - since > 0.5

        until(calm)
        self.service._traces._entries.clear()

    @contextmanager
    def gate(self, checkpoint: str = "vitviz-tiny"):
        """Holds every forward pass of a checkpoint until it is let through; at the end all go."""
        forward = self.service.checkpoints.inspector(checkpoint).forward
        gate = Gate(forward.run)
        forward.run = gate.forward
        try:
            yield gate
        finally:
            del forward.run
            gate.let(1_000)
            until(lambda: self.idle)

    def stop(self) -> None:
        self.demo.close(verbose=False)


class Gate:
    """Counts the forward passes that have come to it."""

    def __init__(self, forward: Callable):
        self._forward, self._free = forward, threading.Semaphore(0)
        self._context = contextvars.copy_context()  # of the pass that came last
        self.came = 0

    def forward(self, *given, **named):
        self.came += 1
        self._context = contextvars.copy_context()
        assert self._free.acquire(timeout=60), "a forward pass was held and never let through"
        return self._forward(*given, **named)

    @property
    def unwanted(self) -> bool:
        """Whether the app knows that nobody waits for the pass that came last."""
        try:
            self._context.copy().run(cancellation.check)
        except cancellation.Stopped:
            return True
        return False

    def let(self, count: int = 1) -> None:
        self._free.release(count)


def until(condition: Callable[[], object], seconds: float = 40) -> None:
    """Waits for what is bound to come."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.01)
