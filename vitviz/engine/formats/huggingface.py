"""Folders of Hugging Face transformers: ViT, DeiT, MAE, BEiT, DINOv2, DINOv3, towers of CLIP and SigLIP.

The networks are timm's under other tensor names, with separate queries, keys and values. A model that timm
cannot compute exactly as transformers does is refused, never approximated. Tests compare with transformers.

Two read-outs missing from timm are defined here: DINOv2's classifier reads the concatenated class token and
patch mean, and a DeiT classifier without a teacher ignores the distillation token. timm's code for BEiT and
DINOv3 fixes some options of transformers' configs; configs with other values are refused.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import timm
import torch
from timm.layers import LayerNorm, SwiGLUPacked
from timm.models.beit import Beit
from timm.models.deit import VisionTransformerDistilled
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from vitviz.engine.formats import limits, towers
from vitviz.engine.formats.dino import DINOV3
from vitviz.engine.formats.families import transformers_refusal
from vitviz.engine.formats.inference import entry_name
from vitviz.engine.formats.processors import height_and_width
from vitviz.engine.forward.positions import mark_as_transformers
from vitviz.errors import CheckpointError, UnsupportedModel, quoted
from vitviz.traces.head_type import HeadType

# Names on disk (first) and in transformers' modules since version 5 (second) -> timm's.
_RENAMED = [
    (r"^(vit|deit|beit|dinov2|dinov2_with_registers)\.", ""),
    (r"^model\.(?=layer\.)", ""),
    (r"^embeddings\.cls_token$", "cls_token"),
    (r"^embeddings\.distillation_token$", "dist_token"),
    (r"^embeddings\.register_tokens$", "reg_token"),
    (r"^embeddings\.position_embeddings$", "pos_embed"),
    (r"^embeddings\.patch_embeddings\.(projection\.)?", "patch_embed.proj."),
    (r"^(encoder\.relative_position_bias|shared_position_bias)\.", "rel_pos_bias."),
    (r"^(encoder\.)?layers?\.(\d+)\.", r"blocks.\2."),
    (r"(?<=\d)\.(attention\.attention\.)?relative_position_bias\.", ".attn."),
    (r"\.attention\.(attention\.query|q_proj)\.", ".attn.q."),
    (r"\.attention\.(attention\.key|k_proj)\.", ".attn.k."),
    (r"\.attention\.(attention\.value|v_proj)\.", ".attn.v."),
    (r"\.attention\.(output\.dense|o_proj)\.", ".attn.proj."),
    (r"\.layernorm_before\.", ".norm1."),
    (r"\.layernorm_after\.", ".norm2."),
    (r"\.(intermediate\.dense|mlp\.weights_in)\.", ".mlp.fc1."),
    (r"(?<=\d)\.(output\.dense|mlp\.weights_out|mlp\.down_proj)\.", ".mlp.fc2."),
    (r"\.layer_scale([12])\.lambda1$", r".ls\1.gamma"),
    (r"\.lambda_([12])$", r".gamma_\1"),
    (r"^layernorm\.", "norm."),
    (r"^pooler\.layernorm\.", "fc_norm."),
    (r"^(cls_)?classifier\.", "head."),
    (r"^distillation_classifier\.", "head_dist."),
]
_JOINED = {"attn.qkv": ("attn.q", "attn.k", "attn.v"), "mlp.fc1": ("mlp.gate_proj", "mlp.up_proj")}
# Parts that were not joined: biases of a layer whose keys have none, the projection of an MLP without a gate.
_ALONE = [(r"\.attn\.([qv])\.bias$", r".attn.\1_bias"), (r"\.mlp\.up_proj\.", ".mlp.fc1.")]
# No classifier here reads the pooler's layer, the mask token is for training, the index can be computed.
_LEFT_OUT = re.compile(r"^(\w+\.)?(pooler\.dense\.|embeddings\.mask_token$)|relative_position_index$")


def to_timm(tensors: Mapping[str, Tensor], kind: str) -> dict[str, Tensor]:
    """Return the tensors in timm's layout; unknown names stay for the strict check to report.

    `kind` is transformers' model type. Raises CheckpointError if two tensors map to one name of timm's.
    """
    if towers.kind_of(kind):
        return _joined(towers.to_timm(tensors))
    theirs: dict[str, str] = {}  # timm's name -> name in the file
    renamed = {}
    for name, value in tensors.items():
        if _LEFT_OUT.search(name) or value.numel() == 0:  # without registers the file has an empty tensor
            continue
        new = timm_name(name)
        if new in renamed:
            raise CheckpointError(
                f"Its file holds both {theirs[new]} and {name}, where timm's {kind} model has a single"
                f" {new}. Choose another checkpoint."
            )
        renamed[new], theirs[new] = value, name
    renamed = _joined(renamed)
    # timm builds DINOv3 from EVA, which names LayerScale as BEiT does
    rules = [*_ALONE, (r"\.ls([12])\.gamma$", r".gamma_\1")] if kind == "dinov3_vit" else _ALONE
    renamed = {_renamed(name, rules): value for name, value in renamed.items()}
    if "reg_token" in renamed and "cls_token" in renamed and "pos_embed" in renamed:
        # Registers have no position embedding; timm adds the class token's to the token itself.
        renamed["cls_token"] = renamed["cls_token"] + renamed["pos_embed"][:, :1]
        renamed["pos_embed"] = renamed["pos_embed"][:, 1:]
    return renamed


def timm_name(name: str) -> str:
    """Return timm's name of a tensor, from its name on disk or in transformers' modules."""
    return _renamed(name, _RENAMED)


def _joined(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with the parts of each joint matrix concatenated by rows."""
    for joined, parts in _JOINED.items():
        for name in [name for name in tensors if f".{parts[0]}." in name]:
            names = [name.replace(f".{parts[0]}.", f".{part}.") for part in parts]
            if all(part in tensors for part in names):
                whole = torch.cat([tensors.pop(part) for part in names])
                tensors[name.replace(f".{parts[0]}.", f".{joined}.")] = whole
    return tensors


