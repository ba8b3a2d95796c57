"""How many heads a layer has, told from its trained weights.

Queries, keys and values of all heads lie in one matrix each, so that no shape tells where a head ends.
Training does: attention depends on W_q and W_k of a head through W_qᵀ W_k alone, and under gradient flow
the difference W_q W_qᵀ - W_k W_kᵀ of each head stays what it was at the start (layers balance: Du, Hu and
Lee 2018, "Algorithmic Regularization", theorem 2.2). What training adds, it adds to both, so the rows'
products among queries resemble those among keys inside of a head, and not across heads; the same holds for
values and the projection behind them. The number of heads whose blocks stand out most is taken.

What it does not show: anything before training, and one single head, with nothing to stand out from.
"""

import re
from collections.abc import Mapping
from math import log

import torch
from torch import Tensor

_LAYERS = 6  # as many, spread evenly, are looked at
_CLEAR = 15.0  # standard errors by which blocks have to stand out: untrained reach 2, trained 35 and more
_AHEAD = 1.25  # times as much of the variance explained as by any other number of heads
_USUAL = (64, 32, 16, 48, 80, 96, 128)  # dimensions a head, the paper's first
_OTHERS = 6  # numbers of heads that are offered where none is usual


def likely(width: int) -> tuple[int, ...]:
    """The numbers of heads that a model of this width may have, to be asked about, the likeliest first.

    >>> likely(192), likely(96), likely(100)
    ((3, 6, 12, 4, 2), (3, 6, 2, 1), (2, 1, 4, 5, 10, 20))
    """
    usual = [width // dim for dim in _USUAL if width % dim == 0]
    divisors = [heads for heads in range(1, width + 1) if width % heads == 0]
    nearest = sorted(divisors, key=lambda heads: abs(log(width / heads / _USUAL[0])))
    return tuple(usual or nearest[:_OTHERS])


def shown(tensors: Mapping[str, Tensor]) -> int | None:
    """The number of heads of a plain ViT in timm's layout; None where its weights do not show it clearly."""
    found = contrasts(tensors)
    if len(found) < 2:
        return None
    (best, second) = sorted(found, key=lambda heads: found[heads][0])[-1:-3:-1]
    explained, errors = found[best]
    return best if errors >= _CLEAR and explained >= _AHEAD * max(found[second][0], 0.0) else None


def contrasts(tensors: Mapping[str, Tensor]) -> dict[int, tuple[float, float]]:
    """For each possible number of heads: what its blocks explain of the likeness's variance (a sum of
    squares), and by how many standard errors more inside of them; empty without such layers.
    """
    alike = _likeness(tensors)
    if alike is None:
        return {}
    width = len(alike)
    row, col = torch.triu_indices(width, width, 1)
    values = alike[row, col]
    total, spread = len(values), values.std().item()
    found = {}
    for heads in range(2, width // 2 + 1):
        if width % heads:
            continue
        dim = width // heads
        inside = row // dim == col // dim
        count = int(inside.sum())
        difference = (values[inside].mean() - values[~inside].mean()).item()
        share = count * (total - count) / total
        found[heads] = (share * difference * abs(difference), difference / spread * share**0.5)
    return found


def _likeness(tensors: Mapping[str, Tensor]) -> Tensor | None:
    """How alike products of any two rows are: queries with keys, values with readers; over layers."""
    depth = sum(bool(re.fullmatch(r"blocks\.\d+\.attn\.qkv\.weight", key)) for key in tensors)
    chosen = sorted({round(i * (depth - 1) / max(1, _LAYERS - 1)) for i in range(_LAYERS)}) if depth else []
    alike = None
    for layer in chosen:
        qkv = tensors.get(f"blocks.{layer}.attn.qkv.weight")
        proj = tensors.get(f"blocks.{layer}.attn.proj.weight")
        if qkv is None or proj is None or qkv.ndim != 2 or qkv.shape[0] != 3 * proj.shape[1]:
            return None
        q, k, v = qkv.float().chunk(3)
        both = _cosines(q) * _cosines(k) + _cosines(v) * _cosines(proj.float().T)
        alike = both if alike is None else alike + both
    return alike


def _cosines(rows: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize(rows, dim=1)
    return unit @ unit.T
