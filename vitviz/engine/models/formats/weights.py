"""Reading tensors from a file without ever running what is in it.

Safetensors and NumPy archives hold only numbers; a .pth file is a pickle, which can run any program when it
is opened, and is read by torch's restricted reader. No file is mapped into memory: one that somebody
overwrites meanwhile would end the whole process by a bus error. What a file asks for is counted before
anything is made of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as tensors_in
from torch import Tensor

from vitviz.engine.memory import is_shortage
from vitviz.engine.models.formats import arrays, limits
from vitviz.engine.models.formats.header import require_whole, shapes_in
from vitviz.engine.models.formats.pickles import unpickled
from vitviz.engine.models.formats.shards import bytes_of, is_index, shards
from vitviz.errors import CheckpointError, OutOfMemory, said

# What a training script wraps its weights in, the averaged ones first: they are what the authors evaluate.
# `model_state_dict` is that of PyTorch's tutorials, `net` of many scripts for CIFAR.
_WRAPPERS = ("state_dict_ema", "model_ema", "state_dict", "model_state_dict", "model", "net", "teacher")
_NESTED = 8  # wrappers around wrappers
_COMPILED = re.compile(r"^((_orig_mod|module)\.)+")
# Parts that only training needs: MAE's decoder, BEiT's guess at visual words, and the projection heads of
# DINO and iBOT.
_TRAINING_ONLY = re.compile(r"^(decoder(_\w+)?(?=\.|$)|lm_head(?=\.)|(dino_|ibot_)?head\.(mlp|last_layer)\b)")


def read(path: Path) -> tuple[dict[str, Tensor], list[str]]:
    """The named tensors of a file, or of all shards of an index, as float32 (integers as they are), and
    sentences on what was left out.

    Wrappers (`state_dict`, `model`, `model_ema`, `teacher`, …) and prefixes (`module.`, `backbone.`,
    `model.`) are taken off; names are otherwise those of the file. Raises CheckpointError for a file that is
    damaged, holds no tensors, or is a pickle that asks for more than tensors; nothing in it has then been
    run.
    """
    notes: list[str] = []
    return _plain(_joined(path, notes) if is_index(path) else _content(path, notes), path, notes), notes


def _content(path: Path, notes: list[str]) -> Any:
    """What is in one file, without wrappers."""
    try:
        if path.suffix == ".safetensors":
            require_whole(path)
            return tensors_in(path.read_bytes())
        if path.suffix == ".npz":
            return arrays.arrays(path)
        return _unwrapped(unpickled(path), notes, path)
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read: {said(error)}.") from error
    except Exception as error:  # a damaged archive can fail in nearly any way inside of its reader
        if is_shortage(error):
            raise OutOfMemory(
                f"{path.name} asks for more memory than is free. Nothing was loaded. Choose a smaller"
                " checkpoint, or save this one again."
            ) from error
        raise CheckpointError(
            f"{path.name} is damaged or not a {path.suffix} file: {said(error)}. Download or save it again."
        ) from error


def _joined(index: Path, notes: list[str]) -> dict[str, Any]:
    """What is in all shards of an index; each must hold what the index says and no more, or shards of two
    savings were mixed.
    """
    joined: dict[str, Any] = {}
    for shard, names in shards(index).items():
        found = _content(shard, notes)
        differing = sorted(map(str, names ^ set(found))) if isinstance(found, Mapping) else sorted(names)
        if differing:
            how = "is missing from it" if differing[0] in names else "is in it, but not in the index"
            raise CheckpointError(
                f"{shard.name} does not hold what {index.name} says: {differing[0]} {how}. Download or save"
                " the whole checkpoint again."
            )
        joined |= found
    return joined


def shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a safetensors file or of all its shards, from headers alone; empty for other files
    and damaged ones.
    """
    if is_index(path):
        try:
            return {name: shape for shard in shards(path) for name, shape in shapes(shard).items()}
        except CheckpointError:
            return {}
    return shapes_in(path) if path.suffix == ".safetensors" else {}


def bytes_held(path: Path) -> int:
    """The bytes of what is in a file, or in all shards of an index, once it is inflated."""
    return max(bytes_of(path), arrays.count(path) if path.suffix == ".npz" else 0)


def _unwrapped(found: Any, notes: list[str], path: Path) -> Any:
    for _ in range(_NESTED):
        if not isinstance(found, Mapping):
            return found
        wrapper = next((name for name in _WRAPPERS if isinstance(found.get(name), Mapping)), None)
        if wrapper is None:
            return found
        if "ema" in wrapper:
            notes.append("The averaged (EMA) weights of the file are shown.")
        elif wrapper == "teacher":
            notes.append("The teacher's weights of the file are shown.")
        found = found[wrapper]
    raise CheckpointError(
        f"{path.name} wraps its weights more than {_NESTED} times, or holds itself. Save model.state_dict(),"
        " best as .safetensors."
    )


def _require_plain(tensors: Mapping[Any, Any], path: Path) -> None:
    """CheckpointError for keys that are no names, and tensors that are no numbers side by side in memory."""
    limits.require_few(tensors, path)
    strange = [key for key in tensors if not (isinstance(key, str) and key.isprintable())]
    if strange:
        told, kind = ascii(strange[0])[:80], type(strange[0]).__name__
        raise CheckpointError(
            f"{path.name} has a key {told if kind == 'str' else f'of type {kind}'} where the names of tensors"
            " were expected. Save model.state_dict(), best as .safetensors."
        )
    for name, tensor in tensors.items():
        kind = _kind(tensor)
        if kind:
            raise CheckpointError(
                f"{path.name} holds {name} as a {kind} tensor where a dense one was expected. "
                "Save tensor.to_dense() or tensor.dequantize(), best as .safetensors."
            )
    limits.require_held(
        sum(tensor.numel() * tensor.element_size() for tensor in tensors.values()), path, bytes_held(path)
    )


def _kind(tensor: Tensor) -> str:
    """What a tensor is other than plain numbers; empty for a plain one."""
    if tensor.is_nested or tensor.layout != torch.strided:
        return "nested" if tensor.is_nested else "sparse"
    return "quantised" if tensor.is_quantized else "meta" if tensor.is_meta else ""


def _plain(found: Any, path: Path, notes: list[str]) -> dict[str, Tensor]:
    """Tensors only, without prefixes and training-only parts, in float32."""
    if (
        not isinstance(found, Mapping)
        or not found
        or not all(isinstance(value, Tensor) for value in found.values())
    ):
        raise CheckpointError(
            f"{path.name} holds no named tensors where weights were expected. Save model.state_dict(), best"
            " as .safetensors."
        )
    _require_plain(found, path)
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
