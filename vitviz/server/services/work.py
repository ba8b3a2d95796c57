"""Runs work in scheduler turns; work ends when its visitor leaves or its time is over."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar

from vitviz.engine import device
from vitviz.server import options
from vitviz.server.security import request_context, scheduler
from vitviz.server.services import cache
from vitviz.traces import cancellation
from vitviz.views import ViewContext

BATCH = 8  # images per forward batch of a survey; also the cost unit of maps and removals
DRAWN = 60  # bytes per pixel for drawing; 21 to 61 were measured for 1 to 28 million pixels
_threads: ContextVar[int] = ContextVar("vitviz_threads", default=0)  # of a sparing computation; 0: all


class WorkQueue:
    """Turns of one server for each kind of work."""

    def __init__(self, limits: options.Limits):
        self.limits, self.turns = limits, scheduler.FairScheduler(limits.passes, budget=limits.memory)
        self._threads = device.threads()

    @contextmanager
    def sparing(self) -> Iterator[None]:
        """Compute on half of the cores inside the context.

        Used for frequent work such as camera frames; the other cores remain for other visitors and for a
        browser on the same machine. Torch waits for its slowest thread, so on an occupied core two threads
        are slower than one.
        """
        half = max(1, self._threads // 2)
        with cancellation.bind(_threads, half), device.limit_threads(half):
            yield

    @contextmanager
    def hold_place(self, patient: bool = False) -> Iterator[None]:
        """Hold the request's place for work that costs more than reading; the request keeps it until its end.

        Enter before querying a cache, since running requests may be waiting for the cached entry. Work inside
        the computation of an entry waits for no place.
        """

        def place():
            return self.turns.place(request_context.visitor_name(), patient, at_once=cache.is_computing())

        with cancellation.when(request_context.require_visitor), scheduler.hold_until_answered(place):
            yield

    def computing(
        self, inspector, size: tuple[int, int] | None, pictures: int = 1, patient: bool = False
    ) -> AbstractContextManager[None]:
        """Hold a turn for passes; cancelled when the visitor leaves or the time is over.

        Raises Stopped or TooMuch; TooMuch also if the queue is full, unless `patient`. Do not hold the turn
        while querying a cache for an entry that another thread may be computing.
        """
        demand = inspector.demand(size)
        kind = scheduler.EXPENSIVE if pictures * demand.operations > options.EXPENSIVE else scheduler.CHEAP
        return self._turn(kind, min(pictures, BATCH) * demand.nbytes, patient)

    def request_turn(self) -> AbstractContextManager[None]:
        """Hold a reading turn around everything that one request computes, within one time limit.

        Passes and other expensive work take their own turns inside, for which this turn is released.
        """
        return self._turn(scheduler.READING, 0)

    def reading(self, subject: ViewContext) -> AbstractContextManager[None]:
        """Hold a turn for reading a trace's attention; its own queue keeps hovering fast."""
        trace, operations, taken = subject.trace, 0, 0
        if trace is not None:
            tokens, width = trace.grid.tokens, trace.tokens[0].shape[-1]
            operations = 2 * len(trace.layers) * tokens**2 * width
            taken = 8 * trace.layers[0].heads * tokens**2  # of one layer, twice
        return self._turn(scheduler.EXPENSIVE if operations > options.EXPENSIVE else scheduler.READING, taken)

    def drawing(self, pixels: int, alone: bool = True) -> AbstractContextManager[None]:
        """Hold a turn for drawing and writing files: an expensive one if `alone`, else a reading turn."""
        return self._turn(scheduler.EXPENSIVE if alone else scheduler.READING, DRAWN * pixels)

    @contextmanager
    def _turn(self, kind: str, nbytes: int, patient: bool = False) -> Iterator[None]:
        """Hold a turn of `kind` for `nbytes` of memory, with limits of time and threads.

        Turns of other kinds than reading also hold the request's place. A `patient` turn is not refused.
        """
        with ExitStack() as held:
            held.enter_context(cancellation.when(request_context.require_visitor))
            if kind != scheduler.READING:
                held.enter_context(self.hold_place(patient))
            visitor, patient = request_context.visitor_name(), patient or scheduler.has_computed()
            held.enter_context(self.turns.turn(kind, visitor, nbytes, patient))
            held.enter_context(cache.set_waiting_context(self.turns.turn_released))
            held.enter_context(scheduler.time_limit(self.limits.seconds))
            held.enter_context(device.limit_threads(_threads.get() or self._threads))
            cancellation.check()
            yield
