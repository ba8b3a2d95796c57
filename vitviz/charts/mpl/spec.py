"""Description of a figure for print as data: panels with their values, colours and texts.

Nothing here draws or imports matplotlib. A view describes its figure with these classes; `page` renders it.
Texts are English and serve as translation keys; texts with values are LocalizedText.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import UInt8

from vitviz.charts.chart import Chart, Matrix, Scale, Series
from vitviz.charts.colormaps import map_to_rgb

WIDE = 174.0  # mm, both columns of a paper
NARROW = 86.0  # mm, one column


@dataclass(frozen=True)
class PatchFrame:
    """Frame around a patch, counted row by row from 0."""

    cell: int
    colour: str = "#ffffff"


@dataclass(frozen=True, eq=False)
class Map:
    """Map of values over an image.

    `values` (row, col) cover `box` of `picture` (left, top, right, bottom in pixels; None for the whole
    image); NaN leaves the image unchanged. `pixels` (row, col, 3) are colours that replace the scale.
    `aspect` is height / width of the panel; None for that of the image. With `lit`, values / `scale.high`
    set the brightness of the image, as in figure 6 of the paper.
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
    """Small images in rows of `across`.

    `pictures` are uint8 of shape (n, height, width, 3), or values (n, row, col) coloured by `scale`. The
    scale is drawn below the tiles unless `unscaled`. `gap` is the space between tiles as a fraction of their
    pitch. `captions` stand below each tile. `cols` and `rows` name columns and rows, as many as fit. `aspect`
    is height / width of a tile. The tile with the number `chosen` (from 0) has a frame.
    """

    pictures: np.ndarray
    across: int
    title: str = ""
    captions: tuple[str, ...] = ()
    cols: tuple[str, ...] = ()
    rows: tuple[str, ...] = ()
    x_label: str = ""
    y_label: str = ""
    gap: float = 0.08
    aspect: float = 1.0
    scale: Scale | None = None
    chosen: int | None = None
    unscaled: bool = False


@dataclass(frozen=True, eq=False)
class Legend:
    """Legend shared by several charts."""

    series: tuple[Series, ...]
    title: str = ""


@dataclass(frozen=True, eq=False)
class TextTable:
    """Table of texts with column names.

    All columns are right-aligned except column `names`, which holds the row names. With `series`, each row
    name follows a sample of its line in the charts.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    names: int = 0
    series: tuple[Series, ...] = ()
    title: str = ""


Panel = Map | Tiles | Matrix | Chart | Legend | TextTable


@dataclass(frozen=True)
class FigureSpec:
    """Figure: rows of panels that share the width by their weights, and notes below them."""

    rows: tuple[tuple[Panel, ...], ...]
    notes: tuple[str, ...] = ()
    weights: tuple[tuple[float, ...], ...] = ()  # one tuple per row; empty for equal weights
    width: float = 120.0  # default width, mm
    second: bool = False  # the figure also shows the second checkpoint


def share_scales(specs: Sequence[FigureSpec]) -> list[FigureSpec]:
    """Return the figures with the scales and axes of each panel widened to their range over all figures.

    >>> made = [FigureSpec(((Map(values=np.eye(2), scale=Scale("viridis", 0, most, "")),),)) for most
    ...     in (1, 3)]
    >>> [spec.rows[0][0].scale.high for spec in share_scales(made)]
    [3, 3]
    """
    result = map_by_position([spec.rows for spec in specs], _with_common_range)
    return [replace(spec, rows=rows) for spec, rows in zip(specs, result, strict=True)]


def map_by_position(each: Sequence[Sequence[Sequence]], of: Callable[[Sequence], Sequence]) -> list[tuple]:
    """Return every figure's rows; `of` maps the items at one position in all figures to as many items."""
    made = [[of(place) for place in zip(*rows, strict=True)] for rows in zip(*each, strict=True)]
    return [tuple(tuple(place[i] for place in row) for row in made) for i in range(len(each))]


def _with_common_range(panels: Sequence[Panel]) -> Sequence[Panel]:
    """Return panels of the same position in several figures, with the widest range of all.

    The range is that of a chart's axes, else of the colour scale, if any.
    """
    if isinstance(panels[0], Chart):
        ends = {axis: np.asarray([getattr(panel, axis) for panel in panels]) for axis in ("x", "y")}
        known = {axis: (result[:, 0].min(), result[:, 1].max()) for axis, result in ends.items()}
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


def scale_to_rgb(values: np.ndarray, scale: Scale) -> UInt8[np.ndarray, "*shape 3"]:
    """Map numbers to the RGB colours of a scale."""
    return map_to_rgb(values, scale.low, scale.high, scale.colours)
