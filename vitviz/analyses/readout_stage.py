"""The readout stage: a model's weights between its attention and its logits, as a small frozen value.

With the deviations of all norms held at their values in the pass, everything after softmax(q k^T) v is
linear. A direction in the space of the logits can then be carried back, norm by norm and projection by
projection, to each head's values (`logit_account`). This module holds those linear maps and the way tokens
are read:

    logits = W n_f(y) + b,   y_s = sum_i p_is n(x_i)

with x the last block's output, n the norm of every token, n_f that of what was read, and p_is the weight with
which slot s reads token i: the class token alone, the mean over patches, both tokens of a distilled model
(two slots with one head each), or attention pooling (one slot for each of its heads). The engine builds a
stage from a model; nothing here knows a model. A stage does not show what is computed before the heads, nor
anything about an image.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitviz.traces.trace import Attention, to_device

SHORTEST = 1e-12  # lower bound of an embedding's length, as in torch's normalize


@dataclass(frozen=True)
class Norm:
    """LayerNorm, or RMSNorm if not `centred`: (x - mean) / deviation * weight + bias."""

    weight: Float[Tensor, " width"] | None
    bias: Float[Tensor, " width"] | None
    eps: float
    centred: bool = True

    def deviation(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows"]:
        """Return the standard deviation, with eps, that divides each row; the RMS if not `centred`."""
        x = x - x.mean(dim=-1, keepdim=True) if self.centred else x
        return (x.square().mean(dim=-1) + self.eps).sqrt()

    def __call__(self, x: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """Normalise every row by its own mean and deviation."""
        return self.normalise(x, self.deviation(x).unsqueeze(-1))

    def normalise(
        self, x: Float[Tensor, "*rows width"], deviation: Tensor | float = 1.0
    ) -> Float[Tensor, "*rows width"]:
        """Normalise every row by a given deviation; pass 1 if the rows are already divided by theirs."""
        x = (x - x.mean(dim=-1, keepdim=True) if self.centred else x) / deviation
        x = x if self.weight is None else x * self.weight.to(x)
        return x if self.bias is None else x + self.bias.to(x)

    def back(self, directions: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows width"]:
        """Carry directions after the norm to directions before it, without the division by the deviation.

        Centring is linear: <d, x - mean x> = <d - mean d, x>.
        """
        directions = directions if self.weight is None else directions * self.weight.to(directions.device)
        return directions - directions.mean(dim=-1, keepdim=True) if self.centred else directions

    def constant(self, directions: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows"]:
        """Return the bias's contribution along each direction."""
        none = directions.new_zeros(directions.shape[:-1])
        return none if self.bias is None else directions @ self.bias.to(directions)


@dataclass(frozen=True)
class Pooling:
    """Rule by which the classifier reads the tokens.

    `slots` are pairs (first, one past the last or None) of sequence positions. Each slot is the mean over its
    tokens. Attention pooling has one pair, for the tokens that it attends to; its heads weigh them.
    """

    kind: str  # "class", "distilled", "average", "class and average" or "attention"
    slots: tuple[tuple[int, int | None], ...]
    norm: Norm | None  # norm of every token, before it is read
    fc_norm: Norm | None  # norm of what was read
    mean_latent: bool = False  # attention pooling: mean over its queries; otherwise the first query only

    @property
    def readers(self) -> slice:
        """Slice from the first to the last token that is read."""
        ends = [last for _, last in self.slots]
        return slice(min(first for first, _ in self.slots), None if None in ends else max(ends))

    def shares(self, tokens: int, pooling: Attention | None = None) -> Float[Tensor, "*image reader slot"]:
        """Return p_is, the weight with which slot s reads token i of `readers`; a slot's weights sum to 1."""
        first, last, _ = self.readers.indices(tokens)
        if self.kind == "attention":
            weights = pooling.weights()
            return (weights.mean(dim=-2) if self.mean_latent else weights[..., 0, :]).mT
        # float64, so that 1 / N is exact to the last digit
        shares = torch.zeros(last - first, len(self.slots), dtype=torch.float64)
        for slot, (begin, end) in enumerate(self.slots):
            read = slice(begin - first, None if end is None else end - first)
            shares[read, slot] = 1 / len(shares[read])
        return shares

    def weights(
        self, tokens: Float[Tensor, "*picture token width"], pooling: Attention | None = None
    ) -> Float[Tensor, "*picture reader slot"]:
        """Return p_is / deviation_i: the slots' weights of tokens before the norm, its deviation held."""
        shares = self.shares(tokens.shape[-2], pooling).to(tokens)
        if self.norm is None:
            return shares.expand(*tokens.shape[:-2], -1, -1)
        return shares / self.norm.deviation(tokens[..., self.readers, :]).unsqueeze(-1)

    def read(
        self, tokens: Float[Tensor, "*image token width"], pooling: Attention | None = None
    ) -> Float[Tensor, "*image slot width"]:
        """Return the vector that each slot reads from the tokens, before the norm after pooling.

        For attention pooling, these are the normed tokens weighted by each head.
        """
        read = tokens[..., self.readers, :]
        read = read if self.norm is None else self.norm(read)
        return self.shares(tokens.shape[-2], pooling).to(tokens).mT @ read


