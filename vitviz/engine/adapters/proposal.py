"""Propose a mapping for weights of custom code, if shapes and names leave only one possibility.

A plain ViT has few kinds of tensors, and most have a unique shape: the patch embedding, the position table, a
layer's two MLP matrices, the joint matrix of queries, keys and values. Tensors of equal shape (queries, keys,
values and the output projection; the two norms) are told apart by usual names, or by names shared with
attention or MLP. Tensors that remain ambiguous are not guessed; the user is asked.

A proposal is accepted only if it is unique and the loaded model's output is finite. This does not prove that
the model computes as the original code does (the norms may be placed differently), so the mapping stays
marked as assumed until it is saved beside the file.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isqrt
from typing import Any

import torch
from torch import Tensor, nn

from vitviz.engine.checkpoint import Assumption, Checkpoint
from vitviz.engine.formats import contrastive, google
from vitviz.engine.formats.foreign import describe_foreign
from vitviz.engine.formats.mapping import NameMap, mapping_beside, mapping_file, to_toml
from vitviz.engine.formats.overrides import Overrides
from vitviz.engine.hub.files import CheckpointFiles
from vitviz.errors import CheckpointError

Shape = tuple[int, ...]
ATTENTION = ("attn.q", "attn.k", "attn.v", "attn.proj")
# Words that tell tensors of equal shape apart; each matches a whole part of a name.
_WORDS = {
    "attn.q": r"w?q|query|queries|to_q|q_?proj|q_?lin(ear)?|query_?(projection|proj|layer|linear)|w_q",
    "attn.k": r"w?k|keys?|to_k|k_?proj|k_?lin(ear)?|key_?(projection|proj|layer|linear)|w_k",
    "attn.v": r"w?v|values?|to_v|v_?proj|v_?lin(ear)?|value_?(projection|proj|layer|linear)|w_v",
    "attn.proj": (
        r"wo|o|w_o|o_?proj|out|to_out|out_?proj|proj|projection|out_?lin(ear)?|output|output_?projection"
        r"|fc_?out|dense"
    ),
    "norm1": r"(layer_?)?(norm|ln)_?(1|a|attn|attention|before)"
    r"|(self_?)?(attn|attention|pre)_?(layer_?)?(norm|ln)",
    "norm2": r"(layer_?)?(norm|ln)_?(2|b|mlp|ffn?|after|final)|(mlp|ffn?|post|final)_?(layer_?)?(norm|ln)",
    "patch_embed.proj": r".*(patch|embed|conv|stem).*|input_?(layer|proj)",
    "head": r".*(head|classif|logits).*|fc|out|output",
    "cls_token": r".*(cls|class).*",
    "pos_embed": r".*pos.*",
    "reg_token": r".*reg.*",
    "norm": r".*(norm|ln).*|mlp_head\.0|.*head\.0",
}


def layer_roles(shape: Shape, bias: Shape, width: int, heads: int | None) -> set[str]:
    """Return the roles in a layer, such as "attn.qkv", that the shapes of a weight and its bias fit."""
    if len(shape) == 1 and shape[0] == width:
        return {"norm1", "norm2"} if bias else {"norm1", "norm2", "ls1.gamma", "ls2.gamma"}
    if len(shape) != 2 or width not in shape:
        return set()
    if heads and shape == (width // heads, width):
        return set(ATTENTION[:3])
    if shape == (width, width):
        return set(ATTENTION)
    out, into = shape[::-1] if _is_transposed(shape, bias) else shape
    if into == width:
        return {"attn.qkv", "mlp.fc1"} if out == 3 * width else {"mlp.fc1"}
    return {"mlp.fc2"}


def _is_transposed(shape: Shape, bias: Shape) -> bool:
    """Return True if a matrix is saved as (in, out), judging by its bias."""
    return len(shape) == 2 and bool(bias) and bias[0] != shape[0] and bias[0] == shape[1]


def outer_roles(shape: Shape, bias: Shape, width: int) -> set[str]:
    """Return the roles outside the layers, such as "head", that the shapes of a weight and its bias fit."""
    if len(shape) == 4:
        return {"patch_embed.proj"} if shape[:2] == (width, 3) else set()
    if len(shape) == 1 and bias:
        return {"norm"} if shape[0] == width else set()
    if len(shape) == 2 and bias:
        flat = shape[0] == width and 3 * isqrt(shape[1] // 3) ** 2 == shape[1]
        return {*["patch_embed.proj"] * flat, *["head"] * (shape[1] == width)}
    if shape[-1:] != (width,) or any(length != 1 for length in shape[:-2]):
        return set()
    count = shape[-2] if len(shape) > 1 else 1
    if count == 1:
        return {"cls_token"}
    squares = any(isqrt(one) ** 2 == one for one in (count, count - 1))
    return {"pos_embed"} if squares and count > 2 else {"reg_token"}


def assign_roles(fits: Mapping[str, set[str]]) -> dict[str, str]:
    """Return the role of each stem with an unambiguous role, by shape, then by name; no role occurs twice."""
    open_ = {stem: set(places) for stem, places in fits.items()}
    chosen: dict[str, str] = {}
    while True:
        named = {stem: {p for p in places if _name_fits(stem, p)} for stem, places in open_.items()}
        if not (sure := _unique_places(open_) or _unique_places(named)):
            return chosen
        chosen |= sure
        roles = set(sure.values())
        open_ = {stem: places - roles for stem, places in open_.items() if stem not in chosen}


def _unique_places(places: Mapping[str, set[str]]) -> dict[str, str]:
    """Return {stem: role} of stems with exactly one possible role that no other such stem has."""
    only = {stem: next(iter(some)) for stem, some in places.items() if len(some) == 1}
    counts = Counter(only.values())
    return {stem: place for stem, place in only.items() if counts[place] == 1}


def _name_fits(stem: str, place: str) -> bool:
    """Return True if the last part of a name that is no number matches the words of a role."""
    parts = [part for part in re.split(r"[./]", stem) if not re.fullmatch(r"\d+|\{head\}|\{layer\}", part)]
    return place in _WORDS and any(re.fullmatch(_WORDS[place], part, re.I) for part in parts[-1:])


def closer_to_placed(stem: str, placed: list[str], others: list[str]) -> bool:
    """Return True if a stem shares a longer prefix with a `placed` stem than with any of `others`."""

    def shared(one: str) -> int:
        return next((i for i, (a, b) in enumerate(zip(stem, one, strict=False)) if a != b), len(stem))

    return bool(placed) and max(map(shared, placed)) > max(map(shared, others), default=0)


_NUMBER = re.compile(r"(?<![A-Za-z0-9])\d+(?=[._])")
_KIND = re.compile(r"^(?P<stem>.*?)(?P<kind>(?:^|[._])(?:weight|bias|gamma|beta|w|b))$")
_ENDS = {"weight": "weight", "gamma": "weight", "w": "weight", "bias": "bias", "beta": "bias", "b": "bias"}

_NEEDED = ("norm1", "norm2", "attn.proj", "mlp.fc1", "mlp.fc2")


@dataclass(frozen=True)
class Proposal:
    """A proposed mapping, and the file's tensors (with shapes) whose role is ambiguous."""

    mapping: NameMap
    open: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()  # timm's tensors without a match

    @property
    def complete(self) -> bool:
        """True if no tensor of the file is ambiguous and none of timm's lacks a match."""
        return not self.open and not self.missing


