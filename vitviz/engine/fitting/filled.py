"""A model with a file's weights in it, built by whoever knows its architecture best.

That is the user, timm's registry, a config, the file's name, or the shapes of its tensors, in this order.
"""

import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import timm
from torch import Tensor, nn

from vitviz.engine.checkpoint import Assumption, Checkpoint
from vitviz.engine.finding.files import Files, registered
from vitviz.engine.fitting import assumed, fitting
from vitviz.engine.reading import google, huggingface, inferred, naflex, timm_config
from vitviz.engine.reading.families import architectures, require_plain
from vitviz.engine.reading.folder import refusing, stem, understood
from vitviz.engine.reading.given import Given, pools_of
from vitviz.errors import CheckpointError

_NOTHING = Given()
_WORDS = {"num_classes": "classes", "img_size": "input", "global_pool": "pooling"}


@dataclass(frozen=True)
class Filled:
    """A model that has its weights, and what the file told besides."""

    model: nn.Module
    architecture: str
    data: Mapping[str, Any]  # a timm data config
    tag: str = ""
    notes: tuple[str, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    labels: tuple[str, ...] = ()  # as far as they are read here: of models in memory


def filled(
    checkpoint: Checkpoint, files: Files, tensors: dict[str, Tensor], told: Given = _NOTHING
) -> Filled:
    """The model of whoever knows it best, in this module's order; `told` is what somebody has said of it."""
    config, name = files.config, checkpoint.name
    asked = checkpoint.architecture if checkpoint.architecture != config.get("architecture") else None
    if record := registered(checkpoint):
        return _by_name(checkpoint.name, asdict(record), tensors, name, own=False)
    if huggingface.is_transformers(config):
        tensors = huggingface.to_timm(tensors, str(config["model_type"]))
        if not asked:
            return _by_transformers(files, tensors, name, told)
    elif config.get("architecture") and not asked:
        return _by_config(config, tensors, name, told)
    heads, notes = None, []
    if google.is_google(tensors):
        tensors, heads, notes = google.to_timm(tensors, name)
    if asked:
        found = _by_name(asked, timm_config.default(asked), tensors, name)
    else:
        found = _by_file_name(files.weights, tensors, name, told) or _by_tensors(tensors, name, heads, told)
    return replace(found, notes=(*notes, *found.notes))


def _shaped(name: str) -> AbstractContextManager[None]:
    """Around code that reads shapes, which a tensor of another number of axes makes fail."""
    wrong = f"{name}: its tensors are named like a Vision Transformer's but shaped otherwise ({{why}})."
    return refusing(f"{wrong} Save them again.", IndexError, TypeError, ValueError, RuntimeError)


def _by_name(
    architecture: str, record: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str, own: bool = True
) -> Filled:
    """A registered architecture; a user's `own` file may have other classes and size, never stretched."""
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
    # tuned by somebody, who may normalise otherwise
    left_open = [*assumed.of_pictures(data)] if changes.get("num_classes") else []
    if "global_pool" in changes:
        left_open += assumed.question("pool", pools_of(model))
    return Filled(model, architecture, data, str(record.get("tag") or ""), tuple(notes), tuple(left_open))


def _by_config(config: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str, told: Given) -> Filled:
    """A folder in timm's local-dir form, read as timm reads it."""
    architecture = str(config["architecture"])
    require_plain(architecture)
    with understood(name):
        args, record, notes = timm_config.described(config, name)
    build = partial(timm.create_model, architecture, pretrained=False, pretrained_cfg=record)
    model = fitting.empty(build, name, tensors, **args)
    state, resampled = fitting.converted(tensors, model, architecture)
    state |= {key: tensors[key] for key in resampled if key in tensors}
    fitting.fill(model, state, name, f"its config.json ({architecture})")
    model = naflex.at_one_size(model, tuple(record["input_size"][-2:]), name)
    known = config.get("pretrained_cfg") is not None or "mean" in config
    left_open = () if known else assumed.of_pictures(record)
    notes = [] if told.normalised and not known else notes
    return Filled(model, architecture, record, str(record.get("tag") or ""), tuple(notes), left_open)


def _by_transformers(files: Files, tensors: Mapping[str, Tensor], name: str, told: Given) -> Filled:
    with understood(name):
        build, entry = huggingface.builder(files.config, tensors, name)
        data, notes = huggingface.data_config(files.config, files.preprocessor)
    model = fitting.empty(build, name, tensors)
    fitting.fill(model, tensors, name, f"its config.json ({files.config['model_type']})")
    known = files.preprocessor is not None
    left_open = () if known else assumed.of_pictures(data)
    notes = [] if told.normalised and not known else notes
    return Filled(model, entry, data, notes=tuple(notes), assumed=left_open)


def _by_file_name(weights: Path, tensors: Mapping[str, Tensor], name: str, told: Given) -> Filled | None:
    """The architecture that a file is named after, such as deit_tiny_patch16_224-a1311bcf.pth, if its tensors
    agree. Only a name of timm's own, whole, tells all; what follows it in another's is anybody's.
    """
    called = stem(weights)
    parts = [one for one in architectures() if re.match(rf"{re.escape(one)}(?![^\W_])", called)]
    if not parts:
        return None
    architecture = called if timm.models.is_model_pretrained(called) else max(parts, key=len)
    try:
        record = timm_config.default(architecture)
        found = _by_name(architecture, record, tensors, name)
    except CheckpointError:
        return None
    whole = called == architecture or weights.name == str(record.get("url") or "").rpartition("/")[2]
    if whole and found.model.num_classes == record["num_classes"]:
        return found
    left_open = assumed.of_model(found.model, tensors, found.data, told.heads is not None)
    return replace(found, assumed=left_open)


def _by_tensors(tensors: Mapping[str, Tensor], name: str, heads: int | None, told: Given) -> Filled:
    """A bare file: its shapes tell the model; of Google's files (`heads` known) also the normalisation."""
    with _shaped(name):
        architecture, args, notes = inferred.architecture_of(tensors, name, heads or told.heads)
    model = fitting.empty(partial(timm.create_model, architecture, pretrained=False), name, tensors, **args)
    state, _ = fitting.converted(tensors, model, architecture)
    fitting.fill(model, state, name, f"what its tensors tell ({architecture})")
    usual = "one half" if heads else assumed.family(tensors, name)
    if args["pre_norm"] and told.activation is None:
        notes.append(
            "The file does not tell its activation; GELU was assumed (OpenAI's CLIP uses QuickGELU)."
        )
    if told.normalised:
        pass  # its own words, which the name carries
    elif usual is None:
        notes.append("The file does not tell its normalisation; ImageNet's mean and deviation were assumed.")
    elif not heads:
        notes.append(f"Its normalisation (mean and deviation) is that of its family: {usual}.")
    data = {**assumed.NORMALISATIONS[usual or "ImageNet"].said(), "interpolation": "bicubic"}
    data |= {"input_size": (args["in_chans"], *args["img_size"])}
    data |= {"crop_pct": 0.9 if args["img_size"][0] >= 128 else 1.0}
    left_open = () if heads else assumed.of_model(model, tensors, data, told.heads is not None)
    return Filled(model, architecture, data, "in21k" if heads else "", tuple(notes), left_open)
