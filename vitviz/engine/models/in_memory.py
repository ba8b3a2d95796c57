"""A model in memory as a checkpoint: timm's, transformers', or somebody's own module, as it is at this moment.

What is looked into is a copy in float32, so that training goes on undisturbed. Every copy is proven: on two
pictures of noise it has to answer as the given model does, or it is refused. For a module of somebody's own that
answer also tells what tensors do not (heads, activation, epsilon, the order of a flattened patch): of all that is
possible, what answers alike is taken, and where two do, it is asked for.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import timm
import torch
from timm.layers import LayerNorm
from torch import Tensor, nn

from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.defaults import in_float32
from vitviz.engine.models import fitting, labels as names_of
from vitviz.engine.models.families import FAMILIES, require_plain
from vitviz.engine.models.formats import huggingface, inferred, naflex, preprocessor, timm_config
from vitviz.engine.models.given import Given
from vitviz.engine.models.mapping import PATCH_ORDERS, NameMap
from vitviz.engine.models.mapping_file import written
from vitviz.engine.models.proposal import proposed
from vitviz.engine.passes import copies
from vitviz.engine.pictures.preprocess import Preprocessing
from vitviz.errors import CheckpointError, UnsupportedModel, VitvizError, said

_numbers = itertools.count(1)
_CPU = torch.device("cpu")
_ALIKE = {torch.float32: 1e-4, torch.float64: 1e-4}  # of the largest answer; of halves a twentieth
_APART = 10.0  # times as far as the best has to be what is not taken
_EPSILONS = (1e-6, 1e-5, 1e-12)
_ACTIVATIONS = ("gelu", "gelu_tanh", "relu", "quick_gelu", "silu")
_HEADS_CALLED = ("num_heads", "num_attention_heads", "n_heads", "nhead", "heads", "n_head")


@dataclass(frozen=True)
class Pictured:
    """How pictures reach a model in memory, as its owner says; None is what nothing is said about."""

    given: Given
    size: tuple[int, int] | None = None


@dataclass(frozen=True)
class _Taken:
    """A copy, and what is known of it."""

    model: nn.Module
    architecture: str
    data: Mapping[str, Any]  # a timm data config
    labels: tuple[str, ...] = ()
    note: str = ""


@in_float32()
def loaded_of(
    model: nn.Module, pictured: Pictured, name: str | None = None, mapping: NameMap | None = None
) -> Loaded:
    """A copy of a model in memory, ready for an inspector.

    UnsupportedModel for what is no plain ViT or answers otherwise than its copy, VitvizError where something has
    to be said: mean and deviation, heads, or a mapping of the tensors' names.
    """
    if not isinstance(model, nn.Module):
        raise VitvizError(
            f"Given a {type(model).__name__}; expected a timm model, a transformers model or a PyTorch module"
            " (for a file or a name there is vitviz.load)."
        )
    inner = _unwrapped(model)
    kind = type(inner).__name__
    if _is_timm(inner):
        taken = _of_timm(inner, pictured)
    elif type(inner).__module__.startswith("transformers."):
        taken = _of_transformers(inner, kind)
    else:
        taken = _of_module(inner, kind, pictured, mapping)
    if not _is_own(inner):
        pictured.given.applied(taken.model, kind)
        _prove(inner, taken, kind)
    data = pictured.given.data(taken.data)
    known = Checkpoint(
        name or f"{kind} in memory {next(_numbers)}", taken.architecture, "memory", "",
        tuple(data["input_size"]), sum(one.numel() for one in taken.model.parameters()), note=taken.note,
    )  # fmt: skip
    names = pictured.given.labels or taken.labels
    if names and len(names) != taken.model.num_classes:
        raise VitvizError(f"Given {len(names)} labels; {kind} has {taken.model.num_classes} classes.")
    ready = taken.model.eval().requires_grad_(False)
    return Loaded(known, ready, Preprocessing.from_config(data), tuple(names))


def _unwrapped(model: nn.Module) -> nn.Module:
    """The model inside of what torch.compile and parallel training put around it."""
    while True:
        if isinstance(model, nn.DataParallel | nn.parallel.DistributedDataParallel):
            model = model.module
        elif isinstance(getattr(model, "_orig_mod", None), nn.Module):
            model = model._orig_mod
        else:
            return model


def _is_timm(model: nn.Module) -> bool:
    return any(one.__module__.startswith("timm.models.") for one in type(model).__mro__)


def _is_own(model: nn.Module) -> bool:
    """Whether a module is neither timm's nor transformers': then its copy has been proven already."""
    return not _is_timm(model) and not type(model).__module__.startswith("transformers.")


def _of_timm(model: nn.Module, pictured: Pictured) -> _Taken:
    record = dict(getattr(model, "pretrained_cfg", None) or {})
    architecture = str(record.get("architecture") or type(model).__name__)
    family = next(
        one.__module__.rpartition(".")[2] for one in type(model).__mro__ if one.__module__.startswith("timm.")
    )
    if family not in FAMILIES:
        require_plain(architecture)  # says why, where timm has it by this name
        raise UnsupportedModel(f"{architecture} is no plain Vision Transformer.")
    embedding = getattr(model, "patch_embed", None)
    size = (
        pictured.size
        or getattr(embedding, "img_size", None)
        or tuple(record.get("input_size", (3, 224, 224)))[-2:]
    )
    copied = copies.placed(model, _CPU, torch.float32)
    _forget_hooks(copied)
    copied = naflex.at_one_size(copied, tuple(size), architecture)
    data = {**timm_config.default(architecture), **record} if timm.is_model(architecture) else record
    data["input_size"] = (3, *size)
    tag = str(data.get("tag") or "")
    labels = names_of.labels_of(record, model.num_classes, tag)
    note = "" if pictured.given.mean else "Its mean and deviation are those of its timm configuration."
    return _Taken(copied, architecture, data, labels, note)


def _of_transformers(model: nn.Module, kind: str) -> _Taken:
    config = model.config.to_dict()
    tensors = huggingface.to_timm(_state(model), str(config["model_type"]))
    build, entry = huggingface.builder(config, tensors, kind)
    ours = fitting.empty(build, kind, tensors)
    fitting.fill(ours, tensors, kind, f"its configuration ({config['model_type']})")
    data, notes = preprocessor.data_config(config, None)
    return _Taken(
        ours, entry, data, huggingface.labels(config, ours.num_classes), "" if notes is None else ""
    )


def _of_module(model: nn.Module, kind: str, pictured: Pictured, mapping: NameMap | None) -> _Taken:
    if pictured.given.mean is None or pictured.given.std is None:
        raise VitvizError(
            f"{kind} does not tell how its pictures were normalised; expected mean=… and std=…, of values from 0"
            " to 1, such as mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)."
        )
    tensors = _state(model)
    if mapping is None and "blocks.0.attn.qkv.weight" not in tensors:
        mapping = _proposed(tensors, kind)
    wanted = _Wanted(model, kind, pictured.given)
    best = sorted(_candidates(tensors, mapping, wanted), key=lambda one: one[0])
    if not best:
        raise UnsupportedModel(f"{kind} could not be built as a plain Vision Transformer. {_NAME_IT}")
    (error, taken, heads), rest = best[0], best[1:]
    if error > wanted.tolerance:
        raise UnsupportedModel(
            f"{kind} computes otherwise than a plain Vision Transformer with these weights: of {len(best)} that"
            f" were tried, the nearest one's answers are off by {error:.2g} of the largest. Nothing is shown of it."
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

    def __init__(self, model: nn.Module, kind: str, given: Given):
        self.model, self.kind, self.given = model, kind, given
        self.tolerance = _tolerance(model)
        self._answers: dict[tuple[int, int], Tensor] = {}

    def at(self, size: tuple[int, int]) -> Tensor:
        if size not in self._answers:
            answers = _answers(self.model, size, self.kind)
            if answers.ndim == 2 and torch.equal(answers[0], answers[1]):
                raise VitvizError(
                    f"{self.kind} answers the same to every picture, so what it computes cannot be proven. Look"
                    " once its head has been trained."
                )
            self._answers[size] = answers
        return self._answers[size]


def _candidates(
    tensors: Mapping[str, Tensor], mapping: NameMap | None, wanted: _Wanted
) -> Iterator[tuple[float, _Taken, int]]:
    """Every plain ViT that the weights may be, with how far its answers are from the wanted ones."""
    told = (
        (mapping.given if mapping else Given())
        if not wanted.given
        else wanted.given.over(mapping.given if mapping else Given())
    )
    for order in _orders(tensors, mapping):
        translated = (
            mapping_with(mapping, order).translated(tensors, wanted.kind) if mapping else dict(tensors)
        )
        try:
            entry, args, _ = inferred.architecture_of(translated, wanted.kind, told.heads or 1)
        except CheckpointError as error:
            raise UnsupportedModel(f"{error} {_NAME_IT}") from error
        ours = fitting.empty(
            partial(timm.create_model, entry, pretrained=False), wanted.kind, translated, **args
        )
        fitting.fill(ours, translated, wanted.kind, f"what its tensors tell ({entry})")
        ours = ours.eval().requires_grad_(False)
        choices = itertools.product(
            [told.heads] if told.heads else _heads(wanted.model, args["embed_dim"]),
            [told.activation] if told.activation else _ACTIVATIONS,
            [told.epsilon] if told.epsilon else _epsilons(wanted.model),
        )
        pixels, theirs = args["img_size"], wanted.at(args["img_size"])
        note = f"Its tensors are those of {entry} by this mapping:\n{written(mapping)}" if mapping else ""
        data = {"input_size": (3, *pixels), "interpolation": "bicubic", "crop_pct": 1.0}
        errors = []
        for heads, activation, epsilon in choices:
            said_ = Given(heads=heads, activation=activation, epsilon=epsilon)
            said_.applied(ours, wanted.kind)
            errors.append((_distance(_own_answers(ours, pixels, theirs), theirs), said_))
        best_by_heads: dict[int, tuple[float, Given]] = {}
        for error, said_ in errors:
            if error < best_by_heads.get(said_.heads, (float("inf"),))[0]:
                best_by_heads[said_.heads] = error, said_
        for heads, (error, said_) in best_by_heads.items():
            model = copies.lending(ours)
            said_.applied(model, wanted.kind)
            yield error, _Taken(model, entry, data, (), note), heads


def mapping_with(mapping: NameMap, order: str | None) -> NameMap:
    """The same with an order in which patches are flattened."""
    return replace(mapping, model={**mapping.model, "patch_order": order}) if order else mapping


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
    """Numbers of heads to be tried: what the module's parts say of themselves, else all that divide the width."""
    told = {
        value for part in model.modules() for called in _HEADS_CALLED
        if isinstance(value := getattr(part, called, None), int) and not isinstance(value, bool)
        and 0 < value <= width and width % value == 0
    }  # fmt: skip
    return sorted(told) or [
        heads for heads in range(1, width + 1) if width % heads == 0 and width // heads >= 4
    ]


