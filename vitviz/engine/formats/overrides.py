"""User settings for a checkpoint whose file does not state them.

The settings are heads, activation, epsilon, norm placement, pooling and image preprocessing. A checkpoint's
name can carry them like the query of a URL: `vit.pth?heads=6&mean=0.5,0.5,0.5`. Links, files and traces
thereby state their assumptions, and a shared site needs no storage. Text classes are carried in the same way:
see `vitviz.traces.text_classes`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from timm.layers.activations import GELU, GELUTanh, QuickGELU
from timm.models.vision_transformer import Block, ResPostBlock, VisionTransformer
from torch import Tensor, nn

from vitviz.engine.images.preprocess import CROP_MODES, INTERPOLATIONS
from vitviz.errors import CheckpointError, VitvizError, quoted, require_whole, whole_number
from vitviz.traces.head_type import HEAD_TYPES, HeadType
from vitviz.traces.text_classes import plain_name

ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "gelu": nn.GELU, "gelu_tanh": partial(nn.GELU, approximate="tanh"), "quick_gelu": QuickGELU,
    "relu": nn.ReLU, "silu": nn.SiLU,
}  # fmt: skip
LONGEST = 400  # characters of a query in a name


class PostBlock(Block):
    """Post-norm block (Vaswani et al. 2017, 3.1), as `nn.TransformerEncoderLayer` unless norm_first."""

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Return the tokens after attention and MLP; each is added and the sum then normalised."""
        x = self.norm1(x + self.drop_path1(self.attn(x, attn_mask=attn_mask, is_causal=is_causal)))
        return self.norm2(x + self.drop_path2(self.mlp(x)))


# Norm placement: x + f(norm(x)), x + norm(f(x)) or norm(x + f(x)). The same tensors fit all three.
BLOCKS = {"pre-norm": Block, "res-post-norm": ResPostBlock, "post-norm": PostBlock}
# Pooling names of `Trace.pool` -> timm's. "… of all" pools all tokens, otherwise only the patches.
_POOLS = {"class": "token", "average": "avg", "max": "max", "average and max": "avgmax", "attention": "map"}
POOLS = (*_POOLS, *(f"{pool} of all" for pool in _POOLS if pool != "class"))


