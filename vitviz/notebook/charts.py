"""Charts of results by name, for `.plotly()`, `.plot()` and the cards: one function per type."""

from dataclasses import replace
from functools import partial, singledispatch
from typing import Any

import numpy as np

from vitviz.analyses.distance import Distances
from vitviz.analyses.effects import AblationEffects, EdgeAblationEffects
from vitviz.analyses.faithfulness.evaluation import Faithfulness
from vitviz.analyses.logit_account import Attribution
from vitviz.analyses.perturbation import Perturbation
from vitviz.analyses.protocol import KINDS
from vitviz.analyses.saliency.passes import SaliencyMap
from vitviz.analyses.sufficient_edges import SufficientEdges
from vitviz.analyses.upstream import Upstream, Writer
from vitviz.charts import chart as charts
from vitviz.charts.mpl.spec import NARROW, FigureSpec
from vitviz.errors import VitvizError, quoted
from vitviz.export.captions import Caption
from vitviz.export.figure import Figure
from vitviz.notebook.maps import bounds
from vitviz.notebook.results import NamedTensor
from vitviz.surveys.result import Survey
from vitviz.traces.head_type import scores_of
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.languages import NAMES, translate
from vitviz.views.trial.compute import curve_charts

Charts = dict[str, charts.Chart | charts.Matrix]
LAYER = LocalizedText("Network depth (layer)")
SCORES = {"probability": LocalizedText("Probability"), "kept": LocalizedText("Prediction kept")}
CLASSES = 5  # lines of a logit lens


@singledispatch
def charts_of(thing: Any) -> Charts:
    """Return the charts of a result by name, the most important one first."""
    return {}


def select_chart(thing: Any, name: str, language: str) -> tuple[str, charts.Chart | charts.Matrix]:
    """Return (name, chart) of this name, or of the first for ""; raise VitvizError if there is none."""
    if language not in NAMES:
        raise VitvizError(f"language={quoted(language)} is not valid; expected one of {', '.join(NAMES)}.")
    result = charts_of(thing)
    if not result:
        raise VitvizError(f"This {type(thing).__name__} has no chart. Use its numbers, or `vitviz.figure`.")
    if name and name not in result:
        raise VitvizError(f"There is no chart {quoted(name)}; expected one of {', '.join(result)}.")
    return next(pair for pair in result.items() if name in ("", pair[0]))


def plotly_figure(thing: Any, name: str, language: str, dark: bool) -> Any:
    """Return a chart of a result as a Plotly figure."""
    return select_chart(thing, name, language)[1].plotly(partial(translate, tag=language), dark)


def print_figure(thing: Any, name: str, language: str, dark: bool) -> Figure:
    """Return a chart of a result as a figure for print."""
    name, chart = select_chart(thing, name, language)
    title = translate(chart.title or name, language)
    spec = FigureSpec(((chart,),), chart.notes, width=NARROW + 14)
    texts = Caption(((title, False),), ())
    return Figure(spec, f"vitviz-{name.replace('.', '-')}", texts, title, dark, language)


def mime_bundle(thing: Any) -> dict[str, Any]:
    """Return a notebook's MIME bundle with the Plotly figure of a (layer, head) tensor; {} for others."""
    if not (isinstance(thing, NamedTensor) and thing.what.axes == "layer head"):
        return {}
    return select_chart(thing, "", "en")[1]._repr_mimebundle_()


def _by_layer(values: Any, unit: str, title: str = "", **more: Any) -> charts.Chart:
    """Return a chart by layer of values (layer, head) or (layer,); the y label is `up`, else `unit`."""
    return charts.by_layer(np.asarray(values, float), more.pop("up", "") or unit, title, unit=unit, **more)


def _matrix_chart(
    values: Any, label: str, signed: bool, title: str = "", x="column", y="row", **more: Any
) -> charts.Matrix:
    """Return a matrix chart with a colour scale named `label`, symmetric about zero if `signed`."""
    values = np.asarray(values, float)
    low, high, colours = bounds(values, signed)
    return charts.Matrix(values, charts.Scale(colours, low, high, label), x, y, title, **more)


@charts_of.register
def _named_tensor_charts(tensor: NamedTensor) -> Charts:
    """Return the chart of a named tensor under its title, by its axes; {} for axes without a chart."""
    values, what = np.asarray(tensor.plain(), np.float64), tensor.what
    numbers, like = tuple(map(str, range(what.first, what.first + len(values)))), {"title": what.title}
    match what.axes:
        case "layer head":
            chart = _by_layer(values, what.unit, first=what.first, **like)
        case "row col":
            chart = _matrix_chart(values, what.unit, what.diverging, **like)
        case "layer token":
            axes = {"x": "token", "y": "depth", "rows": numbers}
            chart = _matrix_chart(values, what.unit, what.diverging, **axes, **like)
        case "depth depth2":
            other = tuple(map(str, range(what.first, what.first + values.shape[1])))
            scale = charts.Scale("viridis", 0.0, 1.0, what.unit)
            chart = charts.Matrix(values, scale, "depth", "depth", rows=numbers, cols=other, **like)
        case "layer class":
            chart = _lens(tensor)
        case _:
            return {}
    return {what.title: replace(chart, notes=(what.caption,)) if what.caption else chart}


