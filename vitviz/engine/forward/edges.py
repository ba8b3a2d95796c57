"""Record upstream contributions at all tokens, and ablate edges between writers and readers (path patching).

A trace keeps the additions to the tokens that the classifier reads. To attribute the inputs of a head, the
hooks of `branches` record all tokens in an additional pass over the image, on request, and the attention
interceptor keeps each head's output. The pass repeats the trace's, with the same ablation, and must end in
the trace's tokens.

In an edge ablation, some readers do not receive the contributions of some writers, while everything else runs
normally. Every item of the batch is the same image with its own removal. A removal lists, for each reader,
the writers whose contributions to its input are replaced, by zero or by their mean. A reader is ("query",
"key" or "value", layer, head), ("mlp", layer) or ("readout",). The reader's norm is recomputed on the
remaining input. A writer's contribution is the one in that very pass. The model is not changed: queries, keys
and values are replaced in the attention call, an MLP's output at its hook, and the last block's output before
the readout.
"""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from vitviz.analyses.effects import SIDES
from vitviz.analyses.logit_attribution import LogitTerms
from vitviz.analyses.upstream import Stream, Writer, read_projection
from vitviz.engine.ablation import apply_ablation
from vitviz.engine.defaults import in_float32
from vitviz.engine.device import inference_context, memory_guard
from vitviz.engine.forward import capture, tracing
from vitviz.engine.forward.branches import BRANCHES, branches_of
from vitviz.engine.inspector import Inspector
from vitviz.engine.readout_stages import (
    EVERY,
    PRE_NORM,
    at_least_float32,
    frozen_copy,
    norm_of,
    reader_of,
    scale_of,
)
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.traces.localized_text import LocalizedText, not_applicable
from vitviz.traces.trace import Trace

UNLIKE = (
    "this pass gave other tokens than the trace has, so the trace comes from another model, or from a pass"
    " with hooks"
)
PATCHED = "its tokens were replaced by another image's, which no component of this pass wrote"
BEGINNING = "the input of its first block is not the sum of its embedding and its positions"
FLOAT32 = (
    "{checkpoint} computes in {dtype}; contributions are recorded in float32. Load it with dtype='float32'."
)
TOLERANCE = 1e-4  # relative to the largest value


class _AllTokensPass:
    """Pass that records branches at all tokens and frees recorded tensors that are not needed."""

    def __init__(self, own: capture.Pass, model: nn.Module, blocks: list[nn.Module]):
        self.own, self.heads, self.turns = own, [], []
        self.branches = branches_of(model, blocks, EVERY)
        self.last: Tensor | None = None

    def on_event(self, moment: str, layer: int, args: tuple, output: Any) -> Any:
        """Record branch outputs or a block's rotary table, and free tensors after each block.

        A returned value replaces the hooked tensor; None leaves it.
        """
        if moment in BRANCHES:
            if moment not in ("added attention", "pool mlp"):
                self.branches.record(moment, args, output)
            return None
        result = self.own.on_event(moment, layer, args, output)
        if moment == "input":
            named = output if result is None else result[1]
            self.turns.append(named.get("rope"))
        elif moment == "output":
            recording = self.own.recording
            recording.calls[layer].clear()
            del recording.tokens[1:-1]
        return result

    def attend(self, layer: int | None, *call, **named) -> Tensor:
        """Run an attention call and keep its head outputs (head, token, dim) if inside a block."""
        output = self.own.attend(layer, *call, **named)
        if layer is not None:
            self.heads.append(output[0].detach())
        return output