@dataclass(frozen=True)
class Projection:
    """Map from a layer's heads to the residual stream: inner norm, W_O, LayerScale and outer norm."""

    weight: Float[Tensor, "width inner"]
    bias: Float[Tensor, " width"] | None
    scale: Float[Tensor, " width"] | None = None  # LayerScale: multiplies weight and bias
    inner: Norm | None = None  # norm over all heads together, before W_O
    post: Norm | None = None  # norm of the whole branch, before it is added

    def __call__(self, handed: Float[Tensor, "*image token inner"]) -> Float[Tensor, "*image token width"]:
        """Return the branch's output by token, from its heads' outputs; norms use their own deviations."""
        handed = handed if self.inner is None else self.inner(handed)
        added = handed @ self.weight.to(handed).mT
        added = added if self.bias is None else added + self.bias.to(added)
        added = added if self.scale is None else added * self.scale.to(added)
        return added if self.post is None else self.post(added)

    def back(
        self, directions: Float[Tensor, "*row width"]
    ) -> tuple[Float[Tensor, "*row inner"], Float[Tensor, "*row"] | None, Float[Tensor, "*row"] | None]:
        """Return directions at the heads' outputs, not divided by the norms' deviations, and two constants.

        Returns:
            The directions at the heads, the constant along each direction where the branch is added, and the
                constant before the outer norm; None without such a constant.
        """
        added = projected = None
        if self.post is not None:
            added, directions = self.post.constant(directions), self.post.back(directions)
        if self.scale is not None:
            directions = directions * self.scale.to(directions)
        if self.bias is not None:
            projected = directions @ self.bias.to(directions)
        directions = directions @ self.weight.to(directions)
        if self.inner is not None:
            constant, directions = self.inner.constant(directions), self.inner.back(directions)
            projected = constant if projected is None else projected + constant
        return directions, added, projected

    def forth(
        self, handed: Float[Tensor, "*batch head token dim"],
        inner: Float[Tensor, "*batch 1 token"] | None = None,
        post: Float[Tensor, "*batch 1 token"] | None = None,
    ) -> Float[Tensor, "*batch writer token width"]:  # fmt: skip
        """Return the vector that each head writes where it is added, the bias last, with given deviations."""
        weight, heads = self.weight.to(handed), handed.shape[-3]
        constant = 0 if self.bias is None else self.bias.to(handed)
        if self.inner is not None:
            constant, weight = constant + self.inner.constant(weight), self.inner.back(weight)
            handed = handed / inner.unsqueeze(-1)
        result = handed @ rearrange(weight, "width (head dim) -> head dim width", head=heads)
        result = torch.cat([result, torch.zeros_like(result[..., :1, :, :]) + constant], dim=-3)
        result = result if self.scale is None else result * self.scale.to(result)
        if self.post is not None:
            result = replace(self.post, bias=None).normalise(result, post.unsqueeze(-1))
            if self.post.bias is not None:
                result[..., -1, :, :] += self.post.bias.to(result)
        return result


