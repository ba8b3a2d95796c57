"""A mapping file: how the tensors of somebody's own code are called in timm's layout.

It lies beside the weights under their name (`vit.pth`, `vit.toml`), in TOML. Four tables, all but `names`
optional:

    leave_out = ["decoder.*"]                       # tensors that the model's answer does not need
    transpose = ["layers.{layer}.mlp.up.weight"]    # theirs, saved as (in, out) where PyTorch has (out, in)

    [names]                                         # theirs = timm's
    "embedding.cls_token" = "cls_token"
    "layers.{layer}.ln_1.*" = "blocks.{layer}.norm1.*"

    [stack]                                         # timm's = theirs, one above the other
    "blocks.{layer}.attn.qkv.*" = ["layers.{layer}.q.*", "layers.{layer}.k.*", "layers.{layer}.v.*"]

    [model]                                         # what tensors do not tell
    heads = 3
    epsilon = 1e-5

`{layer}` and `{head}` stand for a number, `*` for the rest of a name. In a stack, tensors of one `{head}`
each come in the order of the heads. What PyTorch leaves out where there is no bias is a bias of zeros, and
a patch embedding that is a linear map of flattened patches (`patch_order` says in which order) is timm's
convolution: both are exact.
"""

from __future__ import annotations

import sys
from os import PathLike
from pathlib import Path

from vitviz.engine.models.formats.folder import stem
from vitviz.engine.models.mapping import NameMap
from vitviz.errors import CheckpointError, said

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST = 1_000_000  # bytes of a mapping file
_TABLES = {"names": dict, "stack": dict, "transpose": list, "leave_out": list, "model": dict}
_MODEL = ("heads", "epsilon", "activation", "patch_order")


def mapping_file(weights: Path) -> Path:
    """Where the mapping of a weights file lies: beside it, with .toml for its ending."""
    return weights.with_name(f"{stem(weights)}.toml")


def mapping_beside(weights: Path) -> NameMap | None:
    """The mapping that lies beside a weights file; None where there is none, CheckpointError for a bad
    one.
    """
    path = mapping_file(weights)
    return mapping_at(path) if path.is_file() else None


def mapping_at(path: str | PathLike) -> NameMap:
    """The mapping in a file; CheckpointError for one that cannot be read or is none."""
    path = Path(path)
    try:
        if path.stat().st_size > LARGEST:
            raise CheckpointError(f"{path.name} has more than {LARGEST:,} bytes; a mapping is a few lines.")
        return parsed(path.read_text(encoding="utf-8"), path.name)
    except OSError as error:
        raise CheckpointError(f"{path.name} cannot be read: {said(error)}.") from error
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path.name} is no text in UTF-8. Save it again as such.") from error


def parsed(text: str, name: str) -> NameMap:
    """A mapping from TOML; CheckpointError, with the line where the TOML is at fault, for what is none."""
    try:
        content = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise CheckpointError(f"{name} is not valid TOML: {said(error)}. Mend that line.") from error
    strange = [key for key, value in content.items() if not isinstance(value, _TABLES.get(key, ()))]
    texts = [
        *content.get("names", {}).values(), *content.get("transpose", ()), *content.get("leave_out", ()),
        *(one for parts in content.get("stack", {}).values() for one in _list(parts)),
    ] if not strange else []  # fmt: skip
    strange += [key for key in content.get("model", {}) if key not in _MODEL] if not strange else []
    if strange or not all(isinstance(one, str) for one in texts):
        what = f"has {strange[0]!r}" if strange else "has something else than names in quotes"
        raise CheckpointError(
            f"{name} {what}; expected are [names], [stack], [model] with {', '.join(_MODEL)}, and lists"
            " called transpose and leave_out, in which every name stands in quotes."
        )
    mapping = NameMap(**content)
    # says what is wrong with [model] before any tensor is looked at
    mapping.given  # noqa: B018, looking is what raises
    return mapping


def _list(parts: object) -> list:
    """The names that a stack is made of; None among them for what is no list."""
    return parts if isinstance(parts, list) else [None]


def written(mapping: NameMap) -> str:
    """A mapping as the text of its file.

    >>> print(written(NameMap({"cls": "cls_token"}, model={"heads": 3})), end="")
    [names]
    "cls" = "cls_token"
    <BLANKLINE>
    [model]
    heads = 3
    """
    lists = [
        f"{key} = [{', '.join(map(_quoted, values))}]"
        for key, values in (("leave_out", mapping.leave_out), ("transpose", mapping.transpose))
        if values
    ]
    blocks = ["\n".join(lists)] if lists else []
    blocks.append("\n".join(["[names]", *(f"{_quoted(a)} = {_quoted(b)}" for a, b in mapping.names.items())]))
    if mapping.stack:
        stacked = (f"{_quoted(a)} = [{', '.join(map(_quoted, b))}]" for a, b in mapping.stack.items())
        blocks.append("\n".join(["[stack]", *stacked]))
    if mapping.model:
        told = (
            f"{key} = {_quoted(value) if isinstance(value, str) else value}"
            for key, value in mapping.model.items()
        )
        blocks.append("\n".join(["[model]", *told]))
    return "\n\n".join(blocks) + "\n"


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
