"""What is explained by a gradient: the answer of a model to pixels, as one number a picture."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from vitviz.analyses.target import Asked, classes_of
from vitviz.errors import VitvizError
from vitviz.sentence import Sentence
from vitviz.trace import Trace

NO_CLASSIFIER = (
    "{checkpoint} has no classifier, so no class can be asked about; hand in a direction of what is read"
    " instead."
)


def scored(model: nn.Module, trace: Trace, target: Asked) -> Callable[[Tensor], Tensor]:
    """From pixels, "batch channel height width", to one number a picture, with its gradient.

    `target` is a class, (a, b) for a rather than b, or a direction of what the classifier is given.
    VitvizError for one that does not exist.
    """
    if isinstance(target, Tensor):
        return lambda pixels: _features(model, pixels, target, trace.checkpoint)
    if trace.logits is None:
        raise VitvizError(Sentence(NO_CLASSIFIER, checkpoint=trace.checkpoint))
    classes = classes_of(trace, target)

    def score(pixels: Tensor) -> Tensor:
        logits = model(pixels)
        return logits[:, classes[0]] - (logits[:, classes[1]] if len(classes) == 2 else 0)

    return score


def _features(model: nn.Module, pixels: Tensor, direction: Tensor, name: str) -> Tensor:
    """What the classifier is given, along a direction."""
    read = model.forward_head(model.forward_features(pixels), pre_logits=True)
    if direction.shape != read.shape[1:] or not direction.is_floating_point():
        raise VitvizError(
            f"Given a direction of shape {tuple(direction.shape)} for {name}; expected {read.shape[1]} real"
            " numbers."
        )
    return read @ direction.to(read)
