"""What stands on a figure for print, as plain values: panels, their numbers, colours and words.

Nothing here draws, and matplotlib is not imported: a view says with these what its figure is, `sheet` draws
it. Texts are English and keys of their translations, as everywhere; those with values are Sentences.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import UInt8

from vitviz.charts.chart import Chart, Matrix, Scale, Series
from vitviz.charts.colormaps import coloured

WIDE = 174.0  # mm: both columns of a paper
NARROW = 86.0  # one column


@dataclass(frozen=True)
class PatchFrame:
    """A patch with a frame around it, counted from 0 row by row."""

    cell: int
    colour: str = "#ffffff"


@dataclass(frozen=True, eq=False)
class Map:
    """Numbers over a picture.

    `values` (row, col) lie over `box` of `picture` (left, top, right, bottom in pixels; all where None);
    not-a-number leaves the picture as it is. `pixels` (row, col, 3) are colours that take the scale's place.
    `aspect` is height / width of what is drawn; None for the picture's own. Where `lit`, numbers / the
    scale's high end are the picture's brightness, as in figure 6 of the paper.
    """

    title: str = ""
    picture: np.ndarray | None = None
    values: np.ndarray | None = None
    pixels: np.ndarray | None = None
    scale: Scale | None = None
    box: tuple[float, float, float, float] | None = None
    opacity: float = 1.0
    smooth: bool = False
    marks: tuple[PatchFrame, ...] = ()
    aspect: float | None = None
    lit: bool = False


@dataclass(frozen=True, eq=False)
class Tiles:
    """Small pictures (n, height, width, 3) of uint8 in rows of `across`, the gap between them a share of one.

    Or numbers (n, row, col), which take their colours from `scale`; that stands below them unless `unscaled`.
    `captions` stand below each; `cols` and `rows` number columns and rows, every so many as find room;
    `aspect` is height / width of one tile. A tile whose number is `chosen` has a frame.
    """

    pictures: np.ndarray
    across: int
    title: str = ""
    captions: tuple[str, ...] = ()
    cols: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    x_label: str = ""  # what the columns are
    y_label: str = ""  # what the rows are
    gap: float = 0.08
    aspect: float = 1.0
    scale: Scale | None = None
    chosen: int | None = None
    unscaled: bool = False


@dataclass(frozen=True, eq=False)
class Legend:
    """What the lines of several charts are called."""

    series: tuple[Series, ...]
    title: str = ""


@dataclass(frozen=True, eq=False)
class TextTable:
    """Rows of texts below the names of their columns: all to the right, but the names of rows, which stand in
    the column `names`, each behind a sample of its line in the charts, where there are `series`.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 0
    series: tuple[Series, ...] = ()
    title: str = ""


Panel = Map | Tiles | Matrix | Chart | Legend | TextTable


@dataclass(frozen=True)
class FigureSpec:
    """A figure: rows of panels, one beside the other by their weights, and sentences below them."""

    rows: tuple[tuple[Panel, ...], ...]
    notes: tuple[str, ...] = ()
    weights: tuple[tuple[float, ...], ...] = ()  # one for each row; none for equal ones
    width: float = 120.0  # mm, where nobody says another
    second: bool = False  # whether it is also of the second checkpoint


def steady(plates: Sequence[FigureSpec]) -> list[FigureSpec]:
    """The same plates, panel by panel with the widest range of any: colours and places can be compared.

    >>> made = [FigureSpec(((Map(values=np.eye(2), scale=Scale("viridis", 0, most, "")),),)) for most
    ...     in (1, 3)]
    >>> [plate.rows[0][0].scale.high for plate in steady(made)]
    [3, 3]
    """
    found = by_place([plate.rows for plate in plates], _widest)
    return [replace(plate, rows=rows) for plate, rows in zip(plates, found, strict=True)]


def by_place(each: Sequence[Sequence[Sequence]], of: Callable[[Sequence], Sequence]) -> list[tuple]:
    """Rows of several plates, with what `of` makes of all that stand in one place."""
    made = [[of(place) for place in zip(*rows, strict=True)] for rows in zip(*each, strict=True)]
    return [tuple(tuple(place[i] for place in row) for row in made) for i in range(len(each))]


def _widest(panels: Sequence[Panel]) -> Sequence[Panel]:
    if isinstance(panels[0], Chart):
        ends = {axis: np.asarray([getattr(panel, axis) for panel in panels]) for axis in ("x", "y")}
        known = {axis: (found[:, 0].min(), found[:, 1].max()) for axis, found in ends.items()}
        return [replace(panel, **known) for panel in panels]
    scales = [getattr(panel, "scale", None) for panel in panels]
    known = [one for one in scales if one is not None]
    if not known:
        return panels
    most = {"low": min(one.low for one in known), "high": max(one.high for one in known)}
    return [
        panel if one is None else replace(panel, scale=replace(one, **most))
        for panel, one in zip(panels, scales, strict=True)
    ]


def tinted(values: np.ndarray, scale: Scale) -> UInt8[np.ndarray, "*shape 3"]:
    """Numbers as the colours of a scale."""
    if scale.colours == "grey":
        share = (np.asarray(values, float) - scale.low) / ((scale.high - scale.low) or 1.0)
        grey = np.rint(255 * np.clip(share, 0, 1)).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=-1)
    return coloured(values, scale.low, scale.high, scale.colours)
