"""Where a tensor of somebody's own code belongs in a plain ViT: what its shape leaves, and what its name
says.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from math import isqrt

Shape = tuple[int, ...]
ATTENTION = ("attn.q", "attn.k", "attn.v", "attn.proj")
# The words by which tensors of one shape are told apart: whole parts of a name.
_WORDS = {
    "attn.q": r"w?q|query|queries|to_q|q_?proj|q_?lin(ear)?|query_?(projection|proj|layer|linear)|w_q",
    "attn.k": r"w?k|keys?|to_k|k_?proj|k_?lin(ear)?|key_?(projection|proj|layer|linear)|w_k",
    "attn.v": r"w?v|values?|to_v|v_?proj|v_?lin(ear)?|value_?(projection|proj|layer|linear)|w_v",
    "attn.proj": (
        r"wo|o|w_o|o_?proj|out|to_out|out_?proj|proj|projection|out_?lin(ear)?|output|output_?projection"
        r"|fc_?out|dense"
    ),
    "norm1": (
        r"(layer_?)?(norm|ln)_?(1|a|attn|attention|before)|(self_?)?(attn|attention|pre)_?(layer_?)?(norm|ln)"
    ),
    "norm2": (r"(layer_?)?(norm|ln)_?(2|b|mlp|ffn?|after|final)|(mlp|ffn?|post|final)_?(layer_?)?(norm|ln)"),
    "patch_embed.proj": r".*(patch|embed|conv|stem).*|input_?(layer|proj)",
    "head": r".*(head|classif|logits).*|fc|out|output",
    "cls_token": r".*(cls|class).*",
    "pos_embed": r".*pos.*",
    "reg_token": r".*reg.*",
    "norm": r".*(norm|ln).*|mlp_head\.0|.*head\.0",
}


def in_layer(shape: Shape, bias: Shape, width: int, heads: int | None) -> set[str]:
    """The places in a layer that a shape leaves."""
    if len(shape) == 1 and shape[0] == width:
        return {"norm1", "norm2"} if bias else {"norm1", "norm2", "ls1.gamma", "ls2.gamma"}
    if len(shape) != 2 or width not in shape:
        return set()
    if heads and shape == (width // heads, width):
        return set(ATTENTION[:3])
    if shape == (width, width):
        return set(ATTENTION)
    turned = bool(bias) and bias[0] != shape[0] and bias[0] == shape[1]
    out, into = shape[::-1] if turned else shape
    if into == width:
        return {"attn.qkv", "mlp.fc1"} if out == 3 * width else {"mlp.fc1"}
    return {"mlp.fc2"}


def around_layers(shape: Shape, bias: Shape, width: int) -> set[str]:
    """The places outside of all layers that a shape leaves."""
    if len(shape) == 4:
        return {"patch_embed.proj"} if shape[:2] == (width, 3) else set()
    if len(shape) == 1 and bias:
        return {"norm"} if shape[0] == width else set()
    found = set()
    if len(shape) == 2 and bias:
        side = isqrt(shape[1] // 3)
        found |= {"patch_embed.proj"} if shape[0] == width and 3 * side * side == shape[1] else set()
        found |= {"head"} if shape[1] == width else set()
        return found
    if shape[-1:] != (width,) or any(length != 1 for length in shape[:-2]):
        return found
    count = shape[-2] if len(shape) > 1 else 1
    if count == 1:
        return {"cls_token"}
    squares = any(isqrt(one) ** 2 == one for one in (count, count - 1))
    return {"pos_embed"} if squares and count > 2 else {"reg_token"}


def matched(fits: Mapping[str, set[str]]) -> dict[str, str]:
    """A place for each stem for which shape leaves one, or its name does; never two for one place."""
    open_ = {stem: set(places) for stem, places in fits.items()}
    chosen: dict[str, str] = {}
    while True:
        only = {stem: next(iter(places)) for stem, places in open_.items() if len(places) == 1}
        sure = _apart(only)
        if not sure:
            named = {
                stem: [place for place in places if place in _WORDS and _named(stem, place)]
                for stem, places in open_.items()
            }  # fmt: skip
            sure = _apart({stem: places[0] for stem, places in named.items() if len(places) == 1})
        if not sure:
            return chosen
        chosen |= sure
        taken = set(sure.values())
        open_ = {stem: places - taken for stem, places in open_.items() if stem not in chosen}


def _apart(places: Mapping[str, str]) -> dict[str, str]:
    """Those whose place no other has."""
    counts = Counter(places.values())
    return {stem: place for stem, place in places.items() if counts[place] == 1}


def _named(stem: str, place: str) -> bool:
    """Whether the last telling part of a name is one of the words of a place."""
    parts = [part for part in re.split(r"[./]", stem) if not re.fullmatch(r"\d+|\{head\}|\{layer\}", part)]
    return any(re.fullmatch(_WORDS[place], part, re.I) for part in parts[-1:])


def near(stem: str, placed: list[str], others: list[str]) -> bool:
    """Whether a stem shares more of its beginning with these than with any of the others."""

    def shared(one: str) -> int:
        return next((i for i, (a, b) in enumerate(zip(stem, one, strict=False)) if a != b), len(stem))

    return bool(placed) and max(map(shared, placed)) > max(map(shared, others), default=0)
