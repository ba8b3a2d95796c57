"""Build a model and load all of a file's weights into it, or report the tensors that do not fit.

The architecture comes from the most reliable source: the user, timm's registry, a config, the file's name, or
the shapes of the tensors, in this order. timm's own loading is not used, because it is lenient: it silently
leaves weights at random initial values, resamples positions or drops a classifier. In these cases the file is
refused, or the model is built to the file's size.
"""

import re
import sys
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import timm
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitviz.engine import memory
from vitviz.engine.adapters import assumptions
from vitviz.engine.checkpoint import Assumption, Checkpoint
from vitviz.engine.formats import dino, google, huggingface, inference, limits, processors, timm_config
from vitviz.engine.formats.families import architectures, require_plain, timm_module
from vitviz.engine.formats.folder import file_stem, refusing, refusing_malformed_config
from vitviz.engine.formats.huggingface import Tensors
from vitviz.engine.formats.naflex import to_plain_vit
from vitviz.engine.formats.overrides import Overrides, possible_poolings
from vitviz.engine.forward.tracing import patch_size
from vitviz.engine.hub.files import CheckpointFiles, timm_record
from vitviz.errors import CheckpointError
from vitviz.traces.head_type import HeadType

_NOTHING = Overrides()
_WORDS = {"num_classes": "classes", "img_size": "input", "global_pool": "pooling"}


