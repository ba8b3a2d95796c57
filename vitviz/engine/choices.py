"""Predictions for an image under each choice of a setting that a checkpoint's file omits.

Each choice takes one forward pass of a model that shares every weight. Only heads, activation, epsilon,
pooling or the position of the norms are exchanged, or the image is resized and normalised differently.
Another set of weights in the same file is loaded for its prediction alone.
"""

from collections.abc import Iterator
from dataclasses import replace

from PIL import Image
from torch import nn

from vitviz.engine.adapters.load import load
from vitviz.engine.checkpoint import Assumption
from vitviz.engine.formats.overrides import Overrides
from vitviz.engine.forward import copies
from vitviz.engine.images.preprocess import Preprocessing, prepare
from vitviz.engine.inspector import Inspector
from vitviz.errors import VitvizError


def predictions_by_choice(
    inspector: Inspector, picture: Image.Image, assumed: tuple[Assumption, ...], size: tuple[int, int]
) -> Iterator[tuple[str, str, tuple[str, float] | None]]:
    """Yield (assumption's name, choice, likeliest label with its score) for every choice.

    `size` is the input size (height, width).

    The last entry is None for an impossible choice, such as heads that do not divide the width. All other
    settings stay unchanged.
    """
    for assumption in assumed:
        for choice in assumption.choices:
            try:
                yield assumption.name, choice, _answer(inspector, picture, Overrides.parse(choice), size)
            except VitvizError:
                yield assumption.name, choice, None


def _answer(
    inspector: Inspector, picture: Image.Image, overrides: Overrides, size: tuple[int, int]
) -> tuple[str, float] | None:
    """Return an image's likeliest label and its score under the settings `overrides`.

    None without a classifier. `size` is (height, width). The inspector's model stays unchanged.
    """
    if overrides.weights is not None:  # other tensors, loaded for this pass alone
        name = inspector.checkpoint.name
        query = f"{name}{'&' if '?' in name else '?'}{overrides.text()}"
        other = load(replace(inspector.checkpoint, name=query, architecture=None, note="", assumed=()))
        inspector, overrides = type(inspector)(other, str(inspector.device), inspector.dtype), Overrides()
    preprocessing: Preprocessing = inspector.preprocessing.with_size(size)
    prepared = prepare(picture, replace(preprocessing, **overrides.data(vars(preprocessing))))

    def changed(model: nn.Module) -> nn.Module:
        variant = copies.copy_sharing_weights(model)
        overrides.applied(variant, inspector.checkpoint.name)
        return variant

    (trace,) = inspector.forward.traces([prepared], size, change=changed)
    trace = replace(trace, own_head_type=overrides.head_type or trace.own_head_type)
    return trace.top(1)[0] if trace.logits is not None else None
