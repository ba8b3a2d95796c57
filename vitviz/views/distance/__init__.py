"""Mean attention distance of each head (paper figure 7 right, figure 11)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from vitviz import analyses
from vitviz.charts.chart import Chart, ReferenceLine, Series, by_layer, ramp_colour
from vitviz.charts.mpl.spec import FigureSpec
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.base import PAPER, Item, View, ViewTexts, drawing_item, item_values
from vitviz.views.controls import DIFFERENCE, Choice
from vitviz.views.parts import ExportDefaults, File, Scope
from vitviz.views.printing import PrintStyle, derived_spec
from vitviz.views.shared import shared_distances, to_csv
from vitviz.views.subject import Settings, ViewContext

REACH = "Error bars: ± standard error over the images."


def _numbers_csv(view: View, subject: ViewContext, settings: Settings, upload: Any) -> bytes:
    """Return the CSV table of the numbers with a row per head."""
    return to_csv(_rows(subject, settings, view.numbers(subject, settings)))


class AttentionDistanceView(View):
    title = "Attention distance"
    scope = Scope(averages=True)
    words = ViewTexts.read(__file__, cites=PAPER)
    controls = (
        Choice("form", "Heads", options=(("depth", "By layer"), ("sorted", "Sorted within the layer"))),
        Choice(
            "rows", "Rows",
            options=(("plain", "As in the paper"), ("renormalised", "Renormalised over patches")),
        ),
        DIFFERENCE,
    )  # fmt: skip
    items = (
        Item(
            "distance", "layer head", "mean attention distance, px of the model's input", depends=("rows",),
            differs=True,
        ),
        Item("prefix_mass", "layer head", "attention on prefix tokens, from 0 to 1", differs=True),
        drawing_item("uniform", "one", "distance of attention spread evenly, px", "rows"),
    )  # fmt: skip
    export = ExportDefaults(
        arrays={"uniform": "", "pictures": "", "error": "layer head"},
        files=(
            File("figure.html", "Figure (HTML)", "text/html"),
            File("numbers.csv", "Numbers (.csv)", "text/csv", _numbers_csv),
        ),
        endpoint="attention_distance",
    )

    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return distances in pixels or the mass on prefix tokens, (layer, head), by item name.

        For "uniform", return the distance of uniform attention in pixels, as one number.
        """
        renormalise = settings["rows"] == "renormalised"
        measured = shared_distances(subject) if subject.survey is None else subject.survey.distances
        if name == "prefix_mass":
            return measured.prefix_mass.cpu().numpy()
        if name == "distance":
            return (measured.renormalised if renormalise else measured.distance).cpu().numpy()
        kept = None if subject.survey is not None else subject.trace.kept
        return np.asarray([analyses.uniform_distance(subject.grid, renormalise, kept)])

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """Return the numbers of one image or, under the same names, of a set."""
        result = {**super().numbers(subject, settings), "uniform": self.item(subject, "uniform", settings)[0]}
        if subject.survey is not None:
            result["pictures"] = np.asarray(subject.survey.images)
        error = _error(subject, settings)
        return result if error is None else {**result, "error": error}

    def chart(self, subject: ViewContext, settings: Settings) -> Chart:
        """Return a dot per head over the layers, or a line per layer over its heads sorted by distance."""
        distance, mass = (
            np.asarray(item_values(self, subject, name, settings), float)
            for name in ("distance", "prefix_mass")
        )
        error = _error(subject, settings)
        uniform = float(self.item(subject, "uniform", settings)[0])
        name = LocalizedText("uniform attention: {distance} px", distance=f"{uniform:.1f}")
        level = ReferenceLine(uniform, name)
        options = {}
        if subject.grid.prefix and settings["difference"] == "off":
            options["told"] = (LocalizedText("{share} of its attention is on prefix tokens"),)
            options["also"] = {"share": [f"{share:.3f}" for share in mass.flat]}
        up = LocalizedText("Mean attention distance (px)")
        if settings["difference"] == "on":
            up = LocalizedText("{what}: after − before", what=up)
            return _chart(distance, settings, up, _title(subject), unit="px", **options)
        reach = distance if error is None else distance + np.nan_to_num(error)
        high = 1.08 * max(float(np.nanmax(reach)), uniform) or 1.0
        options |= {"levels": (level,), "unit": "px", "error": error}
        chart = _chart(distance, settings, up, _title(subject), high=high, **options)
        return chart if error is None else replace(chart, notes=(LocalizedText(REACH),))


