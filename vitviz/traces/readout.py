"""Description of how a classifier reads the last layer's tokens: tokens, pooling and norm.

The vector y that the head receives is made of one or two summaries: the class token, the mean over the
patches, their elementwise maximum, or the output of attention pooling. A description holds no weights, and it
says nothing about how much the head makes of y.
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
    """A vector computed from the tokens `start` to `stop` of the sequence, `stop` excluded."""

    how: Literal["mean", "max", "attention"]  # the mean of a single token is that token
    start: int
    stop: int
    share: float = 1.0  # weight in y: its factor in a sum, or its fraction of a concatenation

    def of(self, tokens: Float[Tensor, "*batch token width"]) -> Float[Tensor, "*batch width"]:
        """Return the summary of tokens; raise ValueError for attention, whose weights the model holds."""
        read = tokens[..., self.start : self.stop, :]
        if self.how == "attention":
            raise ValueError("The answer of attention pooling is not made of the tokens alone.")
        return read.mean(dim=-2) if self.how == "mean" else read.amax(dim=-2)


@dataclass(frozen=True)
class Readout:
    """Rule that makes y of the summaries: their weighted sum, their concatenation, or one head for each.

    `norm` is the position of the last LayerNorm: 'before' the summaries (each token by itself), 'after' them,
    'both', or 'none'. With `joined` = "heads" each summary has its own head, and the logits are the sum of
    share · logits.

    >>> Readout.by_name("average", Grid(1, 2, (8, 8), ("class",))).weights(3).tolist()
    [0.0, 0.5, 0.5]
    """

    name: str  # as in `Trace.pool`
    summaries: tuple[Summary, ...]  # empty for 'none': no token is read
    joined: Literal["sum", "side by side", "heads"] = "sum"
    norm: Literal["before", "after", "both", "none"] = "before"

    @property
    def linear(self) -> bool:
        """True if the tokens' weights do not depend on the image."""
        return all(summary.how == "mean" for summary in self.summaries)

    def weights(self, tokens: int) -> Float[Tensor, " token"]:
        """Return each token's weight in y, the classifier's input, float64; the weights sum to 1.

        Raises ValueError if the weights depend on the image, and for 'none'.
        """
        if not self.linear or not self.summaries:
            raise ValueError(
                f"What is read of each token is not fixed where the classifier reads {self.name!r}."
            )
        return self.shares(torch.zeros(tokens, 1))  # the values of the tokens do not matter

    def shares(self, tokens: Float[Tensor, "*batch token width"]) -> Float[Tensor, "*batch token"]:
        """Return each token's weight in y by image, float64; raise ValueError if attention or 'none' reads.

        A maximum reads each number from the token where it is largest. `tokens` are the input of the
        summaries (after the norm if it stands before them). All numbers of y count equally. Tokens with equal
        maxima share the weight.
        """
        if not self.summaries or any(one.how == "attention" for one in self.summaries):
            raise ValueError(
                "What is read of each token is not made of the tokens alone where the classifier reads"
                f" {self.name!r}."
            )
        result = torch.zeros(tokens.shape[:-1], dtype=torch.float64, device=tokens.device)
        for one in self.summaries:
            read = tokens[..., one.start : one.stop, :]
            largest = (read == read.amax(dim=-2, keepdim=True)).double()
            equally = torch.full_like(largest, 1 / read.shape[-2])
            parts = equally if one.how == "mean" else largest / largest.sum(dim=-2, keepdim=True)
            result[..., one.start : one.stop] += one.share * parts.mean(dim=-1)
        return result

    def y(self, tokens: Float[Tensor, "*batch token width"]) -> Float[Tensor, "*batch feature"]:
        """Return y, the classifier's input, before a norm that follows; for two heads their vectors' mean."""
        made = [summary.of(tokens) for summary in self.summaries]
        if self.joined == "side by side":
            return torch.cat(made, dim=-1)
        return sum(one.share * vector for one, vector in zip(self.summaries, made, strict=True))

    @classmethod
    def by_name(
        cls, name: str, grid: Grid, norm: Literal["before", "after", "both", "none"] = "before"
    ) -> Readout:
        """Return the readout of a name in `NAMES`.

        Raises ValueError for an unknown name and for a token that the grid does not have.
        """
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
    "average",  # the mean over the patches; with "of all", including the prefix tokens
    "average of all",
    "max",  # the elementwise maximum over the patches
    "max of all",
    "average and max",  # the mean of these two
    "average and max of all",
    "class and average",  # both vectors concatenated: transformers' DINOv2
    "class and distillation",  # one head for each; their logits are averaged: DeiT
    "attention",  # attention pooling (MAP); its summary tells whether it includes the prefix tokens
    "none",  # no classifier and no pooling
)
