"""What has been taken away from the model or the picture, for the page's chips."""

from __future__ import annotations

from typing import Any

from vitviz.runs import Without
from vitviz.views import Subject


def shown(without: Without, subject: Subject) -> dict[str, Any]:
    """The run's text and its parts as they are to be named; layers and heads from 1, patches from 0."""
    about = subject.about
    return {
        "text": without.text(),
        "heads": [f"{layer + 1}.{head + 1}" for layer, head in without.heads],
        "mlps": [layer + 1 for layer in without.mlps],
        "patches": list(without.patches),
        "heads_as": without.heads_as,
        "patches_as": without.patches_as,
        "count": [about.layers, about.heads, about.grid.patches],
    }


__all__ = ["shown"]
