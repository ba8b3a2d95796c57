"""The filters for print: principal components as in figure 7 left of the paper, or all raw filters."""

import numpy as np

from vitviz.figures.paper.plates import NARROW, WIDE, Plate, Tiles
from vitviz.record.sentence import Sentence

ACROSS, RAW_ACROSS = 7, 32


def plate(view, subject, settings, asked) -> Plate:
    """Every filter scaled alone; components with their shares of the variance, with detail as bars too."""
    raw = settings["kind"] == "raw"
    filters = view.item(subject, "raw" if raw else "components", settings)
    aspect, note = filters.shape[1] / filters.shape[2], view.summary(subject)["note"]
    notes = (
        *([note] if note else []),
        Sentence("Every filter is scaled alone, from its lowest weight (black) to its highest (white)."),
    )
    if raw:
        title = Sentence("All {count} filters, largest norm first", count=len(filters))
        across = min(RAW_ACROSS, len(filters))
        return Plate(((Tiles(scaled(filters), across, title, gap=0.06, aspect=aspect),),), notes, width=WIDE)
    shares = np.asarray(view.item(subject, "variance", settings), float)
    title = Sentence("The first {count} principal components", count=len(filters))
    across = min(ACROSS, len(filters))
    tiles = Tiles(scaled(filters), across, title, tuple(map(percent, shares)), gap=0.1, aspect=aspect)
    if not asked.detail:
        return Plate(((tiles,),), notes, width=NARROW)
    return Plate(((tiles, view.chart(subject, settings)),), notes, width=WIDE)


def scaled(filters: np.ndarray) -> np.ndarray:
    """Each filter (y, x, channel) alone to the range of a byte; an even one is black, as on the page."""
    axes = (1, 2, 3)
    low, high = filters.min(axis=axes, keepdims=True), filters.max(axis=axes, keepdims=True)
    span = np.where(high > low, high - low, 1)
    return np.rint(255 * (filters - low) / span).astype(np.uint8)


def percent(share: float) -> str:
    """A share with as many digits as it has a meaning.

    >>> percent(0.2345), percent(0.0312), percent(0.00444)
    ('23 %', '3.1 %', '0.44 %')
    """
    digits = 0 if share >= 0.0995 else 1 if share >= 0.00995 else 2
    return f"{100 * share:.{digits}f} %"
