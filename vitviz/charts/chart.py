"""Charts and matrices as data: what the browser draws (`frontend/chart.js`, `frontend/matrix.js`), and paper,
a report and a notebook's cell.

Nothing here draws. Texts are English and keys of their translations; those with values are Sentences.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from decimal import ROUND_HALF_UP, Context
from typing import Any

import numpy as np

from vitviz.traces.localized_text import LocalizedText, fill

BLUE, ORANGE = "#2f7fc0", "#c46a16"  # told apart with any colour vision, and both dark enough on white
GREY = "#7d838e"  # of what others are compared with; reads on white and on black
RAMP = ((59, 143, 208), (138, 124, 195), (214, 98, 140), (224, 130, 44))  # first layer to last
SEVERAL = (BLUE, ORANGE, "#2a8a63", "#a3528c", "#7a6a00")  # a few lines, told apart likewise
MARKS = {  # what a mark that belongs to these is called
    ("layer", "head"): "Layer {layer}, head {head}",
    ("layer",): "Layer {layer}",
    ("depth",): "Depth {depth}",
}


@dataclass(frozen=True, eq=False)
class Series:
    """Points of a chart, as dots, as a line, or both; `band` is from where to where each y may lie,
    drawn around a line as an area, around dots alone as bars.

    `of` says which layer, head, depth or value of a setting each point belongs to (layers and heads from 1):
    a click on it shows that; its `lit` is what is lit with it. Under the pointer stand its number (or its own
    `said`), what it belongs to, and the lines `told`, whose {names} are filled from `of` and `also`. `dash`
    is "", "dashed", "dotted" or "dash-dotted", `thick` the line's width in mm. A line with a `key` is lit
    with whatever else on the page has it.
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
    """Bars of a chart from `low` to `high` around `x`; `of`, `said` and `told` as of a Series."""

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
        """As high as each is."""
        return np.asarray(self.high) - np.asarray(self.low)


@dataclass(frozen=True)
class ReferenceLine:
    """A dashed line at a value, upright where it marks a place on the x axis; `beyond` is its name off it."""

    value: float
    name: str
    upright: bool = False
    colour: str = ORANGE
    beyond: str = ""


@dataclass(frozen=True, eq=False)
class Chart:
    """A chart with numbered axes of fixed ranges; x numbers whole things where `whole`, y shares of one where
    `percent`; `unit` follows y under the pointer.

    `ticks` are places on the x axis with names, instead of numbers, and `y_ticks` on the y axis. Lines that
    are `keyed` have their names at their ends, where there is room, and no legend below; `notes` stand there.
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
    named: tuple[tuple[str, str], ...] = ()  # further entries of the legend: colour and name
    y_ticks: tuple[tuple[float, str], ...] = ()
    keyed: bool = False
    square: bool = False  # whether both axes have one scale
    question: str = ""  # what it is an answer to: over a film the scale of one question stands still
    unit: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scale:
    """A numbered scale of colours: `colours` names one of `vitviz.charts.colormaps.TABLES`, or is "grey"."""

    colours: str
    low: float
    high: float
    label: str


@dataclass(frozen=True, eq=False)
class Matrix:
    """Numbers (row, col) as cells with both axes numbered from 1, every `step` at most, or with names.

    A `column`, from 0, is framed. Under the pointer stand the sentences `told`, whose values may be tables:
    a cell's own, a row's where they have one column, a column's where one row. A cell of which the first
    says nothing is told nothing of. `question` and `notes` are those of a Chart.
    """

    values: np.ndarray
    scale: Scale
    x_label: str
    y_label: str
    title: str = ""
    chosen: int | None = None  # a cell, counted row by row
    step: int = 1
    rows: tuple[str, ...] = ()
    cols: tuple[str, ...] = ()
    told: tuple[LocalizedText, ...] = ()
    column: int | None = None
    question: str = ""
    unscaled: bool = False  # whether the title says how far the colours go, and the page shows no bar
    notes: tuple[str, ...] = ()


def ramp(place: int, count: int) -> str:
    """A colour from first to last."""
    at, places = place / max(1, count - 1) * (len(RAMP) - 1), range(len(RAMP))
    return "#" + "".join(f"{round(np.interp(at, places, light)):02x}" for light in zip(*RAMP, strict=True))


def by_layer(
    values: np.ndarray, up: str, title: str = "", *, high: float | None = None, first: int = 1,
    error: np.ndarray | None = None, levels: tuple[ReferenceLine, ...] = (), **more: Any,
) -> Chart:  # fmt: skip
    """A dot for each head above its layer and the mean of the heads as a line, or one number a layer as a
    line.

    `values` (layer, head) or (layer,); the y axis holds zero and goes to `high`, or as far as they do.
    `first` is what the first layer is called, `error` what each number's standard error is, and `more` are
    further fields of the series: `unit`, `told`, `also`.

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
    """A number with its standard error.

    >>> with_error(12.3456, 0.5, "px"), with_error(2.0, 0.0)
    ('12.35 ± 0.5 px', '2')
    """
    return number(value, 4) + (f" ± {number(error, 2)}" if error else "") + (f" {unit}" if unit else "")


def tooltip(chart: Chart, one: Series | Bars, i: int) -> list[str]:
    """What stands under the pointer at one point, as `frontend/chart.js` says it."""
    of = {name: values[i] for name, values in one.of.items()}
    values = {**of, **{name: column[i] for name, column in one.also.items()}}
    times, unit = (100, " %") if chart.percent else (1, chart.unit and f" {chart.unit}")
    head = one.said[i] if one.said else number(times * float(one.y[i]), 4) + unit
    lines = (*([MARKS[tuple(of)]] if tuple(of) in MARKS else []), *one.told)
    return [line for line in (str(head), *(fill(str(one), values) for one in lines)) if line]


def table(values: np.ndarray, say: Callable[[float], str]) -> list[list[str]]:
    """What is said of each number of a matrix, as a value of a sentence that it tells."""
    return [[say(one) for one in row] for row in values]


def to_json(value: Any) -> Any:
    """Either as JSON: sentences as {text, values}, what is no number as None, others with six digits."""
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
    """As a person reads it, and as `frontend/numbers.js` writes it.

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


def ends(values: np.ndarray) -> tuple[float, float]:
    """The smallest and the largest of what is a number; (0, 0) where nothing is."""
    known = np.asarray(values, float)[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)


def balanced(values: np.ndarray) -> float:
    """How far a scale that is even about zero reaches."""
    low, high = ends(values)
    return max(-low, high) or 1.0


def roomy(values: np.ndarray, share: float) -> tuple[float, float]:
    """From where to where an axis goes that holds values and zero, with a share of that on both sides.

    >>> roomy(np.array([1.0, 10.0]), 0.1)
    (-1.0, 11.0)
    """
    low, high = values.min(initial=0.0), values.max(initial=0.0)
    room = share * (high - low) or 1.0
    return float(low - room), float(high + room)


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About `count` round numbers from low to high.

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
