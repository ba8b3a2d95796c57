"""The recorded pass of a user's module: the attention that `dispatch` captures, and the tokens at its blocks.

One pass runs at a time, because hooks and training flags belong to the module. Hooks, modes, training flags
and random state are restored on every exit.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from einops import rearrange
from torch import Tensor, nn

from vitviz.engine.device import inference_context
from vitviz.engine.forks import lock_of
from vitviz.engine.forward.dispatch import DispatchCapture, FollowedCall, LayerCalls, PlainCalls
from vitviz.engine.forward.own_model import OwnModel, class_scores_of
from vitviz.engine.forward.recording import AttentionInput, Call, Recording, sampled_queries
from vitviz.errors import UnsupportedModel, VitvizError, first_line
from vitviz.traces import cancellation, progress
from vitviz.traces.grid import Grid

ONCE_IN_ORDER = "vitviz follows models that call each block once, in order."
EXPECTED = "exactly one softmax of a product of q and k, multiplied by v, was expected"
BY_HAND = "If the softmax is written by hand, write it with torch.softmax"
BY_HEAD = "If every head calls its own softmax, stack the heads and call softmax once"
_lock = lock_of(sys.modules[__name__])
_CONTAINERS = (nn.ModuleList, nn.ModuleDict)  # are not called; their children are


class _Enough(BaseException):
    """Ends a pass whose first tokens are enough; no `except Exception` of the module's code stops it."""


class _OwnPass:
    """Events of one pass: which block runs, and the tokens at its borders."""

    def __init__(self, model: OwnModel, capture: DispatchCapture, changes: Mapping, first_only: bool):
        self.model, self.capture, self.changes, self.first_only = model, capture, changes, first_only
        self.kind = type(model.module).__name__
        self.tokens: list[Tensor] = []
        self.embedded: Tensor | None = None
        self._thread, self._layer = threading.get_ident(), -1
        # output of a container's child, and whether the child is the last
        self._branch: tuple[Tensor, bool] | None = None
        self._sum: Tensor | None = None
        capture.on_sum = self._add

    def hooks(self) -> Iterator[Any]:
        """Register the hooks of this pass; yield their handles."""
        for layer, block in enumerate(self.model.blocks):
            inside = list(block.children()) if isinstance(block, _CONTAINERS) else [block]
            for number, module in enumerate(inside):
                last = None if inside[0] is block else number == len(inside) - 1
                yield module.register_forward_pre_hook(self._entering(layer), with_kwargs=True)
                yield module.register_forward_hook(self._leaving(layer, last))
            for moment in ("attn", "mlp"):
                if isinstance(part := getattr(block, moment, None), nn.Module):
                    yield part.register_forward_hook(self._part(moment, layer))
        if self.model.embedding is not None:
            yield self.model.embedding.register_forward_hook(self._keep_embedding)

    def _entering(self, layer: int):
        """Return a block's pre-hook: it begins the layer, applies changes, records the first input.

        The hook raises UnsupportedModel if the blocks do not run in order on tokens.
        """

        def enter(module, args, named):
            if threading.get_ident() != self._thread or layer == self._layer:
                return None
            cancellation.check()
            tokens = args[0] if args else next(filter(torch.is_tensor, named.values()), None)
            if layer != self._layer + 1:
                before = f"after block {self._layer + 1}" if self._layer >= 0 else "first"
                raise UnsupportedModel(f"{self.kind} calls block {layer + 1} {before}. {ONCE_IN_ORDER}")
            if not isinstance(tokens, Tensor):
                raise UnsupportedModel(
                    f"{self.kind} calls block {layer + 1} without a tensor of tokens. Pass the path of other"
                    " blocks as blocks='…'."
                )
            if layer and self._sum is not None:
                self.tokens.append(self._sum)
            changed = self._changed("input", layer, tokens)
            if layer == 0:
                self.tokens.append(self._rows(changed))
                if self.first_only:
                    raise _Enough
            self._layer, self._sum = layer, None
            self.capture.begin(layer)
            if changed is tokens:
                return None
            if args:
                return (changed, *args[1:]), named
            return args, {key: changed if value is tokens else value for key, value in named.items()}

        return enter

    def _leaving(self, layer: int, last: bool | None):
        """Return a forward hook that changes and records a block's output tokens.

        `last`: None for a block; for a child of a container, True if it is the last child.
        """

        def leave(module, args, output):
            if threading.get_ident() != self._thread or layer != self._layer:
                return None
            first = output[0] if isinstance(output, tuple | list) else output
            if last is not None:
                self._branch = first, last
                return None
            self.capture.begin(None)
            changed = self._changed("output", layer, first)
            self.tokens.append(self._rows(changed))
            progress.tell(layer + 1, len(self.model.blocks))
            if changed is first:
                return None
            return type(output)((changed, *output[1:])) if isinstance(output, tuple | list) else changed

        return leave

    def _part(self, moment: str, layer: int):
        """Return a forward hook that applies the changes at a block's 'attn' or 'mlp' output."""

        def change(module, args, output):
            if threading.get_ident() != self._thread or (moment, layer) not in self.changes:
                return None
            return self._changed(moment, layer, output)

        return change

    def _keep_embedding(self, module, args, output) -> None:
        """Keep the first output of the user's embedding module."""
        if threading.get_ident() == self._thread and self.embedded is None and isinstance(output, Tensor):
            self.embedded = output.detach().clone()

    def _add(self, args: tuple, out: Tensor) -> None:
        """Take the sum of a container's branch and its input as the block's output."""
        if self._branch is None:
            return
        branch, last = self._branch
        if any(isinstance(term, Tensor) and term.data_ptr() == branch.data_ptr() for term in args[:2]):
            if last and (changed := self._changed("output", self._layer, out)) is not out:
                out.copy_(changed)
            self._sum, self._branch = self._rows(out), None
            if last:
                self.capture.begin(None)

    def finish(self) -> None:
        """Record the last block's output if it is still to be added up, and end its layer."""
        if self._sum is not None:
            self.tokens.append(self._sum)
            self._sum = None
        self.capture.begin(None)

    def _changed(self, moment: str, layer: int, tensor: Tensor) -> Tensor:
        """Return the tensor after all changes at a hook point of a layer."""
        for change in self.changes.get((moment, layer), ()):
            result = change(tensor)
            tensor = tensor if result is None else result
        return tensor

    def _rows(self, tensor: Tensor) -> Tensor:
        """Return the tokens of one image as (token, width), copied: blocks may add in place."""
        if tensor.ndim == 3 and tensor.shape[1] == 1:
            tensor = tensor[:, 0]
        elif tensor.ndim in (3, 4) and len(tensor) == 1:
            tensor = tensor[0].flatten(0, -2)
        if tensor.ndim != 2:
            raise UnsupportedModel(
                f"The blocks of {self.kind} exchange a tensor of shape {tuple(tensor.shape)} for one image;"
                " expected tokens by width. Pass the path of other blocks as blocks='…'."
            )
        return tensor.detach().float().clone()