def _renamed(name: str, rules: list[tuple[str, str]]) -> str:
    """Return a tensor's name after replacing each rule's (regular expression, replacement), in order."""
    for pattern, replacement in rules:
        name = re.sub(pattern, replacement, name)
    return name


Built = tuple[Callable[[], nn.Module], str]  # builder of the empty model, and its name in timm
Kind = tuple[type[nn.Module], str | None]  # its class, and its name in timm; None: by its sizes
Args = dict[str, Any]
Config = Mapping[str, Any]
Tensors = Mapping[str, Tensor]


# transformers always resizes the position tables of these models, even at their own size, as if square.
_NOT_SQUARE = "{} has an input of {} x {} px; only square {} models are read."


class ClassAndMeanReadout(VisionTransformer):
    """ViT whose classifier reads [class token, mean of the patches], as in transformers' DINOv2."""

    def __init__(self, **args: Any):
        super().__init__(**args)
        self.head = nn.Linear(2 * self.embed_dim, self.num_classes)

    def pool(self, x: Tensor, pool_type: str | None = None) -> Tensor:
        """Return [class token, mean of the patches] of tokens (image, token, width).

        `pool_type` is ignored.
        """
        return torch.cat([x[:, 0], x[:, self.num_prefix_tokens :].mean(dim=1)], dim=-1)


class ClassOnlyReadout(VisionTransformerDistilled):
    """Distilled ViT whose classifier reads only the class token."""

    def __init__(self, **args: Any):
        super().__init__(**args)
        self.head_dist = nn.Identity()

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        """Return the logits read from the class token, or the token itself if `pre_logits`."""
        x = self.head_drop(x[:, 0])
        return x if pre_logits else self.head(x)


def _vit(args: Args, config: Config, tensors: Tensors, name: str) -> Kind:
    """Return the class of a plain ViT (ViT, ViT-MAE)."""
    return VisionTransformer, None


def _deit(args: Args, config: Config, tensors: Tensors, name: str) -> Kind:
    """Return DeiT's class; the classifier reads only the class token if there is no `head_dist`."""
    return (VisionTransformerDistilled if "head_dist.weight" in tensors else ClassOnlyReadout), None


def _dinov2(args: Args, config: Config, tensors: Tensors, name: str) -> Kind:
    """Add DINOv2's arguments and return its class.

    A classifier reads class token and patch mean. CheckpointError if the input is not square.
    """
    if args["img_size"][0] != args["img_size"][1]:
        raise CheckpointError(_NOT_SQUARE.format(name, *args["img_size"], "DINOv2"))
    registers = config.get("num_register_tokens", 0) if "reg_token" in tensors else 0
    args |= {"init_values": 1e-5, "reg_tokens": registers, "no_embed_class": registers > 0}
    if config.get("use_swiglu_ffn"):
        args |= {"mlp_layer": SwiGLUPacked, "act_layer": "silu"}
    return (ClassAndMeanReadout if args["num_classes"] else VisionTransformer), None


