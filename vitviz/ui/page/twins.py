"""The lesson of the paper's table 8: twins that were trained alike but for their position embeddings."""

from __future__ import annotations

from collections.abc import Collection

from vitviz.ui.words import told

PAIRS = (  # the position embeddings of both, and both as `pair` takes them
    (told("none and 1-D"), "vitviz-positions-none-0|vitviz-positions-1d-0"),
    (told("none and 2-D"), "vitviz-positions-none-0|vitviz-positions-2d-0"),
    (told("1-D and 2-D"), "vitviz-positions-1d-0|vitviz-positions-2d-0"),
)


def offered(names: Collection[str]) -> list[dict[str, str]]:
    """The pairs of which both are among the checkpoints that can be picked here."""
    return [{"text": text, "pair": pair} for text, pair in PAIRS if set(pair.split("|")) <= set(names)]


__all__ = ["offered"]
