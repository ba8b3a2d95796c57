"""Tokens of a layer, raw or after the final norm, and the positions of the patches among them.

Depth 0 is the input of block 1, depth l the output of block l, depth L the output of the last block. Raw
tokens are the residual stream itself, whose lengths differ from token to token. After the model's final norm
all tokens are about equally long (the square root of the width); the classifier and users of features receive
these. Dropped patches have no token: they are omitted here and NaN on a map. The tokens alone do not show
anything.

Token norms, outlying tokens, and the largest activations.

    n_i^l = |t_i^l|_2 before the final norm,   limit_l = median + k MAD,   MAD = median |n - median|

median and MAD over the patches of one layer. Large models use some patches of little content for another
purpose; these have large norms (Darcet et al. 2024), often from a few enormous numbers in fixed channels (Sun
et al. 2024). No threshold fits every model and layer, so the limit is relative to the layer, and the reader
chooses k. After the final norm all tokens are about equally long. A norm does not show what such a token is
for, nor that it matters.

Skip ratios: the length of the skip connection relative to the branch's output.

    attention:  |t_i| / |a_i|        MLP:  |t_i + a_i| / |m_i|        output: t_i + a_i + m_i

with t_i the token that enters the block, a_i the output of attention that is added to it (after projection,
LayerScale and the norms that a family has there) and m_i the output of the MLP. With a large ratio the token
passes nearly unchanged. Raghu et al. 2021 (arXiv 2108.08810, section 5) find it large for the class token in
the first half of a ViT and for patches in the second. If both branches are computed in parallel, attention
counts as added first. The ratio does not show whether the added vector matters for the prediction: short
vectors may, long ones may not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from vitviz.analyses.readout_stage import Projection
from vitviz.analyses.streaming import by_images
from vitviz.errors import UnsupportedModel, VitvizError, quoted
from vitviz.traces.trace import Attention, Trace, TraceBatch


@runtime_checkable
class FinalNorm(Protocol):
    """Object that applies a model's final norm, such as the `vitviz.Inspector` that made the trace."""

    def final_norm(self, trace: Trace, layer: int) -> Float[Tensor, "token width"]: ...


def tokens_at(trace: Trace, layer: int, norm: FinalNorm | None = None) -> Float[Tensor, "token width"]:
    """Return all tokens of a layer, prefix first: (token, width).

    Args:
        trace: the trace.
        layer: 0 is the input of block 1, L the raw output of the last block.
        norm: an inspector, to apply its final norm; None for raw tokens.

    Raises:
        IndexError: the layer does not exist.

    >>> from vitviz.analyses.example import example_trace
    >>> tokens_at(example_trace(layers=2), 2).shape
    torch.Size([4, 8])
    """
    if not 0 <= layer < len(trace.tokens):
        raise IndexError(
            f"There are no tokens at layer {layer}: {trace.checkpoint} has 0 (what enters block 1) to"
            f" {len(trace.tokens) - 1} (the last block's output)."
        )
    return trace.tokens[layer] if norm is None else norm.final_norm(trace, layer)


def patches_at(trace: Trace, layer: int, norm: FinalNorm | None = None) -> Float[Tensor, "patch width"]:
    """Return the tokens of a layer's patches that were not dropped: (patch, width).

    Args and Raises are those of `tokens_at`.

    >>> from vitviz.analyses.example import example_trace
    >>> patches_at(example_trace(layers=2), 0).shape
    torch.Size([3, 8])
    """
    return tokens_at(trace, layer, norm)[trace.grid.prefix :]


def present_patches(trace: Trace) -> Int[Tensor, " patch"]:
    """Return the numbers of the patches that were not dropped, from 0 in row-major order. Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> present_patches(example_trace()).tolist()
    [0, 1, 2]
    """
    return torch.tensor(range(trace.grid.patches) if trace.kept is None else trace.kept, dtype=torch.long)


def patch_index(trace: Trace, patch: int | tuple[int, int]) -> int:
    """Return a patch's index, from 0, among the patches that were not dropped; prefix tokens do not count.

    `patch` is its number from 0 or its (row, col). Raises VitvizError for a patch that the grid does not have
    or that was dropped.

    >>> from vitviz.analyses.example import example_trace
    >>> patch_index(example_trace(), (0, 2))
    2
    """
    grid = trace.grid
    try:
        number = grid.token(*patch) - grid.prefix if isinstance(patch, tuple) else patch
        known = not isinstance(number, bool) and 0 <= number < grid.patches and number == int(number)
    except (IndexError, TypeError):
        known = False
    if not known:
        raise VitvizError(
            f"patch={quoted(patch)} is not valid; expected a patch's number from 0 to {grid.patches - 1}, or"
            f" its (row, col) on the grid of {grid.rows} x {grid.cols}."
        )
    there = present_patches(trace).tolist()
    if number not in there:
        advice = "Choose one that was kept."
        raise VitvizError(f"Patch {number} was withheld from the model, so it has no token. {advice}")
    return there.index(number)


