"""From a checkpoint to a model that carries its trained weights, or a sentence that says why not.

timm's own loading is not used, because it forgives: without `pretrained=True` it returns random weights, with
another number of classes it drops the classifier, and at another size it stretches the position embeddings,
all in silence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor, nn

from vitviz.engine import memory
from vitviz.engine.checkpoint import Checkpoint, Identity, Loaded
from vitviz.engine.defaults import in_float32
from vitviz.engine.models import fitting
from vitviz.engine.models.catalogue import names_on_disk
from vitviz.engine.models.families import architectures, require_plain
from vitviz.engine.models.files import Files, files_of, registered
from vitviz.engine.models.formats import (
    google,
    huggingface,
    inferred,
    limits,
    naflex,
    preprocessor,
    timm_config,
)
from vitviz.engine.models.formats.folder import SUFFIXES, understood
from vitviz.engine.models.formats.weights import bytes_held, read, shapes
from vitviz.engine.models.hub import Progress
from vitviz.engine.models.identity import identity_of, unchanged
from vitviz.engine.models.labels import labels_of
from vitviz.engine.models.real import require_real
from vitviz.engine.pictures.preprocess import Preprocessing
from vitviz.errors import CheckpointError, HubError, VitvizError, said

_CPU = torch.device("cpu")
_IMAGENET = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
_AGAIN = "Wait until it has been written, and choose it again."
_WORDS = {"num_classes": "classes", "img_size": "input", "global_pool": "pooling"}


@dataclass(frozen=True)
class _Filled:
    """A model that has its weights, and what the file told besides."""

    model: nn.Module
    architecture: str
    data: Mapping[str, Any]  # a timm data config
    tag: str = ""
    notes: tuple[str, ...] = ()


@in_float32()
def load(
    checkpoint: Checkpoint,
    progress: Progress | None = None,
    token: str | None = None,
    folder: str | PathLike | None = None,
    device: torch.device = _CPU,
    dtype: torch.dtype = torch.float32,
) -> Loaded:
    """A checkpoint's model with its trained weights (float32, evaluation mode, on the CPU, no gradients).

    A hub checkpoint is downloaded first; `progress(done, total)` is told its bytes, and a HubError names what
    `folder` (default: weights/) and the hub's cache offer instead. `device` and `dtype` are where and in what
    the model is going to be, for its memory. Raises CheckpointError where a file is missing, damaged, unsafe
    or does not fit, UnsupportedModel where the architecture is no plain Vision Transformer, HubError where
    the hub does not deliver, and OutOfMemory, before anything is downloaded or built, where the memory does
    not suffice.

    >>> from vitviz.engine.models.catalogue import find
    >>> load(find("vitviz-tiny")).model.training
    False
    """
    if checkpoint.architecture:
        require_plain(checkpoint.architecture)

    def fits(parameters: int | None) -> None:
        memory.require_to_load(checkpoint.name, parameters, device, dtype.itemsize)

    fits(checkpoint.parameters)
    try:
        files = files_of(checkpoint, _weighed(progress, fits), token)
    except HubError as error:
        names = names_on_disk(folder)
        raise HubError(
            f"{error} On this machine:"
            f" {', '.join(names[:8]) or 'nothing yet'}{', …' if len(names) > 8 else ''}."
        ) from error
    fits(_parameters_in(files.weights))
    identity, files = _at_rest(checkpoint, files)
    tensors, notes = read(files.weights)
    if not unchanged(replace(checkpoint, identity=identity)):
        raise CheckpointError(
            f"{checkpoint.name} was overwritten while it was read, and nothing was loaded. {_AGAIN}"
        )
    require_real(tensors, checkpoint.name)
    filled = _filled(checkpoint, files, tensors)
    channels, height, width = filled.data["input_size"]
    _require_reasonable(filled, checkpoint.name)
    preprocessing = Preprocessing.from_config(filled.data)  # refuses other channels than three
    model = filled.model.eval().requires_grad_(False)
    known = replace(
        checkpoint,
        architecture=filled.architecture,
        input_size=(channels, height, width),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        note=" ".join(filter(None, (checkpoint.note, *notes, *filled.notes))),
        on_disk=True,
        identity=identity,
    )
    classes = model.num_classes
    with understood(checkpoint.name):
        theirs = huggingface.is_transformers(files.config)
        named = (
            huggingface.labels(files.config, classes)
            if theirs
            else labels_of(files.config, classes, filled.tag)
        )
    return Loaded(known, model, preprocessing, named)


def _at_rest(checkpoint: Checkpoint, files: Files) -> tuple[Identity, Files]:
    """The files' identity before anything large is read, and the small ones as they are under it."""
    try:
        identity = identity_of(checkpoint)
        return identity, files if checkpoint.source == "hub" else files_of(checkpoint)
    except OSError as error:
        raise CheckpointError(f"{checkpoint.name} cannot be read: {said(error)}. {_AGAIN}") from error


