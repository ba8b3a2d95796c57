"""How long tokens are, which stand out, and which single numbers are the largest.

    n_i^l = |t_i^l|_2 before the final norm,   limit_l = median + k MAD,   MAD = median |n - median|

median and MAD over the patches of one layer. Large models keep some patches of little content for another
use, recognised by their length (Darcet et al. 2024), often by a few enormous numbers in fixed channels (Sun
et al. 2024). No cut fits every model and layer, so the limit is relative to the layer, and k is the reader's.
Behind the final norm all tokens are about equally long. It does not show what such a token is for, and a long
one need not matter for the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitviz.analyses.depth import tokens_at
from vitviz.errors import VitvizError
from vitviz.trace import Trace


def token_norms(trace: Trace) -> Float[Tensor, "layer token"]:
    """The length of every token at every depth: L + 1 rows, the first entering block 1; prefix tokens first.

    Raises nothing. Source: Darcet et al. 2024, section 2.

    >>> from vitviz.analyses.example import example_trace
    >>> from vitviz.grid import Grid
    >>> token_norms(example_trace(Grid(2, 3, (4, 4), ("class",)), layers=2)).shape
    torch.Size([3, 7])
    """
    return torch.stack([tokens.double().norm(dim=1) for tokens in trace.tokens]).to(trace.tokens[0])


@dataclass(frozen=True)
class Usual:
    """What is usual among the patches of each layer."""

    median: Float[Tensor, " layer"]
    mad: Float[Tensor, " layer"]  # the median distance from it

    def limit(self, k: float) -> Float[Tensor, " layer"]:
        """Where a patch begins to stand out: median + k MAD."""
        return self.median + k * self.mad


def usual_norms(trace: Trace) -> Usual:
    """Median and MAD of the patches' norms, layer by layer; see the module. Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> from vitviz.grid import Grid
    >>> usual_norms(example_trace(Grid(2, 3, (4, 4), ("class",)), layers=2)).limit(5).tolist()
    [0.0, 0.0, 0.0]
    """
    norms = token_norms(trace)[:, trace.grid.prefix :].double()
    median = norms.quantile(0.5, dim=1)
    mad = (norms - median[:, None]).abs().quantile(0.5, dim=1)
    return Usual(median.to(trace.tokens[0]), mad.to(trace.tokens[0]))


@dataclass(frozen=True)
class Largest:
    """The numbers of largest magnitude at one depth, largest first."""

    values: Float[Tensor, " rank"]  # with their sign
    tokens: Int[Tensor, " rank"]  # among those that there are, prefix tokens first
    channels: Int[Tensor, " rank"]  # from 0
    typical: float  # the median magnitude of all numbers of the depth


def largest_activations(trace: Trace, layer: int, count: int = 3) -> Largest:
    """The `count` numbers of largest magnitude in the tokens of a depth, and how large numbers are there as a
    rule.

    Raises IndexError for a layer, VitvizError for a count that does not exist. Source: Sun et al. 2024 (arXiv
    2402.17762).

    >>> from vitviz.analyses.example import example_trace
    >>> from vitviz.grid import Grid
    >>> largest_activations(example_trace(Grid(2, 3, (4, 4), ("class",)), seed=1), layer=1).values.shape
    torch.Size([3])
    """
    tokens = tokens_at(trace, layer)
    if not 1 <= count <= tokens.numel():
        raise VitvizError(f"Given count={count!r}; expected from 1 to {tokens.numel()} numbers.")
    flat = tokens.flatten()
    found = flat.abs().topk(count).indices
    typical = (
        flat.abs().double().quantile(0.5) if len(flat) < 2**24 else flat.abs().median()
    )  # torch's own bound
    return Largest(flat[found], found // tokens.shape[1], found % tokens.shape[1], float(typical))