def propose_mapping(tensors: Mapping[str, Tensor]) -> Proposal:
    """Propose a mapping for a file's tensors from their shapes and usual names."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    counts = Counter(shape[1] for shape in shapes.values() if len(shape) == 2)  # input widths of matrices
    layers = _layers(shapes)
    if not counts or layers is None:
        return Proposal(NameMap(), tuple(map(_telling_part, shapes.items())), ("blocks",))
    width = counts.most_common(1)[0][0]
    before, after = layers
    inside = {f"{before}{{layer}}{rest}": shape for rest, shape in after.items()}
    numbered = re.compile(rf"{re.escape(before)}\d+[._]")
    lying = {name: shape for name, shape in shapes.items() if not numbered.match(name)}
    inside, heads = _with_heads(inside, width)
    layer, rest = _stems(inside), _stems(lying)
    chosen = _in_layers(layer, width, heads)
    around = assign_roles({stem: outer_roles(*_shapes(parts), width) for stem, parts in rest.items()})
    stems, roles = {**layer, **rest}, {*chosen.values(), *around.values()}
    places = {stem: f"blocks.{{layer}}.{role}" for stem, role in chosen.items()} | around
    unplaced = (parts for stem, parts in stems.items() if stem not in places)
    left = [_telling_part(part) for parts in unplaced for part in parts.values()]
    apart = {role: stems[stem] for stem, role in chosen.items() if role in ATTENTION[:3]}
    placed = {place: stems[stem] for stem, place in places.items() if chosen.get(stem) not in apart}
    stack = {
        f"blocks.{{layer}}.attn.qkv.{kind}": [apart[role][kind][0] for role in ATTENTION[:3]]
        for kind in ("weight", "bias")
        if all(kind in apart.get(role, ()) for role in ATTENTION[:3])
    }
    transpose = tuple(parts["weight"][0] for parts in placed.values() if _is_transposed(*_shapes(parts)))
    mapping = NameMap(_names(placed), stack, transpose, model={"heads": heads} if heads else {})
    flat = len(_shapes(placed.get("patch_embed.proj", {}))[0]) == 2
    missing = [f"blocks.{{layer}}.{role}" for role in _NEEDED if role not in roles]
    missing += [] if "attn.qkv" in roles or set(ATTENTION) <= roles else ["blocks.{layer}.attn.qkv"]
    missing += [role for role in ("patch_embed.proj", "pos_embed") if role not in roles]
    missing += ["patch_order under [model], the order in which a patch is flattened"] if flat else []
    return Proposal(mapping, tuple(left), tuple(missing))


def _layers(shapes: Mapping[str, Shape]) -> tuple[str, dict[str, Shape]] | None:
    """Return the name prefix of numbered layers and a layer's shapes by name suffix; None if not found."""
    layers_by_prefix: dict[str, dict[int, dict[str, Shape]]] = defaultdict(lambda: defaultdict(dict))
    for name, shape in shapes.items():
        for match in _NUMBER.finditer(name):
            layers_by_prefix[name[: match.start()]][int(match[0])][name[match.end() :]] = shape
    alike = {
        before: layers for before, layers in layers_by_prefix.items()
        if sorted(layers) == list(range(len(layers))) and len(layers[0]) > 5
        and all(rest == layers[0] for rest in layers.values())
    }  # fmt: skip
    if not alike:
        return None
    before = max(alike, key=lambda one: (len(alike[one]) * len(alike[one][0]), -len(one)))
    return before, alike[before][0]


