"""Schedules requests.

Cheap requests run alongside expensive ones and never queue behind them; no visitor can monopolise the server.

A request that takes more than reading first needs a place. Each visitor may run two requests and queue eight;
later ones are refused with the expected wait. A request computes in turns of three queues: a few that only
read or draw briefly, a few cheap passes, and one expensive turn beside them. In each queue, the address and
then the visitor with the fewest turns while waiting goes first, and nobody who already has a turn gets the
last one. So a hundred requests of one visitor do not delay another by a hundred turns. An expensive turn
pauses between two steps while others compute cheap passes. The expected bytes of all concurrent turns fit
into one memory limit. All turns of one request share one time limit.
"""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from vitviz.errors import TooMuch
from vitviz.server.i18n import mark
from vitviz.traces import cancellation
from vitviz.traces.localized_text import LocalizedText

FULL = mark(
    "The server is computing the maximum number of large inputs. Retry in a minute, or choose a "
    "smaller input size or checkpoint."
)
BUSY = (
    "You have {count} requests running and {waiting} waiting, the maximum per visitor. Retry in "
    "about {seconds} seconds."
)
TOO_LONG = "This took longer than the limit of {seconds} seconds. Choose a smaller input size or checkpoint."
LOOKS = 0.25  # seconds between two checks whether a waiting visitor is still there
READING, CHEAP, EXPENSIVE = "reading", "cheap", "expensive"
UNDER_WAY, WAITING = 2, 8  # requests of one visitor
READERS, READINGS = 2, 64  # concurrent readers, and waiting readings of one visitor
LARGEST = 0.75  # of the memory limit, the most counted for one request, which might else wait forever


@dataclass(eq=False)
class ScheduledRequest:
    visitor: str  # address and session
    nbytes: int = 0
    began: float = 0.0

    @property
    def address(self) -> str:
        """The visitor's address, without the session."""
        return self.visitor.partition(" ")[0]


@dataclass(eq=False)
class RequestQueue:
    places: int
    own: int = 0  # turns of one visitor; by default all but one
    computing: list[ScheduledRequest] = field(default_factory=list)
    waiting: list[ScheduledRequest] = field(default_factory=list)  # in order of arrival
    had: dict[str, int] = field(default_factory=dict)  # turns since waiting, by address and visitor
    took: float = 0.0  # seconds of recent turns, averaged

    def first(self, fits: Callable[[ScheduledRequest], bool]) -> ScheduledRequest | None:
        """Return the next request if it fits, else None: fewest turns of its visitor, then first come."""
        mine, own = [one.visitor for one in self.computing], self.own or max(1, self.places - 1)
        may = [one for one in self.waiting if mine.count(one.visitor) < own]
        if not may or len(self.computing) >= self.places:
            return None
        result = min(may, key=lambda one: (self.had.get(one.address, 0), self.had.get(one.visitor, 0)))
        return result if fits(result) else None

    def admit(self, request: ScheduledRequest) -> None:
        """Move a waiting request to the computing ones, start its time and count its visitor's turn."""
        self.waiting.remove(request)
        self.computing.append(request)
        request.began = time.monotonic()
        for name in {request.address, request.visitor}:
            self.had[name] = self.had.get(name, 0) + 1

    def leave(self, request: ScheduledRequest) -> None:
        """Remove an ended request, update the mean duration, drop turn counts of absent visitors."""
        if request in self.computing:
            self.computing.remove(request)
            seconds = time.monotonic() - request.began
            self.took = (self.took + seconds) / 2 if self.took else seconds
        present = {name for one in (*self.computing, *self.waiting) for name in (one.visitor, one.address)}
        self.had = {name: count for name, count in self.had.items() if name in present}

    def busy(self) -> TooMuch:
        """Return the refusal of a full queue: its length and the expected wait."""
        each = self.took or max((time.monotonic() - one.began for one in self.computing), default=0)
        count, waiting = len(self.computing), len(self.waiting)
        seconds = max(1, round(each * (count + waiting) / self.places))
        return TooMuch(LocalizedText(BUSY, count=count, waiting=waiting, seconds=seconds))


