"""Read tensors from a file without executing any code in the file.

Safetensors and NumPy archives contain only numbers. A .pth file is a pickle, which can run any program when
opened. Torch's restricted reader accepts tensors and plain containers. argparse.Namespace is also allowed,
because the files of DeiT and MAE store their training options in one; it holds only data. What else training
scripts commonly save beside weights (NumPy scalars, paths, loss functions, the containers of Lightning and
OmegaConf) is never imported: an object without content stands in for each. Before unpickling, the pickle's
opcodes are scanned without execution: every import must be on one of these lists. torch's own list is longer
and includes `bytearray`, with which a pickle of forty bytes can request gigabytes.

Files are not memory-mapped: if a mapped file is overwritten, a bus error ends the whole process. Requested
sizes are checked before allocation. The safetensors library also checks a header, but it neither refuses an
unreasonably large header before parsing, nor a file whose size differs from its header's.
"""

import argparse
import json
import operator
import pickle
import pickletools
import re
import sys
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import islice
from math import prod
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import torch
from safetensors.torch import load as tensors_in
from torch import Tensor

from vitviz.engine.forks import lock_of
from vitviz.engine.formats import limits
from vitviz.engine.formats.folder import is_index, refusing, shards
from vitviz.engine.formats.mapping import mapping_file
from vitviz.engine.memory import is_shortage
from vitviz.errors import CheckpointError, OutOfMemory, first_line, quoted


def require_whole(path: Path) -> None:
    """Raise CheckpointError if a safetensors file has no valid header or not the size that it states."""
    size = path.stat().st_size
    content, begin = _parsed(path)
    damaged = f"{path.name} is damaged: its header is not a safetensors header. Download or save it again."
    with refusing(damaged, KeyError, TypeError, IndexError, AttributeError):
        ends = [operator.index(entry["data_offsets"][1]) for entry in content.values()]
    limits.require_few(ends, path)
    expected = begin + max(ends, default=0)
    if expected != size:
        raise CheckpointError(
            f"{path.name} is damaged: its header announces {expected:,} bytes, but it has {size:,}. Download"
            " or save it again."
        )


def _parsed(path: Path) -> tuple[dict[str, Any], int]:
    """Return a safetensors header (tensor name -> entry) and the byte offset of the data."""
    damaged = f"{path.name} is damaged or not a .safetensors file. Download or save it again."
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if length > path.stat().st_size:
            raise CheckpointError(damaged)
        if length > limits.HEADER:
            raise CheckpointError(
                f"{path.name} has a header of {length:,} bytes; at most {limits.HEADER:,} are read. Save the"
                " weights again, without the rest."
            )
        text = file.read(length)
    with refusing(damaged, ValueError, RecursionError):
        content = json.loads(text)
    if isinstance(content, dict):  # otherwise callers find no tensors
        content.pop("__metadata__", None)
    return content, 8 + length


_HEADERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def read_arrays(path: Path) -> dict[str, Tensor]:
    """Read the arrays of an .npz file.

    Raises CheckpointError for Python objects, which could run code, and for archives above the limits.
    """
    _require_honest(path)
    try:
        with np.load(path, allow_pickle=False, mmap_mode=None) as archive:
            return {name: torch.from_numpy(archive[name]) for name in archive.files}
    except ValueError as error:
        if "pickle" not in str(error):
            raise
        raise CheckpointError(
            f"{path.name} was not opened: it holds Python objects, which could run code; expected arrays"
            " only."
        ) from error


def _require_honest(path: Path) -> None:
    """Raise CheckpointError if an array's header states another size than the archive holds.

    NumPy allocates the size in the header before reading.
    """
    with zipfile.ZipFile(path) as archive:
        limits.require_few(archive.namelist(), path)
        limits.require_inflatable(path, archive)
        for entry in archive.infolist():
            with archive.open(entry) as file:
                read = _HEADERS.get(np.lib.format.read_magic(file))
                if read is None:  # version 3.0: non-ASCII field names, which only record arrays have
                    raise CheckpointError(
                        f"{path.name} holds {entry.filename}, which is not an array of numbers. Save it"
                        " again."
                    )
                shape, _, dtype = read(file)
                expected, there = prod(shape) * dtype.itemsize, entry.file_size - file.tell()
            if expected != there and not dtype.hasobject:
                raise CheckpointError(
                    f"{path.name} is damaged: {entry.filename} announces {expected:,} bytes and holds"
                    f" {there:,}. Download or save it again."
                )


