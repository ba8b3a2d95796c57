"""Where in a checkpoint's folder things lie, as timm and transformers write them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from vitviz.engine.models.formats import limits
from vitviz.errors import CheckpointError, VitvizError, said

INDICES = (".safetensors.index.json", ".bin.index.json")  # of weights in several files
SUFFIXES = (".safetensors", ".pth", ".pth.tar", ".pt", ".bin", ".npz", *INDICES)
# In the order in which timm and transformers prefer them.
HUB_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
_PREFERRED = (*HUB_FILES, "pytorch_model.pth", "model.pth")


def weights_file(folder: Path) -> Path | None:
    """The weights in a folder: by their usual names, else the only file with a fitting ending; None where
    there is none.
    """
    for name in _PREFERRED:
        if (folder / name).is_file():
            return folder / name
    found = sorted(path for path in folder.iterdir() if path.is_file() and path.name.endswith(SUFFIXES))
    return found[0] if len(found) == 1 else None


def stem(weights: Path) -> str:
    """A weights file's name without its ending."""
    endings = sorted(filter(weights.name.endswith, SUFFIXES), key=len)
    return weights.name.removesuffix(endings[-1]) if endings else weights.stem


def config_file(weights: Path) -> Path:
    """The config.json of a weights file: under its own name (`vit.config.json`) where there is one, else
    next to it, or above the snapshots/ of a training film.
    """
    own = weights.with_name(f"{stem(weights)}.config.json")
    folder = weights.parent.parent if weights.parent.name == "snapshots" else weights.parent
    return own if own.is_file() else folder / "config.json"


def config_beside(weights: Path) -> dict[str, Any]:
    """What stands in it; {} where there is none."""
    path = config_file(weights)
    return read_json(path) if path.is_file() else {}


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file. Raises CheckpointError where it is none."""
    try:
        if path.stat().st_size > limits.JSON:
            raise ValueError(f"it has more than {limits.JSON:,} bytes")
        content = json.loads(path.read_text(encoding="utf-8"))
        json.dumps(content, ensure_ascii=False).encode()  # half a character could be told to nobody
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read: {said(error)}.") from error
    except (ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path.parent.name}/{path.name} is not valid JSON ({error}). Write it again."
        ) from error
    if not isinstance(content, dict):
        raise CheckpointError(
            f"{path.parent.name}/{path.name} holds a {type(content).__name__} where a JSON object was"
            " expected."
        )
    return content


@contextmanager
def understood(name: str) -> Iterator[None]:
    """Turns what a malformed config makes fail into a CheckpointError; only for code that reads a config."""
    try:
        yield
    except VitvizError:
        raise
    except (
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
    ) as error:
        what = f"{type(error).__name__}: {said(error)}"
        raise CheckpointError(
            f"{name}: its config.json cannot be understood ({what}). Correct it."
        ) from error


@contextmanager
def permitted(name: str) -> Iterator[None]:
    """Turns a file or folder that may not be read into a CheckpointError; it is there, so it is not to be
    searched for.
    """
    try:
        yield
    except PermissionError as error:
        raise CheckpointError(
            f"{name} may not be read: this program has no permission. Give it the right to read the file and"
            " its folder."
        ) from error