class FairScheduler:
    """Run up to `cheap` and `expensive` turns at once in `budget` bytes; queue up to `waiting` others."""

    def __init__(self, cheap: int = 2, expensive: int = 1, waiting: int = 8, budget: float = float("inf")):
        places = {READING: READERS, CHEAP: cheap, EXPENSIVE: expensive}
        self._lines = {kind: RequestQueue(count) for kind, count in places.items()}
        self._most, self._budget = waiting, budget
        self._answers: dict[str, RequestQueue] = {}  # by visitor, while there are any
        self._changed = threading.Condition()
        self._mine = threading.local()

    @contextmanager
    def place(self, visitor: str, patient: bool = False, at_once: bool = False) -> Iterator[None]:
        """Hold a request's place; wait until its visitor has fewer than two others running.

        Raises TooMuch, with the expected wait, if eight already wait, unless `patient`. With `at_once` the
        request skips the queue, because running requests may be waiting for its result.
        """
        with self._changed:
            if not (patient or at_once) and (refusal := self.full(visitor)):
                raise refusal
            line = self._answers.setdefault(visitor, RequestQueue(UNDER_WAY, UNDER_WAY))
            line.waiting.append(request := ScheduledRequest(visitor))
            if at_once or line.first(self._fits) is request:
                line.admit(request)
        try:
            if request in line.waiting:
                with self.turn_released():  # running requests may need the turn
                    self._wait(line, request)
            yield
        finally:
            with self._changed:
                line.leave(request)
                if not (line.computing or line.waiting) and self._answers.get(visitor) is line:
                    del self._answers[visitor]
                self._changed.notify_all()

    def full(self, visitor: str) -> TooMuch | None:
        """Return the error that refuses one more request of a visitor; None if it may queue."""
        line = self._answers.get(visitor)
        return line.busy() if line and len(line.waiting) >= WAITING else None

    @contextmanager
    def turn(self, kind: str, visitor: str, nbytes: float = 0, patient: bool = False) -> Iterator[None]:
        """Wait for a turn and hold it.

        A nested turn is the same turn, except that a reading turn is released before computing. Raises
        TooMuch if too many expensive turns already wait, unless `patient`, and Stopped if the visitor left.
        """
        held = getattr(self._mine, "held", None)
        if held and (held[0] != READING or kind == READING):
            yield
            return
        request = ScheduledRequest(visitor, int(min(nbytes, LARGEST * self._budget)))
        with self.turn_released():
            self._enter(kind, request, patient)
            try:
                with cancellation.when(self._pause_check(request)) if kind == EXPENSIVE else nullcontext():
                    yield
            finally:
                self._leave(kind, request)

    @contextmanager
    def turn_released(self) -> Iterator[None]:
        """Release this thread's turn inside the context, to wait for a request that may need it."""
        held = getattr(self._mine, "held", None)
        if held is None:
            yield
            return
        with _not_counted():
            self._leave(*held)
            try:
                yield
            finally:
                self._enter(*held, patient=True)

    def _enter(self, kind: str, request: ScheduledRequest, patient: bool) -> None:
        """Queue a request and wait for its turn, which this thread then holds.

        Raise TooMuch if too many requests wait already, unless `patient`.
        """
        line = self._lines[kind]
        with self._changed:
            full = len(line.computing) >= line.places and len(line.waiting) >= self._most
            if not patient and kind == EXPENSIVE and full:
                raise TooMuch(FULL)
            if not patient and sum(one.visitor == request.visitor for one in line.waiting) >= READINGS:
                raise line.busy()
            line.waiting.append(request)
        self._wait(line, request)
        self._mine.held = kind, request

    def _leave(self, kind: str, request: ScheduledRequest) -> None:
        """End a request's turn, which this thread holds, and wake the waiting requests."""
        self._mine.held = None
        with self._changed:
            self._lines[kind].leave(request)
            self._changed.notify_all()

    def _wait(self, line: RequestQueue, request: ScheduledRequest) -> None:
        """Wait until a queued request is first in `line` and fits, then admit it.

        Raise Stopped if the visitor leaves; the request is then removed from the queue.
        """
        try:
            while True:
                with self._changed:
                    if self._changed.wait_for(lambda: line.first(self._fits) is request, LOOKS):
                        return line.admit(request)
                cancellation.check()  # outside the lock: the check may use the network
        finally:
            with self._changed:
                if request in line.waiting:  # cancelled
                    line.waiting.remove(request)
                self._changed.notify_all()

    def _fits(self, request: ScheduledRequest) -> bool:
        """Return True if a request's bytes and those of all turns fit in the budget, or none runs."""
        taken = sum(one.nbytes for line in self._lines.values() for one in line.computing)
        return not taken or taken + request.nbytes <= self._budget

    def _pause_check(self, request: ScheduledRequest) -> Callable[[], bool]:
        """Return a check that pauses an expensive turn while others compute; the check returns False.

        A pause lasts at most as long as the turn has computed since the previous one, and at most 2 s.
        """
        since = time.monotonic()

        def others() -> bool:
            lines = self._lines[READING], self._lines[CHEAP]
            return any(one.visitor != request.visitor for line in lines for one in tuple(line.computing))

        def should_stop() -> bool:
            nonlocal since
            if others():
                with self._changed:
                    self._changed.wait_for(lambda: not others(), min(2.0, time.monotonic() - since))
                since = time.monotonic()
            return False

        return should_stop


