"""How far each head looks: figure 7 right of the paper, which averages 128 pictures."""

from __future__ import annotations

from vitviz import analyses
from vitviz.surveys.measure import Quantity, Seen


class Distance:
    name = "distance"
    says = "how far each head looks, in pixels of the model's input (figure 7 right)"
    quantities = (
        Quantity("distance", "layer head", "Attention distance", "px"),
        Quantity("renormalised", "layer head", "Attention distance, rows renormalised over patches", "px"),
    )

    def of(self, seen: Seen):
        measured = seen.once(analyses.distances)
        return {
            "distance": measured.distance.cpu().numpy(),
            "renormalised": measured.renormalised.cpu().numpy(),
        }