@contextmanager
def evaluating(module: nn.Module) -> Iterator[None]:
    """Evaluate without dropout; restore the training flag of every part.

    A part with its own `train` may also change weights, as LoRA that is merged for evaluation does: `train`
    is called again, and the tensors of such a part get their former values bit by bit.
    """
    flags = [(part, part.training) for part in module.modules()]
    if not any(training for _, training in flags):
        yield
        return
    own = (part for part, _ in flags if getattr(part.train, "__func__", None) is not nn.Module.train)
    tensors = {tensor for part in own for tensor in itertools.chain(part.parameters(), part.buffers())}
    kept = [(tensor, tensor.detach().clone()) for tensor in tensors if not tensor.is_meta]
    try:
        module.eval()
        yield
    finally:
        for part, training in flags:  # a module is listed before its parts, which `train` also sets
            if part.training != training:
                part.train(training)
        for part, training in flags:
            part.training = training
        for tensor, value in kept:
            if not torch.equal(tensor, value):
                tensor.data.copy_(value)


def run_pass(model: OwnModel, pixels: Tensor, changes: Mapping, first_only: bool = False) -> tuple:
    """Run one image, a batch of one; return the events, what was captured, and the output.

    Raises UnsupportedModel if the module's own code fails.
    """
    capture = DispatchCapture(model.module.parameters())
    events = _OwnPass(model, capture, changes, first_only)
    first = next(filter(torch.is_floating_point, model.module.parameters()), pixels)
    place, dtype = (pixels.device, pixels.dtype) if first.is_meta else (first.device, first.dtype)
    returned, cuda = None, [place] if place.type == "cuda" else []
    with _lock, ExitStack() as stack:
        stack.enter_context(evaluating(model.module))
        for handle in events.hooks():
            stack.callback(handle.remove)
        stack.enter_context(torch.random.fork_rng(cuda))
        torch.manual_seed(0)
        for mode in (inference_context(place), PlainCalls(), capture):
            stack.enter_context(mode)
        try:
            returned = model.module(pixels.to(place, dtype))
        except _Enough:
            pass
        except VitvizError:
            raise
        except Exception as error:  # the module's code may raise anything
            raise UnsupportedModel(
                f"{events.kind} cannot run on one image of {pixels.shape[-2]} x {pixels.shape[-1]} pixels:"
                f" {type(error).__name__}: {first_line(error)}. Pass its input size as size=…, or pass the"
                " part of it that reads images."
            ) from error
    events.finish()
    return events, capture, returned


