"""Reading tensors from a file without ever running what is in it.

Safetensors and NumPy archives hold only numbers. A .pth file is a pickle, which can run any program when it is opened:
it is read by torch's restricted reader, which knows tensors and plain containers. One more type is let in,
argparse.Namespace, because the files of DeiT and MAE carry their training options as one; it holds data only.
"""

from __future__ import annotations

import argparse
import json
import operator
import pickle
import re
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor

from vitviz.engine.loading.formats.shards import is_index, shards
from vitviz.errors import CheckpointError

_UNPICKLING = threading.Lock()  # what torch may unpickle is one list for the whole process
# What a training script wraps its weights in, the averaged ones first: they are what the authors evaluate.
_WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model", "teacher")
_COMPILED = re.compile(r"^((_orig_mod|module)\.)+")
# Parts that only training needs: MAE's decoder, BEiT's guess at visual words, and the projection heads of DINO and iBOT.
_TRAINING_ONLY = re.compile(r"^(decoder(_\w+)?(?=\.|$)|lm_head(?=\.)|(dino_|ibot_)?head\.(mlp|last_layer)\b)")


def read(path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The named tensors of a file, or of all shards of an index, as float32 (integers as they are), and sentences on what was left out.

    Wrappers (`state_dict`, `model`, `model_ema`, `teacher`) and prefixes (`module.`, `backbone.`, `model.`) are taken off; names
    are otherwise those of the file. Raises CheckpointError for a file that is damaged, holds no tensors, or is a
    pickle that asks for more than tensors; nothing in it has then been run.
    """
    notes: list[str] = []
    return _plain(_joined(path, notes) if is_index(path) else _content(path, notes), path, notes), notes


def _content(path: Path, notes: list[str]) -> Any:
    """What is in one file, without wrappers."""
    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        if path.suffix == ".npz":
            return _arrays(path)
        return _unwrapped(_unpickled(path), notes)
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # a damaged archive can fail in nearly any way inside of its reader
        raise CheckpointError(
            f"{path.name} is damaged or not a {path.suffix} file: {_first_line(error)}. Download or save it again."
        ) from error


def _joined(index: Path, notes: list[str]) -> dict[str, Any]:
    """What is in all shards of an index; each must hold what the index says and no more, or shards of two savings were mixed."""
    joined: dict[str, Any] = {}
    for shard, names in shards(index).items():
        found = _content(shard, notes)
        differing = sorted(map(str, names ^ set(found))) if isinstance(found, Mapping) else sorted(names)
        if differing:
            how = "is missing from it" if differing[0] in names else "is in it, but not in the index"
            raise CheckpointError(
                f"{shard.name} does not hold what {index.name} says: {differing[0]} {how}. Download or save the whole checkpoint again."
            )
        joined |= found
    return joined


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a safetensors file or of all its shards, from headers alone; empty for other files and damaged ones."""
    if is_index(path):
        try:
            return {name: shape for shard in shards(path) for name, shape in shapes(shard).items()}
        except CheckpointError:
            return {}
    if path.suffix != ".safetensors":
        return {}
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(100_000_000, path.stat().st_size):
                return {}
            header = json.loads(file.read(length))
        return {name: tuple(map(operator.index, entry["shape"])) for name, entry in header.items() if name != "__metadata__"}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def _arrays(path: Path) -> dict[str, Tensor]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: torch.from_numpy(archive[name]) for name in archive.files}
    except ValueError as error:
        if "pickle" not in str(error):
            raise
        raise CheckpointError(
            f"{path.name} was not opened: it holds Python objects, which could run code, where only arrays were expected."
        ) from error


def _unpickled(path: Path) -> Any:
    try:
        with _UNPICKLING, torch.serialization.safe_globals([argparse.Namespace]):
            return torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        wanted = _wanted(path)
        if not wanted and not re.search(r"Unsupported (global|class|operand)|GLOBAL", str(error)):
            raise
        raise CheckpointError(
            f"{path.name} was not opened: it is a pickle that asks to run code ({', '.join(wanted[:3]) or 'of its own'}), "
            "and nothing of it has been run. "
            "Where you trust its author, save its weights alone, best as .safetensors: save_file(model.state_dict(), path)."
        ) from error


def _wanted(path: Path) -> list[str]:
    """What a pickle would import, read from its text without running it."""
    try:
        return sorted(set(torch.serialization.get_unsafe_globals_in_checkpoint(path)) - {"argparse.Namespace"})
    except Exception:  # only for the wording of a refusal
        return []


def _unwrapped(found: Any, notes: list[str]) -> Any:
    while isinstance(found, Mapping):
        wrapper = next((name for name in _WRAPPERS if isinstance(found.get(name), Mapping)), None)
        if wrapper is None:
            break
        if "ema" in wrapper:
            notes.append("The averaged (EMA) weights of the file are shown.")
        elif wrapper == "teacher":
            notes.append("The teacher's weights of the file are shown.")
        found = found[wrapper]
    return found


def _plain(found: Any, path: Path, notes: list[str]) -> dict[str, Tensor]:
    """Tensors only, without prefixes and training-only parts, in float32."""
    if not isinstance(found, Mapping) or not found or not all(isinstance(value, Tensor) for value in found.values()):
        raise CheckpointError(
            f"{path.name} holds no named tensors where weights were expected. Save model.state_dict(), best as .safetensors."
        )
    named = {_COMPILED.sub("", name): value for name, value in found.items()}
    if any(name.startswith("backbone.") for name in named):
        named = {name.removeprefix("backbone."): value for name, value in named.items()}
    if named and all(name.startswith("model.") for name in named):  # as Lightning saves a module's model
        named = {name.removeprefix("model."): value for name, value in named.items()}
    left_out = sorted({match[0] for name in named if (match := _TRAINING_ONLY.match(name))})
    if left_out:
        notes.append(f"Parts that only training needs were left out: {', '.join(left_out)}.")
        named = {name: value for name, value in named.items() if not _TRAINING_ONLY.match(name)}
    return {name: value.float() if value.is_floating_point() else value for name, value in named.items()}


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")[:160]
