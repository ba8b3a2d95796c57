"""How long the vector is that a patch hands on, beside how much it is attended to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from einops import einsum, rearrange

from vitviz.errors import UnsupportedModel
from vitviz.views.base import Item, View, ViewTexts
from vitviz.views.controls import IntSetting, Slider
from vitviz.views.subject import ViewContext


class Weighted(View):
    slug = "weighted"
    title = "Value-weighted attention"
    words = ViewTexts(
        what="Attention says from where a head reads, and not how much it finds: some values are short.",
        how="Click a patch to ask from where it reads, and step through layers and heads.",
        definition=(
            "$\\|\\alpha_{ij} W_O^h v_j\\|_2$ of the query $i$ for each patch $j$: the weight after the"
            " softmax times the length of the value, behind the head's part of the projection."
        ),
        source="Kobayashi et al. 2020, equation 4",
        caveat="Vectors of several heads may cancel, and later layers may discard what was handed on.",
    )
    controls = (
        Slider("layer", "Layer", minimum=1, maximum="layers", default="layers"),
        Slider("head", "Head", minimum=1, maximum="heads", default=1),
        IntSetting("token", maximum="tokens", default="middle", tokens=True),
    )
    items = (Item("weighted", "layer head row col", "Length of what the patch hands on", depends=("token",)),)

    def unsupported(self, subject: ViewContext) -> str | None:
        try:
            subject.inspector.tail(subject.grid.pixels)
        except UnsupportedModel as reason:
            return reason.args[0]
        return None

    def item(self, subject: ViewContext, name: str, settings: Mapping[str, Any]) -> np.ndarray:
        trace, grid, found = subject.trace, subject.grid, []
        for layer, projection in enumerate(subject.inspector.tail(grid.pixels).layers):
            values, attention = trace.layers[layer].v, trace.attention(layer)[:, settings["token"]]
            weight = rearrange(projection.weight, "width (head dim) -> head width dim", head=len(values))
            handed = einsum(weight, values, "head width dim, head key dim -> head key width").norm(dim=-1)
            patches = (attention * handed)[:, grid.prefix :]
            found.append(rearrange(patches, "head (row col) -> head row col", row=grid.rows))
        return np.stack(found)
