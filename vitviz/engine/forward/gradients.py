"""A pass with gradients through the capture seam: attention in the open, biases as leaves.

The same torch-function mode as `capture`'s, in explicit form. Within one pass of one thread it
- computes softmax(q k^T scale + mask) in the open, so that every attention A has a gradient; in a held pass A
  is a constant, the fused kernel may run on queries and keys that are held, and no N x N is kept;
- hands every parameter to torch detached, so that nothing is remembered for weights and no `requires_grad` is
  changed;
- hands every bias, prefix token and position table over as a leaf of its own: what each gives to the score is
  value times gradient, and with the tokens' own value times gradient these are all the terms that an affine
  map has.

Hooks are `wiring`'s, which passes of several threads share. Memory is asked for beforehand.

What the frozen linear map holds are norms' deviations and gates, at the values of this very pass.

    norm(x) = (x - mean x) / stop(deviation) * weight + bias        the mean is linear and stays
    f(x)    = x * stop(f(x) / x)      GELU (gate Phi), SiLU and QuickGELU (gate sigmoid), ReLU
    f(a) b  = stop(f(a)) * b          gated MLPs (SwiGLU, GluMlp): the gate is held, b carries the relevance

where stop(.) lets no gradient through. Every value is the model's own, and only gradients change: those of an
affine map of the tokens. These are replacements of torch's functions by name, for one pass of one thread; no
module and no class is touched. A norm or gate that a model works out by hand is met where it calls rsqrt,
sigmoid or softmax. What is computed in any other way is not held, does not balance, and is refused.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitviz.engine.forward.biases import additive
from vitviz.engine.forward.capture import listening
from vitviz.errors import UnsupportedModel

GATED = {F.gelu, F.silu, F.relu, F.mish, F.hardswish, torch.relu, Tensor.relu}  # each is x times something
STOPPED = {
    torch.sigmoid, Tensor.sigmoid, F.sigmoid, torch.softmax, Tensor.softmax, F.softmax, torch.rsqrt,
    Tensor.rsqrt,
}  # fmt: skip
PRODUCTS = {torch.mul, Tensor.mul, Tensor.mul_, Tensor.__mul__, Tensor.__rmul__}


def layer_norm(
    x: Tensor, shape, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    """LayerNorm with its deviation held."""
    normed = rms_norm(x - x.mean(dim=tuple(range(-len(shape), 0)), keepdim=True), shape, weight, eps)
    return normed if bias is None else normed + bias


def rms_norm(x: Tensor, shape, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """RMSNorm with its deviation held."""
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    squares = x.detach().square().mean(dim=tuple(range(-len(shape), 0)), keepdim=True)
    normed = x * (squares + eps).rsqrt()
    return normed if weight is None else normed * weight


_NORMS: dict[Callable, Callable] = {F.layer_norm: layer_norm, F.rms_norm: rms_norm}


ADDED = {  # parameters that are added to tokens, stand among them, or are added behind a projection
    "cls_token": "prefix tokens", "dist_token": "prefix tokens", "reg_token": "prefix tokens",
    "pos_embed": "positions",
    "q_bias": "linear biases", "v_bias": "linear biases",
}  # fmt: skip
# which argument is the bias, and what kind of line it is
_BIASED = {F.linear: (2, "linear biases"), F.conv2d: (2, "linear biases"), F.layer_norm: (3, "norm biases")}


class GradientPass:
    """One pass: hears the hooks and replaces calls. What is recorded is in the graph, with a batch axis."""

    def __init__(self, model: nn.Module, blocks: list[nn.Module], held: bool, terms: bool):
        self.tokens: list[Tensor] = []  # entering each block, then what the last one gave
        # batch x head x query x key; none in a held pass
        self.attentions: list[list[Tensor]] = [[] for _ in blocks]
        self.pooling: list[Tensor] = []  # the same of attention pooling
        # constants: what kind, in which block (-1 before the first, L behind the last), and the leaf
        self.lines: list[tuple[str, int, Tensor]] = []
        self.normed: dict[int, Tensor] = {}  # the first norm's output in each block; in L, behind the last
        self._depth, self._last = -1, len(blocks) - 1
        self._held, self._terms = held, terms
        self._gate: Tensor | None = None  # what an activation gave last, to tell gate from gated
        self._added = {
            id(one): ADDED[last]
            for name, one in model.named_parameters()
            if (last := name.split(".")[-1]) in ADDED
        }
        self._leaves: dict[int, Tensor] = {}

    def on_event(self, moment: str, layer: int, args: tuple, output: Any) -> tuple | None:
        """Tokens that enter a block; where no pixel asks for a gradient, the first block's are the leaf."""
        if moment == "output" and layer == self._last:
            self._depth = layer + 1
            self.tokens.append(output)
        if moment != "input":
            return None
        self._depth, tokens = layer, args[0]
        begins = layer == 0 and not tokens.requires_grad
        if begins:
            tokens = tokens.detach().requires_grad_()
            self.lines.clear()  # what made these tokens is no line of theirs
        self.tokens.append(tokens)
        return ((tokens, *args[1:]), output) if begins else None

    def attend(self, layer: int | None, func: Callable, *args, **kwargs) -> Any:
        """One call of torch's in the pass, whichever."""
        if func in _BIASED:
            args, kwargs = self._with_leaf(func, args, kwargs)
        args = tuple(self._constant(one) for one in args)
        kwargs = {name: self._constant(one) for name, one in kwargs.items()}
        if func is F.scaled_dot_product_attention:
            return self._attend(*args, **kwargs)
        found = self._holding(func, *args, **kwargs) if self._held else func(*args, **kwargs)
        if func in _NORMS:
            self.normed.setdefault(self._depth, found)
        return found

    def _holding(self, func: Callable, *args, **kwargs) -> Any:
        """What a function gives in a held pass."""
        if func in GATED:
            return self._gated(func, *args, **kwargs)
        if func in STOPPED:
            return func(*args, **kwargs).detach()
        if func in PRODUCTS:
            return self._product(func, *args, **kwargs)
        return _NORMS.get(func, func)(*args, **kwargs)

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

    def _with_leaf(self, func: Callable, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
        place, kind = _BIASED[func]
        bias = args[place] if len(args) > place else kwargs.get("bias")
        if bias is None or not self._terms:
            return args, kwargs
        leaf = self._leaf(kind, bias)
        if len(args) > place:
            return (*args[:place], leaf, *args[place + 1 :]), kwargs
        return args, {**kwargs, "bias": leaf}

    def _constant(self, given: Any) -> Any:
        """A parameter without its wish for a gradient; one that is added to tokens, as a leaf."""
        if type(given) in (list, tuple):
            return type(given)(map(self._constant, given))
        if not isinstance(given, nn.Parameter):
            return given
        if id(given) not in self._added or not self._terms:
            return given.detach()
        if id(given) not in self._leaves:
            self._leaves[id(given)] = self._leaf(self._added[id(given)], given)
        return self._leaves[id(given)]

    def _leaf(self, kind: str, value: Tensor) -> Tensor:
        leaf = value.detach().requires_grad_()
        self.lines.append((kind, self._depth, leaf))
        return leaf

    def _attend(
        self, query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, **others
    ):
        if is_causal or others.get("enable_gqa"):
            raise UnsupportedModel(
                "This model's attention is causal or shares keys between heads, so there is no map of it."
            )
        if self._held:
            query, key, attn_mask = (one if one is None else one.detach() for one in (query, key, attn_mask))
        if self._held or not self._terms:
            return F.scaled_dot_product_attention(query, key, value, attn_mask=attn_mask, scale=scale)
        scores = (query * (query.shape[-1] ** -0.5 if scale is None else scale)) @ key.mT
        if attn_mask is not None:
            scores = scores + additive(attn_mask, scores.dtype)
        attention = torch.softmax(scores, dim=-1)
        inside = 0 <= self._depth <= self._last
        (self.attentions[self._depth] if inside else self.pooling).append(attention)
        return attention @ value


@contextmanager
def opened(model: nn.Module, blocks: list[nn.Module], *, held: bool, terms=True) -> Iterator[GradientPass]:
    """The pass that this thread makes inside the `with`, gradients enabled; nothing stays on the model.

    With `held`, the frozen linear map; else the model's own gradients, with every attention. Biases and other
    constants are leaves. Without `terms` they are not, no attention is kept in the open, and the fused kernel
    runs. Stopped, before a block, where nobody waits (`vitviz.stopping`).
    """
    one = GradientPass(model, blocks, held, terms)
    weights = next(model.parameters())
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast(weights.device.type, enabled=False),
        listening(model, blocks, one, every=True),
    ):
        yield one


def bytes_of_gradients(
    layers: int, heads: int, tokens: int, width: int, attentions: bool, batch: int = 1
) -> int:
    """About what a pass with gradients takes at its peak: attentions (and gradients), and activations.

    A layer keeps about 32 numbers a token and channel: two norms, queries, keys, values, the heads' result,
    two branches, and the MLP's four widths before, behind and at its gate. Softmax keeps A, and A has a
    gradient: L H N^2 twice, and once more for the layer that is being worked on.

    >>> bytes_of_gradients(12, 12, 197, 768, attentions=True) // 10**6
    278
    >>> bytes_of_gradients(12, 12, 197, 768, attentions=False) // 10**6
    232
    """
    attention = 0 if not attentions else (2 * layers + 1) * heads * tokens**2
    return 4 * batch * (attention + 32 * layers * tokens * width)


def product(value: Tensor, slope: Tensor) -> Tensor:
    """A value times its slope, in float64."""
    return value.detach().double() * slope.double()
