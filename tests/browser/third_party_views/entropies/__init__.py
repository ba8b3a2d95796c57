"""How widely each head spreads its attention, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vitviz import analyses
from vitviz.charts.chart import Chart, ReferenceLine, by_layer
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.base import Item, View, ViewTexts
from vitviz.views.subject import ViewContext


class Entropies(View):
    slug = "entropies"
    title = "Head entropy"
    words = ViewTexts(
        what="Some heads look at a few tokens alone, and others at nearly all of them.",
        how="The higher a dot, the wider its head spreads; on the dashed line it attends everywhere alike.",
        definition="$-\\frac{1}{N} \\sum_i \\sum_j A_{ij} \\ln A_{ij}$ over the patches $i$ as queries.",
        source="Vig and Belinkov 2019",
        caveat="A head that spreads widely need not hand on much: values differ in length.",
    )
    items = (Item("entropy", "layer head", "mean entropy of the patches' attention, nats"),)

    def item(self, subject: ViewContext, name: str, settings: Mapping[str, Any]) -> np.ndarray:
        layers = range(len(subject.trace.layers))
        return np.stack([analyses.head_entropy(subject.trace, layer).patches for layer in layers])

    def chart(self, subject: ViewContext, settings: Mapping[str, Any]) -> Chart:
        even = float(np.log(subject.grid.tokens))
        level = ReferenceLine(even, LocalizedText("even attention"))
        up = LocalizedText("Entropy of a head (nats)")
        return by_layer(
            self.item(subject, "entropy", settings), up, high=1.08 * even, levels=(level,), unit="nats"
        )
