"""Record the additions to the tokens that the classifier reads.

The outputs of attention and MLP are recorded where they are added, after LayerScale or the family's norm.
Differences of the residual stream would hide every error in a head. For a class-token readout, only the
class token's row is kept. Average pooling needs all tokens, but only until the pass has ended: then the final
norm's deviations are known, and each layer is reduced to one sum (`sum_branches`).
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.analyses.readout_stage import Norm, Pooling
from vitviz.engine import readout_stages as stages
from vitviz.engine.readout_stages import PARALLEL, POST_NORM, norm_of, pooling_or_none, supports_blocks
from vitviz.traces.trace import Attention, ResidualWrites

# hook events of a pass
BRANCHES = ("added attention", "added mlp", "inner norm", "post norm", "gate", "pool mlp")


@dataclass
class Branches:
    """Branch outputs of one pass by layer, with the batch axis."""

    pooling: Pooling
    norms: dict[str, Norm | None]  # by event
    scales: list[Tensor | None]  # factor still to be applied to both branches
    # by event: batch x reader x width (gates: inner width); norms: their deviations, batch x reader; MLP of
    # attention pooling: batch x query x width
    found: defaultdict[str, list[Tensor]] = field(default_factory=lambda: defaultdict(list))

    def record(self, moment: str, args: tuple, output: Any) -> None:
        """Record the tensor of a hook event; blocks are called in order."""
        tokens = (args[0] if moment in self.norms else output).detach()
        rows = tokens if moment == "pool mlp" else tokens[:, self.pooling.readers]
        if moment in self.norms:
            rows = self.norms[moment].deviation(stages.at_least_float32(rows))
        elif moment == "gate":
            rows = rows.sigmoid()
        elif rows.shape != tokens.shape:
            rows = rows.clone()  # a view would keep the whole tensor
        self.found[moment].append(rows)


def branches_of(model: nn.Module, blocks: list[nn.Module], pooling: Pooling | None = None) -> Branches | None:
    """Return an empty record for one pass, with the model's own pooling unless given.

    None if blocks or readout are not supported.
    """
    pooling = pooling or pooling_or_none(model)
    if pooling is None:
        return None
    block, kind = blocks[0], type(blocks[0]).__name__
    inner = None if kind == PARALLEL else norm_of(getattr(block.attn, "norm", None))
    norms = {"inner norm": inner, "post norm": norm_of(block.norm1) if kind in POST_NORM else None}
    scales = [stages.scale_of(block.ls) if kind == PARALLEL else None for block in blocks]
    return Branches(pooling, norms, scales)


def branch_points(model: nn.Module, blocks: list[nn.Module]) -> Iterator[tuple[nn.Module, bool, str]]:
    """Yield the hook points of branches: (module, True if its input is recorded, event name)."""
    if not supports_blocks(model):
        return
    for block in blocks:
        parallel = type(block).__name__ == PARALLEL
        yield (block.attn_out_proj if parallel else block.drop_path1), False, "added attention"
        yield (block.mlp_out_proj if parallel else block.drop_path2), False, "added mlp"
        if parallel:
            continue
        inner, gate = getattr(block.attn, "norm", None), getattr(block.attn, "gate", None)
        if norm_of(inner) is not None:
            yield inner, True, "inner norm"
        if type(block).__name__ in POST_NORM:
            yield block.norm1, True, "post norm"
        if gate is not None:
            yield gate, False, "gate"
    pooling = pooling_or_none(model)
    attends = pooling is not None and pooling.kind == "attention"
    mlp = getattr(getattr(model, "attn_pool", None), "mlp", None) if attends else None
    if mlp is not None:
        yield mlp, False, "pool mlp"


def sum_branches(
    branches: Branches | None, last: Float[Tensor, "image token width"], pooling: Attention | None
) -> ResidualWrites | None:
    """Return what each branch of a batch's pass adds to the residual stream, summed over the tokens read.

    `last` are the tokens after the last block in float32. None if nothing was recorded.
    """
    if branches is None or (branches.pooling.kind == "attention" and pooling is None):
        return None
    weights = branches.pooling.weights(last, pooling)

    def summed(layers: list[Tensor]) -> Tensor:
        if weights.shape[1] == 1 and not any(one is not None for one in branches.scales):
            return weights.mT[:, None] @ torch.stack(layers, dim=1).to(last)  # few numbers, in few launches
        sums = zip((weights.mT @ layer.to(last) for layer in layers), branches.scales, strict=True)
        return torch.stack([one if scale is None else one * scale.to(last) for one, scale in sums], dim=1)

    def stacked(layers: list[Tensor]) -> Tensor | None:
        return torch.stack([layer.to(last) for layer in layers], dim=1) if layers else None

    outputs, pool_mlp = branches.found, None
    for queries in outputs["pool mlp"]:
        queries = queries.to(last)
        pool_mlp = queries.mean(dim=1) if branches.pooling.mean_latent else queries[:, 0].clone()
    added = (summed(outputs[moment]) for moment in ("added attention", "added mlp"))
    inside = (stacked(outputs[moment]) for moment in ("inner norm", "post norm", "gate"))
    return ResidualWrites(weights, *added, *inside, pool_mlp)
