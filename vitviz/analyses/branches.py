"""How much of a token each block leaves as it was: the skip connection's length beside the branch's.

    attention:  |t_i| / |a_i|        MLP:  |t_i + a_i| / |m_i|        output: t_i + a_i + m_i

with t_i the token that enters the block, a_i what attention adds to it (behind projection, LayerScale and the
norms that a family has there) and m_i what the MLP adds. A large ratio: the token is handed on nearly as it
is. Raghu et al. 2021 (arXiv 2108.08810, section 5) find it large for the class token in the first half of a
ViT and for patches in the second. Where both branches are computed side by side, attention's counts as added
first. It does not show whether what is added matters for the answer: short vectors may, long ones may not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.tail import Projection
from vitviz.errors import UnsupportedModel
from vitviz.record.trace import Trace


@dataclass(frozen=True)
class SkipRatios:
    """Skip over branch, a ratio without a unit; infinite where a branch adds nothing."""

    attention: Float[Tensor, "layer token"]
    mlp: Float[Tensor, "layer token"]


def skip_ratios(trace: Trace, projections: Sequence[Projection]) -> SkipRatios:
    """The ratio of skip and branch for every token of every layer, prefix tokens first.

    `projections`: from each layer's heads to the residual stream, as `inspector.tail().layers`. Raises
    UnsupportedModel where a gate stands between heads and projection. Source: see the module.

    >>> from vitviz.analyses.example import example_account
    >>> trace, tail = example_account()
    >>> skip_ratios(trace, tail.layers).mlp.shape
    torch.Size([2, 4])
    """
    if trace.written is not None and trace.written.gates is not None:
        raise UnsupportedModel(
            f"{trace.checkpoint}: the ratio of skip and branch is not applicable, because a gate"
            " stands between its heads and the projection, and its values are not recorded for every token."
        )
    found, handed = [], "head token dim -> token (head dim)"
    blocks = zip(trace.tokens[:-1], trace.tokens[1:], trace.layers, projections, strict=True)
    for entering, leaving, layer, projection in blocks:
        entering, leaving = entering.double(), leaving.double()
        between = entering + projection(rearrange(layer.output().double(), handed))
        skips, branches = (entering, between), (between - entering, leaving - between)
        pairs = zip(skips, branches, strict=True)
        found.append(torch.stack([skip.norm(dim=-1) / branch.norm(dim=-1) for skip, branch in pairs]))
    attention, mlp = torch.stack(found, dim=1)
    return SkipRatios(attention, mlp)
