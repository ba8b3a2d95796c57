"""Charts and matrices as data, for the page, print, reports and notebooks.

`frontend/svg_chart.js`, `plotly_chart.js` and `matrix.js` draw them in the browser, `.plotly()` makes Plotly
figures of them; nothing here draws. Texts are English and serve as translation keys; texts with values are
LocalizedText.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import ROUND_HALF_UP, Context
from typing import TYPE_CHECKING, Any

import numpy as np

from vitviz.traces.localized_text import LocalizedText

if TYPE_CHECKING:
    import plotly.graph_objects as go

BLUE, ORANGE = "#2f7fc0", "#c46a16"  # distinguishable with any colour vision; both have contrast on white
GREY = "#7d838e"  # for references; readable on white and on black
RAMP = ((59, 143, 208), (138, 124, 195), (214, 98, 140), (224, 130, 44))  # first layer to last
SEVERAL = (BLUE, ORANGE, "#2a8a63", "#a3528c", "#7a6a00")  # for a few lines; distinguishable as above
MARKS = {  # tooltip titles by the keys of `of`
    ("layer", "head"): "Layer {layer}, head {head}",
    ("layer",): "Layer {layer}",
    ("depth",): "Depth {depth}",
}


@dataclass(frozen=True)
class InkColours:
    """Colours of a page."""

    paper: str = "#ffffff"
    ink: str = "#1a1a1a"
    faint: str = "#d4d4d4"
    quiet: str = "#555555"


LIGHT = InkColours()
DARK = InkColours("#0f1115", "#ececec", "#3a3d44", "#b4b4b4")


@dataclass(frozen=True, eq=False)
class Series:
    """Points of a chart, drawn as dots, a line, or both.

    `band` is the lower and upper bound of every y, drawn as an area around a line or as error bars on dots.
    `of` gives the layer, head, depth or setting value of every point (layers and heads from 1), which a click
    selects. The tooltip shows the value (or the text in `said`), the entries of `of`, and the lines `told`,
    whose {names} are filled from `of` and `also`. `dash` is "", "dashed", "dotted" or "dash-dotted"; `thick`
    is the line width in mm. Lines and other marks of the page with the same `key` are highlighted together.
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
    of: Mapping[str, Sequence[int]] = field(default_factory=dict)
    said: Sequence[str] = ()
    told: tuple[str, ...] = ()
    also: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    key: str = ""


@dataclass(frozen=True, eq=False)
class Bars:
    """Bars of a chart from `low` to `high`, centred on `x`; `of`, `said`, `told` and `also` as in Series."""

    x: np.ndarray
    low: np.ndarray
    high: np.ndarray
    colours: tuple[str, ...]
    width: float = 0.8
    of: Mapping[str, Sequence[int]] = field(default_factory=dict)
    said: Sequence[str] = ()
    told: tuple[str, ...] = ()
    also: Mapping[str, Sequence[Any]] = field(default_factory=dict)

    @property
    def y(self) -> np.ndarray:
        """Return the height of every bar."""
        return np.asarray(self.high) - np.asarray(self.low)


@dataclass(frozen=True)
class ReferenceLine:
    """Dashed line at a value of the y axis, or of the x axis if `upright`.

    `beyond` is the legend entry if the value lies outside the axis and no line is drawn.
    """

    value: float
    name: str
    upright: bool = False
    colour: str = ORANGE
    beyond: str = ""


