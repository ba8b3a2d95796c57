"""Attention distance for print: dots over depth or lines over heads (figures 7 right and 11 of the paper)."""

from __future__ import annotations

import numpy as np

from vitviz.figures.paper.plates import BLUE, Chart, Level, Plate, Series, ramp
from vitviz.sentence import Sentence
from vitviz.views.printing import NARROW, WIDE


def plate(view, subject, settings, asked) -> Plate:
    """The heads' distances; with detail also what each head spends on prefix tokens."""
    distance = np.asarray(view.item(subject, "distance", settings), float)
    uniform = float(view.item(subject, "uniform", settings)[0])
    pictures = view.summary(subject)["pictures"]
    known = {"checkpoint": subject.checkpoint, "count": pictures}
    title = Sentence(
        "{checkpoint}, one picture" if pictures == 1 else "{checkpoint}, mean of {count} pictures", **known
    )
    level = Level(uniform, Sentence("uniform attention: {distance} px", distance=f"{uniform:.1f}"))
    most = 1.08 * max(float(np.nanmax(distance)), uniform) or 1.0
    charts = [_chart(distance, settings, Sentence("Mean attention distance (px)"), most, title, (level,))]
    if asked.detail and subject.grid.prefix:
        mass = np.asarray(view.item(subject, "prefix_mass", settings), float)
        said = Sentence("Share of attention on prefix tokens")
        charts.append(_chart(mass, settings, said, 1.0, title, ()))
    return Plate(
        (tuple(charts),), width=WIDE if len(charts) > 1 else 120.0 if distance.shape[0] > 12 else NARROW + 14
    )


def _chart(
    values: np.ndarray, settings, up: str, most: float, title: str, levels: tuple[Level, ...]
) -> Chart:
    """Layer by head: a dot for each head, or a line for each layer over its heads from near to far."""
    layers, heads = values.shape
    if settings["form"] == "sorted":
        series = tuple(
            Series(
                np.arange(1, heads + 1),
                np.sort(row),
                Sentence("layer {layer}", layer=i + 1),
                ramp(i, layers),
                True,
                True,
            )
            for i, row in enumerate(values)
        )
        return Chart(
            Sentence("Heads of a layer, near to far"),
            up,
            (0.4, heads + 0.6),
            (0.0, most),
            title,
            series,
            levels=levels,
        )
    depth = np.arange(1, layers + 1)
    series = (
        Series(np.repeat(depth, heads), values.ravel(), Sentence("one head"), BLUE, dots=True),
        Series(depth, values.mean(axis=1), Sentence("mean of the heads"), "#7d838e", line=True),
    )
    return Chart(
        Sentence("Network depth (layer)"), up, (0.4, layers + 0.6), (0.0, most), title, series, levels=levels
    )