_UNPICKLING = lock_of(sys.modules[__name__], "_UNPICKLING")  # torch's list of safe globals is process-wide
_LIGHTNING = "pytorch-lightning_version"  # a key of every checkpoint of Lightning
_INSTRUCTIONS = 500_000  # about 25 per tensor are usual
_STREAMS = 5  # pickles before the data in a file of torch's legacy format
_NEEDED = re.compile(
    r"collections\.(OrderedDict|Counter)"
    r"|torch\._utils\._rebuild_(tensor(_v[23])?|parameter(_with_state)?)"
    r"|torch\.nn\.parameter\.Parameter|torch\._tensor\._rebuild_from_type_v2"
    r"|torch\.serialization\._get_layout"
    r"|torch(\.cuda)?\.(?!Typed|Untyped)\w+Storage|torch\.(Size|device)"
    r"|torch\.(b?float\d+\w*|double|half|u?int\d+|long|short|bool|complex\d+|strided)"
    r"|argparse\.Namespace|_codecs\.encode|(builtins|__builtin__)\.(set|complex)"
)
# Training options beside weights. Mappings are read as dict; of the others nothing is kept.
_MAPPINGS = re.compile(
    r"collections\.defaultdict|((pytorch_)?lightning|lightning_fabric)\.(\w+\.)*AttributeDict"
)
_OPTIONS = re.compile(
    rf"{_MAPPINGS.pattern}|numpy\.(_?core\.multiarray\.(scalar|_reconstruct)|ndarray|dtype|dtypes\.\w+)"
    r"|((pytorch_)?lightning|lightning_fabric|omegaconf)\.[\w.]+|pathlib\.\w*Path|typing\.Any"
    r"|torch\.nn\.(modules\.\w+|functional)\.\w+|(builtins|__builtin__)\.(dict|list|int|float|str|bool)"
)


class _Option:
    """Stand-in for an object beside the weights; nothing of its class is imported."""

    def __init__(self, *_: object):
        pass

    def __setstate__(self, _: object) -> None:
        pass


def _mapping(*_: object) -> dict[Any, Any]:
    """Return an empty dict; unpickling calls it in place of mapping classes of training options."""
    return {}


# Globals that torch permits, but supported weights do not need.
_OTHER_KINDS = {
    r"torch\.per_(tensor|channel)_(affine|symmetric)": "quantised tensors",
    r"torch\.per_channel_affine_float_qparams|torch\._utils\._rebuild_qtensor": "quantised tensors",
    r"torch\._utils\._rebuild_sparse(_csr)?_tensor": "sparse tensors",
    r"torch\._utils\._rebuild_meta_tensor_no_storage": "tensors without numbers (meta)",
    r"torch\._utils\._rebuild_nested_tensor": "nested tensors",
    r"torch\._utils\._rebuild_wrapper_subclass": "tensors of a custom class",
    r"torch\.storage\.(Unt|T)ypedStorage": "bytes without a type",
    r"(builtins|__builtin__)\.bytearray": "a bytearray",
}


def _unpickled(path: Path) -> Any:
    """Unpickle a .pth, .pt or .bin file.

    Raises CheckpointError, without running anything, if the pickle imports more than weights need.
    """
    options = _require_harmless(path)
    stand_ins = [(_mapping if _MAPPINGS.fullmatch(option) else _Option, option) for option in options]
    # torch looks names of Python 2 up under their names in Python 3
    stand_ins = [(stand_in, name.replace("__builtin__.", "builtins.")) for stand_in, name in stand_ins]
    try:
        with _UNPICKLING, torch.serialization.safe_globals([argparse.Namespace, *stand_ins]):
            return torch.load(path, map_location="cpu", weights_only=True, mmap=False)
    except pickle.UnpicklingError as error:
        if not re.search(r"Unsupported (global|class|operand)|GLOBAL", str(error)):
            raise
        raise _unsafe_pickle_error(path, []) from error