@dataclass(frozen=True)
class FilledModel:
    """A model with its weights, and the other settings that the file states."""

    model: nn.Module
    architecture: str
    data: Mapping[str, Any]  # a timm data config
    tag: str = ""
    notes: tuple[str, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    labels: tuple[str, ...] = ()  # set only for models in memory
    head_type: HeadType | None = None  # likewise; None if unknown


def load_weights_into(
    checkpoint: Checkpoint, files: CheckpointFiles, tensors: dict[str, Tensor], user: Overrides = _NOTHING
) -> FilledModel:
    """Build and fill a model from the most reliable source (see module); `user` holds the user's settings."""
    config, name = files.config, checkpoint.name
    architecture = checkpoint.architecture if checkpoint.architecture != config.get("architecture") else None
    if record := timm_record(checkpoint):
        return _by_name(checkpoint.name, asdict(record), tensors, name, own=False)
    if huggingface.is_transformers(config):
        tensors = huggingface.to_timm(tensors, str(config["model_type"]))
        if not architecture:
            return _by_transformers(files, tensors, name, user)
    elif config.get("architecture") and not architecture:
        return _by_config(config, tensors, name, user)
    heads, notes = None, []
    architecture = architecture or dino.published_name(tensors)
    tensors = tensors if architecture else dino.to_timm(tensors)
    if google.is_google(tensors):
        tensors, heads, notes = google.to_timm(tensors, name)
    if architecture:
        filled = _by_name(architecture, timm_config.default_config(architecture), tensors, name)
    else:
        filled = _by_file_name(files.weights, tensors, name, user) or _by_tensors(tensors, name, heads, user)
    return replace(filled, notes=(*notes, *filled.notes))


def _shaped(name: str) -> AbstractContextManager[None]:
    """Return a context in which errors of code that reads tensor shapes become CheckpointError."""
    wrong = f"{name}: its tensors are named like a Vision Transformer's but have other shapes ({{why}})."
    return refusing(f"{wrong} Save them again.", IndexError, TypeError, ValueError, RuntimeError)


def _by_name(
    architecture: str, record: Mapping[str, Any], tensors: Mapping[str, Tensor], name: str, own: bool = True
) -> FilledModel:
    """Return a registered timm architecture filled with a file's tensors.

    A user's `own` file may have another number of classes and another size; its positions are not resampled.
    """
    build = partial(timm.create_model, architecture, pretrained=False)
    model = build_empty(build, name, tensors)
    with _shaped(name):
        changes = _own_size(model, tensors) if own else {}
    if changes:
        model = build_empty(build, name, tensors, **changes)
    state, resampled = _converted(tensors, model, architecture)
    if resampled and own:
        state |= {key: tensors[key] for key in resampled if key in tensors}  # original shapes, for the error
        if not any(key in tensors for key in resampled):
            detail = f"{', '.join(resampled)} would have to be resampled"
            raise CheckpointError(f"{name} was trained at another size than {architecture}: {detail}.")
    fill_weights(model, state, name, architecture)
    notes = [f"timm resampled {', '.join(resampled)} to the size of {architecture}."] if resampled else []
    if changes:
        words = ", ".join(f"{_WORDS[key]} {value}" for key, value in changes.items())
        notes.append(f"Changed from {architecture}, as the file requires: {words}.")
    size = tuple(changes.get("img_size", record["input_size"][-2:]))
    model = to_plain_vit(model, size, name)
    data = {**record, "input_size": (record["input_size"][0], *size)}
    # a fine-tuned model may use another normalisation
    left_open = assumptions.preprocessing_assumptions(data) if changes.get("num_classes") else ()
    if "global_pool" in changes:
        left_open += tuple(assumptions.assumption_with_choices("pool", possible_poolings(model)))
    return FilledModel(model, architecture, data, str(record.get("tag") or ""), tuple(notes), left_open)


def _by_config(config: Mapping[str, Any], tensors: Tensors, name: str, user: Overrides) -> FilledModel:
    """Return the filled model of a folder in timm's local-dir form, whose config timm interprets."""
    architecture = str(config["architecture"])
    require_plain(architecture)
    with refusing_malformed_config(name):
        args, record, notes = timm_config.parse_config(config, name)
    build = partial(timm.create_model, architecture, pretrained=False, pretrained_cfg=record)
    model = build_empty(build, name, tensors, **args)
    state, resampled = _converted(tensors, model, architecture)
    state |= {key: tensors[key] for key in resampled if key in tensors}
    fill_weights(model, state, name, f"its config.json ({architecture})")
    model = to_plain_vit(model, tuple(record["input_size"][-2:]), name)
    known = config.get("pretrained_cfg") is not None or "mean" in config
    left_open = () if known else assumptions.preprocessing_assumptions(record)
    notes = [] if user.normalised and not known else notes
    return FilledModel(model, architecture, record, str(record.get("tag") or ""), tuple(notes), left_open)


def _by_transformers(files: CheckpointFiles, tensors: Tensors, name: str, user: Overrides) -> FilledModel:
    """Build the model that a folder's transformers config.json describes, and fill it with tensors.

    `tensors` are in timm's layout; `user` holds the user's settings.
    """
    with refusing_malformed_config(name):
        build, entry = huggingface.builder(files.config, tensors, name)
        data, notes = processors.data_config(files.config, files.preprocessor)
    model = build_empty(build, name, tensors)
    fill_weights(model, tensors, name, f"its config.json ({files.config['model_type']})")
    known = files.preprocessor is not None
    left_open = () if known else assumptions.preprocessing_assumptions(data)
    notes = [] if user.normalised and not known else notes
    return FilledModel(model, entry, data, notes=tuple(notes), assumed=left_open)


def _by_file_name(weights: Path, tensors: Tensors, name: str, user: Overrides) -> FilledModel | None:
    """Fill the architecture in a file's name, such as deit_tiny_patch16_224-a1311bcf.pth, if the tensors fit.

    Returns None otherwise. Only a file with exactly timm's name needs no assumptions; a name with another
    suffix may come from anyone.
    """
    called = file_stem(weights)
    parts = [name for name in architectures() if re.match(rf"{re.escape(name)}(?![^\W_])", called)]
    if not parts:
        return None
    architecture = called if timm.models.is_model_pretrained(called) else max(parts, key=len)
    try:
        record = timm_config.default_config(architecture)
        filled = _by_name(architecture, record, tensors, name)
    except CheckpointError:
        return None
    whole = called == architecture or weights.name == str(record.get("url") or "").rpartition("/")[2]
    if whole and filled.model.num_classes == record["num_classes"]:
        return filled
    left_open = assumptions.model_assumptions(filled.model, tensors, filled.data, user.heads is not None)
    return replace(filled, assumed=left_open)


def _by_tensors(tensors: Mapping[str, Tensor], name: str, heads: int | None, user: Overrides) -> FilledModel:
    """Fill the model that a bare file's shapes imply.

    Google's files (`heads` known) also imply the normalisation.
    """
    with _shaped(name):
        architecture, args, notes = inference.architecture_of(tensors, name, heads or user.heads)
    model = build_empty(partial(timm.create_model, architecture, pretrained=False), name, tensors, **args)
    state, _ = _converted(tensors, model, architecture)
    fill_weights(model, state, name, f"what its tensors show ({architecture})")
    usual = "one half" if heads else assumptions.family_normalisation(tensors, name)
    if args["pre_norm"] and user.activation is None:
        notes.append(
            "The file does not specify its activation; GELU was assumed (OpenAI's CLIP uses QuickGELU)."
        )
    if user.normalised:
        pass  # stated by the user
    elif usual is None:
        notes.append(
            "The file does not specify its normalisation; ImageNet's mean and deviation were assumed."
        )
    elif not heads:
        notes.append(f"Its normalisation (mean and deviation) is the usual one of its family: {usual}.")
    data = {**assumptions.NORMALISATIONS[usual or "ImageNet"].said(), "interpolation": "bicubic"}
    size, crop = (args["in_chans"], *args["img_size"]), 0.9 if args["img_size"][0] >= 128 else 1.0
    data |= {"input_size": size, "crop_pct": crop}
    left_open = () if heads else assumptions.model_assumptions(model, tensors, data, user.heads is not None)
    return FilledModel(model, architecture, data, "in21k" if heads else "", tuple(notes), left_open)


_BUILT = 3_000  # tensors permitted for any model, whatever the file's count: none of timm's has 2,000
_RESAMPLED_BY_TIMM = 16_000_000  # parameters of position embeddings for larger images
_UNBUILT = (
    TypeError, ValueError, AssertionError, KeyError, IndexError, RuntimeError, AttributeError,
    ArithmeticError, RecursionError, NotImplementedError,
)  # fmt: skip
_RESIZED = ("pos_embed", "patch_embed.proj.weight", "relative_position_bias_table")


class _Counted(TorchFunctionMode):
    """Abort model construction once the model has more tensors than its file could fill.

    Initial values are not drawn: tensors of torch's meta device have none, and its Python code for them takes
    more time than the rest of the construction.
    """

    _MAKING = {"empty", "zeros", "ones", "full", "rand", "randn", "tensor", "arange", "linspace"}
    _DRAWING = {"uniform_", "normal_", "kaiming_uniform_", "erfinv_"}
    _DRAWING |= {"mul_", "add_", "clamp_", "fill_", "zero_"}

    def __init__(self, most: int, sentence: str):
        super().__init__()
        self.left, self.sentence = most, sentence

    def __torch_function__(self, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in self._DRAWING:
            tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        if name in self._MAKING:
            self.left -= 1
            if self.left < 0:
                raise CheckpointError(self.sentence)
        return func(*args, **(kwargs or {}))


def build_empty(build: Callable[..., nn.Module], name: str, tensors: Tensors, **changes: Any) -> nn.Module:
    """Build a model on torch's meta device, which takes no memory until the model is filled.

    `tensors` are the weights for the model. Raises CheckpointError if the model cannot be built with these
    arguments, or would have far more parameters than the tensors.
    """
    limits.require_depth(changes.get("depth"), tensors, name)
    most = max(_BUILT, 2 * len(tensors))
    too_many = (
        f"{name} describes a model that its file cannot fill: the model has more than {most:,} tensors, the"
        f" file {len(tensors):,}{_size_arguments(changes)}. Correct its config.json or architecture."
    )
    unbuilt = f"{name} describes a model that cannot be built: {{said}}."
    unbuilt += " Check its config.json or architecture."
    with refusing(unbuilt, *_UNBUILT), torch.device("meta"), _Counted(most, too_many):
        model = build(**changes).float()  # independent of torch's default dtype
    needed, available = (sum(map(Tensor.numel, those.values())) for those in (model.state_dict(), tensors))
    if needed > 2 * available + _RESAMPLED_BY_TIMM:
        raise CheckpointError(
            f"{name} does not fit its config.json or architecture:"
            f" {_first(_misfits(model.state_dict(), tensors))}. The model needs {needed:,}"
            f" parameters{_size_arguments(changes)}, and the file has {available:,}. Name the architecture"
            " that it was trained with."
        )
    fuse_attention(model)
    return model


def fuse_attention(model: nn.Module) -> None:
    """Let timm's attention use the fused kernel, in place: capture and speed depend on it.

    An environment or a user may have disabled it, for an export or another library's hooks.
    """
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = True


def fill_weights(model: nn.Module, tensors: Mapping[str, Tensor], name: str, what: str) -> None:
    """Allocate an `empty` model's memory and strictly load tensors in timm's layout, in place.

    Raises CheckpointError before allocation, with the first three keys that are missing, unexpected or of
    another shape.
    """
    misfits = _misfits(model.state_dict(), tensors)
    if misfits:
        raise CheckpointError(
            f"{name} does not fit {what}: {_first(misfits)}. Name the architecture that it was trained with,"
            " or omit it, so that it is inferred from the tensors."
        )
    tables = sum(buffer.nbytes for buffer in model.buffers())
    what, advice = f"The position tables of {name}", "Choose a smaller input in its config.json."
    memory.require_memory(tables, memory.CPU, what, advice)
    model.to_empty(device="cpu")
    for module in model.modules():
        # timm's initialiser of computed, untrained tables
        if hasattr(module, "init_non_persistent_buffers"):
            module.init_non_persistent_buffers()
    model.load_state_dict(dict(tensors), strict=True)


def _size_arguments(changes: Mapping[str, Any]) -> str:
    """Format the numeric arguments of a model, in brackets."""
    numbers = int | float | list | tuple
    sizes = [f"{key} {value}" for key, value in changes.items() if isinstance(value, numbers)]
    return f" ({', '.join(sizes)[:200]})" if sizes else ""


def _converted(tensors: Tensors, model: nn.Module, architecture: str) -> tuple[dict[str, Tensor], list[str]]:
    """Return the tensors after timm's conversion for a family (CLIP, DINOv2, EVA, …), and resampled names."""
    module = sys.modules[timm.models.model_entrypoint(architecture.partition(".")[0]).__module__]
    adapts = timm_module(architecture) in ("vision_transformer", "deit")
    options = {"adapt_layer_scale": True} if adapts else {}
    before = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
    try:
        after = module.checkpoint_filter_fn(dict(tensors), model, **options)
    except (AttributeError, RuntimeError, KeyError, IndexError, ValueError, ZeroDivisionError):
        return dict(tensors), []  # a file of another family; the strict check names its keys
    # Renamed and transposed tensors share the file's storage; resampled ones do not.
    resized = {key: tensor.untyped_storage() for key, tensor in after.items() if key.endswith(_RESIZED)}
    return after, [key for key, storage in resized.items() if storage.data_ptr() not in before]


def _own_size(model: nn.Module, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
    """Return the arguments that adapt a model to a file of its architecture: classes, image size, pooling.

    Fine-tuning changes only these three. Empty if the model already fits.
    """
    changes: dict[str, Any] = {}
    classes = len(tensors["head.weight"]) if "head.weight" in tensors else 0
    known_layout = "blocks.0.norm1.weight" in tensors  # other layouts may name the classifier differently
    if known_layout and classes != model.num_classes:
        changes["num_classes"] = classes
    if "fc_norm.weight" in tensors and "norm.weight" not in tensors and model.global_pool == "token":
        changes["global_pool"] = "avg"
    table, own = tensors.get("pos_embed"), model.state_dict().get("pos_embed")
    if table is not None and own is not None and table.ndim == 3 and table.shape[1] != own.shape[1]:
        prefix = own.shape[1] - model.patch_embed.num_patches
        if side := inference.grid_side(table.shape[1], prefix):
            rows, cols = patch_size(model.patch_embed)
            changes["img_size"] = (side * rows, side * cols)
    return changes


def _misfits(expected: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> list[str]:
    """Return a phrase per tensor that is missing in the file, of another shape, or not of the model."""
    misfits = []
    for name, tensor in expected.items():
        if name not in tensors:
            misfits.append(f"{name} {_shape(tensor)} is missing from the file")
        elif tensors[name].shape != tensor.shape:
            misfits.append(f"{name} is {_shape(tensors[name])} in the file and {_shape(tensor)} in the model")
    left = [f"{name} {_shape(tensor)}" for name, tensor in tensors.items() if name not in expected]
    return misfits + [f"{name} of the file is not part of the model" for name in left]


def _first(misfits: list[str]) -> str:
    """Format the first three misfits and the number of the others."""
    return "; ".join(misfits[:3]) + (f" and {len(misfits) - 3} more" if len(misfits) > 3 else "")


def _shape(tensor: Tensor) -> str:
    """Return a tensor's shape as text, such as "(768, 3, 16, 16)"."""
    return f"({', '.join(map(str, tensor.shape))})"