def _lens(tensor: NamedTensor) -> charts.Chart:
    """Return the chart of a logit lens: scores by depth of the last depth's most likely classes."""
    what, scores = tensor.what, scores_of(tensor.plain(), tensor.what.head_type).double().numpy()
    depth, of_values = np.arange(what.first, what.first + len(scores)), what.head_type == "value"
    series = []
    for number, colour in zip(np.argsort(-scores[-1], kind="stable"), charts.SEVERAL[:CLASSES], strict=False):
        known = number < len(what.labels)
        name = what.labels[number] if known else LocalizedText("class {number}", number=int(number))
        details = {"told": ("{name}",), "also": {"name": [name] * len(depth)}, "of": {"depth": depth}}
        series.append(charts.Series(depth, scores[:, number], name, colour, True, True, **details))
    span = charts.range_with_margin(np.stack([line.y for line in series]), 0.06) if of_values else (0.0, 1.0)
    across, label = (depth[0] - 0.3, depth[-1] + 0.3), LocalizedText("Value" if of_values else "Probability")
    along = LocalizedText("layers applied")
    return charts.Chart(along, label, across, span, what.title, tuple(series), percent=not of_values)


@charts_of.register
def _distances_charts(found: Distances) -> Charts:
    """Return charts by layer of each head's attention distance in px and attention on prefix tokens."""
    up = LocalizedText("Mean attention distance (px)")
    label = LocalizedText("Attention on prefix tokens")
    mass = charts.by_layer(np.asarray(found.prefix_mass), label, high=1.0)
    px = {name: _by_layer(getattr(found, name), "px", up=up) for name in ("distance", "renormalised")}
    return {**px, "prefix_mass": mass}


@charts_of.register
def _attribution_charts(found: Attribution) -> Charts:
    """Return charts of a logit attribution: heads by layer, and a matrix of the source patches."""
    patches = _matrix_chart(found.patches, "logits", True)
    return {"heads": _by_layer(found.heads, "logits"), "patches": patches}


@charts_of.register
def _ablation_effects_charts(found: AblationEffects) -> Charts:
    """Return the chart by layer of the logit's drop when each head is ablated."""
    return {"heads": _by_layer(found.heads, "logits")}


@charts_of.register
def _saliency_map_charts(found: SaliencyMap) -> Charts:
    """Return the matrix chart of a saliency map, unscaled, with its method as the label of the scale."""
    return {"map": _matrix_chart(found.map, found.method, found.signed)}


@charts_of.register
def _upstream_charts(found: Upstream) -> Charts:
    """Return the bar chart of a head's contributions by earlier layer, heads and MLP; {} for layer 0."""
    if not found.layer:
        return {}
    depth = np.arange(1, found.layer + 1)
    parts = np.stack([found.heads[: found.layer].sum(dim=1), found.mlps[: found.layer]])
    colours = (charts.BLUE,) * found.layer + (charts.ORANGE,) * found.layer
    x = np.concatenate([depth - 0.2, depth + 0.2])
    bars = charts.Bars(x, np.zeros(parts.size), parts.ravel(), colours, 0.36, {"layer": [*depth, *depth]})
    named, across = ((charts.BLUE, "heads together"), (charts.ORANGE, "MLP")), (0.4, found.layer + 0.6)
    like = {"bars": bars, "named": named, "unit": "logits"}
    return {"layers": charts.Chart(LAYER, "logits", across, charts.range_with_margin(parts, 0.08), **like)}


@charts_of.register
def _edge_ablation_effects_charts(found: EdgeAblationEffects) -> Charts:
    """Return the scatter chart of edges: contribution (x), ablation effect (y); {} if none has both."""
    shares, effects = found.shares.numpy(), found.effects.numpy()
    known = np.isfinite(shares) & np.isfinite(effects)
    if not known.any():
        return {}
    x, y = shares[known], effects[known]
    also = {"edge": [edge_name(edge) for edge, one in zip(found.edges, known, strict=True) if one]}
    dots = charts.Series(x, y, dots=True, told=("{edge}",), also=also)
    spans = [charts.range_with_margin(one, 0.08) for one in (x, y)]
    like = {"series": (dots,), "whole": False, "unit": "logits"}
    return {"edges": charts.Chart("share (logits)", "effect (logits)", *spans, **like)}


