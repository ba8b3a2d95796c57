"""Passes in which some readers do not see what some writers wrote, while all else runs on (path patching).

Every picture of the batch is the same one with a removal of its own: which writers' parts are replaced, by
zero or by their mean, in which readers' inputs. A reader is ("query", "key" or "value", layer, head),
("mlp", layer) or ("readout",); it norms what is left anew. What a writer wrote is what it wrote in that very
pass. Nothing of the model is changed: queries, keys and values are exchanged at the seam, an MLP's result at
its hook, and the last block's where the readout begins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from vitviz.analyses.effects import SIDES
from vitviz.analyses.ledger import Ledger
from vitviz.analyses.writers import Stream, Writer, read
from vitviz.engine.defaults import in_float32
from vitviz.engine.device import exactly, memory_guard
from vitviz.engine.passes import capture, experiments
from vitviz.engine.tails import PRE_NORM, scale_of
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.record import stopping
from vitviz.record.sentence import Sentence, not_applicable

if TYPE_CHECKING:
    from vitviz.engine.inspector import Inspector

Removal = Mapping[tuple, Sequence[Writer]]  # by reader, whose parts are taken out of what it reads
MIXED = "its blocks are no plain sum of norm and branch, so a part cannot be taken out of one input alone"
TAKEN = "something was taken away from this pass already; look at the whole model"


class _Edged:
    """One pass; it belongs to its thread."""

    def __init__(
        self, blocks: list[nn.Module], ledger: Ledger, stream: Stream, removals: Sequence[Removal], means
    ):
        self.blocks, self.ledger, self.stream = blocks, ledger, stream
        self.removals, self.means = removals, means
        self.heads: list[Tensor] = []  # as this pass has them, batch x head x token x dim
        self.mlps: list[Tensor] = []
        self.layer: int | None = None
        self.entering = self.added = None
        self.inside = False  # an MLP is being asked again

    def gone(self, image: int, reader: tuple, like: Tensor) -> Tensor | None:
        """What is missing in a reader's input."""
        writers = self.removals[image].get(reader, ())
        return sum(self.wrote(image, one) - self.usual(one, like) for one in writers) if writers else None

    def wrote(self, image: int, writer: Writer) -> Tensor:
        kind, layer, head = writer
        if kind in ("embedding", "positions"):
            return getattr(self.stream, kind).to(self.entering)
        if kind == "mlp":
            return self.mlps[layer][image]
        return self.projected(layer, self.heads[layer][image])[-1 if kind == "bias" else head]

    def projected(self, layer: int, handed: Tensor) -> Tensor:
        """What a layer's heads, and behind them its bias, write of what they hand on."""
        projection, inner = self.ledger.readout.layers[layer], None
        if projection.inner is not None:
            inner = projection.inner.deviation(handed.transpose(0, 1).flatten(1))[None]
        return projection.forth(handed, inner)

    def usual(self, writer: Writer, like: Tensor) -> Tensor | float:
        """What stands in its place: 0, or its mean over pictures; the embedding's, over these patches."""
        kind, layer, head = writer
        if self.means is None or kind in ("positions", "bias"):
            return 0.0 if self.means is None else self.wrote(0, writer)
        if kind == "embedding":
            found, prefix = self.stream.embedding.to(like).clone(), self.ledger.trace.grid.prefix
            found[prefix:] = found[prefix:].mean(dim=0)
            return found
        if kind == "mlp":
            block, mean = self.blocks[layer], self.means.mlps[layer][0].to(like)
            scale = scale_of(getattr(block, "ls2", getattr(block, "gamma_2", None)))  # behind the mean
            return mean if scale is None else mean * scale.to(like)
        return self.projected(layer, self.means.heads[layer][0].to(like))[head]

    def heard(self, moment: str, layer: int, args: tuple, output: Any) -> Any:
        if moment == "input":
            stopping.check()
            self.layer, self.entering = layer, args[0]
        elif moment == "added attention":
            self.added = output
        elif moment == "mlp" and not self.inside:
            return self._mlp(layer, output)
        elif moment == "added mlp":
            self.mlps.append(output)
        elif moment == "output":
            self.layer = None
            if layer == len(self.blocks) - 1:
                missing = [self.gone(i, ("readout",), output) for i in range(len(output))]
                return torch.stack([x if d is None else x - d for x, d in zip(output, missing, strict=True)])
        return None

    def attend(self, kernel: Callable[..., Tensor], query, key, value, *others, **named) -> Tensor:
        layer = self.layer
        if layer is None:
            return kernel(query, key, value, *others, **named)
        sides = {"query": query, "key": key, "value": value}
        for image, removal in enumerate(self.removals):
            for reader in removal:
                if reader[0] not in SIDES or reader[1] != layer:
                    continue
                side, _, head = reader
                tokens = self.entering[image] - self.gone(image, reader, query)
                sides[side] = sides[side].clone()
                sides[side][image, head] = read(self.ledger, self.stream, layer, head, side, tokens)
        given = kernel(*sides.values(), *others, **named)
        self.heads.append(given)
        return given

    def _mlp(self, layer: int, output: Tensor) -> Tensor | None:
        missing = [self.gone(i, ("mlp", layer), output) for i in range(len(output))]
        some = [i for i, one in enumerate(missing) if one is not None]
        if not some:
            return None
        block, entering = self.blocks[layer], self.entering + self.added
        self.inside = True
        anew = block.mlp(block.norm2(torch.stack([entering[i] - missing[i] for i in some])))
        self.inside, found = False, output.clone()
        found[some] = anew
        return found


@in_float32()
def without_edges(
    inspector: Inspector, ledger: Ledger, stream: Stream, removals: Sequence[Removal], parts_as: str = "mean"
) -> Tensor:
    """The logits, removal x class, of a trace's picture with each removal; raises as `edge_effects`."""
    trace, size = ledger.trace, ledger.trace.view.picture.shape[:2]
    if parts_as not in ("mean", "zero"):
        raise VitvizError(f"Given parts_as={parts_as!r}; expected 'mean' or 'zero'.")
    if trace.without:
        raise UnsupportedModel(not_applicable(trace.checkpoint, Sentence(TAKEN)))
    means = inspector.reference(size).parts(trace.length) if parts_as == "mean" else None
    preprocessing = inspector.preprocessing.with_size(size)
    model, name = inspector.placed.at(preprocessing.size), f"Taking edges of {trace.checkpoint} out"
    pixels = inspector.forward.pixels([experiments.as_seen(trace.view, preprocessing)])
    with memory_guard(inspector.device, name):
        return edged(model, pixels, ledger, stream, removals, means)


def edged(model: nn.Module, pixels: Tensor, ledger: Ledger, stream: Stream, removals, means=None) -> Tensor:
    """The same of a model and its input, a batch of one."""
    blocks = capture.transformer_blocks(model)
    if type(blocks[0]).__name__ not in PRE_NORM or stream.gates or stream.entry is not None:
        raise UnsupportedModel(not_applicable(ledger.trace.checkpoint, Sentence(MIXED)))
    one = _Edged(blocks, ledger, stream, removals, means)
    with torch.no_grad(), torch.autocast(pixels.device.type, enabled=False), exactly(pixels.device):
        with capture.heard(model, blocks, one):
            return model(pixels.expand(len(removals), -1, -1, -1)).cpu()