@dataclass(frozen=True)
class Overrides:
    """Settings of a checkpoint; None means unspecified.

    Names and units are timm's: mean and std of values in [0, 1]. Raises VitvizError for invalid values.

    >>> Overrides(heads=6, mean=(0.5, 0.5, 0.5)).text()
    'heads=6&mean=0.5,0.5,0.5'
    """

    heads: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    crop_pct: float | None = None
    crop_mode: str | None = None
    interpolation: str | None = None
    activation: str | None = None
    epsilon: float | None = None
    labels: tuple[str, ...] | None = None
    pool: str | None = None
    block: str | None = None
    weights: str | None = None  # which of several sets of weights in one file
    head_type: HeadType | None = None  # type of the classifier's outputs
    bands: tuple[int, ...] | None = None  # channels (from 0) that are shown of a model that does not read RGB

    def __post_init__(self) -> None:
        settings = self.said()
        for name in ("mean", "std"):
            if name in settings:
                object.__setattr__(self, name, _by_channel(name, settings[name]))
        if self.bands is not None:
            bands = tuple(self.bands) if isinstance(self.bands, tuple | list) else (self.bands,)
            if any(whole_number(band) is None for band in bands):
                raise VitvizError(
                    f"bands={quoted(self.bands)} is not valid; expected one or three channels, counted from"
                    " 0."
                )
            object.__setattr__(self, "bands", bands)
        if self.labels is not None:
            object.__setattr__(self, "labels", tuple(map(str, self.labels)))
        if self.heads is not None:
            require_whole("heads", self.heads)
        named = {"activation": ACTIVATIONS, "pool": POOLS, "block": BLOCKS, "head_type": HEAD_TYPES}
        named |= {"crop_mode": CROP_MODES, "interpolation": INTERPOLATIONS}
        for name, known in named.items():
            if name in settings and settings[name] not in known:
                raise VitvizError(
                    f"{name}={quoted(settings[name])} is not valid; expected one of {', '.join(known)}."
                )
        for name, most in (("crop_pct", 10.0), ("epsilon", 1.0)):
            value = settings.get(name, most)
            if not (isinstance(value, int | float) and 0 < value <= most):
                raise VitvizError(
                    f"{name}={quoted(value)} is not valid; expected a number above 0 and up to {most:g}."
                )

    def __bool__(self) -> bool:
        return bool(self.said())

    def merged_with(self, other: Overrides) -> Overrides:
        """Return these settings, completed by `other`'s where unspecified here."""
        return replace(other, **self.said())

    @property
    def normalised(self) -> bool:
        """True if mean and std are both specified."""
        return self.mean is not None and self.std is not None

    def said(self) -> dict[str, Any]:
        """Return the specified settings by name."""
        return {name: value for name, value in vars(self).items() if value is not None}

    def text(self) -> str:
        """Return the query that a checkpoint's name carries: all settings except the labels."""
        spelled = {
            name: ",".join(f"{one:.10g}" for one in value) if isinstance(value, tuple) else f"{value:.10g}"
            if isinstance(value, float) else str(value)
            for name, value in self.said().items() if name != "labels"
        }  # fmt: skip
        return urlencode(spelled, safe=",")

    @classmethod
    def parse(cls, text: str) -> Overrides:
        """Parse the query after a name's question mark. Raises CheckpointError if it is invalid."""
        try:
            if len(text) > LONGEST:
                raise ValueError(f"it has more than {LONGEST} characters")
            pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True) if text else []
            if len(dict(pairs)) != len(pairs):
                raise ValueError("it has a setting twice")
            return cls(**{name: _READ[name](value) for name, value in pairs})
        except KeyError as error:
            raise CheckpointError(
                f"The settings after the question mark name {error}; expected are {', '.join(_READ)}."
            ) from error
        except ValueError as error:
            raise CheckpointError(
                f"The settings {quoted(text)} after the question mark are not valid: {error}"
            ) from error

    def applied(self, model: nn.Module, name: str) -> None:
        """Set heads, activation, epsilon, pooling and block form of a built model, in place.

        Raises CheckpointError for heads that do not divide the width, and for settings that the model fixes.
        """
        if self.heads is not None:
            for attention in [*(block.attn for block in model.blocks), getattr(model, "attn_pool", None)]:
                if attention is not None:
                    _with_heads(attention, self.heads, name, getattr(model, "rope", None) is not None)
        if self.activation is not None:
            for block in model.blocks:
                if not isinstance(getattr(getattr(block, "mlp", None), "act", None), nn.Module):
                    raise CheckpointError(f"{name} has no activation in its MLPs that could be replaced.")
                block.mlp.act = ACTIVATIONS[self.activation]()
        if self.epsilon is not None:
            for module in model.modules():
                if isinstance(module, nn.LayerNorm):
                    module.eps = float(self.epsilon)
        if self.pool is not None and self.pool != pooling_name(model):
            if self.pool not in possible_poolings(model):
                raise CheckpointError(
                    f"The classifier of {name} cannot read {quoted(self.pool)}; expected"
                    f" {' or '.join(possible_poolings(model)) or 'what its architecture fixes'}."
                )
            kind = self.pool.removesuffix(" of all")
            model.global_pool, model.pool_include_prefix = _POOLS[kind], kind != self.pool
        if self.block is not None and self.block != block_form(model):
            if self.block not in possible_block_forms(model):
                raise CheckpointError(
                    f"{name} cannot have blocks in {self.block} form: its parts, such as LayerScale,"
                    " determine the positions of its norms."
                )
            for block in model.blocks:
                block.__class__ = BLOCKS[self.block]  # same modules, other order

    def data(self, config: Mapping[str, Any]) -> dict[str, Any]:
        """Return a timm data config updated by the preprocessing settings."""
        own = ("mean", "std", "crop_pct", "crop_mode", "interpolation", "bands")
        settings = {name: value for name, value in self.said().items() if name in own}
        data = {**config, **settings}
        if settings.keys() & {"crop_pct", "crop_mode"} and data.get("processor"):
            data["processor"] = data["processor"].cutting(data["crop_mode"], data["crop_pct"])
        return data


def activation_name(module: Any) -> str | None:
    """Return an activation's name in `ACTIVATIONS`, or None for any other module."""
    if isinstance(module, nn.GELU):
        return "gelu" if module.approximate == "none" else "gelu_tanh"
    kinds = {GELU: "gelu", GELUTanh: "gelu_tanh", QuickGELU: "quick_gelu", nn.ReLU: "relu", nn.SiLU: "silu"}
    return next((name for kind, name in kinds.items() if isinstance(module, kind)), None)