def record_pass(model: OwnModel, pixels: Tensor, changes: Mapping | None = None) -> tuple[Recording, Any]:
    """Return the recording and the outputs of a batch, run image by image."""
    images, answers, kind = [], [], type(model.module).__name__
    for image in range(len(pixels)):
        events, capture, returned = run_pass(model, pixels[image : image + 1], changes or {})
        images.append((events, _calls(model, capture, len(events.tokens[0]))))
        answers.append(class_scores_of(returned, model.output, kind))
    layers, order = range(len(model.blocks)), model.order
    if (times := len(images[0][0].tokens)) != len(layers) + 1:
        what_to_do = "Pass the path of the blocks as blocks='…'." if times <= len(layers) else ONCE_IN_ORDER
        raise UnsupportedModel(
            f"The tokens of {kind} were recorded {times} times; expected {len(layers) + 1} for"
            f" {len(layers)} blocks. {what_to_do}"
        )
    calls, entered = [], []
    for layer in layers:
        by_image = [_ordered(by_layer[layer], order) for _, by_layer in images]
        first = by_image[0]
        bias = None if first.bias is None else torch.stack([call.bias for call in by_image])
        q, k, v = (torch.stack([getattr(call, name) for call in by_image]) for name in "qkv")
        calls.append([Call(q, k, v, bias, first.scale)])
        entered.append(_sampled_input(first, layer))
    tokens = list(map(torch.stack, zip(*(events.tokens for events, _ in images), strict=True)))
    tokens = tokens if order is None else [rows[:, order.to(rows.device)] for rows in tokens]
    recording = Recording(calls=calls, tokens=tokens, entered=entered)
    if (grid := model.own_grid) is not None:
        recording.patch_embedding = torch.stack([_embedded(events, grid) for events, _ in images])
    known = all(logits is not None for logits in answers)
    return recording, torch.cat([logits.float() for logits in answers]) if known else None


def _calls(model: OwnModel, capture: DispatchCapture, tokens: int) -> list[FollowedCall]:
    """Return the one attention call of each block. Raises UnsupportedModel with what was found instead."""
    calls, kind = [], type(model.module).__name__
    if not model.blocks_given:
        _require_none_outside(model, capture, tokens)
    for layer in range(len(model.blocks)):
        followed = capture.layers.get(layer, LayerCalls())
        call = followed.calls[0] if followed.calls else None
        if layer not in capture.layers:
            fault = "not run for this image"
        elif len(followed.calls) != 1 or followed.lost:
            softmaxes = len(followed.calls) + len(followed.lost)
            advice = f". {BY_HEAD if softmaxes else BY_HAND}" if softmaxes != 1 else ""
            fault = f"{len(followed.calls)} attention calls: {(*followed.lost, EXPECTED)[0]}{advice}"
        elif any(size == tokens for _, size in followed.mixed):
            fault = "further weights between all tokens, which come from no softmax of a product of q and k"
        elif call.entered is None:
            fault = f"weighted values that enter {call.next_name or 'nothing'} before a projection"
        elif (call.q.shape[1], call.k.shape[1]) != (tokens, tokens):
            fault = f"{call.q.shape[1]} queries and {call.k.shape[1]} keys, not all {tokens} tokens (windows)"
        else:
            calls.append(call)
            continue
        if layer in capture.random:
            fault = "dropout in evaluation mode. Pass training=self.training to torch's dropout"
        raise UnsupportedModel(
            f"The attention of {kind} cannot be recorded correctly: block {layer + 1} has {fault}. vitviz"
            " shows no map rather than a wrong one."
        )
    return calls


def _require_none_outside(model: OwnModel, capture: DispatchCapture, tokens: int) -> None:
    """Raise UnsupportedModel if tokens attend to each other outside the blocks: layers would be missing."""
    least = tokens if model.own_grid is None else model.own_grid.patches  # without prefix tokens
    blocks, kind = set(model.blocks), type(model.module).__name__
    for count, running in capture.outside:
        if not least <= count <= tokens or blocks.intersection(running):
            continue
        paths = {
            part: path
            for path, part in model.module.named_modules()
            if not blocks.intersection(part.modules())
        }
        part = next((part for part in running if part in paths), model.module)
        raise UnsupportedModel(
            f"{kind} has attention between its tokens outside the blocks found, in"
            f" {paths.get(part) or 'its own forward'} ({type(part).__name__}). Pass the path of all"
            " its blocks as blocks='…', or of those to show."
        )


def _ordered(call: FollowedCall, order: Tensor | None) -> FollowedCall:
    """Return an attention call with tokens reordered to the grid's order; unchanged if `order` is None."""
    if order is None:
        return call
    order = order.to(call.q.device)
    bias = None if call.bias is None else call.bias[:, order][:, :, order]
    tensors = {name: getattr(call, name)[:, order] for name in ("q", "k", "v", "entered")}
    return FollowedCall(**tensors, scale=call.scale, bias=bias, shape=call.shape)


def _sampled_input(call: FollowedCall, layer: int) -> AttentionInput:
    """Return a layer's weighted values (query, width) at sampled queries, for the truth check."""
    queries = sampled_queries(call.shape[1], layer)
    values = rearrange(call.entered, "head query dim -> query (head dim)")
    return AttentionInput(tuple(values.shape), queries, values[queries.to(values.device)])


def _embedded(events: _OwnPass, grid: Grid) -> Tensor:
    """Return the patch embedding (patch, width); NaN if no single layer makes it."""
    output, width = events.embedded, events.tokens[0].shape[-1]
    if output is not None:
        convolved = isinstance(events.model.embedding, nn.Conv2d)
        rows = output[0].flatten(1).mT if convolved else output.flatten(0, -2)
        if rows.shape == (grid.patches, width):
            return rows.float()
    return torch.full((grid.patches, width), float("nan"), device=events.tokens[0].device)
