"""A module of somebody's own as a plain ViT: which of all that its weights may be answers as it does.

Heads, activation, epsilon, pooling, the form of the blocks and the order of a flattened patch are in no
tensor. Each is built and asked, the usual first; what answers alike is it, unless other heads do, too.
"""

import itertools
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import timm
import torch
from torch import Tensor, nn

from vitviz.engine.fitting import fitting
from vitviz.engine.fitting.filled import Filled
from vitviz.engine.fitting.proposal import proposed
from vitviz.engine.passes import copies
from vitviz.engine.reading import inferred
from vitviz.engine.reading.given import Given, blocks_of, pools_of
from vitviz.engine.reading.mapping import PATCH_ORDERS, NameMap, written
from vitviz.errors import CheckpointError, UnsupportedModel, VitvizError, said

_ALIKE = {torch.float32: 1e-4, torch.float64: 1e-4}  # of the largest answer; of halves a twentieth


def tolerance(model: nn.Module) -> float:
    return _ALIKE.get(next(model.parameters()).dtype, 0.05)


def _noise(size: tuple[int, int]) -> Tensor:
    return torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))


def answers_of(model: nn.Module, size: tuple[int, int], kind: str) -> Tensor:
    """What somebody's model says to two pictures of noise; its modes and torch's random state stay."""
    modes = [(module, module.training) for module in model.modules()]
    first = next(model.parameters())
    try:
        model.eval()
        devices = [first.device] if first.device.type == "cuda" else []
        with torch.no_grad(), torch.random.fork_rng(devices):
            found: Any = model(_noise(size).to(first.device, first.dtype))
    except VitvizError:
        raise
    except Exception as error:  # anybody's code
        raise UnsupportedModel(
            f"{kind} cannot be asked for an answer to a batch of two pictures of {size[0]} x {size[1]}"
            f" pixels: {said(error)}."
        ) from error
    finally:
        for module, training in modes:
            module.training = training
    for key in ("logits", "last_hidden_state"):
        if isinstance(getattr(found, key, None), Tensor):
            found = getattr(found, key)
    if isinstance(found, tuple | list):
        found = next((one for one in found if isinstance(one, Tensor)), None)
    if not isinstance(found, Tensor) or found.ndim not in (2, 3):
        raise UnsupportedModel(
            f"{kind} answers with a {type(found).__name__}, where scores of classes were expected."
        )
    return found.detach().to("cpu", torch.float32)


def own_answers(model: nn.Module, size: tuple[int, int], theirs: Tensor) -> Tensor:
    """The same of ours: its classifier's scores, or the tokens that it reads."""
    with torch.no_grad(), torch.random.fork_rng([]):  # a copy of a model that draws draws, too
        return model.forward_features(_noise(size)) if theirs.ndim == 3 else model.eval()(_noise(size))


def distance(ours: Tensor, theirs: Tensor) -> float:
    if ours.shape != theirs.shape or not theirs.isfinite().all():
        return float("inf")
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12)).item()


_APART = 10.0  # times as far as the best has to be what is not taken
_EPSILONS = (1e-6, 1e-5, 1e-12)
_ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "quick_gelu", "silu")
_HEADS_CALLED = ("num_heads", "num_attention_heads", "n_heads", "nhead", "heads", "n_head")


def of_module(model: nn.Module, kind: str, given: Given, mapping: NameMap | None) -> Filled:
    """The plain ViT that answers as a module does; `kind` is what to call it.

    UnsupportedModel where there is none, or where names and shapes leave open what its tensors are;
    VitvizError where mean and deviation or the number of heads have to be said.
    """
    if given.mean is None or given.std is None:
        raise VitvizError(
            f"{kind} does not tell how its pictures were normalised; expected mean=… and std=…, of values"
            " from 0 to 1, such as mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)."
        )
    tensors = state_of(model)
    if mapping is None and "blocks.0.attn.qkv.weight" not in tensors:
        mapping = _proposed(tensors, kind)
    wanted = _Wanted(model, kind)
    told = given.over(mapping.given) if mapping else given
    best = _nearest_first(tensors, mapping, told, wanted)
    if best and best[0][0] > wanted.tolerance:  # not of the usual form
        usual = best[0][1].model
        blocks = [told.block] if told.block else blocks_of(usual)
        for block, pool in itertools.product(blocks, [told.pool] if told.pool else pools_of(usual)):
            found = _nearest_first(tensors, mapping, replace(told, block=block, pool=pool), wanted)
            best = found if found[0][0] < best[0][0] else best
            if best[0][0] <= wanted.tolerance:
                break
    if not best:
        raise UnsupportedModel(f"{kind} could not be built as a plain Vision Transformer. {_NAME_IT}")
    (error, taken, heads), rest = best[0], best[1:]
    if error > wanted.tolerance:
        raise UnsupportedModel(
            f"{kind} computes otherwise than a plain Vision Transformer with these weights: of {len(best)}"
            f" that were tried, the nearest one's answers are off by {error:.2g} of the largest. Nothing is"
            " shown of it."
        )
    rival = next((one for one in rest if one[2] != heads), None)
    if rival is not None and rival[0] < _APART * max(error, 1e-9):
        raise VitvizError(
            f"{kind} answers alike with {heads} and with {rival[2]} heads, as hardly trained weights do. Say"
            " heads=…"
        )
    return taken


