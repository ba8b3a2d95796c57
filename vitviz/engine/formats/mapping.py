"""Mapping files: translate the tensor names of custom code to timm's layout.

A mapping is a TOML file beside the weights under the same name (`vit.pth`, `vit.toml`). Only `names` is
required:

    leave_out = ["decoder.*"]                       # tensors that the prediction does not need
    transpose = ["layers.{layer}.mlp.up.weight"]    # saved as (in, out); PyTorch has (out, in)

    [names]                                         # name in the file = name in timm
    "embedding.cls_token" = "cls_token"
    "layers.{layer}.ln_1.*" = "blocks.{layer}.norm1.*"

    [stack]                                         # name in timm = names in the file, stacked by rows
    "blocks.{layer}.attn.qkv.*" = ["layers.{layer}.q.*", "layers.{layer}.k.*", "layers.{layer}.v.*"]

    [model]                                         # settings that tensors do not determine
    heads = 3
    epsilon = 1e-5
    pool = "class"                                  # or "average", "average of all", "max", …
    block = "pre-norm"                              # or "post-norm", "res-post-norm"

`{layer}` and `{head}` stand for a number, `*` for the rest of a name. In a stack, tensors named by `{head}`
are stacked in the order of the heads. A missing bias becomes a bias of zeros, and a linear map of flattened
patches (`patch_order` gives the order) becomes timm's convolution. Both conversions are exact.
"""

import itertools
import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from math import isqrt
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from einops import rearrange
from torch import Tensor

from vitviz.engine.formats.folder import file_stem, refusing
from vitviz.engine.formats.overrides import Overrides
from vitviz.errors import CheckpointError, quoted

PATCH_ORDERS = ("row col channel", "channel row col")
_STANDS_FOR = {"{layer}": ("layer", r"\d+"), "{head}": ("head", r"\d+"), "*": ("rest", ".+")}
_STANDS = re.compile(r"\{layer\}|\{head\}|\*")
_BIASED = re.compile(r"(.*\.)?(norm\w*|fc1|fc2|proj|head)\.weight$")