class Interactive:
    """Base of charts and matrices, which become interactive Plotly figures."""

    def plotly(self, say: Callable[[str], str] = str, dark: bool = False) -> go.Figure:
        """Return an interactive Plotly figure; `say` translates its texts."""
        from vitviz.charts import interactive  # imports plotly

        draw = interactive.chart_figure if isinstance(self, Chart) else interactive.matrix_figure
        return draw(self, say, dark)

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Return the Plotly figure for notebooks."""
        return {"application/vnd.plotly.v1+json": json.loads(self.plotly().to_json())}


@dataclass(frozen=True, eq=False)
class Chart(Interactive):
    """Chart with two axes of fixed ranges.

    With `whole`, the x axis has integer ticks; with `percent`, y is a fraction of one shown in percent. The
    tooltip appends `unit` to y. `ticks` and `y_ticks` are (position, name) pairs that replace the numbers of
    the x and the y axis. With `keyed`, lines are labelled at their ends where space permits, and there is no
    legend. `notes` are sentences below the chart.
    """

    x_label: str
    y_label: str
    x: tuple[float, float]
    y: tuple[float, float]
    title: str = ""
    series: tuple[Series, ...] = ()
    bars: Bars | None = None
    levels: tuple[ReferenceLine, ...] = ()
    whole: bool = True
    percent: bool = False
    aspect: float = 0.62
    ticks: tuple[tuple[float, str], ...] = ()
    named: tuple[tuple[str, str], ...] = ()  # additional legend entries: (colour, name)
    y_ticks: tuple[tuple[float, str], ...] = ()
    keyed: bool = False
    square: bool = False  # both axes have the same scale
    question: str = ""  # charts of a training history with the same question share a scale
    unit: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scale:
    """Colour scale from `low` to `high`; `colours` is a key of `vitviz.charts.colormaps.TABLES`."""

    colours: str
    low: float
    high: float
    label: str


@dataclass(frozen=True, eq=False)
class Matrix(Interactive):
    """Matrix (row, col) drawn as cells.

    Rows and columns are numbered from 1, with a label at most every `step` cells, or have the names `rows`
    and `cols`. `column` (from 0) is framed. The tooltip shows the sentences `told`. Their values may be
    tables: one entry per cell, per row (a single column) or per column (a single row). A cell whose first
    sentence is empty has no tooltip. `question` and `notes` are as in Chart.
    """

    values: np.ndarray
    scale: Scale
    x_label: str
    y_label: str
    title: str = ""
    chosen: int | None = None  # selected cell, counted row by row from 0
    step: int = 1
    rows: tuple[str, ...] = ()
    cols: tuple[str, ...] = ()
    told: tuple[LocalizedText, ...] = ()
    column: int | None = None
    question: str = ""
    unscaled: bool = False  # the title states the range of the colours, and the page shows no colour bar
    notes: tuple[str, ...] = ()


def ramp_colour(place: int, count: int) -> str:
    """Return the colour of item `place` (from 0) of `count` along `RAMP`, as "#rrggbb"."""
    at, places = place / max(1, count - 1) * (len(RAMP) - 1), range(len(RAMP))
    return "#" + "".join(f"{round(np.interp(at, places, light)):02x}" for light in zip(*RAMP, strict=True))


def by_layer(
    values: np.ndarray, up: str, title: str = "", *, high: float | None = None, first: int = 1,
    error: np.ndarray | None = None, levels: tuple[ReferenceLine, ...] = (), **more: Any,
) -> Chart:  # fmt: skip
    """Return a chart of values by layer: one dot per head with the mean over heads as a line, or one line.

    Args:
        values: Shape (layer, head) or (layer,).
        up: Label of the y axis.
        title: Title of the chart.
        high: Upper end of the y axis; None fits the values. The axis always includes zero.
        first: Number of the first layer.
        error: Standard errors, in the shape of `values`.
        levels: Reference lines.
        more: `unit` of the chart, and further fields of the series, such as `told` and `also`.

    >>> chart = by_layer(np.array([[20.0, 90.0], [110.0, 100.0]]), "px", high=120.0)
    >>> chart.series[0].x.tolist(), chart.series[1].y.tolist(), chart.x, chart.y
    ([1, 1, 2, 2], [55.0, 105.0], (0.4, 2.6), (0.0, 120.0))
    """
    values, unit = np.asarray(values, float), more.pop("unit", "")
    depth = np.arange(first, first + len(values))
    spread = np.zeros_like(values) if error is None else np.nan_to_num(np.asarray(error, float))
    known = np.concatenate([(values - spread)[np.isfinite(values)], (values + spread)[np.isfinite(values)]])
    low, most = float(known.min(initial=0.0)), float(known.max(initial=0.0))
    if error is not None:
        more["said"] = tuple(with_error(*pair, unit) for pair in zip(values.flat, spread.flat, strict=True))
    band = None if error is None else ((values - spread).ravel(), (values + spread).ravel())
    if values.ndim == 1:
        more.setdefault("of", {"layer" if first else "depth": depth})
        series = (Series(depth, values, line=True, dots=True, band=band, **more),)
    else:
        heads = values.shape[1]
        layers = np.repeat(depth, heads)
        more.setdefault("of", {"layer": layers, "head": np.tile(np.arange(heads), len(depth)) + 1})
        dots = Series(layers, values.ravel(), LocalizedText("one head"), dots=True, band=band, **more)
        mean = Series(depth, values.mean(axis=1), LocalizedText("mean of the heads"), GREY, line=True)
        series = (dots, mean)
    across = (first - 0.6, first + len(values) - 0.4)
    ends = (1.08 * low, high if high is not None else 1.08 * most if most > low else low + 1.0)
    along = LocalizedText("Network depth (layer)")
    return Chart(along, up, across, ends, title, series, levels=levels, unit=unit)


def with_error(value: float, error: float, unit: str = "") -> str:
    """Return a number, its standard error (unless 0) and its unit as text.

    >>> with_error(12.3456, 0.5, "px"), with_error(2.0, 0.0)
    ('12.35 ± 0.5 px', '2')
    """
    return number(value, 4) + (f" ± {number(error, 2)}" if error else "") + (f" {unit}" if unit else "")


def tooltip(chart: Chart, one: Series | Bars, i: int, say: Callable[[str], str] = str) -> list[str]:
    """Return the tooltip lines of point `i`, identical to those of `frontend/chart.js`."""
    of = {name: values[i] for name, values in one.of.items()}
    values = {**of, **{name: column[i] for name, column in one.also.items()}}
    times, unit = (100, " %") if chart.percent else (1, chart.unit and f" {chart.unit}")
    head = say(one.said[i]) if one.said else number(times * float(one.y[i]), 4) + unit
    lines = (*([MARKS[tuple(of)]] if tuple(of) in MARKS else []), *one.told)
    return [line for line in (str(head), *(say(_with_values(one, values)) for one in lines)) if line]


def cell_tooltip(matrix: Matrix, row: int, col: int, say: Callable[[str], str] = str) -> list[str]:
    """Return the tooltip lines of a cell (from 0), identical to those of `frontend/matrix.js`."""

    def of_cell(value: Any) -> Any:
        if not isinstance(value, np.ndarray | list | tuple):
            return value
        return value[row % len(value)][col % len(value[0])]

    lines = [
        say(_with_values(one, {name: of_cell(value) for name, value in one.values.items()}))
        for one in matrix.told
    ]
    return [line for line in lines if line] if lines and lines[0] else []


def _with_values(text: str, values: Mapping[str, Any]) -> LocalizedText:
    """Return a text with further values for its braces."""
    return LocalizedText(getattr(text, "pattern", text), **{**getattr(text, "values", {}), **values})


def table(values: np.ndarray, say: Callable[[float], str]) -> list[list[str]]:
    """Return the text of every cell of a matrix, `say(value)`, for use as a value in a tooltip sentence."""
    return [[say(one) for one in row] for row in values]


def to_json(value: Any) -> Any:
    """Return a chart or matrix as JSON types.

    LocalizedText becomes {text, values}, NaN and infinity become None, floats are rounded to six digits.
    """
    if is_dataclass(value):
        return {one.name: to_json(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, Mapping):
        return {name: to_json(one) for name, one in value.items()}
    if isinstance(value, np.ndarray | list | tuple | range):
        return [to_json(one) for one in value]
    if isinstance(value, LocalizedText):
        return {"text": value.pattern, "values": to_json(value.values)}
    if isinstance(value, float | np.floating):
        return float(f"{value:.6g}") if np.isfinite(value) else None
    return value.item() if isinstance(value, np.generic) else value


def number(value: float, digits: int = 3) -> str:
    """Format a number for display, identically to `frontend/numbers.js`.

    >>> number(-0.12345), number(1234.5), number(0.0), number(2e-6)
    ('−0.123', '1235', '0', '2.00 · 10⁻⁶')
    """
    if not np.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    size = abs(value)
    near = float(Context(prec=digits, rounding=ROUND_HALF_UP).create_decimal(float(size)))
    if size >= 10**digits:
        text = str(int(size + 0.5))
    elif size < 1e-4:
        head, power = f"{near:.{digits - 1}e}".split("e")
        text = f"{head} · 10" + f"{int(power)}".translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    else:
        text = f"{near:.10f}".rstrip("0").rstrip(".")
    return "−" + text if value < 0 else text


def finite_range(values: np.ndarray) -> tuple[float, float]:
    """Return the smallest and largest finite value; (0, 0) if there is none."""
    known = np.asarray(values, float)[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)


def symmetric_limit(values: np.ndarray) -> float:
    """Return the upper end of a colour scale that is symmetric about zero and covers the values."""
    low, high = finite_range(values)
    return max(-low, high) or 1.0


def range_with_margin(values: np.ndarray, share: float) -> tuple[float, float]:
    """Return the range of an axis that includes all values and zero, with a margin on both sides.

    The margin is the fraction `share` of the range.

    >>> range_with_margin(np.array([1.0, 10.0]), 0.1)
    (-1.0, 11.0)
    """
    low, high = values.min(initial=0.0), values.max(initial=0.0)
    room = share * (high - low) or 1.0
    return float(low - room), float(high + room)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """Return about `count` round numbers between low and high, for an axis.

    >>> ticks(0, 1, 4), ticks(-1, 1, 2)
    ([0.0, 0.25, 0.5, 0.75, 1.0], [-1.0, 0.0, 1.0])
    """
    if not high > low:
        return [low]
    rough = (high - low) / count
    power = 10.0 ** np.floor(np.log10(rough))
    step = next(m for m in (1, 2, 2.5, 5, 10) if m * power >= rough * 0.999) * power
    first, last = int(np.ceil(low / step - 1e-9)), int(np.floor(high / step + 1e-9))
    return [float(f"{i * step:.12g}") for i in range(first, last + 1)]
