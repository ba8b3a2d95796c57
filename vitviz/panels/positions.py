"""What the position embeddings learned (paper figure 7 centre, figure 10)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vitviz import analyses
from vitviz.panels.base import Choice, Explanation, Panel, Subject


class Positions(Panel):
    slug = "positions"
    title = "Positions"
    needs = "weights"
    explanation = Explanation(
        what="Nobody tells the model which patches are neighbours: it learns one vector for each place, and the two-dimensional order of the picture has to emerge in them.",
        how="Each tile stands for one patch and shows how similar its position embedding is to that of every other; a bright spot with a bright row and column means that the order was learned.",
        definition=(
            "$S_{rc,r'c'} = \\cos(E_{rc}, E_{r'c'})$ over the position embeddings of the patches; the rows of the class token and other prefix tokens "
            "are left out. Drawn as a grid of tiles, one for each patch, or as one $N \\times N$ matrix in sequence order."
        ),
        source="Section 4.5, figure 7 (centre) and appendix D.4, figure 10",
        caveat="Similar position embeddings do not mean that the patches attend to each other. At another input size the embeddings are interpolated as in section 3.2, and the interpolated ones are shown.",
    )
    controls = (
        Choice("form", "Show", (("tiles", "Tiles"), ("matrix", "Matrix")), "tiles", page=True),
        Choice("scale", "Scale", (("data", "From lowest to highest"), ("full", "From -1 to 1")), "data", page=True),
    )

    def unsupported(self, subject: Subject) -> str | None:
        inspector = subject.inspector
        if inspector.position_table() is not None:
            return None
        kind = inspector.position_kind()
        how = {
            "rotary": "it turns queries and keys by an angle that grows with row and column (rotary embedding)",
            "relative": "it adds a learned bias to the attention scores that depends on the distance between two patches (relative position bias)",
            "none": "it has no position information besides what its stem provides",
        }.get(kind, f"it uses {kind} positions")
        return f"{inspector.checkpoint.name} has no learned table of absolute position embeddings: {how}. So there is no similarity of position embeddings to draw."

    def summary(self, subject: Subject) -> dict[str, Any]:
        similarity = self._similarity(subject)
        others = similarity[~np.eye(len(similarity), dtype=bool)]
        bounds = (float(others.min()), float(others.max())) if others.size else (0.0, 1.0)
        return {"minimum": bounds[0], "maximum": bounds[1], "kind": subject.inspector.position_kind()}

    def item(self, subject: Subject, name: str, settings: Mapping[str, Any]) -> np.ndarray:
        if name != "similarity":
            raise KeyError(name)
        return self._similarity(subject).astype(np.float16)

    def numbers(self, subject: Subject, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
        grid = self._grid(subject)
        similarity = self._similarity(subject).reshape(grid.rows, grid.cols, grid.rows, grid.cols)
        return {"similarity": similarity, "position_embeddings": subject.inspector.position_table(grid.pixels).numpy()}

    def _grid(self, subject: Subject):
        return subject.trace.grid if subject.trace is not None else subject.inspector.grid()

    def _similarity(self, subject: Subject) -> np.ndarray:
        grid = self._grid(subject)
        table = subject.inspector.position_table(grid.pixels)
        return analyses.position_similarity(table, grid).reshape(grid.patches, grid.patches).numpy()
