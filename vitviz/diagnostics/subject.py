"""The checked model with its images: input pixels, traces and outputs, each computed once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import itemgetter
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.analyses.protocol import NO_HEAD
from vitviz.engine.device import DTYPES
from vitviz.engine.formats.timm_config import wordnet_names
from vitviz.engine.forward import copies
from vitviz.engine.forward.patch_removal import AT_ONCE, outputs_of_batches
from vitviz.engine.images.preprocess import Preprocessing, open_for, prepare
from vitviz.engine.inspector import Inspector
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.surveys.labels import Labels
from vitviz.surveys.sources import source_of
from vitviz.traces import cancellation
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.samples import sample_image, samples
from vitviz.traces.trace import Trace

LIMIT = 8  # images
ONE_IMAGE = "This check compares images, and there is only one. Pass two or more."


@dataclass(frozen=True)
class CheckedImage:
    """An image in a form that `open_image` reads, and the classes that are true for it, if known."""

    image: Any
    truth: frozenset[int] = frozenset()
    label: str | int | None = None  # as given by the source


def images_of(inspector: Inspector, images: Any, limit: int = LIMIT) -> list[CheckedImage]:
    """Return the images of the check: at most `limit`, taken evenly from a survey's source, or the samples.

    Raises:
        VitvizError: The source has no image.
    """
    if images is None:
        truths = {sample.name: frozenset(sample.truth(inspector.labels)) for sample in samples()}
        return [CheckedImage(sample_image(name), truth) for name, truth in truths.items()]
    items = list(source_of(images))
    if not items:
        raise VitvizError("There is no image to check the model with. Pass one or more, or none at all.")
    step = max(1, len(items) / limit)
    selected = [items[int(i * step)] for i in range(min(limit, len(items)))]
    outputs = int(getattr(inspector.model, "num_classes", 0) or 0)
    labels = Labels(len(inspector.labels) or outputs, inspector.labels)
    by_id = wordnet_classes(labels)

    def truth(label: str | int | None) -> frozenset[int]:
        number = labels.number(label)
        return frozenset({by_id.get(label) if number is None else number} - {None})

    return [CheckedImage(one.picture, truth(one.label), one.label) for one in selected]


def wordnet_classes(labels: Labels) -> dict[str, int]:
    """Return the class number of each WordNet id of ImageNet-1k whose names stand for one class, in order.

    A class whose name several ids have ("crane") gets the last of them.
    """
    ids = {}
    for wnid, names in wordnet_names().items():
        numbers = (labels.number(name) for name in names)
        ids[next((number for number in numbers if number is not None), None)] = wnid
    ids.pop(None, None)
    return {wnid: number for number, wnid in sorted(ids.items(), key=itemgetter(1))}


@dataclass(frozen=True)
class CheckSubject:
    """The checked model, its images and the settings of the check, as every check receives them."""

    inspector: Inspector
    images: Sequence[CheckedImage]
    method: str
    seed: int = 0
    causes: set[str] = field(default_factory=set, compare=False)  # serious findings of the finished checks

    @property
    def name(self) -> str:
        """The name of the checked checkpoint."""
        return self.inspector.checkpoint.name

    @cached_property
    def traces(self) -> list[Trace]:
        """The trace of every image."""
        return [self.inspector.trace(checked.image) for checked in self.images]

    @cached_property
    def model(self) -> nn.Module:
        """The model at its own input size."""
        return self.inspector.placed.at(self.inspector.preprocessing.size)

    @cached_property
    def values(self) -> Float[Tensor, "view image channel height width"]:
        """Input values from 0 to 1 of every image and of its mirror image."""
        plain = self.inspector.preprocessing
        plain = replace(plain, mean=(0.0,) * plain.channels, std=(1.0,) * plain.channels)
        tensors = [prepare(open_for(checked.image, plain), plain).tensor for checked in self.images]
        images = torch.stack(tensors)
        return torch.stack([images, images.flip(-1)])

    def inputs(
        self, preprocessing: Preprocessing | None = None, arrange: Callable[[Tensor], Tensor] | None = None
    ) -> Float[Tensor, "view image channel height width"]:
        """Return the normalised inputs of all images; `arrange` changes values from 0 to 1 before."""
        mean, std = (preprocessing or self.inspector.preprocessing).scale()
        values = self.values if arrange is None else arrange(self.values)
        placed = self.inspector.placed
        return ((values - mean) / std).to(placed.device, DTYPES[placed.dtype])

    def outputs(
        self, change: Callable[[nn.Module], Any] | None = None, **settings
    ) -> Float[Tensor, "view image output"]:
        """Return the outputs for every image and its mirror image (view), of the model or of a copy.

        `change` may replace parts of the copy, but not edit its weights, which are the model's.
        """
        model, inputs = self.model, self.inputs(**settings)
        if change is not None:
            model = copies.copy_sharing_weights(model)
            change(model)
            model.eval()
        batches = inputs.flatten(0, 1).split(max(1, AT_ONCE // self.inspector.grid().tokens))
        return outputs_of_batches(model, batches).float().unflatten(0, inputs.shape[:2])

    @cached_property
    def own_outputs(self) -> Float[Tensor, "view image output"]:
        """The outputs of the unchanged model."""
        return self.outputs()

    def require_classes(self, images: int = 2) -> None:
        """Raise UnsupportedModel unless the outputs are class scores, of at least `images` images."""
        classifies = self.traces[0].logits is not None and self.inspector.head_type != "value"
        if not classifies:
            raise UnsupportedModel(LocalizedText(NO_HEAD, checkpoint=self.name))
        if len(self.images) < images:
            raise UnsupportedModel(LocalizedText(ONE_IMAGE))


def traces_of(subject: CheckSubject) -> Iterable[Trace]:
    """Yield the trace of every image; raise Stopped between two if the check was cancelled."""
    for trace in subject.traces:
        cancellation.check()
        yield trace
