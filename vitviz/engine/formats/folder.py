"""Layout of a checkpoint's folder as written by timm and transformers; does not import torch.

For weights in several files, an index maps tensors to shards. The index is untrusted text. It may name only
files in its own folder and of its own format: a safetensors index never leads to a pickle.
"""

import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from vitviz.engine.formats import limits
from vitviz.errors import CheckpointError, VitvizError, first_line, quoted
from vitviz.traces.localized_text import fill
from vitviz.traces.unicode import parse_json

INDICES = (".safetensors.index.json", ".bin.index.json")  # indices of sharded weights
SUFFIXES = (".safetensors", ".pth", ".pth.tar", ".pt", ".bin", ".ckpt", ".npz", *INDICES)
# In order of preference of timm and transformers.
HUB_FILES = (
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
)  # fmt: skip
_PREFERRED = (*HUB_FILES, "pytorch_model.pth", "model.pth", "adapter_model.safetensors", "adapter_model.bin")


def weights_file(folder: Path) -> Path | None:
    """Return a folder's weights file: a usual name, else the only file with a known suffix, else None."""
    for name in _PREFERRED:
        if (folder / name).is_file():
            return folder / name
    paths = sorted(path for path in folder.iterdir() if path.is_file() and path.name.endswith(SUFFIXES))
    return paths[0] if len(paths) == 1 else None


def file_stem(weights: Path) -> str:
    """Return a weights file's name without its suffix."""
    return weights.name.removesuffix(next(filter(weights.name.endswith, SUFFIXES), weights.suffix))


def config_file(weights: Path) -> Path:
    """Return the config path of a weights file: `vit.config.json`, else config.json beside it.

    For weights in a folder `snapshots`, config.json is in the parent folder.
    """
    own = weights.with_name(f"{file_stem(weights)}.config.json")
    folder = weights.parent.parent if weights.parent.name == "snapshots" else weights.parent
    return own if own.is_file() else folder / "config.json"


def config_beside(weights: Path) -> dict[str, Any]:
    """Read the config.json of a weights file; {} if there is none."""
    path = config_file(weights)
    return read_json(path) if path.is_file() else {}


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a file. Raises CheckpointError for anything else."""
    try:
        if path.stat().st_size > limits.JSON:
            raise ValueError(f"it has more than {limits.JSON:,} bytes")
        content = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read: {first_line(error)}.") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{_place(path)} is not valid JSON ({error}). Write it again.") from error
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise CheckpointError(f"{_place(path)} holds a {kind}; expected a JSON object.")
    return content


@contextmanager
def refusing(sentence: str, *kinds: type[Exception]) -> Iterator[None]:
    """Convert exceptions of `kinds` to a CheckpointError with `sentence`.

    {said} in the sentence is filled with the exception's first line, {why} with its type and first line.
    """
    try:
        yield
    except VitvizError:
        raise
    except kinds as error:
        why = {"why": f"{type(error).__name__}: {first_line(error)}", "said": first_line(error)}
        raise CheckpointError(fill(sentence, why)) from error


def refusing_malformed_config(name: str) -> AbstractContextManager[None]:
    """Convert errors of code that reads a malformed config to CheckpointError."""
    kinds = (AttributeError, LookupError, TypeError, ValueError, OverflowError, RecursionError)
    return refusing(f"{name}: its config.json cannot be read ({{why}}). Correct it.", *kinds)


def refusing_permission_errors(name: str) -> AbstractContextManager[None]:
    """Convert PermissionError to CheckpointError, so that no other place is searched."""
    right = "Give this program permission to read the file and its folder."
    return refusing(f"{name} cannot be read: permission denied. {right}", PermissionError)


_PLAIN = re.compile(r"[\w-][\w.-]*")


def is_index(path: Path) -> bool:
    """Return True if a weights file is an index of shards."""
    return path.name.endswith(INDICES)


def shard_names(index: Path) -> dict[str, set[str]]:
    """Return an index's shards by file name, sorted, each with the names of its tensors.

    Raises CheckpointError if the index is empty or names anything but plain file names of its own format.
    """
    tensors = read_json(index).get("weight_map")
    if not isinstance(tensors, dict) or not tensors:
        advice = "Save or download it again."
        raise CheckpointError(f"{_place(index)} has no weight_map from tensors to files. {advice}")
    ending = "." + index.name.removesuffix(".index.json").rpartition(".")[2]
    names: dict[str, set[str]] = {}
    for tensor, name in tensors.items():
        if not isinstance(name, str) or not _PLAIN.fullmatch(name) or not name.endswith(ending):
            raise CheckpointError(
                f"{_place(index)} refers to {quoted(name)}, which was not opened: only {ending} files in the"
                f" same folder are read, such as model-00001-of-00002{ending}."
            )
        names.setdefault(name, set()).add(tensor)
    return dict(sorted(names.items()))


def shards(index: Path) -> dict[Path, set[str]]:
    """Return an index's shards by path, each with the names of its tensors.

    Raises CheckpointError as `shard_names` does, and if a shard is missing or links out of the folder. In the
    hub's cache, index and shards are links into one folder of blobs, so a shard may lie beside the index's
    target.
    """
    paths = {index.parent / name: tensors for name, tensors in shard_names(index).items()}
    missing = [path.name for path in paths if not path.is_file()]
    if missing:
        first, *more = missing
        which = f"{first} and {len(more)} more" if more else first
        raise CheckpointError(
            f"{which} of {len(paths)} shards {'are' if more else 'is'} missing from"
            f" {index.parent.name}/. Download or copy the rest of the checkpoint."
        )
    homes = (index.parent.resolve(), index.resolve().parent)
    for path in paths:
        if not any(path.resolve().is_relative_to(home) for home in homes):
            advice = "Put the file itself there."
            raise CheckpointError(f"{_place(path)} was not opened: it is a link out of its folder. {advice}")
    return paths


def _place(path: Path) -> str:
    """Return a path as "folder/file", for error messages."""
    return f"{path.parent.name}/{path.name}"