def _with_heads(inside: Mapping[str, Shape], width: int) -> tuple[dict[str, Shape], int | None]:
    """Return the shapes with names of per-head matrices merged into one with {head}, and the number of heads.

    The number is None if no matrices are per head.
    """
    groups: dict[str, dict[int, Shape]] = defaultdict(dict)
    for name, shape in inside.items():
        for match in _NUMBER.finditer(name):
            groups[f"{name[: match.start()]}{{head}}{name[match.end() :]}"][int(match[0])] = shape
    shared = {
        pattern: group for pattern, group in groups.items()
        if len(set(group.values())) == 1 and group.get(0) and group[0][0] * len(group) == width
    }  # fmt: skip
    heads = {len(group) for group in shared.values() if len(group) > 1 and group[0][1:] == (width,)}
    if len(heads) != 1:
        return dict(inside), None
    count, merged = heads.pop(), dict(inside)
    for pattern, group in shared.items():
        if len(group) == count:
            for number in group:
                merged.pop(pattern.replace("{head}", str(number)))
            merged[pattern] = group[0]
    return merged, count


def _stems(shapes: Mapping[str, Shape]) -> dict[str, dict[str, tuple[str, Shape]]]:
    """Group weights and biases by module: stem -> "weight" or "bias" -> (name, shape)."""
    stems: dict[str, dict[str, tuple[str, Shape]]] = defaultdict(dict)
    for name, shape in shapes.items():
        match = _KIND.match(name)
        stem, kind = (match["stem"], _ENDS[match["kind"].lstrip("._")]) if match else (name, "weight")
        stems[stem][kind] = name, shape
    return dict(stems)


def _shapes(parts: dict) -> list[Shape]:
    """Return the shapes of weight and bias; () if missing."""
    return [parts.get(kind, ("", ()))[1] for kind in ("weight", "bias")]


def _in_layers(stems: dict, width: int, heads: int | None) -> dict[str, str]:
    """Return the role of each module of a layer whose role is unambiguous."""
    fits = {stem: layer_roles(*_shapes(parts), width, heads) for stem, parts in stems.items()}
    chosen = assign_roles(fits)
    # a norm whose name is closest to attention's is norm1; to the MLP's, norm2
    for side, role in (("attn", "norm1"), ("mlp", "norm2")):
        placed = [stem for stem, one in chosen.items() if one.startswith(f"{side}.")]
        free = [stem for stem in stems if stem not in chosen and fits[stem] == {"norm1", "norm2"}]
        others = [stem for stem in chosen if stem not in placed]
        beside = [stem for stem in free if closer_to_placed(stem, placed, others)]
        if role not in chosen.values() and len(beside) == 1:
            chosen[beside[0]] = role
    return chosen


