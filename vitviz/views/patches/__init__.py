"""The picture as the model gets it, cut into patches (paper section 3.1, figure 1)."""

from typing import Any

import numpy as np

from vitviz.views.base import View, Words, drawn
from vitviz.views.controls import Choice, Slider
from vitviz.views.subject import Settings, Subject


class Patches(View):
    title = "Patches"
    soon = True  # all but the norms
    words = Words.of_paper(r"""
        A Vision Transformer reads a picture like a sentence: equal squares, each treated as one word.

        Point at a square for its place in the sequence; click it for the numbers that the model reads there.

        The input of $H \times W$ pixels becomes $N = HW/P^2$ patches of $P \times P$ pixels in row-major
        order, each flattened to $P \cdot P \cdot 3$ numbers: $x \in \mathbb{R}^{H \times W \times C} \to x_p
        \in \mathbb{R}^{N \times (P^2 C)}$. The linear embedding $E$ turns each into a vector of $D$ numbers,
        and the position embedding $E_{pos}$ is added. The norm is the Euclidean length of that vector before
        and after the addition.

        Section 3.1, equation 1 and figure 1

        The picture is the one after resizing and cropping: the model never sees the rest of the upload. Norms
        are those of the embedding, before any normalisation layer.
    """)
    controls = (
        Choice("form", "Layout", options=(("picture", "Picture"), ("sequence", "Sequence"))),
        Slider("gap", "Cut apart", step=0.05),
    )
    arrays = {
        "input_pixels": "pixel_row pixel_col channel",
        "crop_box": "edge",
        "norm_before_position": "patch",
        "norm_after_position": "patch",
        "patch_embedding": "patch width",
        "position_embedded": "patch width",
    }
    items = (drawn("norms", "stage patch", "norm of the embedding, before and after E_pos"),)

    def summary(self, subject: Subject) -> dict[str, Any]:
        preprocessing = subject.inspector.preprocessing
        return {
            "mean": list(preprocessing.mean),
            "std": list(preprocessing.std),
            "width": subject.inspector.model.embed_dim,
        }

    def item(self, subject: Subject, name: str, settings: Settings) -> np.ndarray:
        trace = subject.trace
        before = trace.patch_embedding.norm(dim=-1).numpy()
        after = np.full_like(before, np.nan)
        if trace.position_embedded is not None:
            after = trace.position_embedded.norm(dim=-1).numpy()
        return np.stack([before, after])

    def numbers(self, subject: Subject, settings: Settings) -> dict[str, np.ndarray]:
        (before, after), trace = self.item(subject, "norms", settings), subject.trace
        found = {
            "input_pixels": trace.view.picture,
            "crop_box": np.asarray(trace.view.box),
            "norm_before_position": before,
            "norm_after_position": after,
            "patch_embedding": trace.patch_embedding.numpy(),
        }
        if trace.position_embedded is not None:
            found["position_embedded"] = trace.position_embedded.numpy()
        return found
