"""How early the answer is there: the classifier on the tokens of every depth, its norm applied afresh."""

from __future__ import annotations

import numpy as np

from vitviz import models
from vitviz.surveys.measure import Quantity, Seen


class Lens:
    name = "lens"
    says = "by depth, how often the lens names the final answer, and where labels are known the true class"
    quantities = (
        Quantity("agrees", "layer", "The lens names the final answer", "share of pictures"),
        Quantity("correct", "layer", "The lens names the true class", "share of pictures"),
    )

    def of(self, seen: Seen):
        named = (
            models.lens(seen.inspector, seen.trace).argmax(dim=-1).cpu().numpy()
        )  # layer 0 enters the first block
        found = {"agrees": (named == int(seen.trace.logits.argmax())).astype(np.float64)}
        if seen.label is not None:
            found["correct"] = (named == seen.label).astype(np.float64)
        return found
