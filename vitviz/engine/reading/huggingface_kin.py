"""The types of transformers that are read, a function each: from shared arguments to timm's model.

Two read-outs that timm does not have are built here: DINOv2's classifier sees the class token and the mean of
the patches side by side, and a DeiT classifier without a teacher ignores the distillation token. BEiT and
DINOv3 are built by timm from code that fixes what a config may choose; choices it lacks are refused.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import timm
import torch
from timm.layers import SwiGLUPacked
from timm.models.beit import Beit
from timm.models.deit import VisionTransformerDistilled
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor, nn

from vitviz.engine.reading.inferred import entry_name
from vitviz.errors import CheckpointError

Built = tuple[Callable[[], nn.Module], str]
Args = dict[str, Any]
Config = Mapping[str, Any]
Tensors = Mapping[str, Tensor]

# Width and depth of DINOv3's published models (its table 2) -> their names in timm.
_DINOV3 = {
    (384, 12): "small", (768, 12): "base", (1024, 24): "large", (1280, 32): "huge_plus", (4096, 40): "7b",
}  # fmt: skip


class ClassAndMeanReadout(VisionTransformer):
    """Its classifier reads [class token, mean of the patches], as in transformers' DINOv2."""

    def __init__(self, **args: Any):
        super().__init__(**args)
        self.head = nn.Linear(2 * self.embed_dim, self.num_classes)

    def pool(self, x: Tensor, pool_type: str | None = None) -> Tensor:
        return torch.cat([x[:, 0], x[:, self.num_prefix_tokens :].mean(dim=1)], dim=-1)


class ClassOnlyReadout(VisionTransformerDistilled):
    """Has a distillation token, but its classifier reads the class token alone."""

    def __init__(self, **args: Any):
        super().__init__(**args)
        self.head_dist = nn.Identity()

    def forward_head(self, x: Tensor, pre_logits: bool = False) -> Tensor:
        x = self.head_drop(x[:, 0])
        return x if pre_logits else self.head(x)


def vit(args: Args, config: Config, tensors: Tensors, name: str) -> Built:
    return partial(VisionTransformer, **args), _plain_entry(args)


def deit(args: Args, config: Config, tensors: Tensors, name: str) -> Built:
    kind = VisionTransformerDistilled if "head_dist.weight" in tensors else ClassOnlyReadout
    return partial(kind, **args), _plain_entry(args)


def dinov2(args: Args, config: Config, tensors: Tensors, name: str) -> Built:
    registers = config.get("num_register_tokens", 0) if "reg_token" in tensors else 0
    args |= {"init_values": 1e-5, "reg_tokens": registers, "no_embed_class": registers > 0}
    if config.get("use_swiglu_ffn"):
        args |= {"mlp_layer": SwiGLUPacked, "act_layer": "silu"}
    kind = ClassAndMeanReadout if args["num_classes"] else VisionTransformer
    return partial(kind, **args), _plain_entry(args)


def beit(args: Args, config: Config, tensors: Tensors, name: str) -> Built:
    """The norm stands behind the mean of the patches, or before all tokens, where the class's is read."""
    if args.pop("act_layer") != "gelu":
        raise CheckpointError(
            f"{name} uses the activation {config['hidden_act']!r}; timm's BEiT has gelu alone."
        )
    if args["img_size"][0] != args["img_size"][1]:
        # transformers stretches the position tables of such a model each time, even at its own size.
        raise CheckpointError(
            f"{name} has an input of {args['img_size'][0]} x {args['img_size'][1]} px; only square BEiT"
            " models are read."
        )
    averaged = "fc_norm.weight" in tensors
    args |= {
        "qkv_bias": True,  # but none for the keys
        "global_pool": "avg" if averaged else "token",
        "use_fc_norm": averaged,
        "init_values": 0.1 if "blocks.0.gamma_1" in tensors else None,
        "use_abs_pos_emb": bool(config.get("use_absolute_position_embeddings")),
        "use_rel_pos_bias": bool(config.get("use_relative_position_bias")),
        "use_shared_rel_pos_bias": bool(config.get("use_shared_relative_position_bias")),
    }
    size = "large" if args["depth"] >= 24 else "base"
    entry = f"beit_{size}_patch{args['patch_size']}_{args['img_size'][0]}"
    return partial(Beit, **args), entry if timm.is_model(entry) else "beit_base_patch16_224"


def dinov3(args: Args, config: Config, tensors: Tensors, name: str) -> Built:
    biased, gated = bool(config["query_bias"]), bool(config["use_gated_mlp"])
    fixed = {"key_bias": False, "value_bias": biased, "proj_bias": True, "mlp_bias": True}
    wrong = [f"{key} {bool(config[key])}" for key, value in fixed.items() if bool(config[key]) != value]
    if wrong:
        raise CheckpointError(
            f"{name} has {', '.join(wrong)}; timm's DINOv3 has biases everywhere but for the keys, "
            "and those of queries and values only together. Choose one of the published models."
        )
    needed = "silu" if gated else "gelu"
    if args.pop("act_layer") != needed:
        which = "a gated" if gated else "an ungated"
        raise CheckpointError(
            f"{name} uses the activation {config['hidden_act']!r}; timm's DINOv3 has {needed} in {which} MLP."
        )
    args |= {
        "qkv_bias": biased, "swiglu_mlp": gated, "global_pool": "token", "use_fc_norm": False,
        # gate and value lie in one matrix
        "mlp_ratio": (args["mlp_ratio"] / 2 if gated else args["mlp_ratio"]), "init_values": 1e-5,
        "num_reg_tokens": tensors["reg_token"].shape[1] if "reg_token" in tensors else 0,
        "use_abs_pos_emb": False, "use_rot_pos_emb": True, "rope_type": "dinov3",
        "rope_temperature": config["rope_theta"], "rope_rotate_half": True,
        "num_classes": 0,  # transformers has no classifier for it whose read-out could be known
    }  # fmt: skip
    size = _DINOV3.get((args["embed_dim"], args["depth"]), "small")
    size += "_plus" if gated and size == "small" else ""
    entry = f"vit_{size}_patch16_dinov3{'_qkvb' if biased else ''}"
    return partial(Eva, **args), entry if timm.is_model(entry) else "vit_small_patch16_dinov3"


def _plain_entry(args: Args) -> str:
    numbers = (args[name] for name in ("embed_dim", "depth", "num_heads", "patch_size"))
    return entry_name(*numbers, args["img_size"][0])