def pooling_name(model: nn.Module) -> str | None:
    """Return our name in `POOLS` for the pooling of timm's plain ViT; None for others."""
    if type(model) is not VisionTransformer:
        return None
    kind = next((ours for ours, timms in _POOLS.items() if timms == model.global_pool), None)
    everything = kind != "class" and model.pool_include_prefix and model.num_prefix_tokens
    return f"{kind} of all" if kind and everything else kind


def possible_poolings(model: nn.Module) -> list[str]:
    """Return all poolings that fit the model's tensors, the current one first."""
    now = pooling_name(model)
    if now is None:
        return []
    tokens = ["class"] if model.has_class_token else []
    kinds = ["attention"] if model.attn_pool is not None else [*tokens, "average", "max", "average and max"]
    everything = [f"{kind} of all" for kind in kinds if kind in ("average", "attention")]
    return list(dict.fromkeys([now, *kinds, *(everything if model.num_prefix_tokens else [])]))


def block_form(model: nn.Module) -> str | None:
    """Return the norm placement of a model's blocks, as in `BLOCKS`; None for blocks of another class."""
    return next((name for name, kind in BLOCKS.items() if kind is type(model.blocks[0])), None)


def possible_block_forms(model: nn.Module) -> list[str]:
    """Return all block forms that fit the model's tensors, the current one first; empty with LayerScale."""
    now = block_form(model)
    scaled = not isinstance(getattr(model.blocks[0], "ls1", nn.Identity()), nn.Identity)
    return [] if now is None or scaled else list(dict.fromkeys([now, *BLOCKS]))


def split_name(name: str) -> tuple[str, Overrides]:
    """Split a checkpoint's name into the plain name and the settings of its query."""
    own, mark, text = plain_name(name).partition("?")
    return (own, Overrides.parse(text)) if own and mark else (plain_name(name), Overrides())


def _with_heads(attention: nn.Module, heads: int, name: str, rotated: bool) -> None:
    """Set the number of heads of an attention module, in place, with head width and scale.

    `rotated`: True if queries and keys are rotated by their positions. Raise CheckpointError if the number
    does not divide the width, or if the module determines it.
    """
    if heads == attention.num_heads:
        return
    tables = ("relative_position_bias_table", "rel_pos")
    normed = not isinstance(getattr(attention, "q_norm", nn.Identity()), nn.Identity)
    width = attention.num_heads * getattr(attention, "head_dim", 0)
    if normed:
        why = "its norms of queries and keys determine the number"
    elif rotated or any(getattr(attention, table, None) is not None for table in tables):
        why = "its position embeddings determine the number"
    elif not width or not isinstance(getattr(attention, "proj", None), nn.Linear):
        why = "its attention determines the number"
    elif width % heads:
        why = f"its width {width} is not divisible by that number"
    else:
        attention.num_heads, attention.head_dim = heads, width // heads
        attention.scale = attention.head_dim**-0.5
        return
    raise CheckpointError(
        f"{name} cannot have {heads} heads: {why}. It was built with {attention.num_heads}."
    )


def _by_channel(name: str, value: Any) -> tuple[float, ...]:
    """Return finite numbers, one for each channel; three from one number. Raises VitvizError otherwise."""
    try:
        numbers = (float(value),) * 3 if isinstance(value, int | float) else tuple(map(float, value))
    except (TypeError, ValueError):
        numbers = ()
    if not numbers or not all(map(math.isfinite, numbers)) or name == "std" and min(numbers) <= 0:
        number = "number above 0" if name == "std" else "number"
        raise VitvizError(
            f"{name}={quoted(value)} is not valid; expected one {number}, or one for each channel, for pixel"
            " values from 0 to 1."
        )
    return numbers


def _parse_numbers(text: str) -> Any:
    """Parse one number to a float, or numbers separated by commas to a tuple of floats."""
    return tuple(map(float, text.split(","))) if "," in text else float(text)


_READ = {
    "heads": int, "mean": _parse_numbers, "std": _parse_numbers, "crop_pct": float, "crop_mode": str,
    "interpolation": str, "activation": str, "epsilon": float, "pool": str, "block": str, "weights": str,
    "head_type": str, "bands": lambda text: tuple(map(int, text.split(","))),
}  # fmt: skip