def _beit(args: Args, config: Config, tensors: Tensors, name: str) -> Kind:
    """Return timm's BEiT for transformers' settings; refuse activations and sizes that timm lacks."""
    if args.pop("act_layer") != "gelu":
        raise CheckpointError(
            f"{name} uses the activation {quoted(config['hidden_act'])}; timm's BEiT supports gelu only."
        )
    if args["img_size"][0] != args["img_size"][1]:
        raise CheckpointError(_NOT_SQUARE.format(name, *args["img_size"], "BEiT"))
    averaged = "fc_norm.weight" in tensors
    args |= {
        "qkv_bias": True,  # except for the keys
        "global_pool": "avg" if averaged else "token", "use_fc_norm": averaged,
        "init_values": 0.1 if "blocks.0.gamma_1" in tensors else None,
        "use_abs_pos_emb": bool(config.get("use_absolute_position_embeddings")),
        "use_rel_pos_bias": bool(config.get("use_relative_position_bias")),
        "use_shared_rel_pos_bias": bool(config.get("use_shared_relative_position_bias")),
    }  # fmt: skip
    size = "large" if args["depth"] >= 24 else "base"
    entry = f"beit_{size}_patch{args['patch_size']}_{args['img_size'][0]}"
    return Beit, entry if timm.is_model(entry) else "beit_base_patch16_224"


def _dinov3(args: Args, config: Config, tensors: Tensors, name: str) -> Kind:
    """Return timm's EVA for a DINOv3 without classifier, and its name in timm.

    Raise CheckpointError for biases or an activation that timm's DINOv3 does not have.
    """
    biased, gated = bool(config["query_bias"]), bool(config["use_gated_mlp"])
    fixed = {"key_bias": False, "value_bias": biased, "proj_bias": True, "mlp_bias": True}
    wrong = [f"{key} {bool(config[key])}" for key, value in fixed.items() if bool(config[key]) != value]
    if wrong:
        raise CheckpointError(
            f"{name} has {', '.join(wrong)}; timm's DINOv3 has biases everywhere except for the keys, and"
            " has those of queries and values only together. Choose one of the published models."
        )
    needed = "silu" if gated else "gelu"
    if args.pop("act_layer") != needed:
        which = "a gated" if gated else "an ungated"
        detail = f"timm's DINOv3 has {needed} in {which} MLP"
        raise CheckpointError(f"{name} uses the activation {quoted(config['hidden_act'])}; {detail}.")
    args |= {
        "qkv_bias": biased, "swiglu_mlp": gated, "global_pool": "token", "use_fc_norm": False,
        # gate and value share a matrix
        "mlp_ratio": (args["mlp_ratio"] / 2 if gated else args["mlp_ratio"]), "init_values": 1e-5,
        "num_reg_tokens": tensors["reg_token"].shape[1] if "reg_token" in tensors else 0,
        "use_abs_pos_emb": False, "use_rot_pos_emb": True, "rope_type": "dinov3",
        "rope_temperature": config["rope_theta"], "rope_rotate_half": True,
        "num_classes": 0,  # transformers defines no classifier for DINOv3, so its read-out is unknown
    }  # fmt: skip
    size = DINOV3.get((args["embed_dim"], args["depth"]), "small")
    size += "_plus" if gated and size == "small" else ""
    entry = f"vit_{size}_patch16_dinov3{'_qkvb' if biased else ''}"
    return Eva, entry if timm.is_model(entry) else "vit_small_patch16_dinov3"


def _tower(args: Args, config: Config, tensors: Tensors, name: str) -> Kind:
    """Add the arguments of the image tower of CLIP or SigLIP and return its class."""
    args |= towers.model_arguments(tensors)
    return VisionTransformer, None


# MAE: the encoder, applied to all patches; masking is for training
_BUILDERS = {
    "vit": _vit, "deit": _deit, "vit_mae": _vit, "beit": _beit, "dinov2": _dinov2,
    "dinov2_with_registers": _dinov2, "dinov3_vit": _dinov3,
    "clip": _tower, "siglip": _tower,
}  # fmt: skip
_ACTIVATIONS = {
    "gelu": "gelu", "gelu_python": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh",
    "quick_gelu": "quick_gelu", "relu": "relu", "silu": "silu", "swish": "silu",
}  # fmt: skip


