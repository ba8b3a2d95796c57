"""Charts and matrices as Plotly figures, with zoom, hover text and a legend that hides and isolates series.

The template `vitviz` holds fonts, grid and colours; plotly composes `vitviz+dark` from it and the template
`dark`. The hover text is that of the page. Every text is translated by `say` and escaped, because plotly
renders a subset of HTML and labels are untrusted.
"""

import html
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
import plotly.io

from vitviz.charts import chart as charts
from vitviz.charts.chart import DARK, LIGHT, SEVERAL, Bars, Chart, InkColours, Matrix, Series, tooltip
from vitviz.charts.colormaps import colorscale

DASHES = {"": "solid", "dashed": "dash", "dotted": "dot", "dash-dotted": "dashdot"}
PX = 4.6  # px per mm of line width, as on the page
ABOVE = 4  # entries of a legend above the chart; longer legends stand beside it
NARROW = 480  # px, width in which a legend above the chart fits
LINE, LETTER = 17, 7.5  # px
Say = Callable[[str], str]


def _template(ink: InkColours, diverging: str) -> go.layout.Template:
    """Return a Plotly template with vitviz's fonts, axes and ink colours.

    `diverging` names the colour map around zero.
    """
    axis = {"zeroline": False, "automargin": True, "gridcolor": ink.faint, "linecolor": ink.ink}
    axis |= {"title": {"standoff": 10}, "ticks": "outside", "tickcolor": ink.faint}
    layout = {
        "paper_bgcolor": ink.paper, "plot_bgcolor": ink.paper, "colorway": SEVERAL, "hovermode": "closest",
        "font": {"family": "system-ui, 'Noto Sans', sans-serif", "size": 13, "color": ink.ink},
        "title": {"x": 0, "xref": "paper", "y": 1, "yanchor": "top", "pad": {"t": 12}, "font": {"size": 15}},
        "xaxis": {**axis, "showgrid": False, "showline": True}, "yaxis": {**axis, "ticks": ""},
        "hoverlabel": {"align": "left", "bgcolor": ink.paper, "font": {"color": ink.ink}},
        "legend": {"bgcolor": "rgba(0,0,0,0)", "traceorder": "normal"},
        "shapedefaults": {"line": {"color": ink.ink}},
        "colorscale": {"sequential": colorscale("viridis"), "diverging": colorscale(diverging)},
    }  # fmt: skip
    return go.layout.Template(layout=layout, data={"scatter": [{"marker": {"line": {"color": ink.paper}}}]})


plotly.io.templates["vitviz"] = _template(LIGHT, "balance")
plotly.io.templates["dark"] = _template(DARK, "balance_dark")


def chart_figure(chart: Chart, say: Say = str, dark: bool = False) -> go.Figure:
    """Return a chart as a Plotly figure.

    The traces are bars, bands around lines, and series, in this order, with the chart's own arrays. Names
    without a mark follow. Reference lines are shapes.
    """
    traces: list[Any] = [] if chart.bars is None else [_bars(chart, chart.bars, say)]
    each = list(enumerate(chart.series))
    traces += [_band(one, group) for group, one in each if one.line and one.band is not None]
    traces += [_series(chart, one, group, say) for group, one in each]
    traces += [
        _entry(name, say, mode="markers", marker={"symbol": "square", "size": 11, "color": colour})
        for colour, name in chart.named
    ]
    shapes = []
    for level in chart.levels:
        along, (low, high) = ("x", chart.x) if level.upright else ("y", chart.y)
        line = {"color": level.colour, "width": 1.6, "dash": "dash"}
        if low <= level.value <= high:
            across = "y" if level.upright else "x"
            ends = {f"{along}0": level.value, f"{along}1": level.value, f"{across}0": 0, f"{across}1": 1}
            named = {"name": _text(level.name, say), "showlegend": bool(level.name)}
            shapes.append({"type": "line", f"{across}ref": "paper", **ends, "line": line, **named})
        elif level.beyond:
            traces.append(_entry(level.beyond, say, mode="lines", line=line))
    x, (first, last) = {"range": chart.x, **_named_ticks(chart.ticks, say)}, chart.x
    if chart.whole and not chart.ticks:
        x |= {"tick0": int(np.ceil(first)), "dtick": max(1, int(np.ceil((last - first) / 16)))}
    y = {"range": chart.y, **_named_ticks(chart.y_ticks, say)}
    y |= {"tickformat": ".3~%"} if chart.percent else {}
    if chart.square:
        x, y = {**x, "constrain": "domain"}, {**y, "scaleanchor": "x", "constrain": "domain"}
    names = [one.name for one in traces if one.showlegend is not False]
    names += [one["name"] for one in shapes if one["showlegend"]]
    return _figure(chart, traces, shapes, x, y, round(560 * chart.aspect), names, say, dark)