def _epsilons(model: nn.Module) -> list[float]:
    return sorted({part.eps for part in model.modules() if isinstance(part, nn.LayerNorm)}) or list(_EPSILONS)


def _state(model: nn.Module) -> dict[str, Tensor]:
    """A module's weights on the CPU in float32, without what counts and what can be computed."""
    return {
        key: tensor.detach().to("cpu", torch.float32, copy=True) for key, tensor in model.state_dict().items()
        if tensor.is_floating_point() and not re.search(r"relative_position_index$", key)
    }  # fmt: skip


def _forget_hooks(model: nn.Module) -> None:
    """Whoever watches the training does not watch the copy."""
    for module in model.modules():
        for kept in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks):
            kept.clear()


def _prove(model: nn.Module, taken: _Taken, kind: str) -> None:
    """UnsupportedModel where the copy answers otherwise than the model."""
    size = tuple(taken.data["input_size"][-2:])
    theirs = _answers(model, size, kind)
    error = _distance(_own_answers(taken.model, size, theirs), theirs)
    if not error <= _tolerance(model):
        raise UnsupportedModel(
            f"{kind} answers otherwise than its copy, by {error:.2g} of the largest answer: hooks, adapters or code"
            " of its own change what it computes. Nothing is shown of it."
        )


def _tolerance(model: nn.Module) -> float:
    return _ALIKE.get(next(model.parameters()).dtype, 0.05)


