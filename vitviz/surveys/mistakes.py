"""Where the model is wrong, over a set with known labels: which classes it takes for which, and its surest
errors.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from vitviz.surveys.rows import Row

KEPT = 24  # of the surest errors, and of the nearest misses


@dataclass
class Mistakes:
    """Bounded by the number of classes, whatever the number of pictures."""

    labelled: int = 0
    right: int = 0
    confusions: Counter[tuple[int, int]] = field(
        default_factory=Counter
    )  # (true class, answer) of the errors
    _surest: list[tuple[float, int, Row]] = field(default_factory=list)
    _nearest: list[tuple[float, int, Row]] = field(default_factory=list)

    def add(self, rows: Iterable[Row]) -> None:
        """Counts pictures with a known label; others are passed over."""
        for row in rows:
            if row.label is None or row.answer is None:
                continue
            self.labelled += 1
            self.right += row.answer == row.label
            if row.answer != row.label:
                self.confusions[row.label, row.answer] += 1
                _keep(self._surest, row.probability, row)
                _keep(self._nearest, row.of_label - row.probability, row)

    @property
    def surest(self) -> list[Row]:
        """The errors of which the model was surest, surest first."""
        return [row for *_, row in sorted(self._surest, reverse=True)]

    @property
    def nearest(self) -> list[Row]:
        """The errors in which the true class came closest to the answer, nearest first."""
        return [row for *_, row in sorted(self._nearest, reverse=True)]


def _keep(heap: list[tuple[float, int, Row]], by: float, row: Row) -> None:
    heapq.heappush(
        heap, (by, -row.index, row)
    )  # of equals the first picture stays; indices differ, rows are not compared
    if len(heap) > KEPT:
        heapq.heappop(heap)


__all__ = ["Mistakes"]
