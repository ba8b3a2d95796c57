"""Ablations in a pass: replace heads and MLPs, drop patches, replace all tokens from a layer on.

A head is replaced at its output z^{l,h} = softmax(q k^T) v, before gate, norm and projection, which then act
on the replacement. An MLP is replaced at its output, before LayerScale. A patch is dropped after the position
embedding: no layer has its token, which is equivalent to attention that gives the token zero weight. Tables
of rotary positions and relative bias are reduced accordingly. `forward.edits` holds the changes of a pass.

Not shown: the output that a replaced head or MLP would have computed from its changed input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from vitviz.engine import memory, readouts
from vitviz.engine.forward.edits import Edit, Outputs, edit_of, heads_of, recording_edit
from vitviz.engine.forward.hooks import mlp_of
from vitviz.engine.forward.mean_ablation import MeanOutputs, shipped_with
from vitviz.engine.forward.own_model import require_known
from vitviz.engine.forward.recording import transformer_blocks
from vitviz.engine.images.patch_fill import paint_patches
from vitviz.engine.images.preprocess import Prepared, open_for, prepare
from vitviz.engine.runner import ForwardRunner
from vitviz.errors import UnsupportedModel, VitvizError, quoted
from vitviz.traces.grid import Grid
from vitviz.traces.localized_text import not_applicable
from vitviz.traces.runs import Ablation
from vitviz.traces.samples import sample_image, samples
from vitviz.traces.trace import sequence_places


def require_parts(model: nn.Module, without: Ablation, grid: Grid, name: str) -> None:
    """Raise VitvizError for a head, MLP, patch or layer that does not exist or cannot be ablated."""
    if without.heads or without.mlps or without.at is not None:
        require_known(model, "how heads and MLPs write into its tokens")
    blocks = transformer_blocks(model)
    layers, heads = len(blocks), heads_of(blocks[0])
    for layer, head in without.heads:
        if layer >= layers or head >= heads:
            raise VitvizError(
                f"Head {(layer, head)} does not exist: {name} has layers 0 to {layers - 1} and heads 0 to"
                f" {heads - 1}, counted from 0; heads={layer + 1}.{head + 1} in a text counts from 1."
            )
    places = [("The MLP of layer", layer) for layer in without.mlps]
    for kind, layer in [*places, ("Layer", without.at or 0)]:
        if layer >= layers:
            raise VitvizError(
                f"{kind} {layer} does not exist. {name} has layers 0 to {layers - 1}, counted from 0."
            )
    if without.mlps and not isinstance(mlp_of(blocks[0]), nn.Module):
        raise VitvizError(
            f"The blocks of {name} have no separate MLP whose output could be replaced. Choose heads or"
            " patches."
        )
    if without.patches and without.patches[-1] >= grid.patches:
        raise VitvizError(
            f"Patch {without.patches[-1]} does not exist: at this size the image has patches 0 to"
            f" {grid.patches - 1}."
        )
    if len(without.patches) == grid.patches and without.patches_as == "dropped":
        raise VitvizError(
            "All patches would be removed; at least one must remain. Keep one, or paint over them"
            " (patches_as='mean')."
        )


NO_MEAN = (
    "the mean is taken over RGB images, and the model does not read RGB; pass heads_as='zero', or for edges"
    " parts_as='zero'"
)
# Largest difference between dropping and masking, relative to the largest value.
_SAME = {"float32": 1e-4, "tf32": 0.01, "bfloat16": 0.05}


def apply_ablation(
    forward: ForwardRunner, prepared: Prepared, size: tuple[int, int], without: Ablation, other: Any
) -> tuple[Prepared, Edit]:
    """Return the (painted) image and the edit for a pass with an ablation.

    Raises VitvizError if a part is unknown or cannot be ablated.
    """
    placed = forward.placed
    grid, name = placed.grid(size), placed.checkpoint.name
    require_parts(placed.model, without, grid, name)
    kept = None  # for all
    if without.patches and without.patches_as == "dropped":
        kept = tuple(sorted({*range(grid.patches)} - {*without.patches}))
        _require_leaving(forward, prepared, size)
    instead = replacement_outputs(forward, size, without, other, kept)
    if without.patches and kept is None:
        preprocessing = placed.preprocessing.with_size(size)
        prepared = paint_patches(prepared, preprocessing, grid, without.patches, without.patches_as)
    return prepared, edit_of(without, grid, kept, instead)


def replacement_outputs(
    forward: ForwardRunner, size: tuple[int, int], without: Ablation, other: Any, kept: tuple[int, ...] | None
) -> Outputs:
    """Return an ablation's replacements for heads, MLPs and tokens, from means or from another image."""
    grid, entered = forward.placed.grid(size), {}
    replaced, instead = without.heads or without.mlps, Outputs()
    if replaced and without.heads_as == "mean":
        tokens = grid.tokens if kept is None else grid.prefix + len(kept)
        instead = mean_outputs(forward, size).parts(tokens, dropped=kept is not None)
    if without.at is not None or (replaced and without.heads_as == "other"):
        preprocessing = forward.placed.preprocessing.with_size(size)
        image = open_for(_other(without, other), preprocessing)
        outputs = forward.watched(prepare(image, preprocessing), size, kept)
        instead, entered = (outputs if without.heads_as == "other" else instead), outputs.entered
    return replace(instead, entered=entered)


