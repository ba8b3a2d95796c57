"""Pickles of tensors, read without ever running what is in them.

torch's restricted reader knows tensors and plain containers, and argparse.Namespace is let in, because the
files of DeiT and MAE carry their training options as one; it holds data only. Before it begins, the pickle's
instructions are read as text: what they import must be among what weights need. torch's own list has more,
such as `bytearray`, which a pickle of forty bytes asks for gigabytes with.
"""

import argparse
import pickle
import pickletools
import re
import sys
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import IO, Any

import torch

from vitviz.engine.forks import lock_of
from vitviz.engine.reading import limits
from vitviz.errors import CheckpointError

_UNPICKLING = lock_of(sys.modules[__name__], "_UNPICKLING")  # torch has one list of what it may unpickle
_INSTRUCTIONS = 500_000  # some 25 for each tensor are usual
_STREAMS = 5  # pickles in a file of torch's older form, before the numbers begin
_NEEDED = re.compile(
    r"collections\.(OrderedDict|Counter)"
    r"|torch\._utils\._rebuild_(tensor(_v[23])?|parameter(_with_state)?)"
    r"|torch\.nn\.parameter\.Parameter|torch\._tensor\._rebuild_from_type_v2"
    r"|torch\.serialization\._get_layout"
    r"|torch(\.cuda)?\.(?!Typed|Untyped)\w+Storage|torch\.(Size|device)"
    r"|torch\.(b?float\d+\w*|double|half|u?int\d+|long|short|bool|complex\d+|strided)"
    r"|argparse\.Namespace|_codecs\.encode|(builtins|__builtin__)\.(set|complex)"
)
# What torch would let in, and weights that can be drawn do not need.
_OTHER_KINDS = {
    r"torch\.per_(tensor|channel)_(affine|symmetric)": "quantised tensors",
    r"torch\.per_channel_affine_float_qparams|torch\._utils\._rebuild_qtensor": "quantised tensors",
    r"torch\._utils\._rebuild_sparse(_csr)?_tensor": "sparse tensors",
    r"torch\._utils\._rebuild_meta_tensor_no_storage": "tensors without numbers (meta)",
    r"torch\._utils\._rebuild_nested_tensor": "nested tensors",
    r"torch\._utils\._rebuild_wrapper_subclass": "tensors of a class of their own",
    r"torch\.storage\.(Unt|T)ypedStorage": "bytes without a type",
    r"(builtins|__builtin__)\.bytearray": "a bytearray",
}


def unpickled(path: Path) -> Any:
    """What is in a .pth, .pt or .bin file; CheckpointError, nothing run, if it asks for more than weights."""
    _require_harmless(path)
    try:
        with _UNPICKLING, torch.serialization.safe_globals([argparse.Namespace]):
            # Never mapped into memory: one that is overwritten meanwhile would end the whole process.
            return torch.load(path, map_location="cpu", weights_only=True, mmap=False)
    except pickle.UnpicklingError as error:
        if not re.search(r"Unsupported (global|class|operand)|GLOBAL", str(error)):
            raise
        raise _code(path, []) from error


def _require_harmless(path: Path) -> None:
    with path.open("rb") as file:
        zipped = file.read(4) == b"PK\x03\x04"
        file.seek(0)
        if not zipped:
            wanted = _imports_of_streams(file, path)
        else:
            with zipfile.ZipFile(file) as archive:
                limits.require_inflatable(path, archive)
                pickles = [entry for entry in archive.infolist() if entry.filename.endswith(".pkl")]
                if any(entry.file_size > limits.HEADER for entry in pickles):
                    raise _too_long(path)
                wanted = {one for entry in pickles for one in _imports(archive.open(entry), path)}
    foreign = sorted(one for one in wanted if not _NEEDED.fullmatch(one))
    code = [one for one in foreign if not any(re.fullmatch(names, one) for names in _OTHER_KINDS)]
    if code:
        raise _code(path, code)
    if foreign:
        found = {kind for names, kind in _OTHER_KINDS.items() for one in foreign if re.fullmatch(names, one)}
        kinds = " and ".join(sorted(found))
        raise CheckpointError(
            f"{path.name} was not opened: it asks for {kinds} where dense tensors of numbers were expected. "
            "Save tensor.to_dense() or tensor.dequantize(), best as .safetensors."
        )


def _imports_of_streams(file: IO[bytes], path: Path) -> set[str]:
    """The pickles with which a file of torch's older form begins; what is none, torch is left to tell."""
    wanted: set[str] = set()
    for stream in range(_STREAMS):
        try:
            wanted |= set(_imports(file, path))
        except ValueError as error:
            if stream == 0 or isinstance(error, CheckpointError):  # too long, in whichever it is
                raise
            break
    return wanted


def _imports(file: IO[bytes], path: Path) -> Iterator[str]:
    """What a pickle imports, read from its instructions and never run; ValueError where it is damaged."""
    counted = iter(pickletools.genops(file))
    for code, argument, _ in islice(counted, _INSTRUCTIONS):
        if code.name in ("GLOBAL", "INST"):
            yield str(argument).replace(" ", ".", 1)
        elif code.name in ("STACK_GLOBAL", "EXT1", "EXT2", "EXT4"):
            yield "of its own"
    if next(counted, None) is not None:
        raise _too_long(path)


def _too_long(path: Path) -> CheckpointError:
    return CheckpointError(
        f"{path.name} was not opened: its pickle has more than {limits.HEADER:,} bytes or {_INSTRUCTIONS:,}"
        " instructions, which weights never have. Save the weights alone, best as .safetensors:"
        " save_file(model.state_dict(), path)."
    )


def _code(path: Path, wanted: list[str]) -> CheckpointError:
    return CheckpointError(
        f"{path.name} was not opened: it is a pickle that asks to run code"
        f" ({', '.join(wanted[:3]) or 'of its own'}), and nothing of it has been run. Where you trust its"
        " author, save its weights alone, best as .safetensors: save_file(model.state_dict(), path)."
    )