def _series(chart: Chart, one: Series, group: int, say: Say) -> go.Scatter:
    """Return one series as a Plotly trace of lines or dots, with hover text; dots have error bars.

    `group` is its legend group; `say` translates texts.
    """
    name, y = _text(one.name, say), np.asarray(one.y, float)
    own = [] if one.of or one.told or not name else [name]  # nothing else would name the line
    texts = [
        _hover(tooltip(chart, one, i, say), own) if np.isfinite(value) else "" for i, value in enumerate(y)
    ]
    error = None
    if one.band is not None and not one.line:
        low, high = (np.asarray(end, float) for end in one.band)
        error = {"type": "data", "symmetric": False, "array": high - y, "arrayminus": y - low, "width": 0}
    return go.Scatter(
        x=np.asarray(one.x), y=y, error_y=error, name=name, showlegend=bool(name), legendgroup=str(group),
        mode="+".join(["lines"] * one.line + ["markers"] * one.dots) or "none",
        line={"color": one.colour, "width": PX * one.thick, "dash": DASHES[one.dash]},
        marker={"color": one.colour, "size": 6.5 if one.line else 9}, hovertext=texts, hoverinfo="text",
    )  # fmt: skip


def _band(one: Series, group: int) -> go.Scatter:
    """Return the area around a line as a Plotly trace: the upper bound, then the lower bound back."""
    low, high = (np.asarray(end, float) for end in one.band)
    known = np.isfinite(low) & np.isfinite(high)
    x, low, high = np.asarray(one.x)[known], low[known], high[known]
    return go.Scatter(
        x=np.concatenate([x, x[::-1]]), y=np.concatenate([high, low[::-1]]), mode="lines", fill="toself",
        line={"width": 0, "color": one.colour}, opacity=0.4, hoverinfo="skip", showlegend=False,
        legendgroup=str(group),
    )  # fmt: skip


def _bars(chart: Chart, bars: Bars, say: Say) -> go.Bar:
    """Return a chart's bars as a Plotly bar trace, each from its lower end, with hover text."""
    texts = [_hover(tooltip(chart, bars, i, say)) for i in range(len(bars.x))]
    return go.Bar(
        x=np.asarray(bars.x), y=bars.y, base=np.asarray(bars.low), width=bars.width, showlegend=False,
        marker={"color": bars.colours, "line": {"width": 0}}, hovertext=texts, hoverinfo="text",
        textposition="none",
    )  # fmt: skip


def _entry(name: str, say: Say, **look: Any) -> go.Scatter:
    """Return a Plotly trace without points that adds an entry to the legend."""
    return go.Scatter(x=[None], y=[None], name=_text(name, say), showlegend=True, hoverinfo="skip", **look)


def matrix_figure(matrix: Matrix, say: Say = str, dark: bool = False) -> go.Figure:
    """Return a matrix as a Plotly heat map: rows downwards, rows and columns numbered from 1."""
    (rows, cols), scale = matrix.values.shape, matrix.scale
    if matrix.told:
        texts = [
            [_hover(charts.cell_tooltip(matrix, row, col, say)) for col in range(cols)] for row in range(rows)
        ]
        hover: dict[str, Any] = {"hoverinfo": "text", "hovertext": texts}
    else:
        down, along = (_text(name, say) for name in (matrix.y_label, matrix.x_label))
        lines = ("<b>%{z:.4~g}</b>", f"{down}: %{{y}}", f"{along}: %{{x}}")
        hover = {"hovertemplate": f"{'<br>'.join(lines)}<extra></extra>"}
    colours = "balance_dark" if dark and scale.colours == "balance" else scale.colours
    height = min(480, max(120, 60 * rows))
    label = {"text": _text(scale.label, say, int(height / LETTER)), "side": "right"}
    bar = {"title": label, "thickness": 14, "outlinewidth": 0}
    cells = go.Heatmap(
        z=np.asarray(matrix.values, float), x=np.arange(1, cols + 1), y=np.arange(1, rows + 1),
        zmin=scale.low, zmax=scale.high, colorscale=colorscale(colours), colorbar=bar,
        showscale=not matrix.unscaled, showlegend=False, **hover,
    )  # fmt: skip
    frames = []
    if matrix.column is not None:
        frames.append({"x0": matrix.column + 0.5, "x1": matrix.column + 1.5, "y0": 0.5, "y1": rows + 0.5})
    elif matrix.chosen is not None:
        row, col = divmod(matrix.chosen, cols)
        frames.append({"x0": col + 0.5, "x1": col + 1.5, "y0": row + 0.5, "y1": row + 1.5})
    shapes = [{"type": "rect", **frame, "line": {"width": 2}} for frame in frames]
    x = {**_cell_ticks(matrix.cols, cols, matrix.step, say), "constrain": "domain"}
    y = {**_cell_ticks(matrix.rows, rows, matrix.step, say), "autorange": "reversed", "showgrid": False}
    if max(rows, cols) <= 2.2 * min(rows, cols):
        y |= {"scaleanchor": "x", "constrain": "domain"}
    return _figure(matrix, [cells], shapes, x, y, height, [], say, dark)