def mean_outputs(forward: ForwardRunner, size: tuple[int, int]) -> MeanOutputs:
    """Return the mean outputs that replace heads and MLPs at an input size, computed on first request."""

    def compute() -> MeanOutputs:
        means = shipped_with(forward.placed.checkpoint)
        if means is None:
            if forward.placed.preprocessing.channels not in (1, 3):
                raise UnsupportedModel(not_applicable(forward.placed.checkpoint.name, NO_MEAN))
            images = (sample_image(sample.name) for sample in samples())
            means = measure_means(forward, images, size, "images that come with vitviz")
        return means if size == forward.placed.preprocessing.size else means.even()

    return forward.references.of(size, compute)


def measure_means(
    forward: ForwardRunner, images: Iterable, size: tuple[int, int], source: str,
    progress: Callable[[int], object] | None = None,
) -> MeanOutputs:  # fmt: skip
    """Compute means over RGB images at an input size, with one pass per image and without user hooks."""
    placed, totals = forward.placed, []
    preprocessing = placed.preprocessing.with_size(size)
    for count, image in enumerate(images, start=1):
        outputs = forward.watched(prepare(image, preprocessing), size)
        kinds = (outputs.heads, outputs.mlps)
        parts = [kind[layer][0].float().cpu() for kind in kinds for layer in range(len(kind))]
        del outputs, kinds
        totals = [total.add_(part) for total, part in zip(totals, parts, strict=True)] if totals else parts
        if progress is not None:
            progress(count)
    means = [total.div_(count) for total in totals]
    layers = len(means) // 2
    return MeanOutputs(tuple(means[:layers]), tuple(means[layers:]), placed.grid(size).prefix, count, source)


def _other(without: Ablation, other: Any) -> Any:
    """Return the other image: the argument, or a sample by name; never a path from untrusted `without`."""
    if other is not None:
        return other
    if without.other in {sample.name for sample in samples()}:
        return sample_image(without.other)
    of = f" for {quoted(without.other)}" if without.other else ""
    raise VitvizError(f"The other image{of} is missing. Pass it as other=, or name one of vitviz's samples.")


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
    places, pixels = sequence_places(grid, kept), forward.pixels([prepared])
    try:
        shorter = forward.run(model, pixels, edit=recording_edit(grid, 0, kept=kept)[0])[0].tokens[-1].float()
        hidden = forward.run(model, pixels, edit=Edit(grid=grid, hidden=gone))[0].tokens[-1].float()
        sequence = grid.sequence(len(kept))
        readouts.check_readout(model, readouts.readout_of(model, sequence, name), sequence, name)
    except RuntimeError as error:
        if memory.is_shortage(error):
            raise
        raise _refusal(name, "it cannot run without them") from error
    difference = (shorter - hidden[:, places.to(hidden.device)]).abs().max()
    if not difference <= _SAME[placed.dtype] * shorter.abs().max():
        raise _refusal(name, "its tokens then lose their positions, or are mixed by more than attention")
    forward.leaving.add(size)


def _refusal(name: str, reason: str) -> UnsupportedModel:
    """Return, not raise, the UnsupportedModel error for a model whose patches cannot be left out."""
    return UnsupportedModel(
        f"{name}: removing patches is not applicable, because {reason}. Paint over them instead"
        " (patches_as='mean', 'blur' or 'black')."
    )