@dataclass(frozen=True)
class Length:
    """|z| of an embedding z = P y + b, which divides the scores of a cosine; `added` follows the division."""

    projection: Float[Tensor, "embedding feature"] | None  # None: what is read is the embedding itself
    bias: Float[Tensor, " embedding"] | None
    added: Float[Tensor, " class"]

    def __call__(self, y: Float[Tensor, "*lead slot width"]) -> Float[Tensor, "*lead 1"]:
        z = y.flatten(-2)  # slots concatenated
        z = z if self.projection is None else z @ self.projection.to(z).mT
        z = z if self.bias is None else z + self.bias.to(z)
        return z.norm(dim=-1, keepdim=True).clamp_min(SHORTEST)


@dataclass(frozen=True)
class Head:
    """Linear head: logits = factor * sum_s weights_s y_s + bias.

    For given classes, the logits are divided by |z| and then `added` is added. |z| is the embedding's length.
    Held at its value in a pass, as norms' deviations are, it leaves a linear map.
    """

    # one per slot; attention pooling has one for all of them
    weights: tuple[Float[Tensor, "class width"], ...]
    bias: Float[Tensor, " class"]
    factor: float = 1.0
    length: Length | None = None  # None for a classifier

    def __call__(self, y: Float[Tensor, "*lead slot width"]) -> Float[Tensor, "*lead class"]:
        """Return the logits of the slots' vectors y, divided by the embedding's length for given classes."""
        result = sum(y[..., slot, :] @ weights.to(y).mT for slot, weights in enumerate(self.weights))
        result = result * self.factor + self.bias.to(y)
        return result if self.length is None else result / self.length(y) + self.length.added.to(y)

    def with_length_held(self, y: Float[Tensor, "slot width"]) -> Head:
        """Return the linear map of this head with the length of y held."""
        if self.length is None:
            return self
        length = self.length(y)
        bias = self.bias.to(y) / length + self.length.added.to(y)
        return Head(tuple(weights.to(y) / length for weights in self.weights), bias, self.factor)


@dataclass(frozen=True)
class AttentionPooling:
    """Attention pooling (MAP): y = p + m, p = W_O (sum_j a_j (W_V (n(x_j) + position_j) + b_V)) + b_O."""

    value: Float[Tensor, "inner width"]
    value_bias: Float[Tensor, " inner"] | None
    projection: Float[Tensor, "width2 inner"] | None  # None: the heads' output is y itself
    projection_bias: Float[Tensor, " width2"] | None
    positions: Float[Tensor, "reader width"] | None  # added to the normed tokens

    def pooled(
        self, read: Float[Tensor, "*image slot width"], shares: Float[Tensor, "*image reader slot"]
    ) -> Float[Tensor, "*image width2"]:
        """Return p, from what each head reads and the heads' weights."""
        read = read if self.positions is None else read + shares.mT @ self.positions
        value = self.value.unflatten(0, (read.shape[-2], -1))
        values = (value @ read.unsqueeze(-1)).squeeze(-1).flatten(-2)
        values = values if self.value_bias is None else values + self.value_bias
        values = values if self.projection is None else values @ self.projection.mT
        return values if self.projection_bias is None else values + self.projection_bias


@dataclass(frozen=True, eq=False)  # equal only to itself, so that results about it can be cached
class ReadoutStage:
    """Complete readout of one model at one input size."""

    checkpoint: str
    pooling: Pooling
    layers: tuple[Projection, ...]
    head: Head | None  # None: without a classifier, a target is a direction
    attention_pooling: AttentionPooling | None = None
    # length of a direction as a target: that of y, or of both slots if the head reads them concatenated
    features: int = 0

    def on(self, device: torch.device) -> ReadoutStage:
        """Return the stage with every weight on a device."""
        kinds = ReadoutStage | Pooling | Norm | Projection | Head | Length | AttentionPooling
        return to_device(self, device, kinds)