class AnswerBudget:
    """Time used by the turns of one request.

    `held` is exited at the request's end; `known` are its checkpoints by name; `begun` is True once
    something has been computed.
    """

    def __init__(self, held: ExitStack | None = None):
        self.held, self.placed, self.before, self.began, self.begun = held, False, 0.0, None, False
        self.known: WeakValueDictionary = WeakValueDictionary()

    def seconds(self) -> float:
        """Return the seconds that the request's turns have taken, including a turn in progress."""
        return self.before + (0.0 if self.began is None else time.monotonic() - self.began)


_answer: ContextVar[AnswerBudget | None] = ContextVar("vitviz_answer", default=None)


@contextmanager
def as_one_request() -> Iterator[None]:
    """Count all turns inside as one request; outside, each turn counts by itself."""
    with ExitStack() as held:
        held.callback(_answer.reset, _answer.set(AnswerBudget(held)))
        yield


@contextmanager
def hold_until_answered(place: Callable[[], AbstractContextManager]) -> Iterator[None]:
    """Hold `place()` until the request ends; outside a request, until the context is left."""
    with nullcontext() if _answer.get() else as_one_request():
        answer = _answer.get()
        if not answer.placed:
            answer.held.enter_context(place())
            answer.placed = True
        yield


def has_computed() -> bool:
    """Return True if the request has already computed something, which a refusal would waste."""
    answer = _answer.get()
    return answer is not None and answer.begun


@contextmanager
def _not_counted() -> Iterator[None]:
    """Exclude waiting within a turn from the request's time; a turn inside counts by itself."""
    answer = _answer.get()
    if answer is None or answer.began is None:
        yield
        return
    answer.before, answer.began = answer.seconds(), None
    try:
        yield
    finally:
        answer.began = time.monotonic()


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise TooMuch inside a turn once the request's time is over."""
    answer = _answer.get() or AnswerBudget()
    if answer.began is not None:  # nested in another turn
        yield
        answer.begun = True
        return

    def is_over() -> bool:
        if answer.seconds() > seconds:
            raise TooMuch(LocalizedText(TOO_LONG, seconds=f"{seconds:g}"))
        return False

    answer.began = time.monotonic()
    try:
        with cancellation.when(is_over):
            yield
    finally:
        answer.before, answer.began, answer.begun = answer.seconds(), None, True


def request_lookups() -> dict | WeakValueDictionary:
    """Return the request's cache of loaded checkpoints by name; an empty dict outside a request."""
    answer = _answer.get()
    return {} if answer is None else answer.known
