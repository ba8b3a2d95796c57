"""What the frozen linear map holds: norms' deviations and gates, at the values that they have in this very
pass.

    norm(x) = (x - mean x) / stop(deviation) * weight + bias        the mean is linear and stays
    f(x)    = x * stop(f(x) / x)      GELU (gate Phi), SiLU and QuickGELU (gate sigmoid), ReLU
    f(a) b  = stop(f(a)) * b          gated MLPs (SwiGLU, GluMlp): the gate is held, b carries the relevance

where stop(.) lets no gradient through. Every value is the model's own, and only gradients change: those of an
affine map of the tokens. These are replacements of torch's functions by name, for one pass of one thread
(`gradients`); no module and no class is touched. A norm or gate that a model works out by hand is met where
it calls rsqrt, sigmoid or softmax. What is computed in any other way is not held, and the map then does not
balance, which is found out and refused.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

GATED = {F.gelu, F.silu, F.relu, F.mish, F.hardswish, torch.relu, Tensor.relu}  # each is x times something
STOPPED = {
    torch.sigmoid, Tensor.sigmoid, F.sigmoid, torch.softmax, Tensor.softmax, F.softmax, torch.rsqrt,
    Tensor.rsqrt,
}  # fmt: skip
PRODUCTS = {torch.mul, Tensor.mul, Tensor.mul_, Tensor.__mul__, Tensor.__rmul__}


class Held:
    """The replacements of one pass; it remembers which tensor an activation gave last, to know a gate from
    what it gates.
    """

    def __init__(self) -> None:
        self._gate: Tensor | None = None

    def replacement(self, func: Callable) -> Callable | None:
        """What is called in a function's place; None for one that is left as it is."""
        if func in GATED:
            return lambda *args, **kwargs: self._gated(func, *args, **kwargs)
        if func in STOPPED:
            return lambda *args, **kwargs: func(*args, **kwargs).detach()
        if func in PRODUCTS:
            return lambda *args, **kwargs: self._product(func, *args, **kwargs)
        return _NORMS.get(func)

    def _gated(self, func: Callable, x: Tensor, *args, **kwargs) -> Tensor:
        kwargs.pop("inplace", None)  # of what stands in the graph
        with torch.no_grad():
            value = func(x, *args, **kwargs)
            gate = torch.where(x == 0, 0.5, value / x)  # any finite number: it multiplies 0
        self._gate = x * gate
        return self._gate

    def _product(self, func: Callable, one, other, **kwargs) -> Tensor:
        both = all(isinstance(factor, Tensor) and factor.requires_grad for factor in (one, other))
        if both and self._gate is not None:
            one, other = (factor.detach() if factor is self._gate else factor for factor in (one, other))
        return func(one, other, **kwargs)


def layer_norm(
    x: Tensor, shape, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """LayerNorm with its deviation held."""
    axes = tuple(range(-len(shape), 0))
    centred = x - x.mean(dim=axes, keepdim=True)
    normed = _divided(centred, axes, eps)
    normed = normed if weight is None else normed * weight
    return normed if bias is None else normed + bias


def rms_norm(x: Tensor, shape, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """RMSNorm with its deviation held."""
    axes = tuple(range(-len(shape), 0))
    normed = _divided(x, axes, torch.finfo(x.dtype).eps if eps is None else eps)
    return normed if weight is None else normed * weight


def _divided(x: Tensor, axes: tuple[int, ...], eps: float) -> Tensor:
    return x * (x.detach().square().mean(dim=axes, keepdim=True) + eps).rsqrt()


_NORMS: dict[Callable, Callable] = {F.layer_norm: layer_norm, F.rms_norm: rms_norm}
