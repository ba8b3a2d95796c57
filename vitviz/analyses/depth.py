"""The tokens of a depth, raw or through the final norm, and where the patches among them lie.

Depth 0 is what enters block 1, depth l the output of block l, depth L the last block's. Raw is the residual
stream itself, whose lengths differ from token to token; through the model's own final norm all are about
equally long (the square root of the width), which is what the classifier and users of features get. Patches
that were withheld have no token: left out here, not-a-number on a map. It does not show anything by itself.

How long tokens are, which stand out, and which single numbers are the largest.

    n_i^l = |t_i^l|_2 before the final norm,   limit_l = median + k MAD,   MAD = median |n - median|

median and MAD over the patches of one layer. Large models keep some patches of little content for another
use, recognised by their length (Darcet et al. 2024), often by a few enormous numbers in fixed channels (Sun
et al. 2024). No cut fits every model and layer, so the limit is relative to the layer, and k is the reader's.
Behind the final norm all are about as long. It does not show what such a token is for, nor that it matters.

How much of a token each block leaves as it was: the skip connection's length beside the branch's.

    attention:  |t_i| / |a_i|        MLP:  |t_i + a_i| / |m_i|        output: t_i + a_i + m_i

with t_i the token that enters the block, a_i what attention adds to it (behind projection, LayerScale and the
norms that a family has there) and m_i what the MLP adds. A large ratio: the token is handed on nearly as it
is. Raghu et al. 2021 (arXiv 2108.08810, section 5) find it large for the class token in the first half of a
ViT and for patches in the second. Where both branches are computed side by side, attention's counts as added
first. It does not show whether what is added matters for the answer: short vectors may, long ones may not.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from vitviz.analyses.readout_stage import Projection
from vitviz.errors import UnsupportedModel, VitvizError, quoted
from vitviz.traces.trace import Trace


@runtime_checkable
class FinalNorm(Protocol):
    """What applies a model's final norm, such as the `vitviz.Inspector` that made the trace."""

    def final_norm(self, trace: Trace, layer: int) -> Float[Tensor, "token width"]: ...


def tokens_at(trace: Trace, layer: int, norm: FinalNorm | None = None) -> Float[Tensor, "token width"]:
    """All tokens of a depth, prefix first: `layer` 0 enters block 1, L is the raw output of the last block.

    With `norm`, an inspector, through its final norm. Raises IndexError for a depth that does not exist.

    >>> from vitviz.analyses.example import example_trace
    >>> tokens_at(example_trace(layers=2), 2).shape
    torch.Size([4, 8])
    """
    if not 0 <= layer < len(trace.tokens):
        raise IndexError(
            f"There are no tokens at layer {layer}: {trace.checkpoint} has 0 (what enters block 1) to "
            f"{len(trace.tokens) - 1} (the last block's output)."
        )
    return trace.tokens[layer] if norm is None else norm.final_norm(trace, layer)


def patches_at(trace: Trace, layer: int, norm: FinalNorm | None = None) -> Float[Tensor, "patch width"]:
    """The same for the patches alone: those that the model was given. Raises IndexError as `tokens_at`.

    >>> from vitviz.analyses.example import example_trace
    >>> patches_at(example_trace(layers=2), 0).shape
    torch.Size([3, 8])
    """
    return tokens_at(trace, layer, norm)[trace.grid.prefix :]


def present(trace: Trace) -> Int[Tensor, " patch"]:
    """The numbers, from 0 without prefix tokens, of the patches that have a token. Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> present(example_trace()).tolist()
    [0, 1, 2]
    """
    return torch.tensor(range(trace.grid.patches) if trace.kept is None else trace.kept, dtype=torch.long)


