"""Find which tokens the output of a user's module reads, by changing tokens after the last block.

One token t is read if the output stays equal when all other tokens are replaced. A mean over n tokens is read
if either of two identities holds:

    f(x + z) = f(x) for changes z that sum to zero over the tokens (no norm, or a norm after the mean)
    f(k tokens are u, the others v) = (k f(all u) + (n - k) f(all v)) / n (norm by token, linear head)

A maximum, attention pooling, a mean with weights, several tokens, and a mean of normed tokens before a
non-linear head fulfil neither: what they read stays unknown. The weights of the readout are not found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from vitviz.engine.forward.own_model import OwnModel, class_scores_of
from vitviz.engine.forward.own_pass import run_pass
from vitviz.traces.grid import Grid
from vitviz.traces.readout import Readout, Summary

ASSUMED = (
    "The tokens that the output of {kind} reads could not be determined, so query='auto' is assumed to be the"
    " {query}. Pass query= with the token that it reads."
)
UNREAD = 1e-6  # an unread token changes nothing; relative to the change by all tokens
EQUAL, ROUGH = 1e-4, 0.02  # for means, in float32 and in 16 bits


class _LastTokens:
    """The class scores of a module as a function of its tokens after the last block, for one image."""

    def __init__(self, own: OwnModel, pixels: Tensor, tokens: int):
        self.own, self.pixels, self.tokens = own, pixels, tokens
        self.random = torch.randn(tokens, own.embed_dim, generator=torch.Generator().manual_seed(5))

    def scores(self, change: Callable[[Tensor], Tensor]) -> Tensor:
        """Return the class scores if `change` replaces the tokens after the last block (token, width)."""

        def changed(output: Tensor) -> Tensor:
            rows = output.detach().float().cpu().reshape(self.tokens, -1)
            return change(rows).reshape(output.shape).to(output)

        changes = {("output", len(self.own.blocks) - 1): (changed,)}
        returned = run_pass(self.own, self.pixels, changes)[2]
        return class_scores_of(returned, self.own.output, self.own.name)[0].double().cpu()

    def replaced(self, places: Tensor | Sequence[int]) -> Tensor:
        """Return the class scores with random tokens at these positions of the sequence."""
        return self.scores(lambda rows: rows.index_put((places,), self.random[places] * rows.std()))

    def shifted(self, places: Tensor) -> Tensor:
        """Return the class scores after random changes at these places that sum to zero."""
        change = self.random[places] - self.random[places].mean(0)
        return self.scores(lambda rows: rows.index_put((places,), rows[places] + change * rows.std()))

    def two_values(self, places: Tensor, is_first: Tensor) -> Tensor:
        """Return the class scores if each of these places has one of two random tokens."""
        values = torch.where(is_first[:, None], self.random[0], self.random[1])
        return self.scores(lambda rows: rows.index_put((places,), values * rows.std()))


def readout_of_own(own: OwnModel, pixels: Tensor, tokens: int) -> Readout | None:
    """Return the `Readout` of the tokens after the last block, found by changing them; None if unknown."""
    last, prefix = _LastTokens(own, pixels, tokens), own.own_grid.prefix
    places = torch.arange(tokens) if own.order is None else own.order.cpu()  # prefix, then patches by rows
    plain = last.scores(lambda rows: rows)
    scale = (last.replaced(places) - plain).norm()
    if not scale > UNREAD * plain.norm():
        return None
    for token in range(prefix):
        if (last.replaced(places[places != places[token]]) - plain).norm() <= UNREAD * scale:
            return Readout("class", (Summary("mean", token, token + 1),), norm="none")
    reads_prefix = prefix > 0 and (last.replaced(places[:prefix]) - plain).norm() > UNREAD * scale
    if _is_mean(last, places if reads_prefix else places[prefix:], plain, scale):
        return Readout.by_name("average of all" if reads_prefix else "average", own.own_grid, "none")
    return None


def _is_mean(last: _LastTokens, places: Tensor, plain: Tensor, scale: Tensor) -> bool:
    """Return whether the output reads the mean over the tokens at these places."""
    exact, count = next(last.own.module.parameters()).dtype == torch.float32, len(places)
    if count < 2:
        return False
    least = (EQUAL if exact else ROUGH) * scale
    if (last.shifted(places) - plain).norm() <= least:
        return True
    numbers = torch.arange(count)
    shuffled = torch.randperm(count, generator=torch.Generator().manual_seed(6))
    first, second = last.two_values(places, numbers >= 0), last.two_values(places, numbers < 0)
    for chosen in (shuffled < (count + 2) // 3, numbers < (count + 1) // 2):
        expected = second + chosen.double().mean() * (first - second)
        if (last.two_values(places, chosen) - expected).norm() > least:
            return False
    return True


def with_class_token(grid: Grid, readout: Readout) -> Grid:
    """Return the grid, in which a prefix token that alone is read has the name "class"."""
    if readout.name != "class":
        return grid
    token = readout.summaries[0].start
    registers = [f"register {number + 1}" for number in range(grid.prefix - 1)]
    return replace(grid, prefix_names=(*registers[:token], "class", *registers[token:]))


def describe_readout(grid: Grid, readout: Readout) -> str:
    """Return the tokens that are read as text, for `Inspector.describe`."""
    means = {"average": "mean over the patches", "average of all": "mean over all tokens"}
    read = means.get(readout.name) or grid.prefix_names[readout.summaries[0].start]
    return f"{read}, found by changing tokens after the last block"


def default_query(grid: Grid) -> str:
    """Return as text what query="auto" means if the readout is unknown, as in `query_weights`."""
    return "class token" if "class" in grid.prefix_names else "mean over the patches"
