"""What stands between the heads and the logits: a model's weights behind its attention, as one small frozen
value.

With the deviations of all norms held at the values that they had in the pass, everything behind softmax(q
k^T) v is linear. A direction in the space of the logits can then be carried back, norm by norm and projection
by projection, to each head's values; `ledger` does that. Here are the linear maps on that way and the rule by
which tokens are read:

    logits = W n_f(y) + b,   y_s = sum_i p_is n(x_i)

with x the last block's output, n the norm of every token, n_f that of what was read, and p_is the weight with
which slot s reads token i: the class token alone, the mean over patches, both tokens of a distilled model
(two slots with a head each), or attention pooling (a slot for each of its heads). The engine makes it of a
model; nothing here knows one. It does not show what a model computes before its heads, and says nothing about
a picture.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.trace import Attention


@dataclass(frozen=True)
class Norm:
    """LayerNorm, or where it does not centre RMSNorm: (x - mean) / deviation * weight + bias."""

    weight: Float[Tensor, " width"] | None
    bias: Float[Tensor, " width"] | None
    eps: float
    centred: bool = True

    def deviation(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows"]:
        """What each row is divided by."""
        x = x - x.mean(dim=-1, keepdim=True) if self.centred else x
        return (x.square().mean(dim=-1) + self.eps).sqrt()

    def __call__(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """Every row normed by its own mean and deviation."""
        x = (x - x.mean(dim=-1, keepdim=True) if self.centred else x) / self.deviation(x).unsqueeze(-1)
        x = x if self.weight is None else x * self.weight
        return x if self.bias is None else x + self.bias

    def back(self, directions: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """Directions behind the norm as directions before it, but for the division by the deviation.

        Centring is linear: <d, x - mean x> = <d - mean d, x>.
        """
        directions = directions if self.weight is None else directions * self.weight
        return directions - directions.mean(dim=-1, keepdim=True) if self.centred else directions

    def constant(self, directions: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows"]:
        """What the bias gives to each direction."""
        return directions.new_zeros(directions.shape[:-1]) if self.bias is None else directions @ self.bias


@dataclass(frozen=True)
class Pooling:
    """How the classifier reads the tokens.

    `slots` are pairs (first, one past the last or None) of sequence positions, each slot the mean over its
    own; attention pooling has one pair, of the tokens that it attends to, and gives them the weights of its
    heads.
    """

    kind: str  # "class", "distilled", "average", "class and average" or "attention"
    slots: tuple[tuple[int, int | None], ...]
    norm: Norm | None  # of every token, before it is read
    fc_norm: Norm | None  # of what was read
    mean_latent: bool = False  # attention pooling: the mean over its queries, otherwise the first alone

    @property
    def readers(self) -> slice:
        """The tokens from the first to the last that is read."""
        ends = [last for _, last in self.slots]
        return slice(min(first for first, _ in self.slots), None if None in ends else max(ends))

    def shares(self, tokens: int, pooling: Attention | None = None) -> Float[Tensor, "reader slot"]:
        """p_is: with which weight each slot reads each of the `readers` among so many tokens; every slot's
        sum to 1.
        """
        first, last, _ = self.readers.indices(tokens)
        if self.kind == "attention":
            weights = pooling.weights()
            return (weights.mean(dim=1) if self.mean_latent else weights[:, 0]).mT
        shares = torch.zeros(last - first, len(self.slots), dtype=torch.float64)  # 1 / N to the last digit
        for slot, (begin, end) in enumerate(self.slots):
            read = slice(begin - first, None if end is None else end - first)
            shares[read, slot] = 1 / len(shares[read])
        return shares

    def weights(
        self, tokens: Float[Tensor, "token width"], pooling: Attention | None = None
    ) -> Float[Tensor, "reader slot"]:
        """p_is / deviation_i: the same with the norm of every token held."""
        shares = self.shares(len(tokens), pooling).to(tokens)
        return (
            shares if self.norm is None else shares / self.norm.deviation(tokens[self.readers]).unsqueeze(-1)
        )

    def read(
        self, tokens: Float[Tensor, "token width"], pooling: Attention | None = None
    ) -> Float[Tensor, "slot width"]:
        """y before its own norm: what each slot reads. For attention pooling, the mean of the normed tokens
        by each head's weights.
        """
        read = tokens[self.readers]
        return self.shares(len(tokens), pooling).to(tokens).mT @ (
            read if self.norm is None else self.norm(read)
        )


@dataclass(frozen=True)
class Projection:
    """From one layer's heads to the residual stream: norm within, projection W_O, LayerScale, norm behind."""

    weight: Float[Tensor, "width inner"]
    bias: Float[Tensor, " width"] | None
    scale: Float[Tensor, " width"] | None = None  # LayerScale: multiplies both
    inner: Norm | None = None  # over all heads together, before W_O
    post: Norm | None = None  # of the whole branch, before it is added


@dataclass(frozen=True)
class Head:
    """logits = factor * sum_s weights_s y_s + bias."""

    weights: tuple[Float[Tensor, "class width"], ...]  # one a slot; attention pooling has one for all of them
    bias: Float[Tensor, " class"]
    factor: float = 1.0


@dataclass(frozen=True)
class AttentionPooling:
    """Attention pooling's own weights (MAP): y = p + m, p = W_O (sum_j a_j (W_V (n(x_j) + position_j) + b_V))
    + b_O.
    """

    value: Float[Tensor, "inner width"]
    value_bias: Float[Tensor, " inner"] | None
    projection: Float[Tensor, "width2 inner"] | None  # None: what the heads hand on is y itself
    projection_bias: Float[Tensor, " width2"] | None
    positions: Float[Tensor, "reader width"] | None  # added to the normed tokens

    def pooled(
        self, read: Float[Tensor, "slot width"], shares: Float[Tensor, "reader slot"]
    ) -> Float[Tensor, " width2"]:
        """p, from what each head reads and with which weights."""
        read = read if self.positions is None else read + shares.mT @ self.positions
        value = self.value.unflatten(0, (len(read), -1))
        values = torch.einsum("sdw,sw->sd", value, read).flatten()
        values = values if self.value_bias is None else values + self.value_bias
        values = values if self.projection is None else self.projection @ values
        return values if self.projection_bias is None else values + self.projection_bias


@dataclass(frozen=True, eq=False)  # it is itself, so that what was found out about one can be remembered
class Tail:
    """All of it for one model at one input size."""

    checkpoint: str
    pooling: Pooling
    layers: tuple[Projection, ...]
    head: Head | None  # None: no classifier, so a target is a direction
    attention_pooling: AttentionPooling | None = None
    # the length of a direction as a target: of y, of both slots side by side where the head reads them so
    features: int = 0
