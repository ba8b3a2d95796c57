"""Load a checkpoint's model with its trained weights, or raise an error with the reason."""

import re
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from os import PathLike

import torch
from torch import Tensor

from vitviz.engine import memory
from vitviz.engine.adapters import assumptions
from vitviz.engine.adapters.proposal import in_timms_names
from vitviz.engine.adapters.sidecar_config import own_settings
from vitviz.engine.adapters.weight_loading import FilledModel, load_weights_into
from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.defaults import in_float32
from vitviz.engine.formats import huggingface, limits, lora
from vitviz.engine.formats.contrastive import outputs_projection
from vitviz.engine.formats.families import require_plain
from vitviz.engine.formats.folder import read_json, refusing, refusing_malformed_config
from vitviz.engine.formats.overrides import split_name
from vitviz.engine.formats.timm_config import labels_of
from vitviz.engine.formats.weights import bytes_held, read_shapes, read_tensors
from vitviz.engine.hub.catalogue import checkpoints, find_checkpoint
from vitviz.engine.hub.downloads import OnBytes
from vitviz.engine.hub.files import CheckpointFiles, files_of, files_unchanged, identity_of, timm_record
from vitviz.engine.images.preprocess import Preprocessing
from vitviz.errors import CheckpointError, HubError
from vitviz.traces.head_type import require_head_type

_AGAIN = "Wait until the file is complete, then choose it again."


