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
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from jaxtyping import Float
from safetensors import SafetensorError
from torch import Tensor

from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.forks import lock_of
from vitviz.engine.forward.edits import Outputs
from vitviz.traces.classes import tensors_in

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
        where = "for each position" if self.by_place else "over the positions of all patches"
        return f"Means over {self.pictures} {self.source}, {where}."

    def even(self) -> MeanOutputs:
        """Return the means with one row for all patches."""
        if not self.by_place:
            return self

        def rows(tensor: Tensor) -> Tensor:
            patches = tensor[..., self.prefix :, :].mean(dim=-2, keepdim=True)
            return torch.cat([tensor[..., : self.prefix, :], patches], dim=-2)

        heads, mlps = (tuple(map(rows, by_layer)) for by_layer in (self.heads, self.mlps))
        return replace(self, heads=heads, mlps=mlps, by_place=False)

    def parts(self, tokens: int, dropped: bool = False) -> Outputs:
        """Return the means as replacements for a sequence of `tokens`, by position if it is the means' own.

        Otherwise all patches share one row.
        """
        if self.by_place and (dropped or self.mlps[0].shape[-2] != tokens):
            return self.even().parts(tokens)
        rows = slice(None) if self.by_place else [min(place, self.prefix) for place in range(tokens)]
        heads, mlps = ([means[..., rows, :][None] for means in one] for one in (self.heads, self.mlps))
        return Outputs(dict(enumerate(heads)), dict(enumerate(mlps)))


class MeanOutputCache:
    """Mean outputs of one forward runner, computed on first request; keeps the last few input sizes."""

    def __init__(self) -> None:
        self._lock = lock_of(self)
        self._known: dict[tuple[int, int], MeanOutputs] = {}

    def of(self, size: tuple[int, int], compute: Callable[[], MeanOutputs]) -> MeanOutputs:
        """Return the means at an input size; concurrent requests wait for one computation."""
        means = self._known.get(size)
        if means is None:
            with self._lock:
                means = self._known.get(size) or compute()
                while size not in self._known and len(self._known) >= KEPT:
                    self._known.pop(next(iter(self._known)))
                self._known[size] = means
        return means


def shipped_with(checkpoint: Checkpoint) -> MeanOutputs | None:
    """Return the means shipped with a checkpoint; None if missing, damaged or made with other weights."""
    folder = Path(checkpoint.location)
    weights, path = folder / "model.safetensors", folder / FILE
    if checkpoint.source != "shipped" or not (weights.is_file() and path.is_file()):
        return None
    # not memory-mapped: overwriting a mapped file would end the process
    data = path.read_bytes()
    try:
        contents = tensors_in(data)  # and the metadata texts
        if contents["weights"] != hashlib.sha256(weights.read_bytes()).hexdigest():
            return None
        heads, mlps = (contents[name].float().unbind() for name in ("heads", "mlps"))
        origin = int(contents["prefix"]), int(contents["pictures"]), str(contents["source"])
    except (KeyError, TypeError, ValueError, SafetensorError):
        return None
    return MeanOutputs(heads, mlps, *origin)
