"""Ablations in a pass: replace heads and MLPs, drop patches, replace all tokens from a layer on.

A head is replaced at its output z^{l,h} = softmax(q k^T) v, before gate, norm and projection, which then act
on the replacement. An MLP is replaced at its output, before LayerScale. A patch is dropped after the position
embedding: no layer has its token, which is equivalent to attention that gives the token zero weight. Tables
of rotary positions and relative bias are reduced accordingly.

An `Edit` belongs to one pass: the model is not changed, and passes of other threads are not affected. Not
shown: the output that a replaced head or MLP would have computed from its changed input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vitviz.engine import memory, readouts
from vitviz.engine.forward.biases import additive
from vitviz.engine.forward.hooks import mlp_of
from vitviz.engine.forward.recording import TensorChange, transformer_blocks
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.patch_fill import painted
from vitviz.engine.images.preprocess import Prepared, prepare
from vitviz.errors import UnsupportedModel, VitvizError, quoted
from vitviz.traces.grid import Grid
from vitviz.traces.runs import Ablation
from vitviz.traces.samples import sample_image, samples

if TYPE_CHECKING:
    from vitviz.engine.runner import ForwardRunner


@dataclass(frozen=True)
class Outputs:
    """Outputs of heads and MLPs and inputs of blocks, by layer; of one image, or a mean."""

    # batch x head x token x dim; axes of size 1 broadcast
    heads: Mapping[int, Tensor] = field(default_factory=dict)
    mlps: Mapping[int, Tensor] = field(default_factory=dict)  # batch x token x width
    entered: Mapping[int, Tensor] = field(default_factory=dict)  # batch x token x width


@dataclass(frozen=True)
class Edit:
    """Changes of one pass, for all images of its batch."""

    places: Tensor | None = None  # kept positions in the sequence, prefix first; None for all
    grid: Grid | None = None  # before patches were dropped
    heads: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # replaced heads by layer
    changes: Mapping[tuple[str, int], tuple[TensorChange, ...]] = field(default_factory=dict)
    hidden: Tensor | None = None  # positions with masked keys, to compare with dropping
    without: Ablation = Ablation()  # the requested ablation
    kept: tuple[int, ...] | None = None  # kept patches; None for all

    def mask(self, mask: Tensor | None, query: Tensor) -> Tensor | None:
        """Return an attention call's mask for the remaining tokens."""
        if self.hidden is not None:
            hidden = self.hidden.to(query.device)
            unseen = query.new_zeros(self.grid.tokens).index_fill(0, hidden, float("-inf"))
            bias = unseen if mask is None else additive(mask, query.dtype) + unseen
            return bias.expand(*bias.shape[:-2], query.shape[-2], self.grid.tokens)
        if mask is None or self.places is None:
            return mask
        for axis in (-2, -1):
            if mask.ndim >= -axis and mask.shape[axis] == self.grid.tokens:
                mask = mask.index_select(axis, self.places.to(mask.device))
        return mask

    def select_rows(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return a block's named arguments with rotary tables reduced to the remaining patches."""
        rope = arguments.get("rope")
        tables = isinstance(rope, Tensor) and rope.ndim > 1 and rope.shape[-2] == self.grid.patches
        if self.places is None or not tables:
            return dict(arguments)
        patches = self.places[self.places >= self.grid.prefix] - self.grid.prefix
        return {**arguments, "rope": rope.index_select(-2, patches.to(rope.device))}


def edit_of(without: Ablation, grid: Grid, kept: tuple[int, ...] | None, instead: Outputs) -> Edit:
    """Return the edit of an ablation; `instead` has the replacements for heads, MLPs and tokens."""
    changes: dict[tuple[str, int], tuple[TensorChange, ...]] = {}
    places = None if kept is None else places_of(grid, kept)
    if places is not None:
        changes["input", 0] = (lambda tokens: tokens.index_select(1, places.to(tokens.device)),)
    if without.at is not None:
        other = instead.entered[without.at]
        place = ("input", without.at)
        changes[place] = (*changes.get(place, ()), lambda tokens: other.to(tokens).expand_as(tokens))
    heads = {layer: tuple(head for _, head in some) for layer, some in groupby(without.heads, itemgetter(0))}
    for layer, some in heads.items():
        changes["heads", layer] = (_replaced(list(some), without.heads_as, instead.heads.get(layer)),)
    for layer in without.mlps:
        changes["mlp", layer] = (_replaced(slice(None), without.heads_as, instead.mlps.get(layer)),)
    return Edit(places, grid, heads, changes, without=without, kept=kept)


def watching(grid: Grid, layers: int, kept: tuple[int, ...] | None = None) -> tuple[Edit, Outputs]:
    """Return an edit that only drops patches outside `kept`, and the outputs that its pass will record."""
    edit, seen = edit_of(Ablation(), grid, kept, Outputs()), Outputs()
    changes = dict(edit.changes)

    def into(found: dict[int, Tensor], layer: int) -> TensorChange:
        return lambda tensor: found.__setitem__(layer, tensor.detach().clone())

    for layer in range(layers):
        for name, found in (("heads", seen.heads), ("mlp", seen.mlps), ("input", seen.entered)):
            changes[name, layer] = (*changes.get((name, layer), ()), into(found, layer))
    return replace(edit, changes=changes), seen


def places_of(grid: Grid, kept: tuple[int, ...]) -> Tensor:
    """Return the sequence positions of the prefix tokens and the kept patches."""
    return torch.cat([torch.arange(grid.prefix), grid.prefix + torch.tensor(kept, dtype=torch.long)])


def require_parts(model: nn.Module, without: Ablation, grid: Grid, name: str) -> None:
    """Raise VitvizError for a head, MLP, patch or layer that does not exist or cannot be ablated."""
    blocks = transformer_blocks(model)
    layers, heads = len(blocks), heads_of(blocks[0])
    for layer, head in without.heads:
        if layer >= layers or head >= heads:
            raise VitvizError(
                f"Given head {(layer, head)}; {name} has layers 0 to {layers - 1} and heads 0 to {heads - 1},"
                " counted from 0."
            )
    given = [("the MLP of layer", layer) for layer in without.mlps]
    for kind, layer in [*given, ("layer", without.at or 0)]:
        if layer >= layers:
            raise VitvizError(f"Given {kind} {layer}; {name} has layers 0 to {layers - 1}, counted from 0.")
    if without.mlps and not isinstance(mlp_of(blocks[0]), nn.Module):
        raise VitvizError(
            f"The blocks of {name} have no MLP of their own whose result could be replaced. Choose heads or"
            " patches."
        )
    if without.patches and without.patches[-1] >= grid.patches:
        raise VitvizError(
            f"Given patch {without.patches[-1]}; the picture has patches 0 to {grid.patches - 1} at this"
            " size."
        )
    if len(without.patches) == grid.patches and without.patches_as == "dropped":
        raise VitvizError(
            "Given all patches to be left out; at least one has to stay. Leave one, or paint them"
            " (patches_as='mean')."
        )


def heads_of(block: nn.Module) -> int:
    return int(getattr(getattr(block, "attn", block), "num_heads", 0))


def _replaced(some: list[int] | slice, how: str, instead: Tensor | None) -> TensorChange:
    def change(handed: Tensor) -> Tensor:
        given = handed.clone()
        given[:, some] = in_place(how, handed[:, some], None if instead is None else instead[:, some])
        return given

    return change


def in_place(how: str, handed: Tensor, instead: Tensor | None) -> Tensor | float:
    """Return the replacement of an output (..., token, dim): its mean over tokens, 0, or `instead`."""
    if how == "tokens":
        return handed.mean(dim=-2, keepdim=True)
    return 0.0 if how == "zero" else instead.to(handed)


# Largest difference between dropping and masking, relative to the largest value.
_SAME = {torch.float32: 1e-4, torch.bfloat16: 0.05}


def apply_ablation(
    forward: ForwardRunner, prepared: Prepared, size: tuple[int, int], without: Ablation, other: Any
) -> tuple[Prepared, Edit]:
    """Return the image and edit of an ablation. VitvizError if a part is unknown or cannot be ablated."""
    placed = forward.placed
    grid, name = placed.grid(size), placed.checkpoint.name
    require_parts(placed.model, without, grid, name)
    kept = None  # for all
    if without.patches and without.patches_as == "dropped":
        kept = tuple(sorted({*range(grid.patches)} - {*without.patches}))
        _require_leaving(forward, prepared, size)
    instead = put_instead(forward, size, without, other, kept)
    if without.patches and kept is None:
        preprocessing = placed.preprocessing.with_size(size)
        prepared = painted(prepared, preprocessing, grid, without.patches, without.patches_as)
    return prepared, edit_of(without, grid, kept, instead)


def put_instead(
    forward: ForwardRunner, size: tuple[int, int], without: Ablation, other: Any, kept: tuple[int, ...] | None
) -> Outputs:
    """Return the replacements for heads, MLPs and tokens that do not come from the pass itself."""
    grid, entered = forward.placed.grid(size), {}
    replaced, instead = without.heads or without.mlps, Outputs()
    if replaced and without.heads_as == "mean":
        tokens = grid.tokens if kept is None else grid.prefix + len(kept)
        instead = forward.reference(size).parts(tokens, dropped=kept is not None)
    if without.at is not None or (replaced and without.heads_as == "other"):
        preprocessing = forward.placed.preprocessing.with_size(size)
        seen = forward.watched(prepare(open_image(_other(without, other)), preprocessing), size, kept)
        instead, entered = (seen if without.heads_as == "other" else instead), seen.entered
    return replace(instead, entered=entered)


def _other(without: Ablation, other: Any) -> Any:
    """Return the other image: the argument, or a sample by name; never a path from untrusted `without`."""
    if other is not None:
        return other
    if without.other in {one.name for one in samples()}:
        return sample_image(without.other)
    of = f" for {quoted(without.other)}" if without.other else ""
    raise VitvizError(f"Given no other picture{of}; hand it in as other=, or name one of vitviz's samples.")


def _require_leaving(forward: ForwardRunner, prepared: Prepared, size: tuple[int, int]) -> None:
    """Raise UnsupportedModel unless dropping tokens is equivalent to masking them; checked once per size.

    With masked keys, the other tokens are computed as if the masked ones did not exist. The results differ if
    a model mixes tokens by anything but attention (convolutions, windows, rows and columns) or loses their
    positions.
    """
    if size in forward.leaving:
        return
    placed = forward.placed
    model, grid, name = placed.at(size), placed.grid(size), placed.checkpoint.name
    # includes the first patch, so that lost positions of the others are detected
    gone = torch.arange(0, grid.patches, 3) + grid.prefix
    kept = tuple(patch for patch in range(grid.patches) if patch % 3)
    places, pixels = places_of(grid, kept), forward.pixels([prepared])
    try:
        shorter = forward.run(model, pixels, edit=watching(grid, 0, kept=kept)[0])[0].tokens[-1].float()
        hidden = forward.run(model, pixels, edit=Edit(grid=grid, hidden=gone))[0].tokens[-1].float()
        sequence = grid.sequence(len(kept))
        readouts.prove(model, readouts.readout_of(model, sequence, name), sequence, name)
    except RuntimeError as error:
        if memory.is_shortage(error):
            raise
        raise _refusal(name, "it cannot compute without them") from error
    difference = (shorter - hidden[:, places.to(hidden.device)]).abs().max()
    if not difference <= _SAME[pixels.dtype] * shorter.abs().max():
        raise _refusal(name, "its tokens then lose their places, or are mixed by more than attention")
    forward.leaving.add(size)


def _refusal(name: str, reason: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"{name}: leaving patches out is not applicable, because {reason}. Paint them over instead"
        " (patches_as='mean', 'blur' or 'black')."
    )
