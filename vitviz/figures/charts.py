"""A chart for Plotly: attention distance by depth.

It stands on a page that is light or dark: its background is transparent, and every colour of middle
lightness, so that it reads on both. Blue and orange are told apart with any colour vision.
"""

from __future__ import annotations

import html

import numpy as np
import plotly.graph_objects as go
from jaxtyping import Float

_TEXT, _LINE = "#7d838e", "rgba(128,128,128,0.25)"
_BLUE, _ORANGE = "#3b8fd0", "#e0822c"
_RAMP = np.array(
    [[59, 143, 208], [138, 124, 195], [214, 98, 140], [224, 130, 44]], dtype=float
)  # first layer to last


def distance_by_depth(
    distances: Float[np.ndarray, "layer head"],
    uniform: float,
    prefix_mass: Float[np.ndarray, "layer head"] | None = None,
    subtitle: str = "",
    sorted_heads: bool = False,
) -> go.Figure:
    """Mean attention distance of every head in pixels, over the depth of the network (paper, figure 7 right).

    `uniform` is the distance that attention spread evenly would have: a dashed line with its name.
    `prefix_mass` is the share of attention on class token and registers, shown on hover. With `sorted_heads`,
    one line a layer over its heads from near to far (figure 11). Layers and heads count from 1.

    >>> figure = distance_by_depth(np.array([[20.0, 90.0], [110.0, 100.0]]), uniform=115.9)
    >>> figure.data[0].x.tolist(), figure.data[0].y.tolist()
    ([1, 1, 2, 2], [20.0, 90.0, 110.0, 100.0])
    """
    distances = np.asarray(distances, dtype=float)
    if distances.ndim != 2:
        raise ValueError(
            f"Distances have the axes layer and head; {distances.ndim} axes were given, of shape"
            f" {distances.shape}."
        )
    mass = np.full(distances.shape, np.nan) if prefix_mass is None else np.asarray(prefix_mass, dtype=float)
    if mass.shape != distances.shape:
        raise ValueError(
            f"The mass on prefix tokens has shape {mass.shape}, the distances have {distances.shape}: both"
            " are layer by head."
        )
    traces = _lines(distances, mass) if sorted_heads else _dots(distances, mass)
    last = distances.shape[1] if sorted_heads else distances.shape[0]
    across = "Heads of a layer, near to far" if sorted_heads else "Network depth (layer)"
    figure = go.Figure(traces, _layout(subtitle, across, "Mean attention distance (px)"))
    figure.update_xaxes(range=[0.4, last + 0.6], tickmode="linear", tick0=1, dtick=max(1, round(last / 12)))
    figure.update_yaxes(range=[0, max(float(np.nanmax(distances, initial=0.0)), uniform) * 1.12])
    even = go.Scatter(
        x=[0.4, last + 0.6], y=[uniform, uniform], mode="lines", name=f"uniform attention: {uniform:.1f} px",
        line={"dash": "dash", "color": _ORANGE, "width": 1.5}, hoverinfo="skip", showlegend=not sorted_heads,
    )  # fmt: skip
    figure.add_trace(even)
    if (
        sorted_heads
    ):  # among many layers its long name would stretch the legend; at the left the lines lie below it
        figure.add_annotation(
            x=0.01, xref="paper", xanchor="left", y=uniform, yanchor="bottom", showarrow=False,
            text=even.name, font={"color": _ORANGE, "size": 12},
        )  # fmt: skip
    return figure


def _dots(distances: np.ndarray, mass: np.ndarray) -> list[go.Scatter]:
    layers, heads = distances.shape
    layer, head = np.divmod(np.arange(distances.size), heads)
    dots = go.Scatter(
        x=layer + 1, y=distances.ravel(), mode="markers", name="one head",
        marker={"size": 9, "color": _BLUE, "opacity": 0.75}, customdata=_details(layer, head, mass),
        hovertemplate=_hover(mass),
    )  # fmt: skip
    mean = go.Scatter(
        x=np.arange(1, layers + 1), y=distances.mean(axis=1), mode="lines", name="mean of the heads",
        line={"color": _TEXT, "width": 1.5},
        hovertemplate="layer %{x}, mean of the heads<br><b>%{y:.1f} px</b><extra></extra>",
    )  # fmt: skip
    return [dots, mean]


def _lines(distances: np.ndarray, mass: np.ndarray) -> list[go.Scatter]:
    layers, heads = distances.shape
    traces = []
    for layer, row in enumerate(distances):
        order = np.argsort(row, kind="stable")
        traces.append(
            go.Scatter(
                showlegend=layers <= 12 or layer in (0, layers - 1) or (layer + 1) % 4 == 0,
                x=np.arange(1, heads + 1), y=row[order], mode="lines+markers", name=f"layer {layer + 1}",
                line={"color": _ramp(layer, layers), "width": 1.6}, marker={"size": 6},
                customdata=_details(np.full(heads, layer), order, mass), hovertemplate=_hover(mass),
            )
        )  # fmt: skip
    return traces


def _details(layer: np.ndarray, head: np.ndarray, mass: np.ndarray) -> np.ndarray:
    return np.stack([layer + 1, head + 1, mass[layer, head]], axis=1)


def _hover(mass: np.ndarray) -> str:
    prefix = "" if np.isnan(mass).all() else "<br>%{customdata[2]:.3f} of its attention on prefix tokens"
    return (
        "layer %{customdata[0]:d}, head %{customdata[1]:d}<br><b>%{y:.1f} px</b>" + prefix + "<extra></extra>"
    )


def _ramp(place: int, count: int) -> str:
    at = place / max(1, count - 1) * (len(_RAMP) - 1)
    colour = [round(float(np.interp(at, np.arange(len(_RAMP)), _RAMP[:, channel]))) for channel in range(3)]
    return "rgb({}, {}, {})".format(*colour)


def _layout(subtitle: str, across: str, up: str) -> go.Layout:
    title = {"font": {"size": 13}, "standoff": 8}
    axis = {
        "gridcolor": _LINE,
        "zeroline": False,
        "linecolor": _LINE,
        "tickfont": {"size": 12},
        "automargin": True,
    }
    said = html.escape(subtitle)
    at_left = {"x": 0, "xanchor": "left", "yanchor": "top"}
    return go.Layout(
        autosize=True, height=440, paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)",
        font={"color": _TEXT, "size": 13, "family": "system-ui, sans-serif"},
        margin={"l": 8, "r": 12, "t": 40 if said else 16, "b": 8},
        title={**at_left, "text": said, "font": {"size": 15}, "y": 0.98, "pad": {"l": 12}} if said else None,
        xaxis={**axis, "title": {**title, "text": across}}, yaxis={**axis, "title": {**title, "text": up}},
        # Below the axis: above the plot it runs into the title where the window is narrow and the entries
        # stack.
        legend={**at_left, "orientation": "h", "y": -0.18, "font": {"size": 12}},
        hovermode="closest", dragmode=False, hoverlabel={"font": {"size": 13}},
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": _TEXT, "activecolor": _BLUE},
    )  # fmt: skip


__all__ = ["distance_by_depth"]
