"""Capture attention at torch's dispatch level, in any module.

A `TorchDispatchMode` sees every operation of a pass, whatever code called it. Two forms are followed:

- fused: `aten._scaled_dot_product_*`, whose arguments are q, k, v, mask and scale;
- explicit: scores = product of q and k, scaled, with terms added; softmax over the last axis; product with v.

Views and reshapes are followed by applying them to a tensor of indices, which tells the head, query and key
of every element. What is added to the scores is their difference from scale · q kᵀ. The product with v is
followed to the operation that it enters, the output projection or a norm. Nothing is assumed about the
result: `recording.check_truth` recomputes it from q, k, bias and v. Other forms (softmax by hand, weights
changed after the softmax) leave no call, and the model is refused.

Storages are compared while their tensors are held, so an address belongs to one tensor.
"""

import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_LAYOUT = set(
    "view _unsafe_view _reshape_alias expand permute transpose t unsqueeze squeeze clone contiguous _to_copy"
    " alias detach slice select lift_fresh".split()
)
_SAME = {"clone", "contiguous", "_to_copy", "alias", "detach", "lift_fresh"}  # the same elements in place
_COPIES = {"clone", "contiguous", "_to_copy"}
_ADDED = {"add", "sub", "rsub", "masked_fill", "where", "clamp", "clamp_min", "nan_to_num"}
_ENTERED = set("addmm mm bmm linear native_layer_norm _fused_rms_norm linear_dynamic".split())


@dataclass
class FollowedCall:
    """An attention call with heads first: q, k, v and the weighted values that the model continues with."""

    q: Tensor
    k: Tensor
    scale: float
    bias: Tensor | None
    v: Tensor | None = None
    shape: tuple[int, ...] = ()  # of the weighted values: head, query, dim
    entered: Tensor | None = None  # the weighted values as they enter the next operation
    next_name: str = ""  # that operation, or the one that changed them before


@dataclass
class _Scores:
    left: Tensor
    right: Tensor
    scale: float = 1.0
    added: bool = False


@dataclass
class _Weights:
    call: FollowedCall


@dataclass
class _Values:
    call: FollowedCall
    indices: Tensor  # of each element among (head, query, dim)


@dataclass
class _Entry:
    tensor: Tensor  # held, so that its address is not used again
    node: Any
    shape: tuple[int, ...]  # before the layout's operations
    layout: tuple[tuple[Any, tuple, dict], ...] = ()

    def arranged(self, indices: Tensor) -> Tensor:
        """Apply the layout's operations to a tensor of `shape`."""
        for function, args, named in self.layout:
            if _name(function) in ("view", "_unsafe_view", "_reshape_alias"):
                indices = indices.reshape(args[0])
            else:
                indices = function(indices, *args, **named)
        return indices


@dataclass
class LayerCalls:
    """What was seen while a layer ran: followed calls, and why other softmaxes were not followed."""

    calls: list[FollowedCall] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    # products with a square operand, which may be weights by hand if no softmax follows, and its size
    mixed: list[tuple[_Scores, int]] = field(default_factory=list)