def _names(placed: Mapping[str, dict]) -> dict[str, str]:
    """Return the `names` table; one entry `stem*` for a module if its suffixes are "weight" and "bias"."""
    names_by_suffix: dict[str, str] = {}
    for ours, parts in placed.items():
        names = {kind: name for kind, (name, _) in parts.items()}
        if ours.endswith(("cls_token", "pos_embed", "reg_token", "ls1.gamma", "ls2.gamma")):
            names_by_suffix |= {name: ours for name in names.values()}
        elif len(stems := {name.removesuffix(kind) for kind, name in names.items()}) == 1:
            names_by_suffix[stems.pop() + "*"] = f"{ours}.*"
        else:
            names_by_suffix |= {name: f"{ours}.{kind}" for kind, name in names.items()}
    return names_by_suffix


def _telling_part(part: tuple[str, Shape]) -> str:
    """Return a tensor's (name, shape) as text, such as "head.weight (1000, 768)"."""
    name, shape = part
    return f"{name} ({', '.join(map(str, shape))})"


BOTH = (
    "{name} holds both towers as open_clip saves them, but not which timm architecture the image tower is."
    ' Add a config.json such as {{"architecture": "vit_base_patch16_clip_224.laion2b", "num_classes":'
    " 512}}, where num_classes is the size of an image embedding (0 if the tower has no final projection,"
    " as in SigLIP)."
)
# A name specific to timm; `patch_embed`, `cls_token` and `pos_embed` are common in other code.
_MARK = "blocks.0.attn.qkv.weight"


@dataclass(frozen=True)
class MappedModel:
    """Result of a mapping: its settings of the model, notes, and an assumption if it was only proposed."""

    given: Overrides = field(default_factory=Overrides)
    notes: tuple[str, ...] = ()
    assumed: tuple[Assumption, ...] = ()

    def prove(self, model: nn.Module, data: Mapping[str, Any], name: str) -> None:
        """Raise CheckpointError if a model filled by a proposal gives non-finite output."""
        if not self.assumed:
            return
        with torch.no_grad():
            answer = model.eval()(torch.zeros(1, *data["input_size"]))
        if not answer.isfinite().all():
            raise CheckpointError(
                f"{name} uses its own tensor names, and with the proposed mapping its output is not finite."
                " Write a mapping file beside it."
            )


def in_timms_names(
    checkpoint: Checkpoint, files: CheckpointFiles, tensors: dict[str, Tensor]
) -> tuple[dict[str, Tensor], MappedModel]:
    """Return the tensors in timm's layout if a mapping is given or can be proposed, else unchanged.

    Raises CheckpointError for a mapping that does not fit, and for an ambiguous one with the part that could
    be inferred.
    """
    mapping, name = mapping_beside(files.weights), checkpoint.name
    path = mapping_file(files.weights).name
    if mapping is not None:
        return mapping.translated(tensors, name), MappedModel(
            mapping.given, (f"Its tensor names are mapped by {path}.",)
        )
    if files.config or checkpoint.architecture or google.is_google(tensors) or _MARK in tensors:
        return tensors, MappedModel()
    if contrastive.has_both_towers(tensors):
        raise CheckpointError(BOTH.format(name=name))
    proposal = propose_mapping(tensors)
    if proposal.complete:
        note = "It uses its own tensor names; a mapping was proposed."
        own = MappedModel(
            proposal.mapping.given, (f"{note} Save it as {path} to keep it.",), (Assumption("mapping"),)
        )
        return proposal.mapping.translated(tensors, name), own
    if kind := describe_foreign(tensors):
        raise CheckpointError(f"{name} {kind}")
    if not any(".attn." in ours for ours in (*proposal.mapping.names.values(), *proposal.mapping.stack)):
        return tensors, MappedModel()  # not like a ViT; the next reader reports that
    raise CheckpointError(
        f"{name} holds a Vision Transformer with its own tensor names, and their shapes are ambiguous for"
        f" {', '.join((*proposal.open, *proposal.missing)[:4])}. Load the file into your own class and pass"
        " that model to vitviz.Inspector.of, or name the timm architecture (architecture='vit_…'). Or write"
        f" {path} beside it (docs/own-models.md). Inferred so far:\n{to_toml(proposal.mapping)}"
    )
