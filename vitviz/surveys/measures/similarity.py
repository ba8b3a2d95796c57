"""How alike the pictures are at every depth, from which `vitviz.cka` compares two surveys."""

from __future__ import annotations

from collections.abc import Sequence

from vitviz import analyses
from vitviz.surveys.measure import Quantity, Seen
from vitviz.trace import Trace


class Similarity:
    name = "similarity"
    says = "how alike the pictures are at every depth, for vitviz.cka; four or more in a batch"
    quantities: tuple[Quantity, ...] = ()

    def of(self, seen: Seen):
        return {}

    def together(self, traces: Sequence[Trace], pictures: Sequence[str]):
        return analyses.grams_of(traces, pictures)