def _require_harmless(path: Path) -> list[str]:
    """Return the imports of a pickle that need a stand-in; raise CheckpointError for any that is unknown."""
    with path.open("rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
        file.seek(0)
        if not zipped:
            imported = _imports_of_streams(file, path)
        else:
            with zipfile.ZipFile(file) as archive:
                limits.require_inflatable(path, archive)
                pickles = [entry for entry in archive.infolist() if entry.filename.endswith(".pkl")]
                if any(entry.file_size > limits.HEADER for entry in pickles):
                    raise _too_long_error(path)
                imported = [name for entry in pickles for name in _imports(archive.open(entry), path)]
    unusual = [name for name in dict.fromkeys(imported) if not _NEEDED.fullmatch(name)]
    options = [name for name in unusual if _OPTIONS.fullmatch(name)]
    foreign = [name for name in unusual if name not in options]
    kinds = {name: _other_kind(name) for name in foreign if name != _LIGHTNING}
    if code := [name for name, kind in kinds.items() if kind is None]:
        modules = any("torch.nn.modules." in name for name in imported)
        raise _unsafe_pickle_error(path, code, _LIGHTNING in foreign, modules)
    if kinds:
        raise CheckpointError(
            f"{path.name} was not opened: it contains {kinds}; expected dense tensors of numbers. Save"
            " tensor.to_dense() or tensor.dequantize(), preferably as .safetensors."
        )
    return options


def _other_kind(name: str) -> str | None:
    """Return what a global of `_OTHER_KINDS` stands for; None for any other."""
    return next((kind for names, kind in _OTHER_KINDS.items() if re.fullmatch(names, name)), None)


def _imports_of_streams(file: IO[bytes], path: Path) -> set[str]:
    """Return the imports of the pickles at the start of a legacy torch file; torch reports later damage."""
    imported: set[str] = set()
    for stream in range(_STREAMS):
        try:
            imported |= set(_imports(file, path))
        except ValueError as error:
            if stream == 0 or isinstance(error, CheckpointError):  # CheckpointError: a pickle is too long
                raise
            break
    return imported


def _imports(file: IO[bytes], path: Path) -> Iterator[str]:
    """Yield a pickle's imports from its opcodes without execution. Raises ValueError if it is damaged."""
    counted = iter(pickletools.genops(file))
    for code, argument, _ in islice(counted, _INSTRUCTIONS):
        if code.name in ("GLOBAL", "INST"):
            yield str(argument).replace(" ", ".", 1)
        elif code.name in ("STACK_GLOBAL", "EXT1", "EXT2", "EXT4"):
            yield "of its own"
        elif argument == _LIGHTNING:
            yield _LIGHTNING
    if next(counted, None) is not None:
        raise _too_long_error(path)


def _too_long_error(path: Path) -> CheckpointError:
    """Return the CheckpointError for a file whose pickle is too long to be that of weights."""
    return CheckpointError(
        f"{path.name} was not opened: its pickle has more than {limits.HEADER:,} bytes or {_INSTRUCTIONS:,}"
        " instructions, which weights never have. Save only the weights, preferably as .safetensors:"
        " save_file(model.state_dict(), path)."
    )


def _unsafe_pickle_error(
    path: Path, wanted: list[str], lightning: bool = False, modules: bool = False
) -> CheckpointError:
    """Return the error for a pickle that imports disallowed names (`wanted`; empty if unknown).

    `lightning` and `modules` word it as a Lightning checkpoint or a whole pickled model.
    """
    named = ", ".join(wanted[:3]) or "of its own"
    if lightning:
        what = (
            f"a Lightning checkpoint with objects of custom classes ({named}), and reading them would run"
            " code"
        )
    elif modules:
        what = f"a whole pickled model instead of its weights ({named}), and reading it would run code"
    else:
        what = f"a pickle that would run code ({named})"
    return CheckpointError(
        f"{path.name} was not opened: it is {what}. Nothing in it was run. If you trust its author, open it"
        " in Python and save only its weights, preferably as .safetensors: save_file(model.state_dict(),"
        " path)."
    )


# Keys under which training scripts store weights. Averaged weights come first: authors evaluate these.
# PyTorch's tutorials use `model_state_dict`, many scripts for CIFAR use `net`.
_WRAPPERS = (
    "state_dict_ema", "model_ema", "ema_state_dict", "ema_model", "ema", "state_dict", "model_state_dict",
    "model", "net", "teacher", "student", "base_encoder",
)  # fmt: skip
_NESTED = 8  # deepest nesting of wrappers
_COMPILED = re.compile(r"^((_orig_mod|module)\.)+")
# Parts for training only: MAE's decoder, BEiT's visual-token head, projection heads of DINO and iBOT, iBOT's
# mask token, losses and metrics that Lightning saves as modules.
_TRAINING_ONLY = re.compile(
    r"^(decoder(_\w+)?(?=\.|$)|lm_head(?=\.)|(dino_|ibot_)?head\.(mlp(?!\.fc)|last_layer2?)\b|masked_embed$"
    r"|(criterion|loss|\w+_(loss|acc(uracy)?|metrics?)|loss_\w+|metrics?)(?=\.))"
)
# begins with what wraps a model of timm's
_LAYER = re.compile(r"((?:.*\.)?)blocks\.(?:\d+\.)?0\.norm1\.weight")
_OF_TRAINING = ("decoder.", "predictor.")  # what else has layers
_CHUNKED = re.compile(r"^blocks\.\d+\.(?=\d+\.)")  # DINOv2 trained with FSDP: blocks.CHUNK.LAYER.…
_MOCO = re.compile(r"(^|\.)(base|momentum)_encoder$")  # sets of MoCo v3, whose `head` is its projection


class Read(NamedTuple):
    tensors: dict[str, Tensor]  # float32; integers keep their dtype
    notes: list[str]  # sentences on the chosen weights and omitted parts
    sets: tuple[str, ...]  # names of all sets of weights in the file, the one read first


def read_tensors(path: Path, chosen: str | None = None) -> Read:
    """Read the named tensors of a file, or of all shards of an index.

    If the file has several sets of weights (`model` and `ema`, `student` and `teacher`), `chosen` selects
    one; the default is the set that authors evaluate. Wrappers (`state_dict`, `model`, `model_ema`,
    `teacher`, …) and prefixes (`module.`, `backbone.`, `model.`) are removed; names are otherwise those of
    the file. Raises CheckpointError for a file that is damaged, has no tensors or no such set, or is a pickle
    of more than tensors, of which nothing was run.
    """
    notes: list[str] = []
    content = _join_shards(path) if is_index(path) else _content(path)
    sets = dict(_sets(content, path)) if isinstance(content, Mapping) else {}
    name = next(iter(sets), "") if chosen is None else chosen
    if chosen is not None and (chosen not in sets or len(sets) == 1):
        there = (
            f"one of {', '.join(sets)}"
            if len(sets) > 1
            else ("none, because it holds a single set of weights")
        )
        raise CheckpointError(f"{path.name} holds no weights {quoted(chosen)}; expected {there}.")
    weights = sets.get(name, content)
    others = [other for other in sets if other != name and _alike(sets[other], weights)]
    if re.search(r"(^|[._])ema([._]|$)", name):
        notes.append("The averaged (EMA) weights of the file are shown.")
    elif re.search(r"(^|[._])teacher$", name):
        notes.append("The teacher's weights of the file are shown.")
    return Read(_plain(weights, path, notes, name), notes, (name, *others))


def _sets(
    contents: Mapping, path: Path, prefix: str = "", seen: set[int] | None = None
) -> Iterator[tuple[str, Mapping]]:
    """Yield (dotted path, set of weights) for every set in a file's nested contents, the default first."""
    seen = {id(contents)} if seen is None else seen
    if contents and all(isinstance(value, Tensor) for value in contents.values()):
        yield from _side_by_side(contents, prefix)
        return
    if prefix.count(".") >= _NESTED:
        raise CheckpointError(
            f"{path.name} nests its weights more than {_NESTED} levels deep, or contains itself. Save"
            " model.state_dict(), preferably as .safetensors."
        )
    inner = {key: value for key, value in contents.items() if isinstance(value, Mapping)}
    for key in sorted(filter(lambda key: isinstance(key, str), inner), key=_rank):
        if id(inner[key]) not in seen or key in _WRAPPERS:
            seen.add(id(inner[key]))
            yield from _sets(inner[key], path, f"{prefix}{key}.", seen)


def _rank(wrapper: str) -> int:
    """Return the sort position of a wrapper key: its place in `_WRAPPERS`; unknown keys come last."""
    return _WRAPPERS.index(wrapper) if wrapper in _WRAPPERS else len(_WRAPPERS)


def _side_by_side(tensors: Mapping, at: str) -> Iterator[tuple[str, Mapping]]:
    """Yield (path, tensors) of one set, or of several sets that differ by name prefix (as in safetensors).

    Every set of several has a patch or position embedding.
    """
    groups: dict[str, dict[str, Tensor]] = {}
    for name, tensor in tensors.items():
        if isinstance(name, str):
            first, _, rest = _COMPILED.sub("", name).partition(".")
            groups.setdefault(first, {})[rest] = tensor
    whole = [
        first for first, group in groups.items()
        if any(tensor.ndim == 4 or "pos_embed" in rest for rest, tensor in group.items())
    ]  # fmt: skip
    if len(whole) < 2 or not all(_alike(groups[whole[0]], groups[other]) for other in whole[1:]):
        yield at.removesuffix("."), tensors
        return
    for first in sorted(whole, key=_rank):
        yield f"{at}{first}", groups[first]


def _alike(first: Mapping, second: Mapping) -> bool:
    """Return True if most tensors of the two sets agree in name and shape."""
    shapes = [
        {(re.sub(r"^((_orig_mod|module|model|backbone)\.)+", "", str(name)), tensor.shape)
         for name, tensor in tensors.items()} for tensors in (first, second)
    ]  # fmt: skip
    return 2 * len(shapes[0] & shapes[1]) > min(map(len, shapes))


# First bytes of files that are often saved in place of weights.
_MISTAKEN = {
    rb"version https://git-lfs": "a Git LFS pointer, three lines of text instead of the weights. Run `git"
    " lfs pull` in its folder, or download the file itself",
    rb"\s*<(!doctype|html)": "a web page, not weights. Use the download link of that page",
}


def _content(path: Path) -> Any:
    """Return the content of a .safetensors, .npz or pickle file, as nested; runs no code of it.

    Raises CheckpointError for an unreadable or damaged file, OutOfMemory if memory is short.
    """
    with path.open("rb") as file:
        beginning = file.read(64)
    for pattern, what in _MISTAKEN.items():
        if re.match(pattern, beginning, re.IGNORECASE):
            raise CheckpointError(f"{path.name} is {what}.")
    try:
        if path.suffix == ".safetensors":
            require_whole(path)
            return tensors_in(path.read_bytes())
        if path.suffix == ".npz":
            return read_arrays(path)
        return _unpickled(path)
    except CheckpointError:
        raise
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read: {first_line(error)}.") from error
    except Exception as error:  # a damaged archive can raise nearly any error in its reader
        if is_shortage(error):
            raise OutOfMemory(
                f"{path.name} needs more memory than is free. Nothing was loaded. Choose a smaller"
                " checkpoint, or save this one again."
            ) from error
        raise CheckpointError(
            f"{path.name} is damaged or not a {path.suffix} file. Download or save it again."
        ) from error


def _join_shards(index: Path) -> dict[str, Any]:
    """Join the tensors of all shards of an index.

    Raises CheckpointError if a shard's tensors differ from the index, as when two saved versions are mixed.
    """
    joined: dict[str, Any] = {}
    for shard, names in shards(index).items():
        content = _content(shard)
        differing = sorted(map(str, names ^ set(content))) if isinstance(content, Mapping) else sorted(names)
        if differing:
            how = "is missing from it" if differing[0] in names else "is in it, but not in the index"
            raise CheckpointError(
                f"{shard.name} does not hold what {index.name} lists: {differing[0]} {how}. Download or save"
                " the whole checkpoint again."
            )
        joined |= content
    return joined


def read_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Read tensor names and shapes from safetensors headers, of all shards; {} for other or damaged files."""
    try:
        if is_index(path):
            return {name: shape for shard in shards(path) for name, shape in read_shapes(shard).items()}
        content = _parsed(path)[0] if path.suffix == ".safetensors" else {}
        return {name: tuple(map(operator.index, entry["shape"])) for name, entry in content.items()}
    except (CheckpointError, OSError, KeyError, TypeError, AttributeError):
        return {}


def bytes_held(path: Path) -> int:
    """Return the size in bytes of a file, or of all shards of an index, after inflating archives."""
    own = sum(one.stat().st_size for one in (shards(path) if is_index(path) else [path]))
    if path.suffix == ".npz":
        with suppress(OSError, zipfile.BadZipFile, ValueError, NotImplementedError):
            with zipfile.ZipFile(path) as archive:
                return max(own, sum(entry.file_size for entry in archive.infolist()))
    return own


def _require_plain(tensors: Mapping[Any, Any], path: Path) -> None:
    """Raise CheckpointError for keys that are no printable names, and for tensors that are not dense."""
    limits.require_few(tensors, path)
    strange = [key for key in tensors if not (isinstance(key, str) and key.isprintable())]
    if strange:
        text, kind = ascii(strange[0])[:80], type(strange[0]).__name__
        raise CheckpointError(
            f"{path.name} has a key {text if kind == 'str' else f'of type {kind}'}; expected names of"
            " tensors. Save model.state_dict(), preferably as .safetensors."
        )
    for name, tensor in tensors.items():
        kind = _kind(tensor)
        if kind:
            raise CheckpointError(
                f"{path.name} holds {name} as a {kind} tensor; expected a dense one. Save tensor.to_dense()"
                " or tensor.dequantize(), preferably as .safetensors."
            )
    limits.require_held(sum(tensor.nbytes for tensor in tensors.values()), path, bytes_held(path))


def _kind(tensor: Tensor) -> str:
    """Return the kind of a tensor that is not dense (nested, sparse, quantised, meta); empty if dense."""
    if tensor.is_nested or tensor.layout != torch.strided:
        return "nested" if tensor.is_nested else "sparse"
    return "quantised" if tensor.is_quantized else "meta" if tensor.is_meta else ""


def _plain(contents: Any, path: Path, notes: list[str], name: str) -> dict[str, Tensor]:
    """Return the tensors of the set `name` without prefixes and training-only parts, in float32."""
    named = isinstance(contents, Mapping) and all(isinstance(value, Tensor) for value in contents.values())
    if not named or not contents:
        raise CheckpointError(
            f"{path.name} holds no named tensors; expected weights. Save model.state_dict(), preferably as"
            " .safetensors."
        )
    _require_plain(contents, path)
    named = {_COMPILED.sub("", name): value for name, value in contents.items()}
    wraps = {match[1] for name in named if (match := _LAYER.fullmatch(name))}
    wraps = {name for name in wraps if not name.startswith("visual.") and not name.endswith(_OF_TRAINING)}
    usual = [("backbone.", any), ("model.", all)]  # Lightning's; a mapping may name all others
    found_one = len(wraps) == 1 and not mapping_file(path).is_file()
    for prefix, where in [(wraps.pop(), any)] if found_one else usual:
        if where(name.startswith(prefix) for name in named):
            named = {name.removeprefix(prefix): value for name, value in named.items()}
    if all(_CHUNKED.match(name) for name in named if name.startswith("blocks.")):
        named = {_CHUNKED.sub("blocks.", name): value for name, value in named.items()}
    pattern = _TRAINING_ONLY.pattern + r"|^head(?=\.)" * bool(_MOCO.search(name))
    parts = {name: match[0] for name in named if (match := re.match(pattern, name))}
    if parts:
        notes.append(
            f"Parts that are used only in training were dropped: {', '.join(sorted({*parts.values()}))}."
        )
        named = {name: value for name, value in named.items() if name not in parts}
    return {name: value.float() if value.is_floating_point() else value for name, value in named.items()}
