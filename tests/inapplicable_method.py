"""Patch for a saliency method that does not apply to one image, as when a map does not sum up."""

import numpy as np

from vitviz.analyses import saliency
from vitviz.errors import UnsupportedModel
from vitviz.traces.localized_text import LocalizedText, not_applicable

REASON = not_applicable("mine", LocalizedText("no attention has a gradient"))


def make_inapplicable(monkeypatch, method: str, trace, target: int | None = None) -> None:
    """Make the method raise UnsupportedModel for the image of a trace, or for one class of it."""
    own = saliency.METHODS[method]

    def map_of(passes):
        same = np.array_equal(passes.trace.view.picture, trace.view.picture)
        if same and target in (None, passes.target):
            raise UnsupportedModel(REASON)
        return own(passes)

    monkeypatch.setattr(saliency, "METHODS", {**saliency.METHODS, method: map_of})
