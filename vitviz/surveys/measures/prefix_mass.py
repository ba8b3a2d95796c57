"""What the patches' attention spends on class token and registers."""

from __future__ import annotations

from vitviz import analyses
from vitviz.surveys.measure import Quantity, Seen


class PrefixMass:
    name = "prefix_mass"
    says = "the share of the patches' attention that goes to prefix tokens, by head"
    quantities = (Quantity("prefix_mass", "layer head", "Attention on prefix tokens", "share, 0 to 1"),)

    def of(self, seen: Seen):
        return {"prefix_mass": seen.once(analyses.distances).prefix_mass.cpu().numpy()}
