"""What every part writes at all tokens, recorded in one more pass over a trace's picture, on request.

A trace keeps what is added to the tokens that the classifier reads. For the question who wrote what a head
reads, the same hooks (`branches`) listen at every token, and the seam keeps what each head hands on. The pass
is that of the trace, with whatever was taken out of it, and has to end in the trace's tokens.
"""

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from vitviz.analyses.tail import Pooling
from vitviz.analyses.writers import Stream
from vitviz.engine.defaults import in_float32
from vitviz.engine.device import memory_guard, plainly
from vitviz.engine.inspector import Inspector
from vitviz.engine.passes import capture, interventions, record
from vitviz.engine.passes.branches import BRANCHES, branches_of
from vitviz.engine.tails import at_least_float32, held, norm_of, reader_of
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.record.sentence import Sentence, not_applicable
from vitviz.record.trace import Trace

EVERY = Pooling("average", ((0, None),), None, None)  # as if every token were read
UNLIKE = (
    "this pass gave other tokens than the trace has, so the trace was made by another model, or with hooks"
)
PATCHED = "its tokens were replaced by another picture's, which nobody in this pass wrote"
BEGINNING = "what enters its first block is not the sum of its embedding and its positions"
FLOAT32 = (
    "Given {checkpoint} in {dtype}; what writers wrote is recorded in float32. Load it with dtype='float32'."
)
TOLERANCE = 1e-4  # of the largest number


class _Wide:
    """A pass that listens at all tokens, and lets go of what it has no use for."""

    def __init__(self, own: capture.Pass, model: nn.Module, blocks: list[nn.Module]):
        self.own, self.heads, self.turns = own, [], []
        self.branches = replace(branches_of(model, blocks), pooling=EVERY)
        self.last: Tensor | None = None

    def heard(self, moment: str, layer: int, args: tuple, output: Any) -> Any:
        if moment in BRANCHES:
            if moment not in ("added attention", "pool mlp"):
                self.branches.hear(moment, args, output)
            return None
        given = self.own.heard(moment, layer, args, output)
        if moment == "input":
            named = output if given is None else given[1]
            self.turns.append(named.get("rope"))
        elif moment == "output":
            recording = self.own.recording
            recording.calls[layer].clear()
            del recording.tokens[1:-1]
        return given

    def attend(self, layer: int | None, *call, **named) -> Tensor:
        given = self.own.attend(layer, *call, **named)
        if layer is not None:
            self.heads.append(given[0].detach())
        return given


@in_float32()
def stream_of(inspector: Inspector, trace: Trace) -> Stream:
    """What was written in a trace's pass; UnsupportedModel, with the reason, where that is not understood."""
    if inspector.dtype != "float32":
        raise VitvizError(Sentence(FLOAT32, checkpoint=inspector.checkpoint.name, dtype=inspector.dtype))
    (prepared, size), edit, without = inspector.forward.seen(trace.view, None), None, trace.without
    if without.at is not None:
        raise UnsupportedModel(not_applicable(trace.checkpoint, Sentence(PATCHED)))
    if without:
        painted = without.patches_as != "dropped"  # which its view shows already
        without = replace(without, patches=()) if painted else without
        prepared, edit = interventions.edited(inspector.forward, prepared, size, without, None)
    inspector.tail(trace.grid.pixels)  # says why, where its blocks are not understood
    with memory_guard(inspector.device, f"Recording what was written in {trace.checkpoint}"):
        pixels = inspector.forward.pixels([prepared])
        return recorded_stream(inspector.placed.at(size), pixels, trace, edit)


def recorded_stream(model: nn.Module, pixels: Tensor, trace: Trace, edit=None) -> Stream:
    """The same of a model and its input, a batch of one."""
    blocks, name = capture.transformer_blocks(model), trace.checkpoint
    one = _Wide(capture.Pass(len(blocks), False, {}, edit), model, blocks)
    with plainly(pixels.device), capture.heard(model, blocks, one):
        model(pixels)
    recording, branches = one.own.recording, one.branches
    first, last = (held(recording.tokens[i][0]) for i in (0, -1))
    if not _alike(first, trace.tokens[0]) or not _alike(last, trace.tokens[-1]):
        raise UnsupportedModel(not_applicable(name, Sentence(UNLIKE)))
    prefix = [held(token[0]) for token in record.prefix_of(model).values()]
    embedding = torch.cat([*prefix, held(recording.patch_embedding[0]).flatten(0, -2)])[trace.places]
    table, entry = getattr(model, "pos_embed", None), norm_of(getattr(model, "norm_pre", None))
    positions = None
    if table is not None:
        rows = held(table.reshape(-1, table.shape[-1]))
        missing = trace.grid.tokens - len(rows)
        if missing not in (0, trace.grid.prefix):
            raise UnsupportedModel(not_applicable(name, Sentence(BEGINNING)))
        positions = torch.cat([rows.new_zeros(missing, rows.shape[1]), rows])[trace.places]
    entering = embedding if positions is None else embedding + positions
    if not _alike(entering if entry is None else entry(entering), first):
        raise UnsupportedModel(not_applicable(name, Sentence(BEGINNING)))

    def kept(moment: str) -> tuple[Tensor, ...]:
        return tuple(held(one[0]) for one in branches.found[moment])

    scales = zip(kept("added mlp"), branches.scales, strict=True)
    return Stream(
        readers=tuple(reader_of(block) for block in blocks),
        embedding=embedding,
        positions=positions,
        entry=entry,
        heads=tuple(map(held, one.heads)),
        mlps=tuple(mlp if scale is None else mlp * scale.to(mlp) for mlp, scale in scales),
        inner=kept("inner norm"),
        post=kept("post norm"),
        gates=kept("gate"),
        turns=tuple(map(held, one.turns)),
        halves=bool(getattr(getattr(blocks[0], "attn", None), "rotate_half", False)),
    )


def _alike(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and bool(
        (one - other).abs().max() <= TOLERANCE * at_least_float32(other).abs().max()
    )
