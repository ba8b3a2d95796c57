"""Attention by hand: any token's attention in every head of every layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vitviz import analyses
from vitviz.panels.base import Choice, Explanation, Panel, Subject, Whole, Wholes
from vitviz.panels.seen import sweep_of

WAYS = (("row", "attends to"), ("column", "attended by"))


class Explorer(Panel):
    slug = "explorer"
    title = "Attention"
    needs = "trace"
    explanation = Explanation(
        what="In each layer, every head lets each token look at all others and decide how much of each to take over.",
        how="Move over the picture to see where that patch looks, and click to hold it; the wall below shows the same patch in all heads at once.",
        definition=(
            "$A^{l,h} = \\mathrm{softmax}(q k^\\top / \\sqrt{d})$, after query-key norm, rotary embedding and relative bias where the model has them. "
            "*Attends to* is a row of $A$: what the token takes from each other, in shares that sum to 1. *Attended by* is a column: how much each token takes "
            "from this one; a column has no fixed sum. Prefix tokens stand beside the picture, and their weights are numbers, because a map of patches alone hides them."
        ),
        source="Section 3.1, equation 2 and appendix A",
        caveat="A large weight means that a token's value is taken over, not that it matters for the answer: values differ in length, and later layers may discard them.",
    )
    parameters = (
        Whole("layer", 1, 1),
        Whole("head", 1, 1),
        Whole("token"),
        Wholes("pins"),
        Choice("show", "", (("head", ""), ("mean", ""), ("rollout", "")), "head"),
        Choice("direction", "", WAYS, "row"),
        Choice("scale", "", (("own", ""), ("shared", "")), "own"),
        Choice("order", "", (("number", ""), ("distance", "")), "number"),
    )

    def summary(self, subject: Subject) -> dict[str, Any]:
        view = subject.trace.view
        distances = sweep_of(subject.trace).distances.distance.numpy()
        return {"upload": list(view.upload), "box": list(view.box), "distances": np.round(distances.astype(float), 3).tolist()}

    def item(self, subject: Subject, name: str, settings: Mapping[str, Any]) -> np.ndarray:
        trace, layer = subject.trace, settings["layer"] - 1
        if name == "layer":
            return trace.attention(layer).numpy().astype(np.float16)
        if name in ("row", "column"):
            lines = self._lines(trace, layer, settings["token"], name)
            return lines[self._head(trace, layer, settings)].numpy()
        if name in ("wall", "wallmax"):
            wall = self._wall(trace, settings["token"], settings["direction"])
            most = wall.max(axis=-1)
            if name == "wallmax":
                return most
            return np.round(255 * wall / np.maximum(most, 1e-30)[..., None]).astype(np.uint8)
        raise KeyError(name)

    def numbers(self, subject: Subject, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
        trace, layer = subject.trace, settings["layer"] - 1
        picked = [settings["token"], *settings["pins"]]
        lines = [self._lines(trace, layer, token, settings["direction"]).numpy() for token in picked]
        rollout = [analyses.rollout(trace, query=self._query(trace, token)).numpy() for token in picked] if settings["show"] == "rollout" else None
        return {
            **({} if rollout is None else {"rollout": np.stack(rollout)}),  # token row col
            "tokens": np.asarray(picked),
            "attention": np.stack(lines),  # token head other
            "attention_distance": sweep_of(trace).distances.distance.numpy(),
            "prefix_tokens": np.asarray(trace.grid.prefix_names, dtype=str),
            "grid": np.asarray([trace.grid.rows, trace.grid.cols]),
        }

    def _head(self, trace, layer: int, settings: Mapping[str, Any]) -> int:
        head = settings["head"] - 1
        if head >= trace.layers[layer].heads:
            raise ValueError(f"Head {head + 1} does not exist: {trace.checkpoint} has heads 1 to {trace.layers[layer].heads}.")
        return head

    def _wall(self, trace, token: int, way: str) -> np.ndarray:
        """Layer x head x patch: one token's weights over the patches everywhere."""
        return np.stack([self._lines(trace, layer, token, way).numpy()[:, trace.grid.prefix :] for layer in range(len(trace.layers))])

    def _lines(self, trace, layer: int, token: int, way: str):
        """Head x token: what a token attends to, or what attends to it; tokens counted from 0 with the prefix."""
        return (analyses.attends_to if way == "row" else analyses.attended_by)(trace, layer, self._query(trace, token))

    def _query(self, trace, token: int) -> str | int:
        """A place in the sequence as analyses name it."""
        grid = trace.grid
        if token >= grid.tokens:
            raise ValueError(f"Token {token} does not exist: {trace.checkpoint} has tokens 0 to {grid.tokens - 1}.")
        return grid.prefix_names[token] if token < grid.prefix else token - grid.prefix
