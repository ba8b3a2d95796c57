"""What a key stands for: a survey, or a run (a picture, and what it is looked at with) and its trace.

What has been put out of a cache is made again from its run. What costs a pass waits for a turn, and ends
where its visitor is gone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from vitviz import progress, stopping
from vitviz.errors import CheckpointError, Unknown
from vitviz.runs import Run
from vitviz.ui.serving import visitor
from vitviz.ui.serving.cache import Cache, Kept, bytes_of
from vitviz.ui.serving.checkpoints import Checkpoints
from vitviz.ui.serving.pictures import Pictures
from vitviz.ui.serving.settings import Settings
from vitviz.ui.serving.turns import Turns
from vitviz.views import Subject

T = TypeVar("T")
BATCH = 8  # pictures of a survey that go through the model at once; maps and removals count as much
PASS = "the pass"  # what a run's own pass is counted under; no visitor's ticket has a space
GONE = (
    "The server no longer knows this picture; it may have been started anew. Drop the picture in once more."
)


class Looks(Checkpoints, Pictures):
    """Runs, traces and surveys by key, and what was made of them once."""

    def __init__(self, settings: Settings):
        Checkpoints.__init__(self, settings)
        Pictures.__init__(self, settings.picture_cache)
        self._traces: Cache[Any] = Cache(settings.trace_cache, lambda trace: trace.nbytes)
        self._drawn: Cache[Any] = Cache(settings.picture_cache, bytes_of)
        self._runs: Cache[Run] = Cache(20_000, lambda run: 1)
        self._surveys: Cache[Any] = Cache(2_000, lambda survey: 1)
        self._assumed: Cache[str] = Cache(20_000, lambda text: 1)  # outlives its checkpoint
        self._films: Cache[Any] = Cache(2_000, lambda film: 1)  # of surveys, by their keys
        self._pairs: Cache[tuple[str, str]] = Cache(20_000, lambda pair: 1)
        self._counts: Cache[list[int]] = Cache(2_000, lambda count: 1)
        self._turns = Turns(settings.limits.passes)

    def look(
        self, picture: str, checkpoint: str, size: tuple[int, int] | None = None, progress=None, **changes
    ) -> str:
        """Traces a picture with a checkpoint and returns the key under which everything about it is to be
        had.

        `changes` are further fields of the run, such as `without`.
        """
        key = self.known(picture, checkpoint, size, progress, **changes)
        self.subject(key)
        return key

    def known(
        self, picture: str, checkpoint: str, size: tuple[int, int] | None = None, progress=None, **changes
    ) -> str:
        """The same key, before anything is computed for it."""
        inspector = self.inspector(checkpoint, progress)
        self.settings.limits.require(inspector, size)
        assumed = " ".join(one.taken or one.name for one in inspector.checkpoint.assumed)
        self._assumed.get((checkpoint, _weights_of(inspector)), lambda: assumed)
        run = self.run_of(picture, checkpoint, size, **changes)
        key = self._key(repr(run).encode())
        self._runs.get(key, lambda: run)
        return key

    def run_of(self, picture: str, checkpoint: str, size: tuple[int, int] | None, **changes) -> Run:
        """A run with the weights that its checkpoint's name stands for now."""
        return Run(picture, checkpoint, size, weights=_weights_of(self.inspector(checkpoint)), **changes)

    def pair(self, key: str, beside: str) -> str:
        """A key for two runs, or two surveys of one set, of which the second stands beside the first."""
        pair = self._key(b"pair", key.encode(), beside.encode())
        self._pairs.get(pair, lambda: (key, beside))
        return pair

    def both(self, key: str | None) -> tuple[str, str]:
        """What a pair's key stands for; of any other key itself and ""."""
        return self._pairs.peek(key) or (key or "", "")

    def run(self, key: str) -> Run:
        """What a key stands for, of a pair the first; Unknown for an unknown key."""
        run = self._runs.peek(self.both(key)[0])
        if run is None:
            raise Unknown(GONE)
        return run

    def assumed(self, key: str) -> str:
        """What was assumed of a run's checkpoint, for its files; empty for nothing, and for a survey."""
        run = None if self.survey(key) is not None else self.run(key)
        return "" if run is None else self._assumed.peek((run.checkpoint, run.weights)) or ""

    def scene(self, key: str) -> str:
        """What stays the same when only the checkpoint changes: a name of the picture and the size, or of the
        set.
        """
        if self.survey(key) is not None:
            return key
        run = self.run(key)
        return self._key(run.picture.encode(), repr(run.size).encode())

    def subject(self, key: str) -> Subject:
        """What the views look at for a key: a run's trace, made again if it was put out, or a survey.

        The model is loaded only where a view asks for it: a trace that is still there outlives its
        checkpoint.
        """
        key, second = self.both(key)
        beside, survey = self.subject(second) if second else None, self.survey(key)
        if survey is not None:
            film = self._films.peek(key) or {}

            def loaded():
                return self.inspector(survey.checkpoint)

            return Subject(loaded, survey=survey, beside=beside, film=lambda: film)
        run = self.run(key)
        with stopping.when(_gone):
            trace = self._traces.get(key, lambda: self._traced(key, run))
        weights = (run.checkpoint, run.weights, trace.grid)
        return Subject(
            lambda: self._looked_with(run),
            trace,
            once=lambda name, make: self._once((key, name), make),
            once_of_weights=lambda name, make: self._once((weights, name), make),
            once_by_passes=lambda name, make: self._by_passes(run, (key, name), make),
            sampled=lambda: self.sampled(run),
            beside=beside,
            film=lambda: self.film_of(run),
            made=lambda name: self._drawn.peek(("once", (key, name))) is not None,
            **self.together(run),
        )

    def counted(self, key: str, ticket: str) -> list[int]:
        """[done, of]: how far a long answer is that was asked for with a ticket; to be counted on."""
        return self._counts.get((key, ticket), lambda: [0, 0])

    def far(self, key: str) -> tuple[int, int]:
        """How many layers of a run's pass are done, and of how many; 0 of 0 unless it is being made."""
        self.run(key)  # Unknown for an unknown key
        done, of = self.counted(self.both(key)[0], PASS)
        return done, of

    @contextmanager
    def computing(
        self, inspector, size: tuple[int, int] | None, pictures: int = 1, patient: bool = False
    ) -> Iterator[None]:
        """Around a pass: waits for a turn, then ends with its visitor or its time; Stopped or TooMuch say why
        it did.

        A full line refuses whoever is not `patient`. Not to be held while a cache is asked for what somebody
        else may be making.
        """
        dear = self.settings.limits.dear(pictures * inspector.demand(size).operations)
        with self._turn(dear, patient):
            yield

    @contextmanager
    def reading(self, subject: Subject) -> Iterator[None]:
        """The same around what reads a trace's attention; the cheap waits for no turn, or hovering would."""
        trace = subject.trace
        operations = (
            0 if trace is None else len(trace.layers) * trace.grid.tokens**2 * trace.tokens[0].shape[-1]
        )
        if self.settings.limits.dear(2 * operations):
            with self._turn(True, False):
                yield
        else:
            with stopping.when(_gone):
                yield

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """The same around what only draws, for a while; like other dear things it goes alone."""
        with self._turn(True, False):
            yield

    @contextmanager
    def _turn(self, dear: bool, patient: bool) -> Iterator[None]:
        limits = self.settings.limits
        with stopping.when(_gone), self._turns.turn(dear, visitor.name(), patient), limits.timed():
            yield

    def survey(self, key: str | None):
        """A survey that was made; None where it has been put out, or was none."""
        return self._surveys.peek(self.both(key)[0]) if key else None

    @abstractmethod
    def sampled(self, run: Run) -> Any:
        """The survey of the pictures that come with vitviz, by a run's checkpoint."""

    @abstractmethod
    def together(self, run: Run) -> dict[str, Callable]:
        """What else a view may look at beside a run's picture: see `Subject`."""

    @abstractmethod
    def film_of(self, run: Run) -> Mapping[int, Any]:
        """The same at every step of its training, each made when it is asked for."""

    def _traced(self, key: str, run: Run):
        inspector, picture = self._looked_with(run), self.picture(run.picture)
        count = self.counted(key, PASS)

        def tell(done: int, of: int) -> None:
            count[:] = done, of

        try:
            with self.computing(inspector, run.size), progress.to(tell):
                return inspector.trace(picture, run.size, **({"without": run.without} if run.without else {}))
        finally:
            tell(0, 0)

    def _looked_with(self, run: Run):
        """The inspector of a run; CheckpointError where its name stands for other weights by now."""
        inspector = self.inspector(run.checkpoint)
        if _weights_of(inspector) != run.weights:
            raise CheckpointError(
                f"The weights of {run.checkpoint} have been replaced on the server since this picture was"
                " looked at. Look at it again."
            )
        return inspector

    def _by_passes(self, run: Run, key, make):
        """`_once` of what costs a batch's passes: in a turn, which is taken before the cache is asked, since
        who makes something has to have one; no turn for what is known.
        """
        known = self._drawn.peek(("once", key))
        if known is not None:
            return known.value
        with self.computing(self._looked_with(run), run.size, BATCH):
            return self._once(key, make)

    def _once(self, key, make):
        return self._drawn.get(("once", key), lambda: Kept(make())).value


def _weights_of(inspector) -> str:
    identity = inspector.checkpoint.identity
    return identity.digest if identity else ""


def _gone() -> bool:
    visitor.require_visitor()
    return False
