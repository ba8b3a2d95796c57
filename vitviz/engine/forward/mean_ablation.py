"""Mean outputs of heads and MLPs over a set of images, for mean ablation.

A head set to zero gives the model an input outside its distribution. A head's mean over many images contains
no information about the current image and stays close to usual values. The mean is taken at every token of
the sequence, because a head's output differs between positions. At an input size other than the checkpoint's,
and if patches are dropped, the mean also runs over all patch positions. vitviz-tiny ships means over
validation images of its data set (weights/vitviz-tiny/reference.py). For other checkpoints, means are
computed from vitviz's few sample images and are less reliable. Not shown: the function of a head.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor

from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.forks import lock_of
from vitviz.engine.forward.interventions import Outputs
from vitviz.engine.images.preprocess import prepare
from vitviz.traces.classes import tensors_in
from vitviz.traces.samples import sample_image, samples

if TYPE_CHECKING:
    from vitviz.engine.runner import ForwardRunner

FILE = "reference.safetensors"
KEPT = 3  # input sizes in the cache; except for the checkpoint's own size, means have one row for all patches


@dataclass(frozen=True)
class MeanOutputs:
    """Means over images by layer: a row per token, or the prefix rows and one row for all patches."""

    heads: tuple[Float[Tensor, "head token dim"], ...]
    mlps: tuple[Float[Tensor, "token width"], ...]
    prefix: int
    pictures: int
    source: str  # origin of the images, to end a sentence
    by_place: bool = True

    @property
    def sentence(self) -> str:
        """A sentence that describes the means, for results."""
        where = "at every place by itself" if self.by_place else "over all patches' places"
        return f"Means over {self.pictures} {self.source}, {where}."

    def even(self) -> MeanOutputs:
        """Return the means with one row for all patches."""
        if not self.by_place:
            return self

        def rows(tensor: Tensor) -> Tensor:
            patches = tensor[..., self.prefix :, :].mean(dim=-2, keepdim=True)
            return torch.cat([tensor[..., : self.prefix, :], patches], dim=-2)

        heads, mlps = (tuple(map(rows, some)) for some in (self.heads, self.mlps))
        return replace(self, heads=heads, mlps=mlps, by_place=False)

    def parts(self, tokens: int, dropped: bool = False) -> Outputs:
        """Return the means for a sequence of `tokens`, by position if the sequence is the same.

        Otherwise all patches share one row.
        """
        if self.by_place and (dropped or self.mlps[0].shape[-2] != tokens):
            return self.even().parts(tokens)
        rows = slice(None) if self.by_place else [min(place, self.prefix) for place in range(tokens)]
        spread = [[one[..., rows, :][None] for one in some] for some in (self.heads, self.mlps)]
        return Outputs(*(dict(enumerate(one)) for one in spread))


class MeanOutputCache:
    """Mean outputs of one forward runner, computed on first request; keeps the last few input sizes."""

    def __init__(self) -> None:
        self._lock = lock_of(self)
        self._known: dict[tuple[int, int], MeanOutputs] = {}

    def of(self, forward: ForwardRunner, size: tuple[int, int]) -> MeanOutputs:
        """Return the means at an input size; concurrent requests wait for one computation."""
        found = self._known.get(size)
        if found is None:
            with self._lock:
                found = self._known.get(size) or self._made(forward, size)
                while size not in self._known and len(self._known) >= KEPT:
                    self._known.pop(next(iter(self._known)))
                self._known[size] = found
        return found

    def _made(self, forward: ForwardRunner, size: tuple[int, int]) -> MeanOutputs:
        own = size == forward.placed.preprocessing.size
        shipped = shipped_with(forward.placed.checkpoint)
        if shipped is None:
            pictures = (sample_image(one.name) for one in samples())
            shipped = measure_means(forward, pictures, size, "photographs that come with vitviz")
        return shipped if own else shipped.even()


def measure_means(
    forward: ForwardRunner, pictures: Iterable, size: tuple[int, int], source: str,
    progress: Callable[[int], object] | None = None,
) -> MeanOutputs:  # fmt: skip
    """Compute means over RGB images at an input size, with one pass per image and without user hooks."""
    placed, totals = forward.placed, []
    preprocessing = placed.preprocessing.with_size(size)
    for count, picture in enumerate(pictures, start=1):
        seen = forward.watched(prepare(picture, preprocessing), size)
        found = [one[layer][0].float().cpu() for one in (seen.heads, seen.mlps) for layer in range(len(one))]
        del seen
        totals = [total.add_(one) for total, one in zip(totals, found, strict=True)] if totals else found
        if progress is not None:
            progress(count)
    means = [total.div_(count) for total in totals]
    layers = len(means) // 2
    return MeanOutputs(tuple(means[:layers]), tuple(means[layers:]), placed.grid(size).prefix, count, source)


def shipped_with(checkpoint: Checkpoint) -> MeanOutputs | None:
    """Return the means shipped with a checkpoint; None if missing, damaged or made with other weights."""
    folder = Path(checkpoint.location)
    weights, path = folder / "model.safetensors", folder / FILE
    if checkpoint.source != "shipped" or not (weights.is_file() and path.is_file()):
        return None
    # not memory-mapped: overwriting a mapped file would end the process
    data = path.read_bytes()
    try:
        about = tensors_in(data)  # and the metadata texts
        if about["weights"] != hashlib.sha256(weights.read_bytes()).hexdigest():
            return None
        heads, mlps = (about[name].float().unbind() for name in ("heads", "mlps"))
        told = int(about["prefix"]), int(about["pictures"]), str(about["source"])
    except (KeyError, TypeError, ValueError, SafetensorError):
        return None
    return MeanOutputs(heads, mlps, *told)