def _require_reasonable(filled: _Filled, name: str) -> None:
    """CheckpointError for an input that nobody trains on, or that is another than the model's own."""
    size = tuple(filled.data["input_size"][-2:])
    if not all(isinstance(side, int) and 0 < side <= limits.SIDE for side in size):
        raise CheckpointError(
            f"{name}: its config.json asks for an input of {size[0]} x {size[1]} pixels; expected is up to"
            f" {limits.SIDE:,} a side. Correct it."
        )
    embedding = getattr(filled.model, "patch_embed", None)
    own = getattr(embedding, "img_size", None)
    if own is not None and getattr(embedding, "strict_img_size", False) and tuple(own) != size:
        raise CheckpointError(
            f"{name}: its config.json asks for an input of {size[0]} x {size[1]} pixels, and its model was"
            f" made for {own[0]} x {own[1]}. Correct its input_size or img_size."
        )


def _weighed(progress: Progress | None, fits: Callable[[int], None]) -> Progress:
    """Ends a download at its first bytes where the file that the hub announces would not fit; of many nothing
    is known before.
    """

    def weighed(done: int, total: int) -> None:
        fits(total // 4)
        if progress is not None:
            progress(done, total)

    return weighed


def _parameters_in(weights: Path) -> int:
    """How many numbers a file holds: told by a safetensors header, else by its bytes, once inflated, as
    float32.
    """
    return sum(map(prod, shapes(weights).values())) or bytes_held(weights) // 4


def _filled(checkpoint: Checkpoint, files: Files, tensors: dict[str, Tensor]) -> _Filled:
    """Whoever knows the architecture best builds the model: the user, timm's registry, a config, the name,
    the tensors.
    """
    config, name = files.config, checkpoint.name
    asked = checkpoint.architecture if checkpoint.architecture != config.get("architecture") else None
    if record := registered(checkpoint):
        return _by_name(checkpoint.name, asdict(record), tensors, name, own=False)
    if huggingface.is_transformers(config):
        tensors = huggingface.to_timm(tensors, str(config["model_type"]))
        if not asked:
            return _by_transformers(files, tensors, name)
    elif config.get("architecture") and not asked:
        return _by_config(config, tensors, name)
    heads, notes = None, []
    if google.is_google(tensors):
        tensors, heads, notes = google.to_timm(tensors, name)
    if asked:
        filled = _by_name(asked, timm_config.default(asked), tensors, name)
    else:
        filled = _by_file_name(files.weights, tensors, name) or _by_tensors(tensors, name, heads)
    return replace(filled, notes=(*notes, *filled.notes))


@contextmanager
def _shaped(name: str) -> Iterator[None]:
    """Turns what a tensor with another number of axes makes fail into a CheckpointError; only for code that
    reads shapes.
    """
    try:
        yield
    except VitvizError:
        raise
    except (IndexError, TypeError, ValueError, RuntimeError) as error:
        raise CheckpointError(
            f"{name}: its tensors are named like a Vision Transformer's but shaped otherwise ({said(error)})."
            " Save them again."
        ) from error


def _by_name(
    architecture: str, record: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str, own: bool = True
) -> _Filled:
    """A registered architecture; a file of the user's `own` may have other classes and another size, and is
    never stretched.
    """
    build = partial(timm.create_model, architecture, pretrained=False)
    model = fitting.empty(build, name, tensors)
    with _shaped(name):
        changes = fitting.own_size(model, tensors) if own else {}
    if changes:
        model = fitting.empty(build, name, tensors, **changes)
    state, resampled = fitting.converted(tensors, model, architecture)
    if resampled and own:
        state |= {key: tensors[key] for key in resampled if key in tensors}  # their own shapes, for the error
        if not any(key in tensors for key in resampled):
            raise CheckpointError(
                f"{name} was trained at another size than {architecture}: {', '.join(resampled)} would have"
                " to be resampled."
            )
    fitting.fill(model, state, name, architecture)
    notes = [f"timm resampled {', '.join(resampled)} to the size of {architecture}."] if resampled else []
    if changes:
        words = ", ".join(f"{_WORDS[key]} {value}" for key, value in changes.items())
        notes.append(f"Otherwise than {architecture}, as the file wants it: {words}.")
    size = tuple(changes.get("img_size", record["input_size"][-2:]))
    model = naflex.at_one_size(model, size, name)
    data = {**record, "input_size": (record["input_size"][0], *size)}
    return _Filled(model, architecture, data, str(record.get("tag") or ""), tuple(notes))


def _by_config(config: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str) -> _Filled:
    """A folder in timm's local-dir form, read as timm reads it."""
    architecture = str(config["architecture"])
    require_plain(architecture)
    with understood(name):
        args, record, notes = timm_config.described(config, name)
    model = fitting.empty(
        partial(timm.create_model, architecture, pretrained=False, pretrained_cfg=record),
        name,
        tensors,
        **args,
    )
    state, resampled = fitting.converted(tensors, model, architecture)
    fitting.fill(
        model,
        state | {key: tensors[key] for key in resampled if key in tensors},
        name,
        f"its config.json ({architecture})",
    )
    model = naflex.at_one_size(model, tuple(record["input_size"][-2:]), name)
    return _Filled(model, architecture, record, str(record.get("tag") or ""), tuple(notes))


def _by_transformers(files: Files, tensors: Mapping[str, Tensor], name: str) -> _Filled:
    with understood(name):
        build, entry = huggingface.builder(files.config, tensors, name)
        data, notes = preprocessor.data_config(files.config, files.preprocessor)
    model = fitting.empty(build, name, tensors)
    fitting.fill(model, tensors, name, f"its config.json ({files.config['model_type']})")
    return _Filled(model, entry, data, notes=tuple(notes))


def _by_file_name(weights: Path, tensors: Mapping[str, Tensor], name: str) -> _Filled | None:
    """The architecture that a file is named after, such as deit_tiny_patch16_224-a1311bcf.pth, if its tensors
    agree.
    """
    stem = next(weights.name.removesuffix(suffix) for suffix in SUFFIXES if weights.name.endswith(suffix))
    parts = [
        one for one in architectures() if stem == one or stem.startswith(one) and not stem[len(one)].isalnum()
    ]
    if not parts:
        return None
    architecture = stem if timm.models.is_model_pretrained(stem) else max(parts, key=len)
    try:
        return _by_name(architecture, timm_config.default(architecture), tensors, name)
    except CheckpointError:
        return None


def _by_tensors(tensors: Mapping[str, Tensor], name: str, heads: int | None) -> _Filled:
    """A bare file: its shapes tell the model, and Google's files (where `heads` is known) tell their
    normalisation.
    """
    with _shaped(name):
        architecture, args, notes = inferred.architecture_of(tensors, name, heads)
    model = fitting.empty(partial(timm.create_model, architecture, pretrained=False), name, tensors, **args)
    state, _ = fitting.converted(tensors, model, architecture)
    fitting.fill(model, state, name, f"what its tensors tell ({architecture})")
    mean_std = _IMAGENET if heads is None else {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    if heads is None:
        notes.append("The file does not tell its normalisation; ImageNet's mean and deviation were assumed.")
    data = {
        **mean_std,
        "input_size": (args["in_chans"], *args["img_size"]),
        "interpolation": "bicubic",
        "crop_pct": 0.9 if args["img_size"][0] >= 128 else 1.0,
    }
    return _Filled(model, architecture, data, "in21k" if heads else "", tuple(notes))
