"""What a picture's answer becomes with each choice for what a checkpoint's file does not say.

One forward pass a choice, of a model that shares every weight: only heads, activation, epsilon, pooling or
the place of the norms are exchanged, or the picture is resized and normalised otherwise. Another set of
weights in the same file is read for its answer alone.
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


def outcomes(
    inspector: Inspector, picture: Image.Image, assumed: tuple[Assumption, ...], size: tuple[int, int]
) -> Iterator[tuple[str, str, tuple[str, float] | None]]:
    """(assumption's name, choice, likeliest label with its score) for each choice, at a (height, width).

    None for a choice that cannot be: heads that do not divide the width. The rest stays as it is.
    """
    for one in assumed:
        for choice in one.choices:
            try:
                yield one.name, choice, _answer(inspector, picture, Overrides.parse(choice), size)
            except VitvizError:
                yield one.name, choice, None


def _answer(
    inspector: Inspector, picture: Image.Image, given: Overrides, size: tuple[int, int]
) -> tuple[str, float] | None:
    if given.weights is not None:  # other tensors, for as long as it takes
        name = inspector.checkpoint.name
        asked = f"{name}{'&' if '?' in name else '?'}{given.text()}"
        other = load(replace(inspector.checkpoint, name=asked, architecture=None, note="", assumed=()))
        inspector, given = type(inspector)(other, str(inspector.device), inspector.dtype), Overrides()
    preprocessing: Preprocessing = inspector.preprocessing.with_size(size)
    prepared = prepare(picture, replace(preprocessing, **given.data(vars(preprocessing))))

    def changed(model: nn.Module) -> nn.Module:
        variant = copies.lending(model)
        given.applied(variant, inspector.checkpoint.name)
        return variant

    (trace,) = inspector.forward.traces([prepared], size, change=changed)
    trace = replace(trace, own_head_type=given.head_type or trace.own_head_type)
    return trace.top(1)[0] if trace.logits is not None else None
