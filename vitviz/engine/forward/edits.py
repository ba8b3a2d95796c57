"""Values of an edited pass: replacement outputs of heads and MLPs, and the changes of one pass.

An `Edit` belongs to one pass: the model is not changed, and passes of other threads are not affected.
`engine.ablation` makes the edit of an ablation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import itemgetter
from typing import Any

from torch import Tensor, nn

from vitviz.engine.forward.biases import to_additive_mask
from vitviz.engine.forward.recording import TensorChange
from vitviz.traces.grid import Grid
from vitviz.traces.runs import Ablation
from vitviz.traces.trace import sequence_places


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
            bias = unseen if mask is None else to_additive_mask(mask, query.dtype) + unseen
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


def edit_of(without: Ablation, grid: Grid, kept: tuple[int, ...] | None, replacements: Outputs) -> Edit:
    """Return the edit of an ablation; `replacements` are those for heads, MLPs and tokens."""
    changes: dict[tuple[str, int], tuple[TensorChange, ...]] = {}
    places = None if kept is None else sequence_places(grid, kept)
    if places is not None:
        changes["input", 0] = (lambda tokens: tokens.index_select(1, places.to(tokens.device)),)
    if without.at is not None:
        other = replacements.entered[without.at]
        place = ("input", without.at)
        changes[place] = (*changes.get(place, ()), lambda tokens: other.to(tokens).expand_as(tokens))
    heads = {layer: tuple(head for _, head in some) for layer, some in groupby(without.heads, itemgetter(0))}
    parts = [("heads", layer, list(some), replacements.heads) for layer, some in heads.items()]
    parts += [("mlp", layer, slice(None), replacements.mlps) for layer in without.mlps]
    for kind, layer, some, values in parts:
        changes[kind, layer] = (_replacement_change(some, without.heads_as, values.get(layer)),)
    return Edit(places, grid, heads, changes, without=without, kept=kept)


def recording_edit(grid: Grid, layers: int, kept: tuple[int, ...] | None = None) -> tuple[Edit, Outputs]:
    """Return an edit that only drops patches outside `kept`, and the outputs that its pass will record."""
    edit, seen = edit_of(Ablation(), grid, kept, Outputs()), Outputs()
    changes = dict(edit.changes)

    def into(store: dict[int, Tensor], layer: int) -> TensorChange:
        return lambda tensor: store.__setitem__(layer, tensor.detach().clone())

    for layer in range(layers):
        for name, store in (("heads", seen.heads), ("mlp", seen.mlps), ("input", seen.entered)):
            changes[name, layer] = (*changes.get((name, layer), ()), into(store, layer))
    return replace(edit, changes=changes), seen


def heads_of(block: nn.Module) -> int:
    """Return the number of attention heads of a block; 0 if neither it nor its `attn` states one."""
    return int(getattr(getattr(block, "attn", block), "num_heads", 0))


def _replacement_change(index: list[int] | slice, parts_as: str, replacement: Tensor | None) -> TensorChange:
    """Return a change that replaces `index` of axis 1 in an output: heads, or an MLP's tokens.

    `parts_as` and `replacement` are those of `replacement_value`.
    """

    def change(output: Tensor) -> Tensor:
        changed, own = output.clone(), None if replacement is None else replacement[:, index]
        changed[:, index] = replacement_value(parts_as, output[:, index], own)
        return changed

    return change


def replacement_value(parts_as: str, output: Tensor, replacement: Tensor | None) -> Tensor | float:
    """Return the replacement of an output (..., token, dim): its mean over tokens, 0, or `replacement`."""
    if parts_as == "tokens":
        return output.mean(dim=-2, keepdim=True)
    return 0.0 if parts_as == "zero" else replacement.to(output)
