"""What a notebook shows by itself: anything that derives from `Shown`.

A result knows nothing of pictures of it. How each type is drawn stands in `vitviz.notebook`, which is looked
for when a notebook asks, and not before: the arrow from here to there is this one name.
"""

from __future__ import annotations

import importlib

DRAWS = "vitviz.notebook"


class Shown:
    """Shows itself in Jupyter, Colab and VS Code as HTML without a script or a request, light and dark."""

    def _repr_html_(self) -> str:
        """A figure or table with its caption and scale."""
        return importlib.import_module(DRAWS).html(self)


__all__ = ["Shown"]