class DispatchCapture(TorchDispatchMode):
    """Follow the attention of a pass; `layer` is set by hooks and None outside all layers."""

    def __init__(self, weights: Iterable[Tensor] = ()) -> None:
        super().__init__()
        plain = [weight for weight in weights if type(weight) in (Tensor, nn.Parameter)]
        self._weights = {weight.data_ptr() for weight in plain}
        self.layer: int | None = None
        self.layers: dict[int, LayerCalls] = {}
        self.outside: list[tuple[int, list[nn.Module]]] = []  # tokens and modules, of attention in no layer
        self.random: set[int | None] = set()  # layers in which random numbers are drawn
        self.on_sum: Callable[[tuple, Tensor], None] | None = None  # told of every sum of two tensors
        self._entries: dict[tuple, _Entry] = {}

    def begin(self, layer: int | None) -> None:
        """Begin to follow a layer, or None for no layer; tensors followed before are released."""
        self.layer = layer
        self._entries.clear()
        if layer is not None:
            self.layers.setdefault(layer, LayerCalls())

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs, name = kwargs or {}, _name(func)
        scores = self._scores_of(name.rstrip("_"), args) if self.layer is not None else None
        out = func(*args, **kwargs)
        if torch.Tag.nondeterministic_seeded in func.tags and not name.startswith("_scaled_dot_product"):
            self.random.add(self.layer)
        if self.layer is not None:
            self._follow(func, name, args, kwargs, out, scores)
        else:
            self._note_outside(name, args)
        if self.on_sum is not None and name in ("add", "add_") and isinstance(out, Tensor):
            self.on_sum(args, out)
        return out

    def _note_outside(self, name: str, args: tuple) -> None:
        """Record in `outside` an attention of as many queries as keys, and the modules that run it."""
        if name in ("_softmax", "_safe_softmax"):
            queries, keys = args[0].shape[-2:] if args[0].ndim > 1 else (0, -1)
        elif name.startswith("_scaled_dot_product") and "backward" not in name:
            queries, keys = args[0].shape[-2], args[1].shape[-2]
        else:
            return
        if queries == keys:
            owners = [frame.f_locals.get("self") for frame, _ in traceback.walk_stack(None)]
            self.outside.append((keys, [one for one in reversed(owners) if isinstance(one, nn.Module)]))

    def _follow(self, func, name: str, args: tuple, kwargs: dict, out: Any, scores: Any) -> None:
        """Update the followed tensors after a torch operation in a layer, by its name and output.

        `scores` is the result of `_scores_of` before the operation ran.
        """
        seen = self.layers[self.layer]
        if name.startswith("_scaled_dot_product") and "backward" not in name:
            return self._fused(func, args, kwargs, out)
        if name in ("_native_multi_head_attention", "_transformer_encoder_layer_fwd"):
            return seen.lost.append(f"a fused layer of PyTorch ({name}) does not expose its weights")
        entries = [self._entry(argument) for argument in args[:3]]
        entry = next(filter(None, entries), None)
        if name in ("_softmax", "_safe_softmax"):
            return self._softmax(args, out, entry)
        if name in ("bmm", "mm", "baddbmm"):
            self._product(name, args, kwargs, out, entries)
        elif entry is None:
            return None
        elif func._schema.is_mutable:
            self._changed_in_place(name, entry, scores)
        elif name in _LAYOUT:
            node = replace(entry.node) if name in _COPIES else entry.node
            layout = () if name in _SAME else ((func, args[1:], kwargs),)
            self._keep(out, node, entry.shape, entry.layout + layout)
        elif isinstance(entry.node, _Scores) and scores is not None and out.shape == entry.tensor.shape:
            self._keep(out, scores, entry.shape, entry.layout)
        elif isinstance(entry.node, _Weights) and entry.node.call.v is None:
            entry.node.call.next_name = name
        if isinstance(out, tuple | list) and name not in _ENTERED:
            return None
        for entry in filter(None, entries):
            if isinstance(entry.node, _Values) and name not in _LAYOUT:
                self._entered(name, entry)

    def _scores_of(self, name: str, args: tuple) -> _Scores | None:
        """Return the scores after an elementwise operation; None if they cannot be followed through it."""
        entry = next(filter(None, map(self._entry, args[:3])), None)
        if entry is None or not isinstance(entry.node, _Scores):
            return None
        node = entry.node
        if name in ("mul", "div") and len(args) > 1:
            other = args[1] if self._entry(args[0]) is entry or args[0] is entry.tensor else args[0]
            if isinstance(other, Tensor) and other.numel() == 1:
                other = other.item()
            if isinstance(other, int | float):
                return replace(node, scale=node.scale * other if name == "mul" else node.scale / other)
            return replace(node, added=True)
        return replace(node, added=True) if name in _ADDED else None

    def _changed_in_place(self, name: str, entry: _Entry, scores: _Scores | None) -> None:
        """Follow an operation in place through every view of the storage, or forget the storage."""
        storage = entry.tensor.untyped_storage().data_ptr()
        for key, view in list(self._entries.items()):
            if view.tensor.untyped_storage().data_ptr() != storage:
                continue
            if scores is not None and isinstance(view.node, _Scores):
                whole = view.tensor.numel() == entry.tensor.numel()
                view.node = scores if whole else replace(view.node, added=True)
            else:
                if isinstance(view.node, _Values | _Weights) and not view.node.call.next_name:
                    view.node.call.next_name = name
                del self._entries[key]

    def _fused(self, func, args: tuple, kwargs: dict, out: Any) -> None:
        """Record the q, k, v, mask and scale of a fused attention operation and follow its output.

        Attention that is causal, windowed or shares keys is noted as lost instead.
        """
        names = [argument.name for argument in func._schema.arguments]
        arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        query, key, value = itemgetter("query", "key", "value")(arguments)
        lost = self.layers[self.layer].lost
        if arguments.get("dropout_p"):
            self.random.add(self.layer)
            return lost.append("its attention has dropout")
        if len(query) != 1:
            return lost.append(f"{len(query)} groups attend separately, as windows do")
        if arguments.get("is_causal") or query.ndim != 4 or key.shape[:2] != query.shape[:2]:
            return lost.append("its attention is causal or shares keys between heads")
        mask = arguments.get("attn_mask", arguments.get("attn_bias"))
        if mask is not None:
            mask = mask[(None,) * (4 - mask.ndim)][0]
            if mask.dtype == torch.bool:
                mask = torch.zeros(mask.shape, device=mask.device).masked_fill(~mask, float("-inf"))
            mask = mask.expand(query.shape[1], query.shape[2], key.shape[2])
        scale = arguments.get("scale")
        scale = query.shape[-1] ** -0.5 if scale is None else float(scale)
        weighted = out[0] if isinstance(out, tuple | list) else out
        call = FollowedCall(query[0], key[0], scale, mask, value[0])
        return self._weighted(call, weighted, _indices(weighted.shape, weighted.device))

    def _weighted(self, call: FollowedCall, out: Tensor, indices: Tensor) -> None:
        """Add a call that has its v to the layer and follow its weighted values `out`.

        `indices` is the place of each element of `out` among (head, query, dim).
        """
        call.shape, call.next_name = (*call.q.shape[:2], call.v.shape[-1]), ""
        self.layers[self.layer].calls.append(call)
        self._keep(out, _Values(call, indices), tuple(out.shape))

    def _softmax(self, args: tuple, out: Tensor, entry: _Entry | None) -> None:
        """Follow a softmax over the last axis of q-k scores as attention weights.

        A softmax that cannot be traced to heads and queries is noted as lost.
        """
        scores, seen = args[0], self.layers[self.layer]
        if scores.ndim < 2 or args[1] not in (-1, scores.ndim - 1):
            return
        if entry is None or not isinstance(entry.node, _Scores):
            if scores.shape[-1] == scores.shape[-2]:
                seen.lost.append("the input of a softmax could not be followed from a product of q and k")
            return
        call = _call_of(scores, entry)
        if call is None:
            seen.lost.append("a softmax mixes heads or queries (talking heads)")
            return
        seen.mixed = [one for one in seen.mixed if one[0].left is not entry.node.left]
        shape = (*call.q.shape[:2], call.k.shape[1])  # head, query, key
        view = torch.ops.aten.view.default, (tuple(out.shape),), {}
        self._keep(out, _Weights(call), shape, () if out.shape == shape else (view,))

    def _product(self, name: str, args: tuple, kwargs: dict, out: Tensor, entries: list) -> None:
        """Follow a matrix product: attention weights times v, or else new scores of q and k."""
        left, right = args[1:3] if name == "baddbmm" else args[:2]
        pair = entries[1:3] if name == "baddbmm" else entries[:2]
        for side, entry in enumerate(pair):
            if entry is not None and isinstance(entry.node, _Weights) and entry.node.call.v is None:
                return self._times_v(entry, right if side == 0 else left, out, swapped=side == 1)
        scale, added = float(kwargs.get("alpha", 1.0)), name == "baddbmm" and kwargs.get("beta", 1) != 0
        scores = _Scores(_batched(left), _batched(right), scale, added)
        self._keep(out, scores, tuple(out.shape))
        if name != "mm":
            self.layers[self.layer].mixed += [
                (scores, operand.shape[-1]) for operand, entry in zip((left, right), pair, strict=True)
                if operand.shape[-1] == operand.shape[-2] and operand.data_ptr() not in self._weights
                and not (entry is not None and isinstance(entry.node, _Weights))
            ]  # fmt: skip
        return None

    def _times_v(self, entry: _Entry, other: Tensor, out: Tensor, swapped: bool) -> None:
        """Follow the product of weights and v, or vᵀ and weightsᵀ."""
        call, lost = entry.node.call, self.layers[self.layer].lost
        heads, queries, keys = entry.shape
        indices = _indices(entry.shape, other.device)
        places, other = _batched(entry.arranged(indices)), _batched(other)
        if swapped:
            places, other = places.mT, other.mT
        whole = places.shape == entry.shape and other.shape[1] == keys
        order = places[:, 0, 0] // (queries * keys)
        if not whole or not places.equal(indices[order]):
            return lost.append("the weights of several heads are mixed after the softmax (talking heads)")
        call.v = other[order.argsort()]
        indices = _indices((heads, queries, other.shape[-1]), other.device)[order]
        indices = (indices.mT if swapped else indices).reshape(out.shape)
        return self._weighted(call, out, indices)

    def _entered(self, name: str, entry: _Entry) -> None:
        """Record the name of the first operation on weighted values.

        If it is a projection or norm, also record its input by (head, query, dim).
        """
        call = entry.node.call
        if call.entered is not None or call.next_name:
            return
        call.next_name = name
        if name in _ENTERED:
            indices = entry.arranged(entry.node.indices).reshape(-1)
            values = torch.zeros(call.shape, device=entry.tensor.device).reshape(-1)
            values[indices] = entry.tensor.detach().reshape(-1).float()
            call.entered = values.reshape(call.shape)

    def _keep(self, tensor: Tensor, node: Any, shape: tuple[int, ...], layout: tuple = ()) -> None:
        """Follow a tensor as `node` (scores, weights or values).

        `layout` lists the view operations that lead from an array of `shape` to the tensor.
        """
        self._entries[_key(tensor)] = _Entry(tensor, node, shape, layout)

    def _entry(self, tensor: Any) -> _Entry | None:
        """Return the entry of a followed tensor; None for any other tensor or argument."""
        return self._entries.get(_key(tensor)) if isinstance(tensor, Tensor) and self._entries else None