@dataclass(frozen=True)
class NameMap:
    """Contents of a mapping file, with its patterns; `model` holds settings that tensors do not determine."""

    names: Mapping[str, str] = field(default_factory=dict)
    stack: Mapping[str, Sequence[str]] = field(default_factory=dict)
    transpose: Sequence[str] = ()
    leave_out: Sequence[str] = ()
    model: Mapping[str, Any] = field(default_factory=dict)

    @property
    def given(self) -> Overrides:
        """The settings of `model` as `Overrides`, without `patch_order`."""
        return Overrides(**{key: value for key, value in self.model.items() if key != "patch_order"})

    def translated(self, tensors: Mapping[str, Tensor], name: str) -> dict[str, Tensor]:
        """Translate tensors to timm's layout; `name` is the checkpoint's name for error messages.

        Raises CheckpointError for a tensor that the mapping omits or names twice, for two tensors with one
        target, for missing or mismatched parts of a stack, and for a tensor that cannot be reshaped.
        """
        single: dict[str, tuple[str, Tensor]] = {}
        stacks: dict[str, dict[tuple[int, int], tuple[str, Tensor]]] = {}
        for theirs, tensor in tensors.items():
            targets = self._targets(theirs)
            if not targets and any(_match(pattern, theirs) for pattern in self.leave_out):
                continue
            if len(targets) != 1:
                how = "names it twice" if targets else "does not name it"
                raise CheckpointError(
                    f"{name} holds {theirs} {tuple(tensor.shape)}, and its mapping {how}. Give each tensor"
                    " one line under [names] or [stack], or list it under leave_out."
                )
            ours, place = targets[0]
            tensor = self._turned(theirs, tensor, name)
            held = single if place is None else stacks.setdefault(ours, {})
            key = ours if place is None else place
            if key in held:
                raise CheckpointError(
                    f"{name}: its mapping makes {ours} of both {held[key][0]} and {theirs}. Correct one line."
                )
            held[key] = theirs, tensor
        joined = {ours: _stack_parts(ours, parts, self._parts(ours), name) for ours, parts in stacks.items()}
        if both := sorted(joined.keys() & single.keys()):
            raise CheckpointError(f"{name}: its mapping makes {both[0]} twice. Correct [names] or [stack].")
        return self._shaped({ours: tensor for ours, (_, tensor) in single.items()} | joined, name)

    def _targets(self, theirs: str) -> list[tuple[str, tuple[int, int] | None]]:
        """Return timm's names for a tensor of the file, each with (part, head) in a stack or None."""
        targets: list[tuple[str, tuple[int, int] | None]] = []
        for pattern, ours in self.names.items():
            if match := _match(pattern, theirs):
                targets.append((_fill_pattern(ours, match), None))
        for ours, parts in self.stack.items():
            for place, pattern in enumerate(parts):
                if match := _match(pattern, theirs):
                    head = int(match.groupdict().get("head") or 0)
                    targets.append((_fill_pattern(ours, match), (place, head)))
        return targets

    def _parts(self, ours: str) -> int:
        """Return the number of parts that are stacked into a tensor of timm's."""
        return next(len(parts) for pattern, parts in self.stack.items() if _match(pattern, ours))

    def _turned(self, theirs: str, tensor: Tensor, name: str) -> Tensor:
        """Return a tensor of the file, transposed if the mapping lists it; vectors stay unchanged.

        Raise CheckpointError for a listed tensor that is neither vector nor matrix.
        """
        # a pattern may name a bias along with its weight
        if tensor.ndim == 1 or not any(_match(pattern, theirs) for pattern in self.transpose):
            return tensor
        if tensor.ndim != 2:
            raise CheckpointError(
                f"{name}: its mapping transposes {theirs} {tuple(tensor.shape)}, but only a matrix can be"
                " transposed."
            )
        return tensor.T.contiguous()

    def _shaped(self, tensors: dict[str, Tensor], name: str) -> dict[str, Tensor]:
        """Reshape token, position and patch embeddings as in timm; add zeros for missing biases.

        Change the dictionary in place and return it; `name` is for error messages.
        """
        for key in ("cls_token", "dist_token", "reg_token", "pos_embed"):
            if key in tensors:
                tensors[key] = tensors[key].reshape(1, -1, tensors[key].shape[-1])
        patches = tensors.get("patch_embed.proj.weight")
        if patches is not None and patches.ndim == 2:
            tensors["patch_embed.proj.weight"] = self._convolution(patches, name)
        for key in [key for key in tensors if _BIASED.match(key)]:
            bias = key.removesuffix("weight") + "bias"
            optional = ".attn.proj." in key or key.startswith("patch_embed.") and "norm_pre.weight" in tensors
            if bias not in tensors and not optional:
                tensors[bias] = torch.zeros(tensors[key].shape[0], dtype=tensors[key].dtype)
        return tensors

    def _convolution(self, weight: Tensor, name: str) -> Tensor:
        """Convert a linear map of flattened square patches (3 channels) to timm's convolution weight."""
        side = isqrt(weight.shape[1] // 3)
        order = self.model.get("patch_order")
        if 3 * side * side != weight.shape[1] or order not in PATCH_ORDERS:
            expected = " or ".join(f'"{order}"' for order in PATCH_ORDERS)
            raise CheckpointError(
                f"{name}: its patch embedding is a linear map of {weight.shape[1]} numbers per patch;"
                " expected are 3 channels of a square, and in its mapping under [model] patch_order ="
                f" {expected}, the order in which its code flattens a patch."
            )
        return rearrange(weight, f"width ({order}) -> width channel row col", row=side, col=side, channel=3)


def _stack_parts(
    ours: str, parts: Mapping[tuple[int, int], tuple[str, Tensor]], kinds: int, name: str
) -> Tensor:
    """Concatenate one stack's tensors by rows, ordered by (part, head), to timm's tensor `ours`.

    Raise CheckpointError if one of the `kinds` parts lacks a head's tensor or shapes do not fit.
    """
    heads = 1 + max(head for _, head in parts)
    missing = next(((p, h) for p in range(kinds) for h in range(heads) if (p, h) not in parts), None)
    if missing is not None:
        raise CheckpointError(
            f"{name}: its mapping stacks {ours} of {kinds} kinds of tensors, but the file has none for part"
            f" {missing[0] + 1}{f', head {missing[1]}' if heads > 1 else ''}. Correct [stack]."
        )
    shapes = ", ".join(f"{theirs} {tuple(tensor.shape)}" for theirs, tensor in parts.values())
    with refusing(
        f"{name}: the tensors that its mapping stacks to {ours} do not fit: {shapes[:200]}.", RuntimeError
    ):
        return torch.cat([parts[place][1] for place in sorted(parts)])


def _match(pattern: str, name: str) -> re.Match | None:
    """Match a tensor's whole name with a pattern of {layer}, {head} and *; None if it does not fit."""
    return _compile_pattern(pattern).fullmatch(name)


@lru_cache(maxsize=4096)
def _compile_pattern(pattern: str) -> re.Pattern:
    """Compile a pattern of a mapping; a repeated placeholder must match the same text."""
    expression = re.escape(pattern)
    for placeholder, (group, kind) in _STANDS_FOR.items():
        expression = expression.replace(re.escape(placeholder), f"(?P<{group}>{kind})", 1)
        expression = expression.replace(re.escape(placeholder), f"(?P={group})")
    return re.compile(expression)


def _fill_pattern(ours: str, match: re.Match) -> str:
    """Return timm's name: the pattern `ours` with its placeholders filled from a match."""
    named = match.groupdict()
    return _STANDS.sub(lambda found: named.get(_STANDS_FOR[found[0]][0], found[0]), ours)


if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

LARGEST = 1_000_000  # bytes of a mapping file
MOST = 6  # placeholders in a name
_OTHER = re.compile(r"\{(?!(layer|head)\})|(?<!\{layer)(?<!\{head)\}")
_TABLES = {"names": dict, "stack": dict, "transpose": list, "leave_out": list, "model": dict}
_MODEL = ("heads", "epsilon", "activation", "pool", "block", "head_type", "patch_order")


def mapping_file(weights: Path) -> Path:
    """Return the path of a weights file's mapping: same folder and name, suffix .toml."""
    return weights.with_name(f"{file_stem(weights)}.toml")


def mapping_beside(weights: Path) -> NameMap | None:
    """Read the mapping beside a weights file; None if absent. Raises CheckpointError if invalid."""
    path = mapping_file(weights)
    return mapping_at(path) if path.is_file() else None


def mapping_at(path: str | PathLike) -> NameMap:
    """Read a mapping file. Raises CheckpointError if it is unreadable or invalid."""
    path = Path(path)
    reading = refusing(f"{path.name} cannot be read: {{said}}.", OSError)
    with reading, refusing(f"{path.name} is not UTF-8 text. Save it again as UTF-8.", UnicodeDecodeError):
        if path.stat().st_size > LARGEST:
            raise CheckpointError(f"{path.name} has more than {LARGEST:,} bytes; a mapping has a few lines.")
        return parse_mapping(path.read_text(encoding="utf-8"), path.name)


def parse_mapping(text: str, name: str) -> NameMap:
    """Parse a mapping from TOML text. Raises CheckpointError, with the line of a syntax error."""
    wrong = f"{name} is not valid TOML: {{said}}. Correct that line."
    with refusing(wrong, tomllib.TOMLDecodeError, RecursionError):
        content = tomllib.loads(text)
    strange = [key for key, value in content.items() if not isinstance(value, _TABLES.get(key, ()))]
    texts = [
        *content.get("names", {}).values(), *content.get("transpose", ()), *content.get("leave_out", ()),
        *itertools.chain(*(s if isinstance(s, list) else [0] for s in content.get("stack", {}).values())),
    ] if not strange else []  # fmt: skip
    strange += [key for key in content.get("model", {}) if key not in _MODEL] if not strange else []
    if strange or not all(isinstance(text, str) for text in texts):
        what = f"has {quoted(strange[0])}" if strange else "has values that are not names in quotes"
        raise CheckpointError(
            f"{name} {what}; expected are [names], [stack], [model] with {', '.join(_MODEL)}, and lists"
            " called transpose and leave_out, with every name in quotes."
        )
    patterns = [*content.get("names", {}), *content.get("stack", {}), *texts]
    if strange := [name for name in patterns if len(_STANDS.findall(name)) > MOST or _OTHER.search(name)]:
        raise CheckpointError(
            f"{name} has {quoted(strange[0])}; a name may have at most {MOST} of {{layer}}, {{head}} and *,"
            " and no other braces."
        )
    mapping = NameMap(**content)
    # validates [model] before any tensor is read
    mapping.given  # noqa: B018, access raises for invalid settings
    return mapping


def to_toml(mapping: NameMap) -> str:
    """Return a mapping as TOML text.

    >>> print(to_toml(NameMap({"cls": "cls_token"}, model={"heads": 3})), end="")
    [names]
    "cls" = "cls_token"
    <BLANKLINE>
    [model]
    heads = 3
    """
    # strings, numbers and lists have the same syntax in TOML
    literal = partial(json.dumps, ensure_ascii=False)
    lists = {"leave_out": mapping.leave_out, "transpose": mapping.transpose}
    blocks = [[f"{key} = {literal(list(values))}" for key, values in lists.items() if values]]
    for title, table in (("names", mapping.names), ("stack", mapping.stack), ("model", mapping.model)):
        if table or title == "names":
            keys = str if title == "model" else literal
            blocks.append([f"[{title}]", *(f"{keys(key)} = {literal(one)}" for key, one in table.items())])
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"
