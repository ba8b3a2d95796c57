"""Where the answer comes from: attention rollout (paper figure 6, appendix D.8)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vitviz import analyses
from vitviz.panels.base import Choice, Explanation, LayerRange, Panel, Query, Slider, Subject, Whole

AUTO = {
    "class": "class token",
    "average": "mean over patches",
    "attention": "attention pooling",
}


class Rollout(Panel):
    slug = "rollout"
    title = "Rollout"
    needs = "trace"
    explanation = Explanation(
        what="Attention mixes the patches again in every layer; rollout multiplies the layers together to ask how much of each patch has reached the answer.",
        how="Bright regions are those whose content reached what the classifier reads; click a patch to ask instead what that patch has collected.",
        definition=(
            "Heads are fused to $\\bar A_l$ (mean, max or min), optionally the smallest entries in patch columns are discarded, the skip connection is added as "
            "$\\tilde A_l = r I + (1-r) \\bar A_l$ with each row divided by its sum, and $R = \\tilde A_L \\cdots \\tilde A_1$. "
            "The map is the row of the query over the patches. *Auto* asks what the classifier reads: the class token, the mean over patches, or the pooling's own weights."
        ),
        source="Section 4.5, figure 6 and appendix D.8, figure 14; Abnar & Zuidema 2020",
        caveat="Rollout follows attention weights alone: it ignores values, MLPs and the class in question, so it shows where information may have flowed and not why the model decided.",
    )
    controls = (
        Query("query", "Query"),
        Choice("fusion", "Heads fused by", (("mean", "Mean"), ("max", "Maximum"), ("min", "Minimum")), "mean"),
        Slider("discard", "Discard", 0, 0.99, 0.01, 0, info="share of the smallest attention that is set to zero"),
        Slider("residual", "Residual weight", 0, 1, 0.05, 0.5, info="how much of each layer is its skip connection"),
        LayerRange("layers", "Layers"),
        Choice("overlay", "Overlay", (("heat", "Heat map"), ("paper", "As in the paper")), "heat", page=True),
        Slider("opacity", "Opacity", 0, 1, 0.05, 0.65, page=True),
        Choice("colormap", "Colours", (("viridis", "Viridis"), ("magma", "Magma"), ("inferno", "Inferno"), ("cividis", "Cividis")), "viridis", page=True),
        Choice("scale", "Scale", (("data", "From lowest to highest"), ("zero", "From zero")), "data", page=True),
        Choice("smooth", "Edges", (("on", "Smooth"), ("off", "Patches")), "on", page=True),
    )

    parameters = (Whole("alone"),)  # the one layer whose mean attention is in view instead of the rollout, counted from 1; 0 for none

    def summary(self, subject: Subject) -> dict[str, Any]:
        view = subject.trace.view
        return {"upload": list(view.upload), "box": list(view.box), "auto": AUTO[subject.trace.pool], "pool": subject.trace.pool}

    def item(self, subject: Subject, name: str, settings: Mapping[str, Any]) -> np.ndarray:
        if name == "map":
            return self._map(subject, settings)
        if name == "layers":
            return analyses.mean_attention(subject.trace, settings["query"]).numpy()
        if name == "view":
            return self._map(subject, settings) if not settings["alone"] else self._alone(subject, settings)
        raise KeyError(name)

    def numbers(self, subject: Subject, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return {
            "rollout": self._map(subject, settings),
            "mean_attention_by_layer": analyses.mean_attention(subject.trace, settings["query"]).numpy(),
            "crop_box": np.asarray(subject.trace.view.box),
        }

    def _alone(self, subject: Subject, settings: Mapping[str, Any]) -> np.ndarray:
        layers = self.item(subject, "layers", settings)
        if settings["alone"] > len(layers):
            raise ValueError(f"alone={settings['alone']} is no layer of {subject.trace.checkpoint}, which has {len(layers)}.")
        return layers[settings["alone"] - 1]

    def _map(self, subject: Subject, settings: Mapping[str, Any]) -> np.ndarray:
        layers = settings["layers"]
        if layers is not None:
            layers = (layers[0] - 1, layers[1] - 1)
        return analyses.rollout(
            subject.trace,
            query=settings["query"],
            fusion=settings["fusion"],
            discard=settings["discard"],
            residual=settings["residual"],
            layers=layers,
        ).numpy()