def _cell_ticks(names: Sequence[str], count: int, interval: int, say: Say) -> dict[str, Any]:
    """Return Plotly's axis settings for cells: a tick every `interval` cells, at most about 30."""
    every = interval * -(-count // (30 * interval))
    named = [(at + 1, names[at] if names else str(at + 1)) for at in range(0, count, every)]
    return _named_ticks([(at, name) for at, name in named if name], say)


def _named_ticks(ticks: Iterable[tuple[float, str]], say: Say) -> dict[str, Any]:
    """Return Plotly's axis settings for ticks of (position, name), translated; {} without ticks."""
    result = [(at, _text(name, say)) for at, name in ticks]
    return {"tickvals": [at for at, _ in result], "ticktext": [name for _, name in result]} if result else {}


def _figure(
    given: Chart | Matrix, traces: Sequence[Any], shapes: Sequence[dict], x: dict, y: dict, height: int,
    names: Sequence[str], say: Say, dark: bool,
) -> go.Figure:  # fmt: skip
    """Return the Plotly figure of a chart or matrix, with texts and margins; notes are below the x axis."""
    above = 0 < len(names) <= ABOVE
    wide = [45 + LETTER * _display_width(name) for name in names]
    rows = 1 if sum(wide) <= NARROW else -(-len(names) // max(1, int(NARROW // max(wide))))
    notes = [f'<span style="font-size:11px">{_text(note, say, 84)}</span>' for note in given.notes]
    title = _text(given.title, say, 80)
    top = 16 + (LINE + 3) * (title.count("<br>") + 1 if title else 0) + (6 + 24 * rows if above else 0)
    x_title = "<br>".join(part for part in (_text(given.x_label, say, 80), *notes) if part)
    legend = {"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0} if above else {}
    return go.Figure(traces, {
        "template": "vitviz+dark" if dark else "vitviz", "title": {"text": title}, "shapes": shapes,
        "xaxis": {**x, "title": {"text": x_title}}, "legend": legend,
        "yaxis": {**y, "title": {"text": _text(given.y_label, say, 44)}},
        "margin": {"t": top, "l": 60, "r": 20, "b": 50},
        "height": top + height + 60 + LINE * x_title.count("<br>"),
    })  # fmt: skip


def page_of(figures: Sequence[go.Figure], title: str, whole: bool) -> str:
    """Return an HTML document with Plotly figures, which opens offline.

    With `whole`, the document contains plotly.js (4.8 MB); otherwise it loads plotly.min.js from its folder.
    """
    script = True if whole else "directory"  # in the first figure alone
    parts = [
        one.to_html(full_html=False, div_id=f"chart-{n}", include_plotlyjs=not n and script)
        for n, one in enumerate(figures)
    ]
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title>'
    body = f'<body style="margin:0;background:{figures[0].layout.template.layout.paper_bgcolor}">'
    return f"<!doctype html><html><head>{head}</head>{body}{''.join(parts)}</body></html>\n"


def _hover(lines: Sequence[str], more: Sequence[str] = ()) -> str:
    """Return a tooltip's lines as HTML, the first one bold; `more` is already escaped."""
    escaped = [html.escape(line, quote=False) for line in lines]
    return "<br>".join([f"<b>{one}</b>" for one in escaped[:1]] + [*escaped[1:], *more])


def _text(text: str, say: Say, width: int = 0) -> str:
    """Return a translated and escaped text, broken into lines of about `width` letters."""
    lines, said = [""], say(text)
    for piece in re.findall(r"[\u3000-\u9fff\uff00-\uffef]|[^\s\u3000-\u9fff\uff00-\uffef]+\s*|\s+", said):
        if width and lines[-1] and _display_width(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        lines[-1] += piece
    return "<br>".join(html.escape(line.rstrip() if width else line, quote=False) for line in lines)


def _display_width(text: str) -> int:
    """Return the width of a text in columns: two for a wide East Asian character, one for any other."""
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in text)
