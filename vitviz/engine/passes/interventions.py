"""What is taken away from a pass, and what stands in its place: heads, MLPs, patches, or all tokens from a
layer on.

A head is replaced at the seam, z^{l,h} = softmax(q k^T) v before gate, norm and projection, so that what
stands behind it in a family does its work on what was put there; an MLP at its result, before LayerScale.
A patch is left out behind its position embedding: its token is not there in any layer, which is the same
as attention that gives it nothing. Tables of rotary positions and of relative bias are cut to the
survivors, who keep their places.

Everything belongs to one pass (`Edit`): the model is not touched, and passes of other threads do not see
it. What a replaced head or MLP would have made of its new surroundings is not shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from vitviz.engine.passes.biases import additive
from vitviz.engine.passes.plain import transformer_blocks
from vitviz.engine.passes.recording import Change
from vitviz.engine.passes.wiring import mlp_of
from vitviz.errors import VitvizError
from vitviz.grid import Grid
from vitviz.runs import Without


@dataclass(frozen=True)
class Parts:
    """What heads and MLPs hand on, by layer, and what entered the blocks: of one picture, or a mean over
    several.
    """

    heads: Mapping[int, Tensor] = field(
        default_factory=dict
    )  # batch x head x token x dim, 1 for what all share
    mlps: Mapping[int, Tensor] = field(default_factory=dict)  # batch x token x width
    entered: Mapping[int, Tensor] = field(default_factory=dict)  # batch x token x width


@dataclass(frozen=True)
class Edit:
    """What one pass does otherwise; it belongs to that pass, and holds for all pictures of its batch."""

    places: Tensor | None = None  # of the sequence, prefix first, that stay; None for all
    grid: Grid | None = None  # before anything was left out
    heads: Mapping[int, tuple[int, ...]] = field(default_factory=dict)  # by layer, those that are replaced
    at: int | None = None  # the layer that other tokens enter
    changes: Mapping[tuple[str, int], tuple[Change, ...]] = field(default_factory=dict)
    hidden: Tensor | None = None  # places whose keys nobody sees: what leaving them out is held against
    without: Without = Without()  # what was asked for
    kept: tuple[int, ...] | None = None  # the patches that stay; None for all

    def mask(self, mask: Tensor | None, query: Tensor) -> Tensor | None:
        """An attention call's mask, for the tokens that are there."""
        if self.hidden is not None:
            unseen = query.new_zeros(self.grid.tokens).index_fill(
                0, self.hidden.to(query.device), float("-inf")
            )
            bias = unseen if mask is None else additive(mask, query.dtype) + unseen
            return (
                bias.expand(*bias.shape[:-2], query.shape[-2], self.grid.tokens)
                if bias.ndim > 1
                else bias.expand(query.shape[-2], -1)
            )
        if mask is None or self.places is None:
            return mask
        for axis in (-2, -1):
            if mask.ndim >= -axis and mask.shape[axis] == self.grid.tokens:
                mask = mask.index_select(axis, self.places.to(mask.device))
        return mask

    def named(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """A block's named arguments: rotary tables, which have a row for every patch, for the patches that
        are there.
        """
        rope = arguments.get("rope")
        if (
            self.places is None
            or not isinstance(rope, Tensor)
            or rope.ndim < 2
            or rope.shape[-2] != self.grid.patches
        ):
            return dict(arguments)
        patches = self.places[self.places >= self.grid.prefix] - self.grid.prefix
        return {**arguments, "rope": rope.index_select(-2, patches.to(rope.device))}


def edit_of(without: Without, grid: Grid, kept: tuple[int, ...] | None, instead: Parts) -> Edit:
    """The pass that is asked for; `instead` has what stands for heads, MLPs and tokens that are replaced
    by something known."""
    changes: dict[tuple[str, int], tuple[Change, ...]] = {}
    places = None if kept is None else places_of(grid, kept)
    if places is not None:
        changes["input", 0] = (_only(places),)
    if without.at is not None:
        other = instead.entered[without.at]
        place = ("input", without.at)
        changes[place] = (*changes.get(place, ()), lambda tokens: other.to(tokens).expand_as(tokens))
    heads = by_layer(without.heads)
    for layer, some in heads.items():
        changes["heads", layer] = (_replaced(some, without.heads_as, instead.heads.get(layer)),)
    for layer in without.mlps:
        changes["mlp", layer] = (_whole(without.heads_as, instead.mlps.get(layer)),)
    return Edit(places, grid, heads, without.at, changes)


def watching(
    grid: Grid, layers: int, heads: bool = True, entered: bool = True, kept: tuple[int, ...] | None = None
) -> tuple[Edit, Parts]:
    """A pass that changes nothing but what is left out of it, and what heads and MLPs hand on in it, once
    it has been made."""
    seen = Parts({}, {}, {})

    def into(found: dict[int, Tensor], layer: int) -> Change:
        return lambda tensor: found.__setitem__(layer, tensor.detach().clone())

    changes: dict[tuple[str, int], tuple[Change, ...]] = {}
    for layer in range(layers):
        if heads:
            changes["heads", layer], changes["mlp", layer] = (
                (into(seen.heads, layer),),
                (into(seen.mlps, layer),),
            )
        if entered:
            changes["input", layer] = (into(seen.entered, layer),)
    places = None if kept is None else places_of(grid, kept)
    if places is not None:
        changes["input", 0] = (_only(places), *changes.get(("input", 0), ()))
    return Edit(places, grid, changes=changes), seen


def places_of(grid: Grid, kept: tuple[int, ...]) -> Tensor:
    """Where prefix and survivors stand in the sequence."""
    return torch.cat([torch.arange(grid.prefix), grid.prefix + torch.tensor(kept, dtype=torch.long)])


def by_layer(heads: tuple[tuple[int, int], ...]) -> dict[int, tuple[int, ...]]:
    """The heads of each layer.

    >>> by_layer(((0, 2), (3, 0), (3, 1)))
    {0: (2,), 3: (0, 1)}
    """
    layers = sorted({layer for layer, _ in heads})
    return {layer: tuple(head for one, head in heads if one == layer) for layer in layers}


def survivors(without: Without, grid: Grid) -> tuple[int, ...] | None:
    """The patches that are not left out; None where all stay."""
    if not without.patches or without.patches_as != "dropped":
        return None
    gone = set(without.patches)
    return tuple(patch for patch in range(grid.patches) if patch not in gone)


def require_parts(model: nn.Module, without: Without, grid: Grid, name: str) -> None:
    """VitvizError for a head, MLP, patch or layer that the model does not have, or cannot lose."""
    blocks = transformer_blocks(model)
    layers, heads = len(blocks), heads_of(blocks[0])
    for layer, head in without.heads:
        if layer >= layers or head >= heads:
            raise VitvizError(
                f"Given head {(layer, head)}; {name} has layers 0 to {layers - 1} and heads 0 to {heads - 1},"
                " counted from 0."
            )
    for kind, given in (
        ("the MLP of layer", without.mlps),
        ("layer", () if without.at is None else (without.at,)),
    ):
        for layer in given:
            if layer >= layers:
                raise VitvizError(
                    f"Given {kind} {layer}; {name} has layers 0 to {layers - 1}, counted from 0."
                )
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
    """How many heads a block has."""
    return int(getattr(getattr(block, "attn", block), "num_heads", 0))


def _only(places: Tensor) -> Change:
    return lambda tokens: tokens.index_select(1, places.to(tokens.device))


def _replaced(heads: tuple[int, ...], how: str, instead: Tensor | None) -> Change:
    some = list(heads)

    def change(handed: Tensor) -> Tensor:
        given = handed.clone()
        if how == "tokens":
            given[:, some] = handed[:, some].mean(dim=2, keepdim=True)
        else:
            given[:, some] = 0 if how == "zero" else instead[:, some].to(handed)
        return given

    return change


def _whole(how: str, instead: Tensor | None) -> Change:
    def change(handed: Tensor) -> Tensor:
        if how == "tokens":
            return handed.mean(dim=1, keepdim=True).expand_as(handed).contiguous()
        return (
            torch.zeros_like(handed) if how == "zero" else instead.to(handed).expand_as(handed).contiguous()
        )

    return change