@in_float32()
def stream_of(inspector: Inspector, trace: Trace) -> Stream:
    """Return the outputs of all components in a trace's pass, recorded by repeating the pass.

    Raises UnsupportedModel with the reason if the model is not supported, VitvizError if its precision is not
    float32.
    """
    if inspector.dtype != "float32":
        raise VitvizError(LocalizedText(FLOAT32, checkpoint=inspector.checkpoint.name, dtype=inspector.dtype))
    (prepared, size), edit, without = inspector.forward.prepare(trace.view, None), None, trace.without
    if without.at is not None:
        raise UnsupportedModel(not_applicable(trace.checkpoint, LocalizedText(PATCHED)))
    if without:
        painted = without.patches_as != "dropped"  # already part of the view
        without = replace(without, patches=()) if painted else without
        prepared, edit = apply_ablation(inspector.forward, prepared, size, without, None)
    # raises with the reason if the blocks are not supported
    inspector.tail(trace.grid.pixels, classifier=False)
    with memory_guard(inspector.device, f"Recording the contributions in {trace.checkpoint}"):
        pixels = inspector.forward.pixels([prepared])
        return recorded_stream(inspector.placed.at(size), pixels, trace, edit)


def recorded_stream(model: nn.Module, pixels: Tensor, trace: Trace, edit=None) -> Stream:
    """Return the outputs of all components of a model for an input batch of one; see `stream_of`."""
    blocks, name = capture.transformer_blocks(model), trace.checkpoint
    listener = _AllTokensPass(capture.Pass(len(blocks), False, {}, edit), model, blocks)
    with inference_context(pixels.device), capture.listening(model, blocks, listener):
        model(pixels)
    recording, branches = listener.own.recording, listener.branches
    first, last = (frozen_copy(recording.tokens[i][0]) for i in (0, -1))
    if not _alike(first, trace.tokens[0]) or not _alike(last, trace.tokens[-1]):
        raise UnsupportedModel(not_applicable(name, LocalizedText(UNLIKE)))
    prefix = [frozen_copy(token[0]) for token in tracing.prefix_of(model).values()]
    embedding = torch.cat([*prefix, frozen_copy(recording.patch_embedding[0]).flatten(0, -2)])[trace.places]
    table, entry = getattr(model, "pos_embed", None), norm_of(getattr(model, "norm_pre", None))
    positions = None
    if table is not None:
        rows = frozen_copy(table.reshape(-1, table.shape[-1]))
        missing = trace.grid.tokens - len(rows)
        if missing not in (0, trace.grid.prefix):
            raise UnsupportedModel(not_applicable(name, LocalizedText(BEGINNING)))
        positions = torch.cat([rows.new_zeros(missing, rows.shape[1]), rows])[trace.places]
    entering = embedding if positions is None else embedding + positions
    if not _alike(entering if entry is None else entry(entering), first):
        raise UnsupportedModel(not_applicable(name, LocalizedText(BEGINNING)))

    def keep(moment: str) -> tuple[Tensor, ...]:
        return tuple(frozen_copy(listener[0]) for listener in branches.found[moment])

    scales = zip(keep("added mlp"), branches.scales, strict=True)
    return Stream(
        readers=tuple(reader_of(block) for block in blocks), embedding=embedding, positions=positions,
        entry=entry, heads=tuple(map(frozen_copy, listener.heads)),
        mlps=tuple(mlp if scale is None else mlp * scale.to(mlp) for mlp, scale in scales),
        inner=keep("inner norm"), post=keep("post norm"), gates=keep("gate"),
        turns=tuple(map(frozen_copy, listener.turns)),
        halves=bool(getattr(getattr(blocks[0], "attn", None), "rotate_half", False))
    )  # fmt: skip


def _alike(actual: Tensor, expected: Tensor) -> bool:
    """Return True if shapes agree and no value differs by over TOLERANCE of the largest in `expected`."""
    if actual.shape != expected.shape:
        return False
    return bool((actual - expected).abs().max() <= TOLERANCE * at_least_float32(expected).abs().max())


RemovedEdges = Mapping[tuple, Sequence[Writer]]  # reader -> writers removed from its input
MIXED = (
    "its blocks are not a plain sum of norm and branch, so a contribution cannot be removed from one"
    " input alone"
)
TAKEN = "parts were already removed in this pass; use the whole model"


