"""An app in the test process, so that a test can hold forward passes and inspect caches and queues."""

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
    """A running app. `launch` receives the settings of the page, but does not block."""

    def __init__(self, *arguments: str):
        options = parse_options(["--port", str(free_port()), "--device", "cpu", *arguments])
        self.url = f"http://127.0.0.1:{options.port}/"
        self.service = AnalysisService(options.settings)
        self.demo = build_page(self.service)
        launch(self, self.service, options)

    def __getattr__(self, name: str):
        if name == "demo":  # not built yet
            raise AttributeError(name)
        return getattr(self.demo, name)  # attributes that `launch` reads

    def queue(self, **given) -> None:
        self.demo.queue(**{**given, "default_concurrency_limit": 1})

    def launch(self, **given) -> None:
        self.demo.launch(**given, prevent_thread_lock=True, quiet=True)

    @property
    def running(self) -> list[str]:
        """Return the names of the running listeners."""
        return [events[0].fn.name for events in self.demo._queue.active_jobs if events]

    @property
    def idle(self) -> bool:
        """Return whether no request waits or runs, no generator is open and no cache entry is computed."""
        queue, service = self.demo._queue, self.service
        caches = (
            service.pictures._pictures,
            service.checkpoints._inspectors,
            service._traces,
            service._drawn,
            service.runs._runs,
            service.sets._surveys,
        )
        computing = any(cache._making for cache in caches)
        return not (len(queue) or self.running or self.demo.app.iterators or computing)

    def forget_traces(self) -> None:
        """Wait for half a second without requests, then clear the traces: the next request runs a pass."""
        idle_since = time.monotonic()

        def idle_long_enough() -> bool:
            nonlocal idle_since
            idle_since = idle_since if self.idle else time.monotonic()
            return time.monotonic() - idle_since > 0.5

        wait_until(idle_long_enough)
        self.service._traces._entries.clear()

    @contextmanager
    def gate(self, checkpoint: str = "vitviz-tiny"):
        """Hold every forward pass of a checkpoint until it is released. Release all passes at the end."""
        forward = self.service.checkpoints.inspector(checkpoint).forward
        gate = Gate(forward.run)
        forward.run = gate.forward
        try:
            yield gate
        finally:
            del forward.run
            gate.release(1_000)
            wait_until(lambda: self.idle)

    def stop(self) -> None:
        self.demo.close(verbose=False)


class Gate:
    """Counts and holds forward passes."""

    def __init__(self, forward: Callable):
        self._forward, self._permits = forward, threading.Semaphore(0)
        self._context = contextvars.copy_context()  # of the last pass
        self.started = 0

    def forward(self, *given, **named):
        self.started += 1
        self._context = contextvars.copy_context()
        assert self._permits.acquire(timeout=60), "a forward pass was held and never released"
        return self._forward(*given, **named)

    @property
    def cancelled(self) -> bool:
        """Return whether the last pass is cancelled because no client waits for it."""
        try:
            self._context.copy().run(cancellation.check)
        except cancellation.Stopped:
            return True
        return False

    def release(self, count: int = 1) -> None:
        self._permits.release(count)


def wait_until(condition: Callable[[], object], seconds: float = 40) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not hold in time"
        time.sleep(0.01)
