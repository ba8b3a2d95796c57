"""Passes with gradients: explicit attention, biases as autograd leaves, optionally a frozen linear map.

A pass uses the torch-function mode of `capture` for every torch call, in one thread. The mode
- computes softmax(q k^T scale + mask) explicitly, so that every attention A has a gradient; in a held pass A
  is a constant, the fused kernel may run on detached queries and keys, and no N x N matrix is stored;
- passes every parameter to torch detached, so that autograd stores nothing for weights and no `requires_grad`
  is changed;
- passes every bias, prefix token and position table as a separate leaf: the contribution of each to the score
  is value times gradient. With the tokens' value times gradient, these are all terms of an affine map.

Hooks are those of `hooks`, which passes of several threads share. Memory is checked beforehand.

The frozen linear map holds norms' deviations and gates at their values in this very pass.

    norm(x) = (x - mean x) / stop(deviation) * weight + bias        the mean is linear and stays
    f(x)    = x * stop(f(x) / x)      GELU (gate Phi), SiLU and QuickGELU (gate sigmoid), ReLU
    f(a) b  = stop(f(a)) * b          gated MLPs (SwiGLU, GluMlp): the gate is held, b carries the relevance

where stop(.) blocks gradients. All values are the model's; only the gradients change, to those of an affine
map of the tokens. torch's functions are replaced by name for one pass of one thread; no module or class is
modified. A norm or gate in a model's own code is held at its call of rsqrt, sigmoid or softmax. Any other
computation is not held, so that the terms do not add up, and is refused.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitviz.engine.forward.biases import to_additive_mask
from vitviz.engine.forward.capture import listening
from vitviz.errors import UnsupportedModel

GATED = {F.gelu, F.silu, F.relu, F.mish, F.hardswish, torch.relu, Tensor.relu}  # each is x times a gate
STOPPED = {
    torch.sigmoid, Tensor.sigmoid, F.sigmoid, torch.softmax, Tensor.softmax, F.softmax, torch.rsqrt,
    Tensor.rsqrt,
}  # fmt: skip
PRODUCTS = {torch.mul, Tensor.mul, Tensor.mul_, Tensor.__mul__, Tensor.__rmul__}


def layer_norm(
    x: Tensor, shape, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """LayerNorm with its deviation held constant."""
    normed = rms_norm(x - x.mean(dim=tuple(range(-len(shape), 0)), keepdim=True), shape, weight, eps)
    return normed if bias is None else normed + bias


def rms_norm(x: Tensor, shape, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """RMSNorm with its deviation held constant."""
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    squares = x.detach().square().mean(dim=tuple(range(-len(shape), 0)), keepdim=True)
    normed = x * (squares + eps).rsqrt()
    return normed if weight is None else normed * weight


_NORMS: dict[Callable, Callable] = {F.layer_norm: layer_norm, F.rms_norm: rms_norm}


ADDED = {  # parameters that are tokens or are added to tokens or projections
    "cls_token": "prefix tokens", "dist_token": "prefix tokens", "reg_token": "prefix tokens",
    "pos_embed": "positions",
    "q_bias": "linear biases", "v_bias": "linear biases",
}  # fmt: skip
# function -> (position of the bias argument, kind of term)
_BIASED = {F.linear: (2, "linear biases"), F.conv2d: (2, "linear biases"), F.layer_norm: (3, "norm biases")}


class GradientPass:
    """Listener of one pass with gradients; recorded tensors are in the autograd graph, with a batch axis."""

    def __init__(self, model: nn.Module, blocks: list[nn.Module], held: bool, terms: bool):
        self.tokens: list[Tensor] = []  # input of each block, then the last block's output
        # by layer: batch x head x query x key; empty in a held pass
        self.attentions: list[list[Tensor]] = [[] for _ in blocks]
        self.pooling: list[Tensor] = []  # likewise, of attention pooling
        # constants: (kind, block, leaf); block -1 is before the first, L after the last
        self.lines: list[tuple[str, int, Tensor]] = []
        self.normed: dict[int, Tensor] = {}  # output of the first norm by block; L: after the last
        self._depth, self._last = -1, len(blocks) - 1
        self._held, self._terms = held, terms
        self._gate: Tensor | None = None  # the last activation's output, to tell gate from value
        named = ((name.split(".")[-1], parameter) for name, parameter in model.named_parameters())
        self._added = {id(parameter): ADDED[last] for last, parameter in named if last in ADDED}
        self._leaves: dict[int, Tensor] = {}

    def on_event(self, moment: str, layer: int, args: tuple, output: Any) -> tuple | None:
        """Record a block's input tokens; the first block's become a leaf unless pixels need gradients."""
        if moment == "output" and layer == self._last:
            self._depth = layer + 1
            self.tokens.append(output)
        if moment != "input":
            return None
        self._depth, tokens = layer, args[0]
        begins = layer == 0 and not tokens.requires_grad
        if begins:
            tokens = tokens.detach().requires_grad_()
            self.lines.clear()  # constants before the leaf are part of its value
        self.tokens.append(tokens)
        return ((tokens, *args[1:]), output) if begins else None

    def attend(self, layer: int | None, func: Callable, *args, **kwargs) -> Any:
        """Run any torch call: record attention, detach parameters and, if held, freeze norms and gates."""
        if func in _BIASED:
            args, kwargs = self._with_leaf(func, args, kwargs)
        args = tuple(self._constant(argument) for argument in args)
        kwargs = {name: self._constant(value) for name, value in kwargs.items()}
        if func is F.scaled_dot_product_attention:
            return self._attend(*args, **kwargs)
        output = self._holding(func, *args, **kwargs) if self._held else func(*args, **kwargs)
        if func in _NORMS:
            self.normed.setdefault(self._depth, output)
        return output

    def _holding(self, func: Callable, *args, **kwargs) -> Any:
        """Call a function in a held pass, with norms and gates frozen."""
        if func in GATED:
            return self._gated(func, *args, **kwargs)
        if func in STOPPED:
            return func(*args, **kwargs).detach()
        if func in PRODUCTS:
            return self._product(func, *args, **kwargs)
        return _NORMS.get(func, func)(*args, **kwargs)

    def _gated(self, func: Callable, x: Tensor, *args, **kwargs) -> Tensor:
        """Return an activation as x times its gate, the gate held constant; keep it for `_product`."""
        kwargs.pop("inplace", None)  # must not overwrite a tensor in the graph
        with torch.no_grad():
            value = func(x, *args, **kwargs)
            gate = torch.where(x == 0, 0.5, value / x)  # any finite number, because the factor is 0
        self._gate = x * gate
        return self._gate

    def _product(self, func: Callable, left, right, **kwargs) -> Tensor:
        """Multiply two factors; if one is the last activation of a gated MLP, hold it constant."""
        both = all(isinstance(factor, Tensor) and factor.requires_grad for factor in (left, right))
        if both and self._gate is not None:
            left, right = (factor.detach() if factor is self._gate else factor for factor in (left, right))
        return func(left, right, **kwargs)

    def _with_leaf(self, func: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        """Return a call's arguments with its bias as a new autograd leaf.

        They are unchanged if there is no bias or no terms were requested.
        """
        place, kind = _BIASED[func]
        bias = args[place] if len(args) > place else kwargs.get("bias")
        if bias is None or not self._terms:
            return args, kwargs
        leaf = self._leaf(kind, bias)
        if len(args) > place:
            return (*args[:place], leaf, *args[place + 1 :]), kwargs
        return args, {**kwargs, "bias": leaf}

    def _constant(self, argument: Any) -> Any:
        """Return an argument with parameters detached; those that are added to tokens become leaves."""
        if type(argument) in (list, tuple):
            return type(argument)(map(self._constant, argument))
        if not isinstance(argument, nn.Parameter):
            return argument
        if id(argument) not in self._added or not self._terms:
            return argument.detach()
        if id(argument) not in self._leaves:
            self._leaves[id(argument)] = self._leaf(self._added[id(argument)], argument)
        return self._leaves[id(argument)]

    def _leaf(self, kind: str, value: Tensor) -> Tensor:
        """Return a value as a new autograd leaf and record it with its kind and the current block."""
        leaf = value.detach().requires_grad_()
        self.lines.append((kind, self._depth, leaf))
        return leaf

    def _attend(
        self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **others
    ):
        """Run an attention call: with explicit, recorded weights, or fused if held or without terms.

        Raises UnsupportedModel for causal attention or keys shared between heads.
        """
        if is_causal or others.get("enable_gqa"):
            raise UnsupportedModel(
                "This model's attention is causal or shares keys between heads, so it has no map."
            )
        if self._held:
            query, key = query.detach(), key.detach()
            attn_mask = None if attn_mask is None else attn_mask.detach()
        if self._held or not self._terms:
            return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask, scale=scale)
        scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.mT
        if attn_mask is not None:
            scores = scores + to_additive_mask(attn_mask, scores.dtype)
        attention = torch.softmax(scores, dim=-1)
        inside = 0 <= self._depth <= self._last
        (self.attentions[self._depth] if inside else self.pooling).append(attention)
        return attention @ value


@contextmanager
def gradient_pass(
    model: nn.Module, blocks: list[nn.Module], *, held: bool, terms=True
) -> Iterator[GradientPass]:
    """Run this thread's pass inside the `with` with gradients enabled; leaves nothing on the model.

    With `held`, gradients are those of the frozen linear map; otherwise the model's, and every attention is
    kept. Biases and other constants are leaves. Without `terms` they are not, no attention is kept, and the
    fused kernel runs. Raises Stopped before a block if the computation was cancelled
    (`vitviz.traces.cancellation`).
    """
    gradient_pass = GradientPass(model, blocks, held, terms)
    unrounded = torch.autocast(next(model.parameters()).device.type, enabled=False)
    heard = listening(model, blocks, gradient_pass, every=True)
    with torch.inference_mode(False), torch.enable_grad(), unrounded, heard:
        yield gradient_pass


def bytes_of_gradients(
    layers: int, heads: int, tokens: int, width: int, attentions: bool, batch: int = 1
) -> int:
    """Estimate the peak memory in bytes of a pass with gradients: attentions, their gradients, activations.

    A layer stores about 32 numbers per token and channel: two norms, queries, keys, values, the heads'
    output, two branches, and the MLP's four widths before, after and at its gate. Softmax stores A, and A has
    a gradient: L H N^2 twice, and once more for the current layer.

    >>> bytes_of_gradients(12, 12, 197, 768, attentions=True) // 10**6
    278
    >>> bytes_of_gradients(12, 12, 197, 768, attentions=False) // 10**6
    232
    """
    attention = 0 if not attentions else (2 * layers + 1) * heads * tokens**2
    return 4 * batch * (attention + 32 * layers * tokens * width)


def product(value: Tensor, slope: Tensor) -> Tensor:
    """Return value times gradient in float64."""
    return value.detach().double() * slope.double()