def _noise(size: tuple[int, int]) -> Tensor:
    return torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))


def _answers(model: nn.Module, size: tuple[int, int], kind: str) -> Tensor:
    """What a model of somebody else's says to two pictures of noise; every module's mode stays as it was."""
    modes = [(module, module.training) for module in model.modules()]
    first = next(model.parameters())
    try:
        model.eval()
        with torch.no_grad():
            found: Any = model(_noise(size).to(first.device, first.dtype))
    except VitvizError:
        raise
    except Exception as error:  # anybody's code
        raise UnsupportedModel(
            f"{kind} cannot be asked for an answer to a batch of two pictures of {size[0]} x {size[1]} pixels:"
            f" {said(error)}."
        ) from error
    finally:
        for module, training in modes:
            module.training = training
    for key in ("logits", "last_hidden_state"):
        if isinstance(getattr(found, key, None), Tensor):
            found = getattr(found, key)
    found = (
        next((one for one in found if isinstance(one, Tensor)), None)
        if isinstance(found, tuple | list)
        else found
    )
    if not isinstance(found, Tensor) or found.ndim not in (2, 3):
        raise UnsupportedModel(
            f"{kind} answers with a {type(found).__name__}, where scores of classes were expected."
        )
    return found.detach().to("cpu", torch.float32)


def _own_answers(model: nn.Module, size: tuple[int, int], theirs: Tensor) -> Tensor:
    """The same of ours: its classifier's scores, or the tokens that it reads."""
    with torch.no_grad():
        return model.forward_features(_noise(size)) if theirs.ndim == 3 else model.eval()(_noise(size))


def _distance(ours: Tensor, theirs: Tensor) -> float:
    if ours.shape != theirs.shape or not theirs.isfinite().all():
        return float("inf")
    return ((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12)).item()
