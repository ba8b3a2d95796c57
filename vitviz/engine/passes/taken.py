"""A picture looked at with something taken away: what is needed for it is gathered, then one pass is made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from vitviz.engine import memory, readouts
from vitviz.engine.passes.interventions import (
    Edit,
    Parts,
    by_layer,
    edit_of,
    places_of,
    require_parts,
    survivors,
    watching,
)
from vitviz.engine.passes.references import Reference
from vitviz.engine.pictures.images import open_image
from vitviz.engine.pictures.painted import painted
from vitviz.engine.pictures.preprocess import Prepared, prepare
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.runs import Without
from vitviz.samples import sample_image, samples

if TYPE_CHECKING:
    from vitviz.engine.forward import Forward

Means = Callable[[tuple[int, int]], Reference]  # by input size, made when they are first asked for
# How near leaving out comes to hiding, of the largest number.
_SAME = {torch.float32: 1e-4, torch.bfloat16: 0.05}


def edited(
    inspector: Forward,
    prepared: Prepared,
    size: tuple[int, int],
    without: Without,
    other: Any,
    means: Means,
) -> tuple[Prepared, Edit]:
    """The picture and the pass that are asked for. Raises VitvizError for what the model does not have or
    cannot lose."""
    grid, name = inspector.grid(size), inspector.checkpoint.name
    require_parts(inspector.model, without, grid, name)
    kept = survivors(without, grid)
    if kept is not None:
        _require_leaving(inspector, prepared, size)
    instead = put_instead(inspector, size, without, other, kept, means)
    if without.patches and kept is None:
        preprocessing = inspector.preprocessing.with_size(size)
        prepared = painted(prepared, preprocessing, grid, without.patches, without.patches_as)
    return prepared, replace(edit_of(without, grid, kept, instead), without=without, kept=kept)


def put_instead(
    inspector: Forward,
    size: tuple[int, int],
    without: Without,
    other: Any,
    kept: tuple[int, ...] | None,
    means: Means,
) -> Parts:
    """What is put in the place of heads, MLPs and tokens, as far as it is not made of the pass itself."""
    grid, entered = inspector.grid(size), {}
    replaced, instead = without.heads or without.mlps, Parts()
    if replaced and without.heads_as == "mean":
        instead = means(size).parts(
            grid.prefix + (grid.patches if kept is None else len(kept)), dropped=kept is not None
        )
    if without.at is not None or (replaced and without.heads_as == "other"):
        preprocessing = inspector.preprocessing.with_size(size)
        seen = inspector._watched(prepare(open_image(_other(without, other)), preprocessing), size, kept)
        instead, entered = (seen if without.heads_as == "other" else instead), seen.entered
    layers = by_layer(without.heads)
    heads = {layer: instead.heads[layer] for layer in layers if layer in instead.heads}
    mlps = {layer: instead.mlps[layer] for layer in without.mlps if layer in instead.mlps}
    return Parts(heads, mlps, entered)


def _other(without: Without, other: Any) -> Any:
    """The other picture: handed in, or a sample by its name. Never a path from `without`, which may come
    from a stranger."""
    if other is not None:
        return other
    if without.other in {one.name for one in samples()}:
        return sample_image(without.other)
    named = f" for {without.other!r}" if without.other else ""
    raise VitvizError(
        f"Given no other picture{named}; hand it in as other=, or name one of vitviz's samples."
    )


def _require_leaving(inspector: Forward, prepared: Prepared, size: tuple[int, int]) -> None:
    """UnsupportedModel unless a model computes without some tokens what it computes where nobody sees
    them; proven once a size.

    Hidden keys leave the tokens of the others as if those were not there. What mixes tokens in any other
    way than by attention (convolutions, windows, something reshaped to rows and columns) or loses their
    places shows a difference.
    """
    if size in inspector._leaving:
        return
    model, grid, name = inspector._at(size), inspector.grid(size), inspector.checkpoint.name
    gone = (
        torch.arange(0, grid.patches, 3) + grid.prefix
    )  # the first among them: the others' places have to be kept
    kept = tuple(patch for patch in range(grid.patches) if patch % 3)
    places, pixels = places_of(grid, kept), inspector._pixels([prepared])
    try:
        shorter = (
            inspector._forward(model, pixels, edit=watching(grid, 0, kept=kept)[0])[0].tokens[-1].float()
        )
        hidden = inspector._forward(model, pixels, edit=Edit(grid=grid, hidden=gone))[0].tokens[-1].float()
        sequence = grid.sequence(len(kept))
        readouts.prove(model, readouts.readout_of(model, sequence, name), sequence, name)
    except RuntimeError as error:
        if memory.is_shortage(error):
            raise
        raise UnsupportedModel(_refusal(name, "it cannot compute without them")) from error
    difference = (shorter - hidden[:, places.to(hidden.device)]).abs().max()
    if not difference <= _SAME[pixels.dtype] * shorter.abs().max():
        raise UnsupportedModel(
            _refusal(name, "its tokens then lose their places, or are mixed by more than attention")
        )
    inspector._leaving.add(size)


def _refusal(name: str, reason: str) -> str:
    return (
        f"{name}: leaving patches out is not applicable, because {reason}. Paint them over instead"
        " (patches_as='mean', 'blur' or 'black')."
    )
