"""Runs work in scheduler turns; work ends when its visitor leaves or its time is over."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from contextvars import ContextVar

from vitviz.engine import device
from vitviz.server import options
from vitviz.server.security import request_context
from vitviz.server.security.scheduler import (
    CHEAP,
    DEAR,
    READING,
    FairScheduler,
    begun,
    time_limit,
    within_the_answer,
)
from vitviz.server.services import cache
from vitviz.traces import cancellation
from vitviz.views import ViewContext

BATCH = 8  # pictures of a survey that go through the model at once; maps and removals count as much
DRAWN = 50  # bytes a pixel that drawing takes: of 1 to 28 million 21 to 50 were measured
_threads: ContextVar[int] = ContextVar("vitviz_threads", default=0)  # of who spares some; 0: all


class WorkQueue:
    """Turns of one server for each kind of work."""

    def __init__(self, limits: options.Limits):
        self.limits, self.turns = limits, FairScheduler(limits.passes, room=limits.memory)
        self._threads = device.threads()

    @contextmanager
    def sparing(self) -> Iterator[None]:
        """Inside, all is computed on half of the cores: what comes again and again, as frames do, leaves the
        others to the browser that draws it, which may be on this machine, and to other visitors. Torch's
        threads wait for the slowest of them, so on a core that is taken two are slower than one.
        """
        half = max(1, self._threads // 2)
        token = _threads.set(half)
        try:
            with device.on_threads(half):
                yield
        finally:
            _threads.reset(token)

    @contextmanager
    def hold_place(self, patient: bool = False) -> Iterator[None]:
        """Around what costs more than reading: the answer it belongs to has its place from there on.

        Before a cache is asked, since those who have places may wait for what is being made there; what is
        within such a making waits for none.
        """

        def place():
            return self.turns.place(request_context.name(), patient, at_once=cache.making())

        with cancellation.when(request_context.require_visitor), within_the_answer(place):
            yield

    def computing(
        self, inspector, size: tuple[int, int] | None, pictures: int = 1, patient: bool = False
    ) -> AbstractContextManager[None]:
        """Around a pass: waits for a turn, then ends with its visitor or its time; Stopped or TooMuch say why
        it did.

        A full line refuses whoever is not `patient`. Not to be held while a cache is asked for what somebody
        else may be making.
        """
        demand = inspector.demand(size)
        kind = DEAR if pictures * demand.operations > options.DEAR else CHEAP
        return self._turn(kind, min(pictures, BATCH) * demand.nbytes, patient)

    def request_turn(self) -> AbstractContextManager[None]:
        """Hold a turn of reading around all that one request computes, within one bound of time.

        Passes and what else is expensive have turns of their own inside, for which this one is given back.
        """
        return self._turn(READING, 0)

    def reading(self, subject: ViewContext) -> AbstractContextManager[None]:
        """Hold a turn for reading a trace's attention; its own queue keeps hovering fast."""
        trace, operations, taken = subject.trace, 0, 0
        if trace is not None:
            tokens, width = trace.grid.tokens, trace.tokens[0].shape[-1]
            operations = 2 * len(trace.layers) * tokens**2 * width
            taken = 8 * trace.layers[0].heads * tokens**2  # of a layer, twice
        return self._turn(DEAR if operations > options.DEAR else READING, taken)

    def drawing(self, pixels: int, alone: bool = True) -> AbstractContextManager[None]:
        """Hold an expensive turn for drawing and writing."""
        return self._turn(DEAR if alone else READING, DRAWN * pixels)

    @contextmanager
    def _turn(self, kind: str, nbytes: int, patient: bool = False) -> Iterator[None]:
        with ExitStack() as held:
            held.enter_context(cancellation.when(request_context.require_visitor))
            if kind != READING:
                held.enter_context(self.hold_place(patient))
            held.enter_context(self.turns.turn(kind, request_context.name(), nbytes, patient or begun()))
            held.enter_context(cache.aside(self.turns.given_back))
            held.enter_context(time_limit(self.limits.seconds))
            held.enter_context(device.on_threads(_threads.get() or self._threads))
            cancellation.check()
            yield
