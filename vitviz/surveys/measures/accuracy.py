"""How often the model is right, where the true classes are known."""

from __future__ import annotations

import numpy as np
import torch

from vitviz.errors import VitvizError
from vitviz.surveys.measure import Quantity, Seen


class Accuracy:
    name = "accuracy"
    says = "how often the model's answer, or one of its first five, is the true class; needs labels"
    quantities = (
        Quantity("first", "", "The answer is the true class", "share of pictures"),
        Quantity("first_five", "", "The true class is among the first five", "share of pictures"),
        Quantity("loss", "", "Cross-entropy of the true class", "nats"),
    )

    def of(self, seen: Seen):
        logits = seen.trace.logits
        if logits is None:
            raise VitvizError(f"{seen.trace.checkpoint} has no classifier, so there is no accuracy.")
        if seen.label is None:
            return {}
        scores = torch.log_softmax(logits.double(), dim=-1)
        before = int((scores > scores[seen.label]).sum())  # classes that the model finds likelier
        first = int(scores.argmax()) == seen.label
        found = {"first": float(first), "first_five": float(before < 5), "loss": -scores[seen.label].item()}
        return {name: np.asarray(value) for name, value in found.items()}
