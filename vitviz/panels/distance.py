"""How far each head looks (paper figure 7 right, figure 11)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from vitviz import analyses
from vitviz.figures import charts
from vitviz.panels.base import Choice, Explanation, Panel, Subject
from vitviz.panels.seen import sweep_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from vitviz.analyses import Distances
    from vitviz.engine.survey import Survey
    from vitviz.grid import Grid


class Distance(Panel):
    slug = "distance"
    title = "Distance"
    needs = "trace"
    drawn_by = "chart"
    explanation = Explanation(
        what="Some heads look only at their neighbourhood, like a convolution; others look across the whole picture already in the first layer, which a convolution cannot.",
        how="Each dot is one head: the higher it stands, the farther it looks; heads on the dashed line look as far as if they attended everywhere alike.",
        definition=(
            "$D(l,h) = \\frac{1}{N_p} \\sum_i \\sum_j A^{l,h}_{ij} d_{ij}$ over patch queries $i$ and patch keys $j$, where $d_{ij}$ is the distance of the "
            "patches in pixels of the model's input and $A$ the attention after the softmax. Rows and columns of the class token and other prefix tokens are dropped. "
            "As in the authors' code the rest is *not* renormalised; *renormalised* divides each row by its mass on patches. The dashed line follows the same convention."
        ),
        source="Section 4.5, figure 7 (right) and appendix D.7, figure 11; the paper averages over 128 pictures",
        caveat="A small distance can also mean that a head puts most of its mass on the class token: see the mass in the hover text. One picture is one sample; use a set of pictures for a statement about the model.",
    )
    controls = (
        Choice("form", "Heads", (("depth", "By layer"), ("sorted", "Sorted within the layer")), "depth"),
        Choice("rows", "Rows", (("plain", "As in the paper"), ("renormalised", "Renormalised over patches")), "plain"),
    )

    def summary(self, subject: Subject) -> dict[str, Any]:
        return {}

    def chart(self, subject: Subject, settings: Mapping[str, Any]) -> go.Figure:
        return self.draw(self.numbers(subject, settings), settings, subtitle=f"{subject.trace.checkpoint}, one picture")

    def draw(self, numbers: Mapping[str, np.ndarray], settings: Mapping[str, Any], subtitle: str) -> go.Figure:
        """The figure from numbers, which may be those of one picture or of a survey."""
        return charts.distance_by_depth(
            numbers["distance"], float(numbers["uniform"]), numbers["prefix_mass"], subtitle=subtitle, sorted_heads=settings["form"] == "sorted"
        )

    def averaged(self, survey: Survey, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The numbers of a whole set of pictures, by the same names as those of one."""
        return {**self._arrays(survey.average.mean, survey.average.grid, settings), "pictures": np.asarray(survey.images)}

    def numbers(self, subject: Subject, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return self._arrays(sweep_of(subject.trace).distances, subject.trace.grid, settings)

    def _arrays(self, measured: Distances, grid: Grid, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
        renormalise = settings["rows"] == "renormalised"
        return {
            "distance": (measured.renormalised if renormalise else measured.distance).cpu().numpy(),
            "prefix_mass": measured.prefix_mass.cpu().numpy(),
            "uniform": np.asarray(analyses.uniform_distance(grid, renormalise=renormalise)),
        }