@charts_of.register
def _sufficient_edges_charts(found: SufficientEdges) -> Charts:
    """Return the line chart of the mean margin in logits by number of kept edges, a line per order."""
    x = np.asarray(found.counts, float)
    means = {name: margins.double().mean(dim=0).numpy() for name, margins in found.margins.items()}
    series = []
    for (name, y), colour in zip(means.items(), charts.SEVERAL, strict=False):
        details = {"told": ("{order}",), "also": {"order": [name] * len(x)}}
        series.append(charts.Series(x, y, name, colour, line=True, dots=True, **details))
    span = charts.range_with_margin(np.concatenate([line.y for line in series]), 0.08)
    across, like = (-0.02 * x.max(), 1.02 * x.max()), {"whole": False, "unit": "logits"}
    chart = charts.Chart("edges kept", "margin (logits)", across, span, series=tuple(series), **like)
    return {"margins": chart}


@charts_of.register
def _survey_charts(survey: Survey) -> Charts:
    """Return one chart per survey quantity given by layer or by layer and head, by quantity name."""
    result = {}
    for name, what in survey.quantities.items():
        sums, up = survey.sums[name], what.unit or what.title
        first = 0 if name.startswith("lens.") else 1  # layer 0 of the lens is the input of the first block
        if what.axes in ("layer head", "layer"):
            result[name] = _by_layer(sums.mean, what.unit, what.title, first=first, error=sums.error, up=up)
    return result


@charts_of.register
def _faithfulness_charts(trial: Faithfulness) -> Charts:
    """Return the removal curves of all maps: most relevant and least relevant first; {} without maps."""
    score, names = trial.score(), [name for name, _ in trial.ranking()]
    label = SCORES.get(score, LocalizedText("Value" if trial.head_type == "value" else "logit"))
    panels = curve_charts(trial, names, score, label) if names else ()
    return dict(zip(("most", "least"), panels, strict=False))


@charts_of.register
def _perturbation_charts(found: Perturbation) -> Charts:
    """Return one chart per recorded score of a perturbation, such as "probability" and "kept"."""
    return {score: _curves(found, score) for score in found.scores}


def _curves(found: Perturbation, score: str) -> charts.Chart:
    """Return the chart of a score's mean by step: one line per way of the change, with a band of +-2 s.e."""
    kind, x, of_values = KINDS[found.kind], np.asarray(found.steps, float), found.head_type == "value"
    limits, series = (None, None) if of_values else (0, 1), []
    times, unit = (1, "") if of_values else (100, "%")
    for way, colour in zip(found.ways, charts.SEVERAL, strict=False):
        mean, error = np.asarray(found.curve(way, score), float).T
        band = tuple(np.clip(mean + side * error, *limits) for side in (-2, 2))
        each = zip(times * mean, 2 * times * error, strict=True)
        said = [charts.with_error(one, off, unit) for one, off in each]
        details = {"said": said, "told": ("{way}", "{count}"), "also": {"way": [way] * len(x)}}
        details["also"]["count"] = [f"{one:g} {kind.counts}" for one in x]
        series.append(charts.Series(x, mean, way, colour, True, True, band, **details))
    every = [end for line in series for end in line.band]
    span = charts.range_with_margin(np.concatenate(every), 0.06) if of_values and every else (0.0, 1.0)
    details = {"class": found.label}
    name = LocalizedText("value of {class}" if of_values else "probability of {class}", **details)
    label = SCORES["kept"] if score == "kept" else name
    across = float(x.min()) - 0.02 * np.ptp(x), float(x.max()) + 0.02 * np.ptp(x)
    like = {"series": tuple(series), "whole": False, "percent": not of_values}
    return charts.Chart(kind.counts, label, across, span, LocalizedText(kind.name), **like)


def writer_name(one: Writer | None) -> str:
    """Return the displayed name of a source; None stands for a replaced head."""
    if one is None or one.layer is None:
        return "replaced" if one is None else one.kind
    part = f"head {one.head + 1}" if one.kind == "head" else {"mlp": "MLP"}.get(one.kind, one.kind)
    return f"layer {one.layer + 1}, {part}"


def head_names(*heads: tuple[int, int]) -> list[str]:
    """Return the display names of heads, given by layer and head from 0."""
    return [writer_name(Writer("head", *head)) for head in heads]


def edge_name(edge: Any) -> str:
    """Return the displayed name of an edge: source, reading head and its input."""
    return f"{writer_name(edge.writer)} → {head_names((edge.layer, edge.head))[0]}, {edge.into}"
