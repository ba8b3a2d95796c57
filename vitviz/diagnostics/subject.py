"""The checked model with its images: input pixels, traces and outputs, each computed once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.engine.device import DTYPES
from vitviz.engine.forward.patch_removal import AT_ONCE, answers_to
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import Preprocessing, prepare
from vitviz.engine.inspector import Inspector
from vitviz.errors import VitvizError
from vitviz.surveys.labels import Labels
from vitviz.surveys.sources import source_of
from vitviz.traces import cancellation
from vitviz.traces.samples import sample_image, samples
from vitviz.traces.trace import Trace

LIMIT = 8  # images


@dataclass(frozen=True)
class CheckedImage:
    """An image in a form that `open_image` reads, and the classes that are true for it, if known."""

    image: Any
    truth: frozenset[int] = frozenset()


def images_of(inspector: Inspector, images: Any, limit: int = LIMIT) -> list[CheckedImage]:
    """Return the images of the check: a source of a survey, evenly thinned out to `limit`, or the samples.

    Raises:
        VitvizError: The source has no image.
    """
    if images is None:
        return [
            CheckedImage(sample_image(one.name), frozenset(one.truth(inspector.labels))) for one in samples()
        ]
    items = list(source_of(images))
    if not items:
        raise VitvizError("There is no image to check the model with. Hand in one or more, or none at all.")
    step = max(1, len(items) / limit)
    chosen = [items[int(i * step)] for i in range(min(limit, len(items)))]
    outputs = int(getattr(inspector.model, "num_classes", 0) or 0)
    labels = Labels(len(inspector.labels) or outputs, inspector.labels)
    numbers = [labels.number(one.label) for one in chosen]
    return [
        CheckedImage(one.picture, frozenset() if number is None else frozenset({number}))
        for one, number in zip(chosen, numbers, strict=True)
    ]


@dataclass(frozen=True)
class CheckSubject:
    """What every check receives."""

    inspector: Inspector
    images: Sequence[CheckedImage]
    method: str
    seed: int = 0
    cache: dict = field(default_factory=dict, repr=False)

    @property
    def name(self) -> str:
        return self.inspector.checkpoint.name

    @cached_property
    def traces(self) -> list[Trace]:
        """The trace of every image."""
        return [self.inspector.trace(one.image) for one in self.images]

    @cached_property
    def model(self) -> nn.Module:
        """The model at its own input size."""
        return self.inspector.placed.at(self.inspector.preprocessing.size)

    @cached_property
    def values(self) -> Float[Tensor, "view image 3 height width"]:
        """Input values from 0 to 1 of every image and of its mirror image."""
        plain = replace(self.inspector.preprocessing, mean=(0.0,) * 3, std=(1.0,) * 3)
        whole = torch.stack([prepare(open_image(one.image), plain).tensor for one in self.images])
        return torch.stack([whole, whole.flip(-1)])

    def inputs(self, preprocessing: Preprocessing | None = None, reverse: bool = False) -> Tensor:
        """Return normalised inputs (view, image, 3, height, width), with BGR channels if `reverse`."""
        mean, std = (preprocessing or self.inspector.preprocessing).scale()
        given = self.values.flip(2) if reverse else self.values
        placed = self.inspector.placed
        return ((given - mean) / std).to(placed.device, DTYPES[placed.dtype])

    def outputs(
        self, model: nn.Module | None = None, inputs: Tensor | None = None
    ) -> Float[Tensor, "view image output"]:
        """Return the outputs of the model, or of a variant, for its inputs, or others."""
        given = self.inputs() if inputs is None else inputs
        at_once = max(1, AT_ONCE // self.inspector.grid().tokens)
        found = answers_to(model or self.model, given.flatten(0, 1).split(at_once)).float()
        return found.unflatten(0, given.shape[:2])

    @cached_property
    def own_outputs(self) -> Float[Tensor, "view image output"]:
        """The outputs of the unchanged model."""
        return self.outputs()

    @property
    def classifies(self) -> bool:
        """True if the outputs are class scores, so that entropies and predictions exist."""
        return self.traces[0].logits is not None and self.inspector.head_type != "value"


def each(subject: CheckSubject) -> Iterable[Trace]:
    """Yield the traces; raises Stopped between two if the check was cancelled."""
    for trace in subject.traces:
        cancellation.check()
        yield trace
