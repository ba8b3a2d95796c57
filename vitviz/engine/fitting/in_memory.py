"""A model in memory as a checkpoint: timm's, transformers', or somebody's own module, as it is now.

What is looked into is a copy in float32, so that training goes on undisturbed. Every copy is proven: on two
pictures of noise it has to answer as the given model does, or it is refused. For a module of somebody's own
that answer also tells what tensors do not (heads, activation, epsilon, the order of a flattened patch): of
all that is possible, what answers alike is taken, and where two do, it is asked for.
"""

import itertools
from dataclasses import replace

import timm
import torch
from torch import nn

from vitviz.engine import placed
from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.defaults import in_float32
from vitviz.engine.fitting import fitting, own_module
from vitviz.engine.fitting.filled import Filled
from vitviz.engine.passes import copies
from vitviz.engine.passes.record import grid_of
from vitviz.engine.pictures.preprocess import Preprocessing
from vitviz.engine.reading import huggingface, naflex, timm_config
from vitviz.engine.reading.families import FAMILIES, require_plain
from vitviz.engine.reading.given import Given
from vitviz.engine.reading.mapping import NameMap
from vitviz.errors import UnsupportedModel, VitvizError

_numbers = itertools.count(1)
_CPU = torch.device("cpu")


@in_float32()
def loaded_of(
    model: nn.Module, given: Given, size: tuple[int, int] | None = None, name: str | None = None,
    mapping: NameMap | None = None,
) -> Loaded:  # fmt: skip
    """A copy of a model in memory, ready for an inspector.

    `given` and `size`: how pictures reach it, as its owner says; None is what nothing is said about.
    UnsupportedModel for what is no plain ViT or answers otherwise than its copy, VitvizError where
    something has to be said: mean and deviation, heads, or a mapping of the tensors' names.
    """
    if not isinstance(model, nn.Module):
        raise VitvizError(
            f"Given a {type(model).__name__}; expected a timm model, a transformers model or a PyTorch module"
            " (for a file or a name there is vitviz.load)."
        )
    inner = _unwrapped(model)
    kind = type(inner).__name__
    if _is_of("timm.models.", inner):
        taken = _of_timm(inner, given)
    elif _is_of("transformers.models.", inner):
        taken = _of_transformers(inner, kind)
    else:
        taken = own_module.of_module(inner, kind, given, mapping)
    given.applied(taken.model, kind)
    _prove(inner, taken, kind)
    if size is not None and size != tuple(taken.data["input_size"][-2:]):
        taken = _at_size(taken, size, kind)
    data = given.data(taken.data)
    known = Checkpoint(
        name or f"{kind} in memory {next(_numbers)}", taken.architecture, "memory", "",
        tuple(data["input_size"]), sum(one.numel() for one in taken.model.parameters()),
        note=" ".join(taken.notes),
    )  # fmt: skip
    names = given.labels or taken.labels
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


def _is_of(library: str, model: nn.Module) -> bool:
    return any(one.__module__.startswith(library) for one in type(model).__mro__)


def _of_timm(model: nn.Module, given: Given) -> Filled:
    record = dict(getattr(model, "pretrained_cfg", None) or {})
    if not record and given.mean is None:
        raise VitvizError(
            f"{type(model).__name__} has no configuration of timm's that would tell how pictures are"
            " normalised; expected mean=… and std=…, of values from 0 to 1."
        )
    architecture = str(record.get("architecture") or type(model).__name__)
    modules = (one.__module__ for one in type(model).__mro__)
    if next(one for one in modules if one.startswith("timm.")).rpartition(".")[2] not in FAMILIES:
        require_plain(architecture)  # says why, where timm has it by this name
        raise UnsupportedModel(f"{architecture} is no plain Vision Transformer.")
    embedding = getattr(model, "patch_embed", None)
    size = getattr(embedding, "img_size", None) or tuple(record.get("input_size", (3, 224, 224)))[-2:]
    copied = copies.placed(model, _CPU, torch.float32)
    _forget_training(copied)
    copied = naflex.at_one_size(copied, tuple(size), architecture)
    data = {**timm_config.default(architecture), **record} if timm.is_model(architecture) else record
    data["input_size"] = (3, *size)
    tag = str(data.get("tag") or "")
    labels = timm_config.labels_of(record, model.num_classes, tag)
    notes = () if given.mean else ("Its mean and deviation are those of its timm configuration.",)
    return Filled(copied, architecture, data, notes=notes, labels=labels)


def _at_size(taken: Filled, size: tuple[int, int], kind: str) -> Filled:
    """The same at another input size than its own, as `trace(size=…)` shows it."""
    if not hasattr(taken.model, "set_input_size"):
        own = tuple(taken.data["input_size"][-2:])
        raise UnsupportedModel(f"{kind} has a fixed input of {own[0]} x {own[1]} pixels.")
    placed.require_size(size, grid_of(taken.model), taken.model, _CPU, kind)
    data = {**taken.data, "input_size": (3, *size)}
    return replace(taken, model=copies.sized(taken.model, size), data=data)


def _of_transformers(model: nn.Module, kind: str) -> Filled:
    config = model.config.to_dict()
    if config["model_type"] == "vit_mae":
        raise UnsupportedModel(
            f"{kind} leaves out {config['mask_ratio']:.0%} of the patches, drawn at random in each pass, so"
            " that it gives no answer to a whole picture with which a copy's could be compared. Save it by"
            " save_pretrained, and load that folder by vitviz.load: its encoder is shown."
        )
    tensors = huggingface.to_timm(own_module.state_of(model), str(config["model_type"]))
    build, entry = huggingface.builder(config, tensors, kind)
    ours = fitting.empty(build, kind, tensors)
    fitting.fill(ours, tensors, kind, f"its configuration ({config['model_type']})")
    data, _ = huggingface.data_config(config, None)
    return Filled(ours, entry, data, labels=huggingface.labels(config, ours.num_classes))


def _forget_training(model: nn.Module) -> None:
    """Takes training's hooks off the copy, and `set_grad_checkpointing`, which forbids what hooks read."""
    for module in model.modules():
        if hasattr(module, "grad_checkpointing"):
            module.grad_checkpointing = False
        for kept in (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks):
            kept.clear()


def _prove(model: nn.Module, taken: Filled, kind: str) -> None:
    """UnsupportedModel where the copy answers otherwise than the model."""
    size = tuple(taken.data["input_size"][-2:])
    theirs = own_module.answers_of(model, size, kind)
    error = own_module.distance(own_module.own_answers(taken.model, size, theirs), theirs)
    if not error <= own_module.tolerance(model):
        raise UnsupportedModel(
            f"{kind} answers otherwise than its copy, by {error:.2g} of the largest answer: hooks, adapters"
            " or code of its own change what it computes. Nothing is shown of it."
        )