def spec(view: View, subject: ViewContext, settings: Settings, style: PrintStyle) -> FigureSpec:
    """Return the chart; with detail also that of each head's attention on prefix tokens."""
    if not (style.detail and subject.grid.prefix):
        return derived_spec(view, subject, settings, style)
    mass, high = np.asarray(item_values(view, subject, "prefix_mass", settings), float), 1.0
    up = LocalizedText("Attention on prefix tokens")
    if settings["difference"] == "on":
        up, high = LocalizedText("{what}: after − before", what=up), None
    detail = (_chart(mass, settings, up, _title(subject), high=high),)
    return derived_spec(view, subject, settings, style, detail)


def _error(subject: ViewContext, settings: Settings) -> np.ndarray | None:
    """Return the standard error of each mean, px; None for one image."""
    if subject.survey is None or subject.survey.images < 2:
        return None
    return subject.survey.error("renormalised" if settings["rows"] == "renormalised" else "distance.distance")


def _title(subject: ViewContext) -> LocalizedText:
    """Return the chart's title: the checkpoint and the number of images that are averaged."""
    count = 1 if subject.survey is None else subject.survey.images
    details = {"checkpoint": subject.checkpoint, "count": count}
    text = LocalizedText("{checkpoint}, mean of {count} images", **details)
    return LocalizedText("{checkpoint}, one image", **details) if count == 1 else text


def _chart(values: np.ndarray, settings: Settings, up: str, title: str, **options: Any) -> Chart:
    """Return the chart of values by layer and head, in the form of the setting "form"."""
    chart = by_layer(values, up, title, **options)
    if settings["form"] == "depth":
        return chart
    (layers, heads), dots, lines = values.shape, chart.series[0], []
    for layer, row in enumerate(values):
        order = np.argsort(row, kind="stable")
        at = layer * heads + order
        name = LocalizedText("layer {layer}", layer=layer + 1)
        indices = {"layer": [layer + 1] * heads, "head": order + 1}
        also = {name: [column[i] for i in at] for name, column in dots.also.items()}
        args = {"line": True, "dots": True, "of": indices, "told": dots.told, "also": also}
        args["band"] = dots.band and tuple(end[at] for end in dots.band)
        args["said"] = [dots.said[i] for i in at] if dots.said else ()
        lines.append(Series(np.arange(1, heads + 1), row[order], name, ramp_colour(layer, layers), **args))
    x_label = LocalizedText("Heads of a layer, sorted by distance")
    return replace(chart, x_label=x_label, x=(0.4, heads + 0.6), series=tuple(lines))


def _rows(
    subject: ViewContext, settings: Settings, numbers: Mapping[str, np.ndarray]
) -> list[dict[str, Any]]:
    """Return one row per head with the settings; layers and heads count from 1."""
    name, source = subject.checkpoint, subject.trace or subject.survey
    name = "'" + name if name[:1] in "=+-@\t\r" else name  # prevents a spreadsheet formula
    rows = settings["rows"] + (", after - before" if settings["difference"] == "on" else "")
    same = {"checkpoint": name, "pictures": numbers.get("pictures", 1), "rows": rows}
    ends, mass = {"uniform_px": numbers["uniform"], "dtype": source.dtype}, numbers["prefix_mass"]
    return [
        {**same, "layer": at[0] + 1, "head": at[1] + 1, "distance_px": value, "prefix_mass": mass[at], **ends}
        for at, value in np.ndenumerate(numbers["distance"])
    ]