@in_float32()
def load(
    checkpoint: Checkpoint, progress: OnBytes | None = None, folder: str | PathLike | None = None,
    device: torch.device = memory.CPU, dtype: torch.dtype = torch.float32,
    labels: tuple[str, ...] | None = None,
) -> Loaded:  # fmt: skip
    """Load a checkpoint's model with its trained weights (float32, evaluation mode, CPU, no gradients).

    A hub checkpoint is downloaded first.

    Args:
        progress: called as `progress(done, total)` with the bytes of the download.
        folder: folder of local checkpoints (default: weights/), which a HubError lists with the hub's cache.
        device, dtype: target of the model, for the memory check only.
        labels: class names in the order of the logits; default: the checkpoint's.

    Raises:
        CheckpointError: a file is missing, damaged, unsafe or does not fit.
        UnsupportedModel: the architecture is no plain Vision Transformer.
        HubError: the download failed.
        OutOfMemory: too little memory; raised before anything is downloaded or built.

    >>> from vitviz.engine.hub.catalogue import find_checkpoint
    >>> load(find_checkpoint("vitviz-tiny")).model.training
    False
    """
    whole_name, (plain, overrides) = checkpoint.name, split_name(checkpoint.name)
    checkpoint = replace(checkpoint, name=plain)
    if checkpoint.architecture:
        require_plain(checkpoint.architecture)

    def fits(parameters: int | None) -> None:
        memory.require_to_load(checkpoint.name, parameters, device, dtype.itemsize)

    def weighed(done: int, total: int) -> None:
        fits(total // 4)  # can abort a download at its first bytes; often the size is unknown before
        if progress is not None:
            progress(done, total)

    fits(checkpoint.parameters)
    try:
        files = files_of(checkpoint, weighed)
    except HubError as error:
        names = [checkpoint.name for checkpoint in checkpoints(folder) if checkpoint.on_disk]
        detail = f"{', '.join(names[:8]) or 'nothing yet'}{', …' if len(names) > 8 else ''}"
        raise HubError(f"{error} On this machine: {detail}.") from error
    # parameters in the safetensors header, else inflated bytes / 4 (float32)
    fits(sum(map(prod, read_shapes(files.weights).values())) or bytes_held(files.weights) // 4)
    # take the files' identity before the weights are read, and reread small files under this identity
    with refusing(f"{checkpoint.name} cannot be read: {{said}}. {_AGAIN}", OSError):
        identity = identity_of(checkpoint)
        files = files if checkpoint.source == "hub" else files_of(checkpoint)
    with refusing_malformed_config(checkpoint.name):
        overrides = overrides.merged_with(own_settings(files.config))
    tensors, notes, sets = read_tensors(files.weights, overrides.weights)
    if not files_unchanged(replace(checkpoint, identity=identity)):
        raise CheckpointError(
            f"{checkpoint.name} was overwritten while it was being read, and nothing was loaded. {_AGAIN}"
        )
    require_real(tensors, checkpoint.name)
    checkpoint, files, tensors, merged = _on_its_base(checkpoint, files, tensors, folder, weighed)
    notes += merged
    names = tuple(tensors)
    tensors, own = in_timms_names(checkpoint, files, tensors)
    overrides = overrides.merged_with(own.given)
    filled = load_weights_into(checkpoint, files, tensors, overrides)
    overrides.applied(filled.model, checkpoint.name)
    left_open = (*assumptions.assumption_with_choices("weights", sets), *filled.assumed)
    left_open = assumptions.remaining_assumptions(left_open, overrides)
    filled = replace(filled, data=overrides.data(filled.data), assumed=left_open)
    _require_reasonable(filled, checkpoint.name)
    own.prove(filled.model, filled.data, checkpoint.name)
    preprocessing = Preprocessing.from_config(filled.data)
    model = filled.model.eval().requires_grad_(False)
    notes = (checkpoint.note, *notes, *own.notes, *filled.notes, preprocessing.channels_note)
    known = replace(
        checkpoint, name=whole_name, architecture=filled.architecture,
        input_size=tuple(filled.data["input_size"]), note=" ".join(filter(None, notes)),
        parameters=sum(parameter.numel() for parameter in model.parameters()),
        assumed=(*own.assumed, *filled.assumed), on_disk=True, identity=identity,
    )  # fmt: skip
    classes, called = model.num_classes, f"{filled.architecture.partition('.')[0]}.{filled.tag}"
    if labels and len(labels) != classes:
        raise CheckpointError(f"Given {len(labels)} labels; {checkpoint.name} has {classes} classes.")
    with refusing_malformed_config(checkpoint.name):
        named, head_type = labels_of(files.config, classes, filled.tag), overrides.head_type
        if huggingface.is_transformers(files.config):
            named = huggingface.labels(files.config, classes)
            head_type = head_type or huggingface.head_type(files.config, classes)
        shared = outputs_projection(files.weights, names, called, classes, bool(labels or named))
    if head_type is None and classes == 1 and not shared:
        known, head_type = replace(known, assumed=(*known.assumed, *assumptions.OF_ONE_OUTPUT)), "sigmoid"
    require_head_type(head_type or "softmax", classes, checkpoint.name)
    known = replace(known, projects=shared)
    return Loaded(known, model, preprocessing, labels or named, head_type or "softmax")


def _on_its_base(
    checkpoint: Checkpoint, files: CheckpointFiles, tensors: dict[str, Tensor],
    folder: str | PathLike | None, progress: OnBytes,
) -> tuple[Checkpoint, CheckpointFiles, dict[str, Tensor], list[str]]:  # fmt: skip
    """Return a LoRA adapter merged into its base model, with that model's files and a note.

    Anything else is returned unchanged. The base is a path, from the adapter's folder or the current one, or
    a name as for `find_checkpoint`.
    """
    path = files.weights.with_name(lora.CONFIG)
    if not path.is_file() or not any(".lora_" in name for name in tensors):
        return checkpoint, files, tensors, []
    config = read_json(path)
    called = str(config.get("base_model_name_or_path") or "")
    if not called:
        raise CheckpointError(
            f"{checkpoint.name} is a LoRA adapter that does not name its base model. Write its folder or its"
            f" name on the hub as base_model_name_or_path into {lora.CONFIG}."
        )
    beside = path.parent / called
    base = find_checkpoint(str(beside) if beside.exists() else called, folder)
    theirs = files_of(base, progress)
    before = read_tensors(theirs.weights).tensors
    with refusing_malformed_config(checkpoint.name):
        after = lora.merge_adapter(before, tensors, config, checkpoint.name, huggingface.timm_name)
    # a classifier of the adapter's own does not have the base model's classes
    own = any(".lora_" not in name for name in tensors)
    known = {key: value for key, value in theirs.config.items() if not own or key not in _CLASS_NAMES}
    architecture = base.name if timm_record(base) else checkpoint.architecture or base.architecture
    note = f"A LoRA adapter, merged into {base.name} in float32."
    return replace(checkpoint, architecture=architecture), replace(theirs, config=known), after, [note]


_CLASS_NAMES = ("id2label", "label2id", "label_names", "labels")


def _require_reasonable(found: FilledModel, name: str) -> None:
    """Raise CheckpointError for an excessive input size, or one that differs from the model's fixed size."""
    size = tuple(found.data["input_size"][-2:])
    if not all(isinstance(side, int) and 0 < side <= limits.SIDE for side in size):
        raise CheckpointError(
            f"{name}: its config.json specifies an input of {size[0]} x {size[1]} pixels; at most"
            f" {limits.SIDE:,} a side are accepted. Correct it."
        )
    embedding = getattr(found.model, "patch_embed", None)
    own = getattr(embedding, "img_size", None)
    strict = getattr(embedding, "strict_img_size", False) and "processor" not in found.data
    if own is not None and strict and tuple(own) != size:
        raise CheckpointError(
            f"{name}: its config.json specifies an input of {size[0]} x {size[1]} pixels, but its model was"
            f" built for {own[0]} x {own[1]}. Correct its input_size or img_size."
        )


# Indices and counters that some models store with their weights; unexpected tensors are refused later.
_COUNTED = re.compile(r"(^|[._])(index|indices|ids|tracked|step|steps|epoch|mask)$")


def require_real(tensors: Mapping[str, Tensor], name: str) -> None:
    """Raise CheckpointError for integer, boolean or complex weights; a copy would truncate them silently."""
    others = {key: tensor for key, tensor in tensors.items() if not tensor.is_floating_point()}
    wrong = [key for key, tensor in others.items() if not _COUNTED.search(key) or tensor.is_complex()]
    if wrong:
        kind = str(tensors[wrong[0]].dtype).removeprefix("torch.")
        others = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        raise CheckpointError(
            f"{name} stores {wrong[0]}{others} as {kind} numbers; expected floating point. Quantised or"
            " wrongly converted weights look like this. Save the model's own float32, float16 or bfloat16"
            " weights."
        )
