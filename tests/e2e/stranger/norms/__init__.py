"""How long each token's vector is, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vitviz.views.base import Item, View, Words
from vitviz.views.controls import Slider
from vitviz.views.subject import Subject


class Norms(View):
    slug = "norms"
    title = "Token norms"
    words = Words(
        what="Each patch travels through the layers as a vector, and some of these vectors grow much longer.",
        how="Move through the depths and look for patches that stand out from their neighbours.",
        definition=(
            "$\\|z_l^p\\|_2$ of the token of each patch after $l$ layers; depth 1 is the input of the first."
        ),
        source="Darcet et al. 2024, figure 2",
        caveat=(
            "A long vector is not an important one: LayerNorm makes all of them equally long before they are"
            " read."
        ),
    )
    controls = (Slider("depth", "Depth", minimum=1, maximum="layers", default=1),)
    items = (Item("norms", "depth row col", "Euclidean norm of the token"),)

    def item(self, subject: Subject, name: str, settings: Mapping[str, Any]) -> np.ndarray:
        grid = subject.grid
        norms = [tokens[grid.prefix :].norm(dim=-1).numpy() for tokens in subject.trace.tokens]
        return np.stack(norms).reshape(-1, grid.rows, grid.cols)
