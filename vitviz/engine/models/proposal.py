"""A mapping proposed for weights of somebody's own code, as far as shapes and names leave one possibility.

A plain ViT has few kinds of tensors, and most have a shape of their own: the patch embedding, the table of
positions, a layer's two MLP matrices, queries, keys and values in one. Where several have the same shape
(queries, keys, values and what follows them; the two norms), the usual names tell, or the place beside
attention or MLP. What then is still open is not guessed but asked. A proposal is no proof: that is a
forward pass, and for a module in memory its own answers.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from vitviz.engine.models import places
from vitviz.engine.models.mapping import NameMap
from vitviz.engine.models.places import Shape

_NUMBER = re.compile(r"(?<![A-Za-z0-9])\d+(?=[._])")
_KIND = re.compile(r"^(?P<stem>.*?)(?P<kind>(?:^|[._])(?:weight|bias|gamma|beta|w|b))$")
_ENDS = {"weight": "weight", "gamma": "weight", "w": "weight", "bias": "bias", "beta": "bias", "b": "bias"}

_NEEDED = ("norm1", "norm2", "attn.proj", "mlp.fc1", "mlp.fc2")


@dataclass(frozen=True)
class Proposal:
    """A mapping, and their tensors (with shapes) for which no one place was left, which have to be asked
    for.
    """

    mapping: NameMap
    open: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # timm's tensors that nothing was found for

    @property
    def complete(self) -> bool:
        return not self.open and not self.missing


@dataclass
class _Found:
    names: dict[str, str] = field(default_factory=dict)
    stack: dict[str, list[str]] = field(default_factory=dict)
    transpose: list[str] = field(default_factory=list)
    roles: set[str] = field(default_factory=set)


def proposed(tensors: Mapping[str, Tensor]) -> Proposal:
    """The mapping that shapes and usual names leave for a file's tensors, and what they leave open."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    counts = Counter(shape[1] for shape in shapes.values() if len(shape) == 2)  # what layers read
    layers = _layers(shapes)
    if not counts or layers is None:
        return Proposal(NameMap(), tuple(map(_told, shapes.items())), ("blocks",))
    width = counts.most_common(1)[0][0]
    before, depth, after = layers
    inside = {f"{before}{{layer}}{rest}": shape for rest, shape in after.items()}
    lying = {
        name: shape for name, shape in shapes.items() if not re.match(rf"{re.escape(before)}\d+[._]", name)
    }
    found = _Found()
    inside, heads = _with_heads(inside, width)
    left = _place_layer(_stems(inside), width, found, heads)
    left += _place_rest(_stems(lying), width, found)
    embedding = next((name for name, ours in found.names.items() if ours.startswith("patch_embed.proj")), "")
    flat = any(
        len(shape) == 2
        for name, shape in lying.items()
        if name.startswith(embedding.rstrip("*")) and embedding
    )
    missing = [f"blocks.{{layer}}.{role}" for role in _NEEDED if role not in found.roles]
    missing += (
        []
        if {"attn.qkv"} <= found.roles or set(places.ATTENTION) <= found.roles
        else ["blocks.{layer}.attn.qkv"]
    )
    missing += [role for role in ("patch_embed.proj", "pos_embed") if role not in found.roles]
    missing += ["patch_order under [model], the order in which a patch is flattened"] if flat else []
    told = {"heads": heads} if heads else {}
    mapping = NameMap(found.names, found.stack, tuple(found.transpose), (), told)
    return Proposal(mapping, tuple(left), tuple(missing))


def _layers(shapes: Mapping[str, Shape]) -> tuple[str, int, dict[str, Shape]] | None:
    """What stands before the number of a layer, how many there are, and what follows with its shape."""
    found: dict[str, dict[int, dict[str, Shape]]] = defaultdict(lambda: defaultdict(dict))
    for name, shape in shapes.items():
        for match in _NUMBER.finditer(name):
            found[name[: match.start()]][int(match[0])][name[match.end() :]] = shape
    alike = {
        before: layers for before, layers in found.items()
        if sorted(layers) == list(range(len(layers))) and len(layers[0]) > 5
        and all(rest == layers[0] for rest in layers.values())
    }  # fmt: skip
    if not alike:
        return None
    before = max(alike, key=lambda one: (len(alike[one]) * len(alike[one][0]), -len(one)))
    return before, len(alike[before]), alike[before][0]