def to_grid(trace: Trace, values: Float[Tensor, " patch *rest"]) -> Float[Tensor, "row col *rest"]:
    """Return values, one for each patch that was not dropped, as a map with NaN for dropped patches.

    Raises nothing.

    >>> from vitviz import Grid
    >>> from vitviz.analyses.example import example_trace
    >>> to_grid(example_trace(Grid(2, 2, (4, 4), ("class",))), torch.arange(4.0)).tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    grid = trace.grid
    laid = values.new_full((grid.patches, *values.shape[1:]), float("nan"))
    laid[present_patches(trace)] = values
    return laid.unflatten(0, (grid.rows, grid.cols))


def to_sequence(trace: Trace, values: Float[Tensor, "*rest token"]) -> Float[Tensor, "*rest token2"]:
    """Return values, one for each token of the pass, for all tokens of the grid; NaN for dropped patches.

    Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> to_sequence(example_trace(), torch.arange(4.0)).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    return trace.on_tokens(values)


def token_norms(trace: Trace) -> Float[Tensor, "layer token"]:
    """Return the Euclidean norm of every token in every layer: (L + 1, token), prefix tokens first.

    Row 0 is the input of block 1. Raises nothing. Source: Darcet et al. 2024, section 2.

    >>> from vitviz.analyses.example import example_trace
    >>> token_norms(example_trace(layers=2)).shape
    torch.Size([3, 4])
    """
    return torch.stack([tokens.double().norm(dim=1) for tokens in trace.tokens]).to(trace.tokens[0])


@dataclass(frozen=True)
class TypicalNorms:
    """Median and MAD of the patches' norms in every layer."""

    median: Float[Tensor, " layer"]
    mad: Float[Tensor, " layer"]  # median of |norm - median|

    def limit(self, k: float) -> Float[Tensor, " layer"]:
        """Return the norm above which a patch counts as outlying, by layer: median + k MAD."""
        return self.median + k * self.mad


def typical_norms(trace: Trace) -> TypicalNorms:
    """Return the median and MAD of the patches' norms by layer; see the module. Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> typical_norms(example_trace(layers=2)).limit(5).tolist()
    [0.0, 0.0, 0.0]
    """
    norms = token_norms(trace)[:, trace.grid.prefix :].double()
    median = norms.quantile(0.5, dim=1)
    mad = (norms - median[:, None]).abs().quantile(0.5, dim=1)
    return TypicalNorms(median.to(trace.tokens[0]), mad.to(trace.tokens[0]))


@dataclass(frozen=True)
class LargestActivations:
    """The activations of largest magnitude in one layer, in descending order."""

    values: Float[Tensor, " rank"]  # signed
    tokens: Int[Tensor, " rank"]  # index among the pass's tokens, prefix tokens first
    channels: Int[Tensor, " rank"]  # from 0
    typical: float  # median magnitude of all activations of the layer


def largest_activations(trace: Trace, layer: int, count: int = 3) -> LargestActivations:
    """Return the `count` activations of largest magnitude in a layer's tokens, and the median magnitude.

    `layer` 0 is the input of block 1, L the output of the last block. Raises IndexError for an unknown layer
    and VitvizError for an invalid count. Source: Sun et al. 2024 (arXiv 2402.17762).

    >>> from vitviz.analyses.example import example_trace
    >>> largest_activations(example_trace(seed=1), layer=1).values.shape
    torch.Size([3])
    """
    tokens = tokens_at(trace, layer)
    if not 1 <= count <= tokens.numel():
        raise VitvizError(f"count={quoted(count)} is not valid; expected from 1 to {tokens.numel()} numbers.")
    flat = tokens.flatten()
    result = flat.abs().topk(count).indices
    # torch's quantile has this size limit
    typical = flat.abs().double().quantile(0.5) if len(flat) < 2**24 else flat.abs().median()
    return LargestActivations(flat[result], *torch.unravel_index(result, tokens.shape), float(typical))


@dataclass(frozen=True)
class SkipRatios:
    """Length of the skip connection divided by length of the branch; infinite if a branch adds nothing."""

    attention: Float[Tensor, "*image layer token"]
    mlp: Float[Tensor, "*image layer token"]


def skip_ratios(trace: Trace | TraceBatch, projections: Sequence[Projection]) -> SkipRatios:
    """Return |skip connection| / |branch output| of every token and layer, for attention and for the MLP.

    Args:
        trace: the trace.
        projections: from each layer's heads to the residual stream, as in `inspector.tail().layers`.

    Returns:
        `SkipRatios` with two (layer, token) tensors, prefix tokens first.

    Raises:
        UnsupportedModel: a gate stands between heads and projection.

    Source: see the module.

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
    result, handed = [], "... head token dim -> ... token (head dim)"
    blocks = zip(trace.tokens[:-1], trace.tokens[1:], trace.layers, projections, strict=True)
    for entering, leaving, layer, projection in blocks:
        entering, leaving = entering.double(), leaving.double()
        between = entering + projection(rearrange(by_images(Attention.output, layer).double(), handed))
        skips, branches = (entering, between), (between - entering, leaving - between)
        pairs = zip(skips, branches, strict=True)
        result.append(torch.stack([skip.norm(dim=-1) / branch.norm(dim=-1) for skip, branch in pairs]))
    attention, mlp = torch.stack(result, dim=-2)
    return SkipRatios(attention, mlp)