def is_transformers(config: Mapping[str, Any]) -> bool:
    """Return True if a config.json is transformers' (timm's has an `architecture` instead)."""
    return "model_type" in config and "architecture" not in config


def builder(config: Config, tensors: Tensors, name: str) -> Built:
    """Return a function that builds the empty model, and timm's name of the nearest architecture.

    `tensors` come from `to_timm`. Raises UnsupportedModel or CheckpointError for an unknown model type or
    activation, and for options that timm's model of this type does not support.
    """
    config = towers.vision_config(config)
    kind = str(config["model_type"])
    if kind not in _BUILDERS:
        reason = transformers_refusal(kind)
        if reason:
            raise UnsupportedModel(f"{name}: {kind} {reason}. Choose a plain Vision Transformer.")
        raise CheckpointError(
            f"{name} has the transformers type {quoted(kind)}; {', '.join(_BUILDERS)} are supported. Convert"
            " it to timm's layout, or choose another."
        )
    activation, known = str(config.get("hidden_act", "gelu")), ", ".join(_ACTIVATIONS)
    if activation not in _ACTIVATIONS:
        raise CheckpointError(f"{name} uses the activation {quoted(activation)}; {known} are supported.")
    hidden = tensors.get("blocks.0.mlp.fc1.weight")
    if hidden is None:
        raise CheckpointError(
            f"{name} does not hold the weights of a {kind} model: its first tensors are"
            f" {', '.join(list(tensors)[:3])}."
        )
    limits.require_depth(config["num_hidden_layers"], tensors, name)
    width = config["hidden_size"]
    patch = height_and_width(config.get("patch_size", 16))
    args: Args = {
        "img_size": height_and_width(config.get("image_size", 224)), "embed_dim": width,
        "in_chans": config.get("num_channels", 3), "patch_size": patch[0] if patch[0] == patch[1] else patch,
        "depth": config["num_hidden_layers"], "num_heads": config["num_attention_heads"],
        "mlp_ratio": (len(hidden) + 0.5) / width,  # timm takes the floor of ratio * width
        "qkv_bias": bool(config.get("qkv_bias", True)), "act_layer": _ACTIVATIONS[activation],
        "norm_layer": partial(LayerNorm, eps=config.get("layer_norm_eps", 1e-12)),
        "num_classes": len(tensors["head.weight"]) if "head.weight" in tensors else 0,
    }  # fmt: skip
    model, entry = _BUILDERS[kind](args, config, tensors, name)
    numbers = (args[one] for one in ("embed_dim", "depth", "num_heads", "patch_size"))
    entry = entry or entry_name(*numbers, args["img_size"][0])
    return lambda: mark_as_transformers(model(**args), antialias=kind == "dinov2_with_registers"), entry


_PROBLEMS: dict[Any, HeadType] = {
    None: "softmax", "single_label_classification": "softmax",
    "multi_label_classification": "sigmoid", "regression": "value",
}  # fmt: skip


def head_type(config: Mapping[str, Any], outputs: int) -> HeadType:
    """Return the type of a classifier's outputs, as in transformers' "image-classification" pipeline.

    Raises CheckpointError for a problem_type that transformers does not define.

    >>> head_type({"problem_type": "regression"}, 1), head_type({}, 1), head_type({}, 2)
    ('value', 'sigmoid', 'softmax')
    """
    problem = config.get("problem_type")
    if problem not in _PROBLEMS:
        expected = f"expected one of {', '.join(list(_PROBLEMS)[1:])}"
        raise CheckpointError(f"The config's problem_type is {quoted(problem)}; {expected}.")
    kind = _PROBLEMS[problem]
    return "sigmoid" if kind == "softmax" and outputs == 1 else kind


def labels(config: Mapping[str, Any], classes: int) -> tuple[str, ...]:
    """Return the class names in order; empty if they are only numbered or not as many as `classes`."""
    names = config.get("id2label") or {}
    named = {int(index): str(label) for index, label in names.items() if label is not None}
    ordered = tuple(named.get(index, f"class {index}") for index in range(len(names)))
    numbered = all(re.fullmatch(r"(LABEL_|class )\d+", label) for label in ordered)
    return () if numbered or len(ordered) != classes else ordered