class PlainCalls(TorchFunctionMode):
    """Make `nn.MultiheadAttention` of this thread compute in the open: its fast path checks for a mode."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _call_of(scores: Tensor, entry: _Entry) -> FollowedCall | None:
    """Return the call whose softmax is taken; None if rows are not queries and columns not keys."""
    node, base = entry.node, entry.shape
    groups, rows, cols = (1, *base) if len(base) == 2 else base
    numbers = {"dtype": torch.int32, "device": scores.device}
    row = torch.arange(groups * rows, **numbers).view(groups, rows, 1).expand(groups, rows, cols)
    col = torch.arange(groups * cols, **numbers).view(groups, 1, cols).expand(groups, rows, cols)
    row, col = (entry.arranged(x.reshape(base)).reshape(-1, *scores.shape[-2:]) for x in (row, col))
    left, right = node.left.reshape(groups * rows, -1), node.right.mT.reshape(groups * cols, -1)
    if not (row == row[:, :, :1]).all():
        row, col, left, right = col, row, right, left
    if not ((row == row[:, :, :1]).all() and (col == col[:, :1]).all()):
        return None
    q, k = left[row[:, :, 0].long()], right[col[:, 0].long()]
    bias = None
    if node.added:
        bias = scores.reshape(-1, *scores.shape[-2:]).float() - (q.float() * node.scale) @ k.float().mT
    return FollowedCall(q, k, node.scale, bias)


def _indices(shape: tuple[int, ...], device: torch.device) -> Tensor:
    """Return a tensor of this shape in which each element is its own row-major number from 0."""
    return torch.arange(torch.Size(shape).numel(), device=device).reshape(shape)


def _batched(tensor: Tensor) -> Tensor:
    """Return a tensor of three axes itself, and any other with a leading axis of size 1."""
    return tensor if tensor.ndim == 3 else tensor[None]


def _key(tensor: Tensor) -> tuple:
    """Return the key of a followed tensor: address, shape, strides and dtype."""
    return tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype


def _name(function: Any) -> str:
    """Return the name of a torch operation without its namespace, such as 'bmm' for aten::bmm."""
    return function._schema.name.rpartition("::")[2]
