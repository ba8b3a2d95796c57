"""How much longer what a block hands on unchanged is than what it adds: Raghu et al. 2021, section 5."""

from __future__ import annotations

from vitviz import analyses
from vitviz.surveys.measure import Quantity, Seen

TITLE = "Length of skip over {branch}, {tokens}"


class Skip:
    name = "skip"
    says = (
        "how long the skip connection is beside each branch, by layer: mean of the patches, and class token"
    )
    quantities = tuple(
        Quantity(f"{branch}_{tokens}", "layer", TITLE.format(branch=said, tokens=of), "ratio")
        for tokens, of in (("patches", "mean over patches"), ("class", "class token"))
        for branch, said in (("attention", "attention"), ("mlp", "MLP"))
    )

    def of(self, seen: Seen):
        grid = seen.trace.grid
        found = analyses.skip_ratios(seen.trace, seen.inspector.tail(grid.pixels).layers)
        ratios = {}
        for branch, ratio in (("attention", found.attention), ("mlp", found.mlp)):
            ratios[f"{branch}_patches"] = ratio[:, grid.prefix :].mean(dim=1).cpu().numpy()
            if "class" in grid.prefix_names:
                ratios[f"{branch}_class"] = ratio[:, grid.prefix_names.index("class")].cpu().numpy()
        return ratios