def place(trace: Trace, patch: int | tuple[int, int]) -> int:
    """Which of the patches that have a token a patch is, by its number from 0 or its (row, col).

    Raises VitvizError for one that the grid does not have or that was withheld.

    >>> from vitviz.analyses.example import example_trace
    >>> place(example_trace(), (0, 2))
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
            f"Given patch={quoted(patch)}; expected a patch's number from 0 to {grid.patches - 1}, or"
            f" its (row, col) on the grid of {grid.rows} x {grid.cols}."
        )
    there = present(trace).tolist()
    if number not in there:
        raise VitvizError(
            f"Patch {number} was withheld from the model, so it has no token. Choose one that was kept."
        )
    return there.index(number)


def over_grid(trace: Trace, values: Float[Tensor, " patch *rest"]) -> Float[Tensor, "row col *rest"]:
    """Numbers of the patches that have a token as a map; not-a-number where one was withheld. Raises nothing.

    >>> from vitviz import Grid
    >>> from vitviz.analyses.example import example_trace
    >>> over_grid(example_trace(Grid(2, 2, (4, 4), ("class",))), torch.arange(4.0)).tolist()
    [[0.0, 1.0], [2.0, 3.0]]
    """
    grid = trace.grid
    laid = values.new_full((grid.patches, *values.shape[1:]), float("nan"))
    laid[present(trace)] = values
    return laid.unflatten(0, (grid.rows, grid.cols))


def over_sequence(trace: Trace, values: Float[Tensor, "*rest token"]) -> Float[Tensor, "*rest token2"]:
    """Numbers of the tokens there are on the whole sequence; NaN for withheld patches. Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> over_sequence(example_trace(), torch.arange(4.0)).tolist()
    [0.0, 1.0, 2.0, 3.0]
    """
    return trace.on_tokens(values)


def token_norms(trace: Trace) -> Float[Tensor, "layer token"]:
    """The length of every token at every depth: L + 1 rows, the first entering block 1; prefix tokens first.

    Raises nothing. Source: Darcet et al. 2024, section 2.

    >>> from vitviz.analyses.example import example_trace
    >>> token_norms(example_trace(layers=2)).shape
    torch.Size([3, 4])
    """
    return torch.stack([tokens.double().norm(dim=1) for tokens in trace.tokens]).to(trace.tokens[0])


@dataclass(frozen=True)
class TypicalNorms:
    """What is usual among the patches of each layer."""

    median: Float[Tensor, " layer"]
    mad: Float[Tensor, " layer"]  # the median distance from it

    def limit(self, k: float) -> Float[Tensor, " layer"]:
        """Where a patch begins to stand out: median + k MAD."""
        return self.median + k * self.mad


def usual_norms(trace: Trace) -> TypicalNorms:
    """Median and MAD of the patches' norms, layer by layer; see the module. Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> usual_norms(example_trace(layers=2)).limit(5).tolist()
    [0.0, 0.0, 0.0]
    """
    norms = token_norms(trace)[:, trace.grid.prefix :].double()
    median = norms.quantile(0.5, dim=1)
    mad = (norms - median[:, None]).abs().quantile(0.5, dim=1)
    return TypicalNorms(median.to(trace.tokens[0]), mad.to(trace.tokens[0]))


@dataclass(frozen=True)
class LargestActivations:
    """The numbers of largest magnitude at one depth, largest first."""

    values: Float[Tensor, " rank"]  # with their sign
    tokens: Int[Tensor, " rank"]  # among those that there are, prefix tokens first
    channels: Int[Tensor, " rank"]  # from 0
    typical: float  # the median magnitude of all numbers of the depth


def largest_activations(trace: Trace, layer: int, count: int = 3) -> LargestActivations:
    """The `count` numbers of largest magnitude in a depth's tokens, and how large numbers are as a rule.

    Raises IndexError for a layer, VitvizError for a count. Source: Sun et al. 2024 (arXiv 2402.17762).

    >>> from vitviz.analyses.example import example_trace
    >>> largest_activations(example_trace(seed=1), layer=1).values.shape
    torch.Size([3])
    """
    tokens = tokens_at(trace, layer)
    if not 1 <= count <= tokens.numel():
        raise VitvizError(f"Given count={quoted(count)}; expected from 1 to {tokens.numel()} numbers.")
    flat = tokens.flatten()
    found = flat.abs().topk(count).indices
    # torch's own bound
    typical = flat.abs().double().quantile(0.5) if len(flat) < 2**24 else flat.abs().median()
    return LargestActivations(flat[found], found // tokens.shape[1], found % tokens.shape[1], float(typical))


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
