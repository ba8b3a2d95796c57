"""What a classifier reads of the last layer's tokens, in short: which, how, and around which norm.

The vector y that the head is given is made of summaries: the class token, the mean over the patches, the
largest of each of their numbers, or the answer of attention pooling; one of them, or two. A description holds
no weights, and it says nothing about how much the head makes of y.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.traces.grid import Grid


@dataclass(frozen=True)
class Summary:
    """One vector made of the tokens from `start` to `stop` (places in the sequence, `stop` excluded)."""

    how: Literal["mean", "max", "attention"]  # the mean of a single token is that token
    start: int
    stop: int
    share: float = 1.0  # how much of y it makes: its factor in a sum, or its part of a row of vectors

    def of(self, tokens: Float[Tensor, "*batch token width"]) -> Float[Tensor, "*batch width"]:
        """The summary itself; ValueError for attention, whose weights are the model's."""
        read = tokens[..., self.start : self.stop, :]
        if self.how == "attention":
            raise ValueError("The answer of attention pooling is not made of the tokens alone.")
        return read.mean(dim=-2) if self.how == "mean" else read.amax(dim=-2)


@dataclass(frozen=True)
class Readout:
    """y = the sum of share · summary, or the summaries side by side, or (`heads`) each read by its own head.

    `norm` says where the last LayerNorm stands: 'before' the summaries (each token by itself), 'after' them,
    'both', or 'none'. Where each summary has its own head, the logits are the sum of share · logits.

    >>> Readout.by_name("average", Grid(1, 2, (8, 8), ("class",))).weights(3).tolist()
    [0.0, 0.5, 0.5]
    """

    name: str  # as in `Trace.pool`
    summaries: tuple[Summary, ...]  # empty for 'none': nothing is read
    joined: Literal["sum", "side by side", "heads"] = "sum"
    norm: Literal["before", "after", "both", "none"] = "before"

    @property
    def linear(self) -> bool:
        """Whether the tokens' weights are the same for every picture."""
        return all(summary.how == "mean" for summary in self.summaries)

    def weights(self, tokens: int) -> Float[Tensor, " token"]:
        """How much of y each token is, float64, summing to 1; ValueError where no number says it."""
        if not self.linear or not self.summaries:
            raise ValueError(
                f"What is read of each token is not fixed where the classifier reads {self.name!r}."
            )
        return self.shares(torch.zeros(tokens, 1))  # whatever the tokens are

    def shares(self, tokens: Float[Tensor, "*batch token width"]) -> Float[Tensor, "*batch token"]:
        """The same for one picture, float64: a maximum reads, number by number, the largest's token.

        `tokens` are what the summaries are made of (behind the norm where it stands before). Each of y's
        numbers counts alike; equally large tokens share it. ValueError for attention, and for 'none'.
        """
        if not self.summaries or any(one.how == "attention" for one in self.summaries):
            raise ValueError(
                "What is read of each token is not made of the tokens alone where the classifier reads"
                f" {self.name!r}."
            )
        found = torch.zeros(tokens.shape[:-1], dtype=torch.float64, device=tokens.device)
        for one in self.summaries:
            read = tokens[..., one.start : one.stop, :]
            largest = (read == read.amax(dim=-2, keepdim=True)).double()
            equally = torch.full_like(largest, 1 / read.shape[-2])
            parts = equally if one.how == "mean" else largest / largest.sum(dim=-2, keepdim=True)
            found[..., one.start : one.stop] += one.share * parts.mean(dim=-1)
        return found

    def y(self, tokens: Float[Tensor, "*batch token width"]) -> Float[Tensor, "*batch feature"]:
        """The vector that is read, before a norm that stands after; of two heads' vectors the mean."""
        made = [summary.of(tokens) for summary in self.summaries]
        if self.joined == "side by side":
            return torch.cat(made, dim=-1)
        return sum(one.share * vector for one, vector in zip(self.summaries, made, strict=True))

    @classmethod
    def by_name(
        cls, name: str, grid: Grid, norm: Literal["before", "after", "both", "none"] = "before"
    ) -> Readout:
        """The readout of a name in `NAMES`; ValueError for another, and for a token the grid has not."""
        if name not in NAMES:
            raise ValueError(f"There is no readout {name!r}; expected one of {', '.join(NAMES)}.")
        needed = {"class": 1, "class and average": 1, "class and distillation": 2}.get(name, 0)
        if needed > grid.prefix:
            raise ValueError(f"{name!r} cannot be read where the prefix is {grid.prefix_names}.")
        first = 0 if name.endswith(" of all") else grid.prefix
        mean, largest = Summary("mean", first, grid.tokens), Summary("max", first, grid.tokens)
        token = Summary("mean", 0, 1)
        joined = {"class and average": "side by side", "class and distillation": "heads"}.get(name, "sum")
        summaries = {
            "class": (token,), "average": (mean,), "max": (largest,), "average and max": (mean, largest),
            "class and average": (token, mean), "class and distillation": (token, Summary("mean", 1, 2)),
            "attention": (Summary("attention", first, grid.tokens),), "none": (),
        }[name.removesuffix(" of all")]  # fmt: skip
        even = tuple(Summary(one.how, one.start, one.stop, 1 / len(summaries)) for one in summaries)
        return cls(name, even, joined, norm)


NAMES = (
    "class",  # the class token
    "average",  # the mean over the patches; with "of all", over the prefix tokens too
    "average of all",
    "max",  # of each number the largest among the patches
    "max of all",
    "average and max",  # the mean of these two
    "average and max of all",
    "class and average",  # both vectors side by side: transformers' DINOv2
    "class and distillation",  # each with a head of its own, whose logits are averaged: DeiT
    "attention",  # attention pooling (MAP); whether over the prefix tokens too, its summary says
    "none",  # no classifier, and nothing that is pooled
)
