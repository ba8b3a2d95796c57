"""One attention call as a model made it; its weights are computed when somebody looks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor


@dataclass(frozen=True)
class Bias:
    """What a model adds to the scores of one layer before the softmax.

    A relative-position bias is kept as its small table and the index shared by all layers, and expanded on
    demand; any other additive mask is kept as it was given.
    """

    table: Float[Tensor, "head entry"] | None = None
    index: Tensor | None = None  # (query, key) -> entry
    dense: Float[Tensor, "#head #query key"] | None = None

    def rows(
        self, rows: slice | Tensor = slice(None), heads: slice = slice(None)
    ) -> Float[Tensor, "head query key"]:
        """The part that belongs to some of the queries and heads; one row or head where all share it."""
        if self.dense is None:
            return self.table[heads][:, self.index[rows]]
        shared_by_heads, shared_by_queries = (size == 1 for size in self.dense.shape[:2])
        return self.dense[
            slice(None) if shared_by_heads else heads, slice(None) if shared_by_queries else rows
        ]


@dataclass(frozen=True)
class Attention:
    """One attention call as the model made it: after query-key norm, rotary embedding and relative bias."""

    q: Float[Tensor, "head query dim"]
    k: Float[Tensor, "head key dim"]
    v: Float[Tensor, "head key dim2"]
    scale: float
    bias: Bias | None = None
    replaced: tuple[int, ...] = ()  # heads whose weighted values the model did not go on with
    given: Float[Tensor, "replaced query dim2"] | None = None  # what it went on with instead

    @property
    def heads(self) -> int:
        return self.q.shape[0]

    @property
    def tensors(self) -> list[Tensor]:
        """All that it holds, without its bias."""
        return [self.q, self.k, self.v, *([] if self.given is None else [self.given])]

    def __getstate__(self) -> dict:
        """Tensors in storage of their own, for pickling."""
        given = None if self.given is None else owned(self.given)
        return {**vars(self), **{name: owned(getattr(self, name)) for name in "qkv"}, "given": given}

    def weights(
        self, rows: slice | Tensor = slice(None), heads: slice = slice(None)
    ) -> Float[Tensor, "head rows key"]:
        """softmax(q k^T scale + bias) for some queries (a slice, or numbers) and heads: rows sum to 1."""
        with torch.autocast(self.q.device.type, enabled=False):
            scores = torch.matmul(self.q[heads, rows] * self.scale, self.k[heads].mT)
            if self.bias is not None:
                scores = scores + self.bias.rows(rows, heads)
            return torch.softmax(scores, dim=-1)

    def output(self) -> Float[Tensor, "head query dim2"]:
        """What the model goes on with: the weighted values, or what was put in their place."""
        handed = self.weights() @ self.v
        if self.replaced:
            handed[list(self.replaced)] = self.given
        return handed


def owned(tensor: Tensor) -> Tensor:
    """The same in a storage of its own: a view would be pickled with all of what it is a view of."""
    return tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor
