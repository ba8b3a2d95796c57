"""Load checkpoints and run models. Only this package imports timm and huggingface_hub."""

import warnings
from collections.abc import Callable, Sequence
from os import PathLike

from vitviz.engine.adapters.assumptions import assumption_warning
from vitviz.engine.adapters.load import load as load_weights
from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.device import pick_device, pick_dtype
from vitviz.engine.formats.overrides import Overrides
from vitviz.engine.hub.catalogue import checkpoints, find_checkpoint
from vitviz.engine.hub.files import files_unchanged
from vitviz.engine.hub.snapshots import Snapshot, all_snapshots
from vitviz.engine.inspector import Inspector
from vitviz.engine.studies.text import with_sentences
from vitviz.errors import AssumedWarning, VitvizError
from vitviz.traces.head_type import HeadType
from vitviz.traces.text_classes import vectors_of, without_text

__all__ = [
    "Checkpoint", "Snapshot", "Inspector", "checkpoints", "training_snapshots", "find_checkpoint", "load",
    "files_unchanged"
]  # fmt: skip


def load(
    name: str | PathLike, architecture: str | None = None, device: str = "auto", *, dtype: str = "float32",
    folder: str | PathLike | None = None, trusted: bool = True,
    progress: Callable[[int, int], None] | None = None, heads: int | None = None,
    mean: float | Sequence[float] | None = None, std: float | Sequence[float] | None = None,
    crop_pct: float | None = None, crop_mode: str | None = None, interpolation: str | None = None,
    activation: str | None = None, epsilon: float | None = None, pool: str | None = None,
    block: str | None = None, weights: str | None = None, labels: Sequence[str] | None = None,
    head_type: HeadType | None = None, bands: Sequence[int] | None = None,
) -> Inspector:  # fmt: skip
    """Load a checkpoint, move it to a device and return its `Inspector`.

    A file often omits part of its model's configuration. The keyword arguments `heads` to `bands` supply
    it. vitviz warns (AssumedWarning) about every value that it has to assume; `inspector.checkpoint.assumed`
    lists these values.

    Args:
        name: A name of `checkpoints()`, a timm name with or without its tag, a hub id, a folder in timm's
            local-dir or Hugging Face's form, or a .safetensors, .pth or .npz file. Sentences behind `text=`
            ("my-clip?text=a cat|a dog&template=a photo of {}.") become the classes, by `vitviz.text`.
        architecture: timm's name, where the file does not give one.
        device: "auto", "cpu", "cuda", "cuda:N" or "mps".
        dtype: Precision of the computation, "float32", "tf32" (NVIDIA GPUs from Ampere on) or "bfloat16".
            The `deviation` of a trace is its distance from float32.
        folder: Folder that is searched for checkpoints (default: weights/).
        trusted: False for a name that comes from a stranger: only listed names are then accepted.
        progress: Called as `progress(done, total)` with the bytes of a download.
        heads: Number of attention heads.
        mean, std: Normalisation of pixel values from 0 to 1, one number or one for each channel.
        crop_pct, crop_mode, interpolation: Resize and crop, as in timm.
        activation: Activation function of the MLPs.
        epsilon: Epsilon of the norms.
        pool: Tokens that the classifier reads: "class", "average" of the patches, "average of all" tokens,
            "max", or "average and max".
        block: Position of the norms: "pre-norm", "res-post-norm" or "post-norm".
        weights: One of several sets of weights in a file, such as "model" or "model_ema".
        labels: Labels of the classes.
        head_type: Meaning of the outputs: "softmax", "sigmoid" for several labels or the logit of a yes or
            no, or "value" for regression.
        bands: Channels (from 0) that are shown of a model that does not read RGB: three as red, green and
            blue, such as (3, 2, 1), or one as grey. Otherwise the first three, or the first of one or two.

    Raises:
        CheckpointError, UnsupportedModel, HubError, OutOfMemory: The checkpoint cannot be loaded.
        VitvizError: The device or dtype is not available.

    >>> load("vitviz-tiny").grid().prefix_names
    ('class',)
    """
    settings = Overrides(
        heads, mean, std, crop_pct, crop_mode, interpolation, activation, epsilon, None, pool, block, weights,
        head_type, bands,
    )  # fmt: skip
    if vectors_of(str(name)):
        raise VitvizError(
            f"{name} refers to a file of class vectors that was uploaded to a page. Load the checkpoint"
            " without it, then add the file: inspector.with_classes(vitviz.Classes.load(file))."
        )
    name, sentences, templates = without_text(str(name))
    query = f"{name}{'&' if '?' in name else '?'}{settings.text()}" if settings else name
    checkpoint = find_checkpoint(query, folder=folder, architecture=architecture, trusted=trusted)
    place = pick_device(device)
    loaded = load_weights(
        checkpoint, progress=progress, folder=folder, device=place, dtype=pick_dtype(dtype, place),
        labels=None if labels is None else tuple(labels),
    )  # fmt: skip
    if trusted and loaded.checkpoint.assumed:
        text = assumption_warning(loaded.checkpoint.name, loaded.checkpoint.assumed)
        warnings.warn(AssumedWarning(text), stacklevel=2)
    inspector = Inspector(loaded, device, dtype)
    return with_sentences(inspector, sentences, templates, progress) if sentences else inspector


def training_snapshots(name: str | PathLike, *, folder: str | PathLike | None = None) -> list[Snapshot]:
    """Return the snapshots of a checkpoint's training, first step first, with losses and accuracy.

    The list is empty for a checkpoint without snapshots. Those of vitviz-tiny are in the repository but,
    because of their size, not in the installed package. `vitviz.load(snapshot.name)` loads a snapshot. Raises
    CheckpointError for an unknown name.

    >>> [frame.name for frame in training_snapshots("vitviz-tiny")][-1:]
    ['vitviz-tiny']
    """
    return all_snapshots(find_checkpoint(str(name), folder=folder))