@dataclass(eq=False)
class _EdgeAblationPass:
    """Listener of one pass with edge ablations; local to its thread."""

    blocks: list[nn.Module]
    ledger: LogitTerms
    stream: Stream
    removals: Sequence[RemovedEdges]
    usual: Stream | None
    known: dict[tuple[int, Writer], Tensor] = field(default_factory=dict)
    heads: list[Tensor] = field(default_factory=list)  # of this pass, batch x head x token x dim
    mlps: list[Tensor] = field(default_factory=list)
    entering: Tensor | None = None
    added: Tensor | None = None
    inside: bool = False  # True while an MLP is recomputed

    def removed_sum(self, image: int, *readers: tuple) -> Tensor | None:
        """Return the sum removed from each reader's input, reader x token x width; None without removals."""
        ablated = [self.removals[image].get(reader, ()) for reader in readers]
        places = {one: i for i, one in enumerate(dict.fromkeys(itertools.chain(*ablated)))}
        if not places:
            return None
        lost = torch.stack([self.removed_output(image, place) for place in places])
        reads = lost.new_zeros(len(readers), len(lost))
        for row, some in zip(reads, ablated, strict=True):
            row[[places[one] for one in some]] = 1
        return torch.tensordot(reads, lost, 1)

    def removed_output(self, image: int, writer: Writer) -> Tensor:
        """Return a writer's contribution minus its replacement, token x width.

        The replacement is 0 or the writer's mean over images; for the embedding, the mean over these patches.
        """
        if (image, writer) not in self.known:
            self.known.update({(image, w): result for w, result in self.removed_outputs(image, *writer[:2])})
        return self.known[image, writer]

    def removed_outputs(self, image: int, kind: str, layer: int | None) -> Iterator[tuple[Writer, Tensor]]:
        """Yield `removed_output` of all writers of a kind and layer; a bias comes with its layer's heads."""
        usual = self.usual
        if kind in ("embedding", "positions"):
            outputs = getattr(self.stream, kind).to(self.entering)
            yield Writer(kind), outputs if usual is None else outputs - getattr(usual, kind).to(outputs)
        elif kind == "mlp":
            outputs = self.mlps[layer][image]
            yield Writer(kind, layer), outputs if usual is None else outputs - usual.mlps[layer].to(outputs)
        else:
            outputs = self.contributions(layer, self.heads[layer][image])
            if usual is not None:
                outputs = outputs - self.contributions(layer, usual.heads[layer].to(outputs))
            yield Writer("bias", layer), outputs[-1]
            yield from ((Writer("head", layer, head), one) for head, one in enumerate(outputs[:-1]))

    def contributions(self, layer: int, head_outputs: Tensor) -> Tensor:
        """Return what a layer's head outputs add to the residual stream: by head, then of the bias."""
        projection, inner = self.ledger.readout.layers[layer], None
        if projection.inner is not None:
            inner = projection.inner.deviation(head_outputs.transpose(0, 1).flatten(1))[None]
        return projection.forth(head_outputs, inner)

    def on_event(self, moment: str, layer: int, args: tuple, output: Any) -> Any:
        """Keep block inputs and branch outputs; ablate edges into MLPs and into the readout.

        A returned value replaces the MLP's or the last block's output; None leaves it.
        """
        if moment == "input":
            self.entering = args[0]
        elif moment == "added attention":
            self.added = output
        elif moment == "mlp" and not self.inside:
            return self._mlp(layer, output)
        elif moment == "added mlp":
            self.mlps.append(output)
        elif moment == "output" and layer == len(self.blocks) - 1:
            missing = [self.removed_sum(i, ("readout",)) for i in range(len(output))]
            return torch.stack([x if d is None else x - d[0] for x, d in zip(output, missing, strict=True)])
        return None

    def attend(self, layer: int | None, kernel, query, key, value, *others, **named) -> Tensor:
        """Run an attention call with queries, keys and values recomputed without removed edges.

        The head outputs are kept; a call outside the blocks runs unchanged.
        """
        if layer is None:
            return kernel(query, key, value, *others, **named)
        sides = {"query": query, "key": key, "value": value}
        for image, removal in enumerate(self.removals):
            readers = [edge for edge in removal if edge[0] in SIDES and edge[1] == layer]
            missing = self.removed_sum(image, *readers)
            for (side, _, head), less in zip(readers, () if missing is None else missing, strict=False):
                of, tokens = (self.ledger, self.stream, layer, head, side), self.entering[image] - less
                sides[side] = sides[side].clone()
                sides[side][image, head] = read_projection(*of, tokens)
        output = kernel(*sides.values(), *others, **named)
        self.heads.append(output)
        return output

    def _mlp(self, layer: int, output: Tensor) -> Tensor | None:
        """Return a layer's MLP output, recomputed for images with removed edges into it.

        None if no image has any.
        """
        missing = [self.removed_sum(i, ("mlp", layer)) for i in range(len(output))]
        some = [i for i, tensor in enumerate(missing) if tensor is not None]
        if not some:
            return None
        block, entering = self.blocks[layer], self.entering + self.added
        self.inside = True
        anew = block.mlp(block.norm2(torch.stack([entering[i] - missing[i][0] for i in some])))
        self.inside, changed = False, output.clone()
        changed[some] = anew
        return changed


