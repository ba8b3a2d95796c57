"""What the linear embedding looks for (paper figure 7 left)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from vitviz import analyses
from vitviz.panels.base import Choice, Explanation, Panel, Subject


class Filters(Panel):
    slug = "filters"
    title = "Filters"
    needs = "weights"
    explanation = Explanation(
        what="Before any attention, each patch is compared with the same set of learned patterns; together they work like the first layer of a classic image filter bank.",
        how="The principal components show the patterns that matter most: smooth colours first, then edges and waves of growing fineness.",
        definition=(
            "The patch projection $E \\in \\mathbb{R}^{D \\times (P^2 C)}$ holds $D$ filters. Centred over the filters, its singular value "
            "decomposition gives the components; the first 28 are drawn as $P \\times P \\times 3$ pictures, with their share of the variance. "
            "The paper fixes neither sign nor scale: here the entry of largest magnitude is positive, and each picture is scaled alone to [0, 1]. "
            "The raw filters are sorted by their norm."
        ),
        source="Section 4.5 and figure 7 (left)",
        caveat="Filters act on normalised pixels, and colours are only relative: every tile is scaled by itself, so that zero has another grey in each. Only the subspace of components with equal variance has a meaning, not the single picture.",
    )
    controls = (Choice("kind", "Show", (("components", "Principal components"), ("raw", "Raw filters")), "components", page=True),)

    def unsupported(self, subject: Subject) -> str | None:
        if self._weight(subject) is None:
            return f"{subject.inspector.checkpoint.name} does not project pixels linearly and has no first convolution over pixels either, so there are no filters that could be shown as pictures."
        return None

    def summary(self, subject: Subject) -> dict[str, Any]:
        weight = self._weight(subject)
        stem = subject.inspector.patch_filters() is None
        note = (
            "This is a hybrid: its patches are cut from the features of a convolutional stem, so the linear embedding has no RGB filters. Shown instead: the stem's first convolution."
            if stem
            else ""
        )
        return {"count": weight.shape[0], "patch": list(weight.shape[2:]), "note": note}

    def item(self, subject: Subject, name: str, settings: Mapping[str, Any]) -> np.ndarray:
        return self._arrays(subject)[name]

    def numbers(self, subject: Subject, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return self._arrays(subject)

    def _weight(self, subject: Subject):
        filters = subject.inspector.patch_filters()
        return subject.inspector.stem_filters() if filters is None else filters

    def _arrays(self, subject: Subject) -> dict[str, np.ndarray]:
        weight = self._weight(subject)
        principal = analyses.principal_filters(weight)
        raw, norms = analyses.raw_filters(weight)
        return {
            "components": principal.pictures.numpy(),
            "variance": principal.variance.numpy(),
            "raw": raw.numpy(),
            "norms": norms.numpy(),
        }
