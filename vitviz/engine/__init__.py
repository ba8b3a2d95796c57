"""Checkpoints and what happens inside them. The only room that knows timm and the hub."""

import warnings
from collections.abc import Callable, Sequence
from os import PathLike

from vitviz.engine.adapters.assumptions import warning
from vitviz.engine.adapters.load import load as load_weights
from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.device import pick_device, pick_dtype
from vitviz.engine.formats.overrides import Overrides
from vitviz.engine.hub.catalogue import checkpoints, find
from vitviz.engine.hub.files import unchanged
from vitviz.engine.hub.snapshots import Snapshot, frames
from vitviz.engine.inspector import Inspector
from vitviz.engine.studies.text import asked_about
from vitviz.errors import AssumedWarning, VitvizError
from vitviz.traces.head_type import HeadType
from vitviz.traces.text_classes import vectors_of, without_text

__all__ = [
    "Checkpoint", "Snapshot", "Inspector", "checkpoints", "training_snapshots", "find", "load", "unchanged"
]  # fmt: skip


def load(
    name: str | PathLike, architecture: str | None = None, device: str = "auto", *, dtype: str = "float32",
    folder: str | PathLike | None = None, trusted: bool = True,
    progress: Callable[[int, int], None] | None = None, heads: int | None = None,
    mean: float | Sequence[float] | None = None, std: float | Sequence[float] | None = None,
    crop_pct: float | None = None, crop_mode: str | None = None, interpolation: str | None = None,
    activation: str | None = None, epsilon: float | None = None, pool: str | None = None,
    block: str | None = None, weights: str | None = None, labels: Sequence[str] | None = None,
    head_type: HeadType | None = None,
) -> Inspector:  # fmt: skip
    """Loads a checkpoint and puts it on a device, ready to be looked into.

    `name` is one of `checkpoints()`, a timm name with or without its tag, a hub id, a folder in timm's
    local-dir or Hugging Face's form, or a .safetensors, .pth or .npz file; `architecture` is timm's name
    where the file does not tell. `folder` is where checkpoints are looked for (default: weights/). A name
    that comes from a stranger is not `trusted`: it can only be one of those listed. `dtype` is the precision
    in which the model computes, "float32" or "bfloat16", whose distance is each trace's `deviation`.

    What a bare file does not say is told by the rest: `heads`, `mean` and `std` (of values from 0 to 1),
    `crop_pct`, `crop_mode`, `interpolation`, `activation`, `epsilon` of the norms, `pool` (what the
    classifier reads: "class", "average" of the patches, "average of all" tokens, "max", "average and max"),
    `block` ("pre-norm", "res-post-norm" or "post-norm": where the norms stand), `weights` (which of several
    sets in one file, such as "model" or "model_ema"), `labels`, `head_type` ("softmax", "sigmoid" for several
    labels or the logit of a yes or no, "value" for regression: what the outputs are). Where something had to
    be assumed, an AssumedWarning says what, and `inspector.checkpoint.assumed` holds it. Sentences behind
    `text=` ("my-clip?text=a cat|a dog&template=a photo of {}.") are its classes, by `vitviz.text`.
    Raises CheckpointError, UnsupportedModel, HubError, OutOfMemory, or VitvizError for a device or dtype.

    >>> load("vitviz-tiny").grid().prefix_names
    ('class',)
    """
    said = Overrides(
        heads, mean, std, crop_pct, crop_mode, interpolation, activation, epsilon, None, pool, block, weights,
        head_type,
    )  # fmt: skip
    if vectors_of(str(name)):
        raise VitvizError(
            f"Given {name}, whose vectors are a file that a page was given. Load the checkpoint without them,"
            " and then the file: inspector.with_classes(vitviz.Classes.load(file))."
        )
    name, sentences, templates = without_text(str(name))
    asked = f"{name}{'&' if '?' in name else '?'}{said.text()}" if said else name
    checkpoint = find(asked, folder=folder, architecture=architecture, trusted=trusted)
    place = pick_device(device)
    loaded = load_weights(
        checkpoint, progress=progress, folder=folder, device=place, dtype=pick_dtype(dtype, place),
        labels=None if labels is None else tuple(labels),
    )  # fmt: skip
    if trusted and loaded.checkpoint.assumed:
        text = warning(loaded.checkpoint.name, loaded.checkpoint.assumed)
        warnings.warn(AssumedWarning(text), stacklevel=2)
    inspector = Inspector(loaded, device, dtype)
    return asked_about(inspector, sentences, templates, progress) if sentences else inspector


def training_snapshots(name: str | PathLike, *, folder: str | PathLike | None = None) -> list[Snapshot]:
    """The moments of a checkpoint's training that were kept, first step first, with what each could do then.

    Empty for a checkpoint without a film; that of vitviz-tiny lies in the repository and not in what pip
    installs, being large. `vitviz.load(frame.name)` loads one. Raises CheckpointError for an unknown name.

    >>> [frame.name for frame in training_snapshots("vitviz-tiny")][-1:]
    ['vitviz-tiny']
    """
    return frames(find(str(name), folder=folder))