def mean_replacements(inspector: Inspector, ledger: LogitTerms, stream: Stream) -> Stream:
    """Return the writers' replacements: means over images; for the embedding, the mean over these patches."""
    trace = ledger.trace
    means = inspector.reference(trace.view.picture.shape[:2]).parts(trace.length)
    patches, prefix = stream.embedding[trace.grid.prefix :], stream.embedding[: trace.grid.prefix]
    embedding = torch.cat([prefix, patches.mean(dim=0).expand_as(patches)])
    blocks, mlps = capture.transformer_blocks(inspector.model), []
    for layer, block in enumerate(blocks):
        scale = scale_of(getattr(block, "ls2", getattr(block, "gamma_2", None)))  # applied after the mean
        mean = means.mlps[layer][0].to(embedding)
        mlps.append(mean if scale is None else mean * scale.to(mean))
    heads = tuple(means.heads[layer][0].to(embedding) for layer in range(len(blocks)))
    return replace(stream, embedding=embedding, heads=heads, mlps=tuple(mlps))


@in_float32()
def edge_ablation_logits(
    inspector: Inspector, ledger: LogitTerms, stream: Stream, removals: Sequence[RemovedEdges],
    replacements: Stream | None = None
) -> Tensor:  # fmt: skip
    """Return the logits, removal x class, of a trace's image with each edge ablation.

    `replacements` replace the removed contributions (default: zero). Raises UnsupportedModel if the model's
    contributions cannot be removed from a single input.
    """
    trace = ledger.trace
    if trace.without:
        raise UnsupportedModel(not_applicable(trace.checkpoint, LocalizedText(TAKEN)))
    prepared, size = inspector.forward.prepare(trace.view, None)
    with memory_guard(inspector.device, f"Ablating edges of {trace.checkpoint}"):
        pixels = inspector.forward.pixels([prepared])
        return logits_without_edges(inspector.placed.at(size), pixels, ledger, stream, removals, replacements)


def logits_without_edges(
    model: nn.Module, pixels: Tensor, ledger: LogitTerms, stream: Stream, removals, replacements=None
) -> Tensor:
    """Return the logits of `edge_ablation_logits`, removal x class, for a model and an input batch of one."""
    blocks = capture.transformer_blocks(model)
    if type(blocks[0]).__name__ not in PRE_NORM or stream.gates or stream.entry is not None:
        raise UnsupportedModel(not_applicable(ledger.trace.checkpoint, LocalizedText(MIXED)))
    listener = _EdgeAblationPass(blocks, ledger, stream, removals, replacements)
    with inference_context(pixels.device), capture.listening(model, blocks, listener):
        return model(pixels.expand(len(removals), -1, -1, -1)).cpu()
