"""What a model answers to one picture without some of its patches, or with them in other orders.

Many draws at once, in the precision in which the model computes.
"""

from __future__ import annotations

from jaxtyping import Float, Int
from torch import Tensor

from vitviz.engine.inspector import Inspector
from vitviz.engine.passes import experiments
from vitviz.engine.passes.removal import Removal
from vitviz.trace import Trace


class Draws:
    """The picture of one of an inspector's traces, as the untouched model gets it."""

    def __init__(self, inspector: Inspector, trace: Trace):
        self._preprocessing = inspector.preprocessing.with_size(trace.view.picture.shape[:2])
        self._model, self._trace = inspector._at(trace.grid.pixels), trace
        self._pixels = inspector._pixels([experiments.as_seen(trace.view, self._preprocessing)])

    def kept(self, kept: Int[Tensor, "draw kept"], patches_as: str) -> Float[Tensor, "draw class"]:
        """The logits with these patches (from 0) alone; UnsupportedModel where none can be left out, Stopped
        where nobody waits.
        """
        grid, pool = self._trace.grid, self._trace.pool
        removal = Removal(self._model, self._pixels, grid, pool, patches_as, self._preprocessing)
        return removal.answers(kept).float()

    def in_order(self, orders: Int[Tensor, "draw patch"]) -> Float[Tensor, "draw class"]:
        """The logits with the patch `orders[d, i]` at place i; Stopped where nobody waits."""
        grid = self._trace.grid
        return experiments.answers_in_order(self._model, self._pixels, grid, orders).float()


__all__ = ["Draws"]
