"""A method of relevance that does not apply to one picture, as it is where a map does not balance."""

import numpy as np

from vitviz.analyses import saliency
from vitviz.errors import UnsupportedModel
from vitviz.traces.localized_text import LocalizedText, not_applicable

WHY = not_applicable("mine", LocalizedText("no attention has a gradient"))


def refuse(monkeypatch, method: str, trace, target: int | None = None) -> None:
    """The method refuses the picture of a trace, or one class of it."""
    own = saliency.METHODS[method]

    def map_of(passes):
        same = np.array_equal(passes.trace.view.picture, trace.view.picture)
        if same and target in (None, passes.target):
            raise UnsupportedModel(WHY)
        return own(passes)

    monkeypatch.setattr(saliency, "METHODS", {**saliency.METHODS, method: map_of})
