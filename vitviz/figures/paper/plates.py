"""What stands on a figure for print, as plain values: panels, their numbers, colours and words.

Nothing here draws, and matplotlib is not imported: a view says with these what its figure is, `sheet` draws
it. Texts are English and keys of their translations, as everywhere; those with values are Sentences.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

BLUE, ORANGE = "#2f7fc0", "#c46a16"  # told apart with any colour vision, and both dark enough on white
RAMP = ((59, 143, 208), (138, 124, 195), (214, 98, 140), (224, 130, 44))  # first layer to last
SEVERAL = ("#2f7fc0", "#c46a16", "#2a8a63", "#a3528c", "#7a6a00")  # a few lines, told apart likewise


@dataclass(frozen=True)
class Scale:
    """A numbered scale of colours: `colours` names one of `vitviz.figures.colormaps.TABLES`, or is "grey"."""

    colours: str
    low: float
    high: float
    label: str


@dataclass(frozen=True)
class Mark:
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
    marks: tuple[Mark, ...] = ()
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
    along: str = ""  # what the columns are
    down: str = ""  # what the rows are
    gap: float = 0.08
    aspect: float = 1.0
    scale: Scale | None = None
    chosen: int | None = None
    unscaled: bool = False


@dataclass(frozen=True, eq=False)
class Matrix:
    """Numbers (row, col) as cells with both axes numbered from 1, every `step` at most, or with names."""

    values: np.ndarray
    scale: Scale
    along: str
    down: str
    title: str = ""
    chosen: int | None = None  # a cell, counted row by row
    step: int = 1
    rows: tuple[str, ...] = ()
    cols: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Series:
    """Points of a chart, as dots, as a line, or both; `band` is from where to where each y may lie.

    `dash` is "", "dashed" or "dotted", `thick` the line's width in mm.
    """

    x: np.ndarray
    y: np.ndarray
    name: str = ""
    colour: str = BLUE
    line: bool = False
    dots: bool = False
    band: tuple[np.ndarray, np.ndarray] | None = None
    dash: str = ""
    thick: float = 0.35


@dataclass(frozen=True, eq=False)
class Bars:
    """Bars of a chart from `low` to `high` around `x`."""

    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    colours: tuple[str, ...]
    width: float = 0.8


@dataclass(frozen=True)
class Level:
    """A dashed line at a value, upright where it marks a place on the x axis; `beyond` is its name off it."""

    value: float
    name: str
    upright: bool = False
    colour: str = ORANGE
    beyond: str = ""


@dataclass(frozen=True, eq=False)
class Chart:
    """A chart with numbered axes; x numbers whole things where `whole`, y shares of one where `percent`.

    `ticks` are places on the x axis with names, instead of numbers, and `rungs` on the y axis. What is
    `keyed` elsewhere has no legend below.
    """

    along: str
    up: str
    x: tuple[float, float]
    y: tuple[float, float]
    title: str = ""
    series: tuple[Series, ...] = ()
    bars: Bars | None = None
    levels: tuple[Level, ...] = ()
    whole: bool = True
    percent: bool = False
    aspect: float = 0.62
    ticks: tuple[tuple[float, str], ...] = ()
    named: tuple[tuple[str, str], ...] = ()  # further entries of the legend: colour and name
    rungs: tuple[tuple[float, str], ...] = ()
    keyed: bool = False


@dataclass(frozen=True, eq=False)
class Legend:
    """What the lines of several charts are called."""

    series: tuple[Series, ...]
    title: str = ""


@dataclass(frozen=True, eq=False)
class Table:
    """Rows of texts below the names of their columns: all to the right, but the names of rows, which stand in
    the column `names`, each behind a sample of its line in the charts, where there are `series`.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 0
    series: tuple[Series, ...] = ()
    title: str = ""


Panel = Map | Tiles | Matrix | Chart | Legend | Table


@dataclass(frozen=True)
class Plate:
    """A figure: rows of panels, one beside the other by their weights, and sentences below them."""

    rows: tuple[tuple[Panel, ...], ...]
    notes: tuple[str, ...] = ()
    weights: tuple[tuple[float, ...], ...] = ()  # one for each row; none for equal ones
    width: float = 120.0  # mm, where nobody says another
    second: bool = False  # whether it is also of the second checkpoint


def ramp(place: int, count: int) -> str:
    """The colour of one of `count` layers, from the first to the last.

    >>> ramp(0, 12), ramp(11, 12)
    ('#3b8fd0', '#e0822c')
    """
    at, table = place / max(1, count - 1) * (len(RAMP) - 1), np.asarray(RAMP, float)
    return "#" + "".join(
        f"{round(np.interp(at, np.arange(len(RAMP)), table[:, one])):02x}" for one in range(3)
    )


__all__ = [
    "BLUE",
    "Bars",
    "Chart",
    "Legend",
    "Level",
    "Map",
    "Mark",
    "Matrix",
    "ORANGE",
    "Panel",
    "Plate",
    "SEVERAL",
    "Scale",
    "Series",
    "Table",
    "Tiles",
    "ramp",
]
