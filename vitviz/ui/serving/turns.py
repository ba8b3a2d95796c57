"""Who computes when: what is cheap goes beside what is dear and never waits for it, and nobody waits for one
visitor.

Two lines: a few cheap ones compute at once, and beside them one dear one. In each line those go first whose
visitor has had the fewest turns while waiting, so that a hundred wishes of one visitor are no hundred turns
that another waits for. The line of the dear is short: whoever finds it full is told so at once. It does not
bound what a turn takes; `limits` does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from vitviz import stopping
from vitviz.errors import TooMuch
from vitviz.ui.words import told

FULL = told(
    "The server is computing as many large inputs as it takes on at once. "
    "Try again in a minute, or choose a smaller input size or checkpoint."
)
LOOKS = 0.25  # seconds between two looks whether a visitor who waits is still there


@dataclass(eq=False)
class _Line:
    places: int
    computing: list[str] = field(default_factory=list)  # visitors
    waiting: list[_Wish] = field(default_factory=list)  # in the order of their arrival

    had: dict[str, int] = field(default_factory=dict)  # visitors who wait on: turns they have had meanwhile

    def first(self) -> _Wish:
        """Whose turn is next: of the visitor who has had the fewest while waiting, then who came first."""
        return min(self.waiting, key=lambda wish: self.had.get(wish.visitor, 0))  # of equals the first

    def admit(self, wish: _Wish) -> None:
        self.waiting.remove(wish)
        self.computing.append(wish.visitor)
        self.had[wish.visitor] = self.had.get(wish.visitor, 0) + 1

    def forget(self) -> None:
        present = {*self.computing, *(wish.visitor for wish in self.waiting)}
        self.had = {visitor: count for visitor, count in self.had.items() if visitor in present}


@dataclass(eq=False)
class _Wish:
    visitor: str


class Turns:
    """At most `cheap` and `dear` ones compute at once; at most `waiting` dear ones wait."""

    def __init__(self, cheap: int = 2, dear: int = 1, waiting: int = 4):
        self._lines = {False: _Line(cheap), True: _Line(dear)}
        self._most = waiting
        self._changed = threading.Condition()
        self._mine = threading.local()

    @contextmanager
    def turn(self, dear: bool, visitor: str, patient: bool = False) -> Iterator[None]:
        """Waits for a turn and holds it; one inside another is the same turn.

        Raises TooMuch where too many dear ones wait already, unless `patient`, and Stopped while nobody waits
        for the answer any longer.
        """
        if getattr(self._mine, "held", False):
            yield
            return
        line = self._lines[dear]
        self._wait(line, dear and not patient, _Wish(visitor))
        self._mine.held = True
        try:
            yield
        finally:
            self._mine.held = False
            with self._changed:
                line.computing.remove(visitor)
                line.forget()
                self._changed.notify_all()

    def _wait(self, line: _Line, bounded: bool, wish: _Wish) -> None:
        with self._changed:
            if bounded and len(line.computing) >= line.places and len(line.waiting) >= self._most:
                raise TooMuch(FULL)
            line.waiting.append(wish)
        try:
            while not self._admitted(line, wish):
                stopping.check()  # not while others cannot come or go: it may ask the network
        finally:
            with self._changed:
                if wish in line.waiting:  # given up
                    line.waiting.remove(wish)
                self._changed.notify_all()

    def _admitted(self, line: _Line, wish: _Wish) -> bool:
        def free() -> bool:
            return len(line.computing) < line.places and line.first() is wish

        with self._changed:
            if not self._changed.wait_for(free, LOOKS):
                return False
            line.admit(wish)
            return True
