"""What of a model the bounds and defaults of settings may depend on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vitviz.record.grid import Grid


@dataclass(frozen=True)
class About:
    """How many layers and heads a model has, and its grid of tokens."""

    layers: int
    heads: int
    grid: Grid

    def number(self, bound: float | str) -> float:
        """The bound itself, or what it names."""
        if not isinstance(bound, str):
            return bound
        grid = self.grid
        known = {
            "layers": self.layers,
            "heads": self.heads,
            "tokens": grid.tokens - 1,
            "patches": grid.patches - 1,
        }
        return {**known, "middle": grid.token(grid.rows // 2, grid.cols // 2)}[bound]