def _with_heads(inside: Mapping[str, Shape], width: int) -> tuple[dict[str, Shape], int | None]:
    """Matrices of one head each, as one name with {head} for its number; and how many heads there are."""
    groups: dict[str, dict[int, Shape]] = defaultdict(dict)
    for name, shape in inside.items():
        for match in _NUMBER.finditer(name):
            groups[f"{name[: match.start()]}{{head}}{name[match.end() :]}"][int(match[0])] = shape
    heads = {
        len(group) for pattern, group in groups.items()
        if len(group) > 1 and len(set(group.values())) == 1 and (shape := group[0] if 0 in group else ())
        and len(shape) == 2 and shape[0] * len(group) == width == shape[1]
    }  # fmt: skip
    if len(heads) != 1:
        return dict(inside), None
    count = heads.pop()
    kept = dict(inside)
    for pattern, group in groups.items():
        if len(group) == count and len(set(group.values())) == 1 and group.get(0, (0,))[0] * count == width:
            for number in group:
                kept.pop(pattern.replace("{head}", str(number)))
            kept[pattern] = group[0]
    return kept, count


def _stems(shapes: Mapping[str, Shape]) -> dict[str, dict[str, tuple[str, Shape]]]:
    """Weights and biases of one module together: stem -> weight or bias -> (name, shape)."""
    found: dict[str, dict[str, tuple[str, Shape]]] = defaultdict(dict)
    for name, shape in shapes.items():
        match = _KIND.match(name)
        stem, kind = (match["stem"], _ENDS[match["kind"].lstrip("._")]) if match else (name, "weight")
        found[stem][kind] = name, shape
    return dict(found)


def _place_layer(stems: dict, width: int, found: _Found, heads: int | None) -> list[str]:
    """Gives a layer's modules their places; what is left is returned."""
    fits: dict[str, set[str]] = {}
    for stem, parts in stems.items():
        shape, bias = parts.get("weight", ("", ()))[1], parts.get("bias", ("", ()))[1]
        fits[stem] = places.in_layer(shape, bias, width, heads)
    chosen = places.matched(fits)
    for side, role in (
        ("attn", "norm1"),
        ("mlp", "norm2"),
    ):  # the norm that lies beside attention, or beside the MLP
        placed = [stem for stem, one in chosen.items() if one.startswith(f"{side}.")]
        free = [stem for stem in stems if stem not in chosen and fits[stem] == {"norm1", "norm2"}]
        near = [
            stem for stem in free if places.near(stem, placed, [one for one in chosen if one not in placed])
        ]
        if role not in chosen.values() and len(near) == 1:
            chosen[near[0]] = role
    apart = [role for role in places.ATTENTION[:3] if role in chosen.values()]
    for stem, role in chosen.items():
        if role not in apart:
            _take(stems[stem], f"blocks.{{layer}}.{role}", width, found, role)
    if len(apart) == 3:
        of = {role: stems[stem] for stem, role in chosen.items() if role in apart}
        for kind in ("weight", "bias"):
            if all(kind in of[role] for role in apart):
                found.stack[f"blocks.{{layer}}.attn.qkv.{kind}"] = [of[role][kind][0] for role in apart]
        found.roles.update(apart)
    return [_told(part) for stem, parts in stems.items() if stem not in chosen for part in parts.values()]


def _place_rest(stems: dict, width: int, found: _Found) -> list[str]:
    """The same outside of the layers."""
    fits = {
        stem: places.around_layers(*(parts.get(kind, ("", ()))[1] for kind in ("weight", "bias")), width)
        for stem, parts in stems.items()
    }
    chosen = places.matched(fits)
    for stem, place in chosen.items():
        _take(stems[stem], place, width, found, place)
    return [_told(part) for stem, parts in stems.items() if stem not in chosen for part in parts.values()]


def _take(parts: dict, ours: str, width: int, found: _Found, role: str) -> None:
    """Writes down that a module of theirs is one of timm's."""
    found.roles.add(role)
    names = {kind: name for kind, (name, _) in parts.items()}
    if role in ("cls_token", "pos_embed", "reg_token", "ls1.gamma", "ls2.gamma"):
        found.names |= {name: ours for name in names.values()}
    elif len(stems := {name.removesuffix(kind) for kind, name in names.items()}) == 1:
        found.names[stems.pop() + "*"] = f"{ours}.*"
    else:
        found.names |= {name: f"{ours}.{kind}" for kind, name in names.items()}
    weight, bias = (parts.get(kind, ("", ()))[1] for kind in ("weight", "bias"))
    if len(weight) == 2 and bias and bias[0] != weight[0] and bias[0] == weight[1]:
        found.transpose.append(parts["weight"][0])


def _told(part: tuple[str, Shape]) -> str:
    name, shape = part
    return f"{name} ({', '.join(map(str, shape))})"