_NAME_IT = "Hand over a mapping of its tensors' names (mapping='file.toml'), or a timm model."


class _Wanted:
    """The answers of somebody's own module to two pictures of noise, at the size that the tensors tell."""

    def __init__(self, model: nn.Module, kind: str):
        self.model, self.kind = model, kind
        self.tolerance = tolerance(model)
        self._answers: dict[tuple[int, int], Tensor] = {}

    def at(self, size: tuple[int, int]) -> Tensor:
        if size not in self._answers:
            answers = answers_of(self.model, size, self.kind)
            if answers.ndim == 2 and torch.equal(answers[0], answers[1]):
                raise VitvizError(
                    f"{self.kind} answers the same to every picture, so what it computes cannot be proven."
                    " Look once its head has been trained."
                )
            self._answers[size] = answers
        return self._answers[size]


def _nearest_first(*asked: Any) -> list[tuple[float, Filled, int]]:
    return sorted(_candidates(*asked), key=lambda one: one[0])


def _candidates(
    tensors: Mapping[str, Tensor], mapping: NameMap | None, told: Given, wanted: _Wanted
) -> Iterator[tuple[float, Filled, int]]:
    """The nearest plain ViT for each number of heads, with how far its answers are from the wanted ones."""
    notes = (f"Its tensors were named by this mapping:\n{written(mapping)}",) if mapping else ()
    for order in _orders(tensors, mapping):
        named = replace(mapping, model={**mapping.model, "patch_order": order}) if order else mapping
        translated = named.translated(tensors, wanted.kind) if named else dict(tensors)
        try:
            entry, args, _ = inferred.architecture_of(translated, wanted.kind, told.heads or 1)
        except CheckpointError as error:
            raise UnsupportedModel(f"{error} {_NAME_IT}") from error
        build = partial(timm.create_model, entry, pretrained=False)
        ours = fitting.empty(build, wanted.kind, translated, **args)
        fitting.fill(ours, translated, wanted.kind, f"what its tensors tell ({entry})")
        ours = ours.eval().requires_grad_(False)
        data = {"input_size": (3, *args["img_size"]), "interpolation": "bicubic", "crop_pct": 1.0}
        theirs = wanted.at(args["img_size"])
        for heads in [told.heads] if told.heads else _heads(wanted.model, args["embed_dim"]):
            error, said = _nearest(ours, theirs, replace(told, heads=heads), wanted)
            model = copies.lending(ours)
            said.applied(model, wanted.kind)
            yield error, Filled(model, entry, data, notes=notes), heads


def _nearest(ours: nn.Module, theirs: Tensor, told: Given, wanted: _Wanted) -> tuple[float, Given]:
    """The activation and epsilon that bring the answers nearest, and how far they still are."""
    found, epsilons = [], {part.eps for part in wanted.model.modules() if isinstance(part, nn.LayerNorm)}
    for activation, epsilon in itertools.product(
        [told.activation] if told.activation else _ACTIVATIONS,
        [told.epsilon] if told.epsilon else sorted(epsilons) or _EPSILONS,
    ):
        said = replace(told, activation=activation, epsilon=epsilon)
        said.applied(ours, wanted.kind)
        size = tuple(ours.patch_embed.img_size)
        found.append((distance(own_answers(ours, size, theirs), theirs), said))
    return min(found, key=lambda one: one[0])


def _orders(tensors: Mapping[str, Tensor], mapping: NameMap | None) -> Iterable[str | None]:
    """The orders in which a patch may be flattened; None where it is not, or where the mapping tells."""
    if mapping is None or mapping.model.get("patch_order"):
        return (None,)
    try:
        mapping.translated(tensors, "")
    except CheckpointError as error:
        return PATCH_ORDERS if "patch_order" in str(error) else (None,)
    return (None,)


def _proposed(tensors: Mapping[str, Tensor], kind: str) -> NameMap:
    found = proposed(tensors)
    open_ = [*found.open, *(one for one in found.missing if not one.startswith("patch_order"))]
    if open_:
        raise UnsupportedModel(
            f"{kind} names its tensors in its own way, and shapes leave more than one possibility for"
            f" {', '.join(open_[:4])}{f' and {len(open_) - 4} more' if len(open_) > 4 else ''}. {_NAME_IT}"
            f" What could be told:\n{written(found.mapping)}"
        )
    return found.mapping


def _heads(model: nn.Module, width: int) -> list[int]:
    """Numbers of heads to try: what the module's parts say of themselves, else all that divide the width."""
    told = {
        value for part in model.modules() for called in _HEADS_CALLED
        if isinstance(value := getattr(part, called, None), int) and not isinstance(value, bool)
        and 0 < value <= width and width % value == 0
    }  # fmt: skip
    return sorted(told) or [heads for heads in range(1, width // 4 + 1) if width % heads == 0]


def state_of(model: nn.Module) -> dict[str, Tensor]:
    """A module's weights on the CPU in float32, without what counts and what can be computed."""
    return {
        key: tensor.detach().to("cpu", torch.float32, copy=True) for key, tensor in model.state_dict().items()
        if tensor.is_floating_point() and not re.search(r"relative_position_index$", key)
    }  # fmt: skip
