"""What one request may cost on this server, said before anything is computed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING

from vitviz import stopping
from vitviz.errors import TooMuch
from vitviz.sentence import Sentence

if TYPE_CHECKING:
    from vitviz.engine import Inspector

DEAR = (
    100e9  # multiplications of a pass: a second or two on two cores; ViT-B/16 has 18e9 at 224 px, 55e9 at 384
)


@dataclass
class _Computed:
    """Of one answer: seconds of turns that are over, and when the present one began."""

    before: float = 0.0
    began: float | None = None

    def seconds(self) -> float:
        return self.before + (0.0 if self.began is None else time.monotonic() - self.began)


_answer: ContextVar[_Computed | None] = ContextVar("vitviz_answer", default=None)


@contextmanager
def one_answer() -> Iterator[None]:
    """What is computed inside is one answer, in however many turns; outside each turn counts by itself."""
    token = _answer.set(_Computed())
    try:
        yield
    finally:
        _answer.reset(token)


@dataclass(frozen=True)
class Limits:
    """For everybody who asks this server; a notebook has none."""

    tokens: int = 5_000  # of an input; attention grows with their square
    seconds: float = 300  # of computing for one answer, waiting not counted
    passes: int = 2  # cheap ones at once; a dear one computes beside them

    def require(self, inspector: Inspector, size: tuple[int, int] | None) -> None:
        """TooMuch where an input of this size has more tokens than this server computes, with the largest
        that has not.
        """
        tokens = inspector.demand(size).tokens
        if size is None or tokens <= self.tokens:  # its own size is what the checkpoint was chosen for
            return
        (height, width), (rows, cols) = size, inspector.grid().patch
        shrunk = (max(self.tokens - inspector.grid().prefix, 1) / (tokens - inspector.grid().prefix)) ** 0.5
        near = (max(1, int(height * shrunk / rows)) * rows, max(1, int(width * shrunk / cols)) * cols)
        said = Sentence(
            "An input of {height} x {width} pixels has {tokens} tokens for {name}, and this server computes"
            " at most {most}. {tall} x {wide} pixels would do.",
            height=height, width=width, tokens=tokens, name=inspector.checkpoint.name, most=self.tokens,
            tall=near[0],
            wide=near[1],
        )  # fmt: skip
        raise TooMuch(said)

    def dear(self, operations: float) -> bool:
        """Whether something waits for a turn among the dear ones."""
        return operations > DEAR

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Around a turn: what is computed inside ends by TooMuch once the time of its answer is over."""
        computed = _answer.get() or _Computed()
        if computed.began is not None:  # a turn within a turn is the same
            yield
            return

        def over() -> bool:
            if computed.seconds() > self.seconds:
                said = Sentence(
                    "This took longer than the {seconds} seconds that this server gives to one answer. Choose"
                    " a smaller input size or a smaller checkpoint.",
                    seconds=f"{self.seconds:g}",
                )
                raise TooMuch(said)
            return False

        computed.began = time.monotonic()
        try:
            with stopping.when(over):
                yield
        finally:
            computed.before, computed.began = computed.seconds(), None
