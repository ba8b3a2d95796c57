"""How far each head looks (paper figure 7 right, figure 11)."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vitviz import analyses
from vitviz.views.base import File, Item, View, Words
from vitviz.views.controls import Choice
from vitviz.views.shared import sweep_of
from vitviz.views.subject import Subject

if TYPE_CHECKING:
    from vitviz.analyses import Distances


class Distance(View):
    slug = "distance"
    title = "Distance"
    endpoint = "attention_distance"
    averages = True
    words = Words(
        what=(
            "Some heads look only at their neighbourhood, like a convolution; others look across the whole"
            " picture already in the first layer, which a convolution cannot."
        ),
        how=(
            "Each dot is one head: the higher it stands, the farther it looks; heads on the dashed line look"
            " as far as if they attended everywhere alike."
        ),
        definition=(
            "$D(l,h) = \\frac{1}{N_p} \\sum_i \\sum_j A^{l,h}_{ij} d_{ij}$ over patch queries $i$ and patch"
            " keys $j$, where $d_{ij}$ is the distance of the patches in pixels of the model's input and $A$"
            " the attention after the softmax. Rows and columns of the class token and other prefix tokens"
            " are dropped. As in the authors' code the rest is *not* renormalised; *renormalised* divides"
            " each row by its mass on patches. The dashed line follows the same convention."
        ),
        source=(
            "Section 4.5, figure 7 (right) and appendix D.7, figure 11; the paper averages over 128 pictures"
        ),
        caveat=(
            "A small distance can also mean that a head puts most of its mass on the class token: see the"
            " mass in the hover text. One picture is one sample; use a set of pictures for a statement about"
            " the model."
        ),
    )
    arrays = {
        "uniform": "",
        "pictures": "",
    }
    controls = (
        Choice("form", "Heads", options=(("depth", "By layer"), ("sorted", "Sorted within the layer"))),
        Choice(
            "rows",
            "Rows",
            options=(("plain", "As in the paper"), ("renormalised", "Renormalised over patches")),
        ),
    )
    items = (
        Item("distance", "layer head", "mean attention distance, px of the model's input", depends=("rows",)),
        Item("prefix_mass", "layer head", "attention on prefix tokens, from 0 to 1"),
        Item("uniform", "one", "distance of attention spread evenly, px", depends=("rows",), taken=False),
    )
    files = (
        File("figure.html", "Figure (HTML)", "text/html"),
        File("numbers.csv", "Numbers (.csv)", "text/csv"),
    )

    def summary(self, subject: Subject) -> dict[str, Any]:
        return {"pictures": 1 if subject.survey is None else subject.survey.images}

    def item(self, subject: Subject, name: str, settings: Mapping[str, Any]) -> np.ndarray:
        renormalise, measured = settings["rows"] == "renormalised", self._measured(subject)
        if name == "prefix_mass":
            return measured.prefix_mass.cpu().numpy()
        if name == "distance":
            return (measured.renormalised if renormalise else measured.distance).cpu().numpy()
        return np.asarray([analyses.uniform_distance(subject.grid, renormalise=renormalise)])

    def numbers(self, subject: Subject, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Those of one picture or, by the same names, of a whole set."""
        pictures = {} if subject.survey is None else {"pictures": np.asarray(subject.survey.images)}
        uniform = self.item(subject, "uniform", settings)[0]
        return {**super().numbers(subject, settings), "uniform": uniform, **pictures}

    def file(self, subject: Subject, name: str, settings: Mapping[str, Any], upload: Any = None) -> bytes:
        numbers = self.numbers(subject, settings)
        return (_table if name == "numbers.csv" else _page)(subject, settings, numbers).encode()

    def _measured(self, subject: Subject) -> Distances:
        return sweep_of(subject).distances if subject.survey is None else subject.survey.distances


def _page(subject: Subject, settings: Mapping[str, Any], numbers: Mapping[str, np.ndarray]) -> str:
    """The chart as a page of its own, which needs no network."""
    from vitviz.figures import charts

    pictures = int(numbers.get("pictures", 1))
    figure = charts.distance_by_depth(
        numbers["distance"],
        float(numbers["uniform"]),
        numbers["prefix_mass"],
        subtitle=(
            f"{subject.checkpoint}, {'one picture' if pictures == 1 else f'mean of {pictures} pictures'}"
        ),
        sorted_heads=settings["form"] == "sorted",
    )
    return figure.to_html(
        include_plotlyjs=True, full_html=True, config={"displaylogo": False, "responsive": True}
    )


def _table(subject: Subject, settings: Mapping[str, Any], numbers: Mapping[str, np.ndarray]) -> str:
    """A line for each head, layers and heads counted from 1; settings stand in every line."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(
        [
            "checkpoint",
            "pictures",
            "rows",
            "layer",
            "head",
            "distance_px",
            "prefix_mass",
            "uniform_px",
            "dtype",
        ]
    )
    name, source = subject.checkpoint, subject.trace or subject.survey
    same = [
        "'" + name if name[:1] in "=+-@\t\r" else name,
        numbers.get("pictures", 1),
        settings["rows"],
    ]  # no formula
    for (layer, head), distance in np.ndenumerate(numbers["distance"]):
        mass = numbers["prefix_mass"][layer, head]
        writer.writerow([*same, layer + 1, head + 1, distance, mass, numbers["uniform"], source.dtype])
    return text.getvalue()
