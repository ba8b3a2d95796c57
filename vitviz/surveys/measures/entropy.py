"""How many tokens each head spreads over."""

from __future__ import annotations

import torch

from vitviz import analyses
from vitviz.surveys.measure import Quantity, Seen


class Entropy:
    name = "entropy"
    says = "the entropy of each head's attention, mean over all queries, in nats"
    quantities = (Quantity("entropy", "layer head", "Entropy of attention", "nats"),)

    def of(self, seen: Seen):
        layers = [analyses.attention_entropy(seen.trace, layer) for layer in range(len(seen.trace.layers))]
        return {"entropy": torch.stack(layers).cpu().numpy()}
