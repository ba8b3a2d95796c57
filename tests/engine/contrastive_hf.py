"""Both towers by transformers: its random CLIP and SigLIP, written as timm and open_clip name them."""

import json

import open_clip
import torch
from safetensors.torch import save_file
from transformers import CLIPConfig, CLIPModel, SiglipConfig, SiglipModel

from tests.engine import contrastive
from tests.engine.small import perturbed

SIDE = {"image_size": 32, "patch_size": 8}
PICTURE = {
    **SIDE,
    "hidden_size": 32,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "hidden_act": "gelu",
}
TEXT = {"hidden_size": 16, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2,
        "hidden_act": "gelu"}  # fmt: skip
ARGS = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 3, "num_heads": 2}
NORMS = {"layer_norm1": "ln_1", "layer_norm2": "ln_2"}


def clip(folder):
    """A folder with both towers of transformers' CLIP, and the model itself."""
    config = {**contrastive.CLIP, "embed_dim": 24}
    text = {**TEXT, "vocab_size": 49408, "max_position_embeddings": 20}
    made = CLIPModel(CLIPConfig(projection_dim=24, text_config=text, vision_config=PICTURE))
    model = perturbed(made)
    state = model.state_dict()
    tower = perturbed(open_clip.model.CLIP(**config))
    told = {**_text(state, 2), "logit_scale": state["logit_scale"]}
    told["text_projection"] = state["text_projection.weight"].T
    vision = "vision_model."
    table = state[f"{vision}embeddings.position_embedding.weight"]
    picture = {
        **_picture(state, 3),
        "cls_token": state[f"{vision}embeddings.class_embedding"][None, None],
        "pos_embed": table[None],
        **{f"norm_pre.{end}": state[f"{vision}pre_layrnorm.{end}"] for end in ("weight", "bias")},
        "head.weight": state["visual_projection.weight"],
        "head.bias": torch.zeros(24),
    }
    _written(folder, "vit_base_patch16_clip_224", {**ARGS, "num_classes": 24}, picture, tower, told, config)
    return model


def siglip(folder):
    """The same of SigLIP, with a tokenizer of eight words."""
    contrastive.siglip(folder)
    config = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
    reads = {**config["text_cfg"], "norm_kwargs": {"eps": 1e-6}}  # as genuine ones have
    config = {**config, "embed_dim": 32, "vision_cfg": contrastive.CLIP["vision_cfg"], "text_cfg": reads}
    text = {**TEXT, "vocab_size": 8, "max_position_embeddings": 12, "projection_size": 32}
    model = perturbed(SiglipModel(SiglipConfig(text_config=text, vision_config=PICTURE)))
    state = model.state_dict()
    known = {name: value for name, value in config.items() if name != "custom_text"}
    tower = perturbed(open_clip.model.CustomTextCLIP(**known))
    told = {f"text.{name}": value for name, value in _text(state, 2).items()}
    told |= {f"text.text_projection.{end}": state[f"text_model.head.{end}"] for end in ("weight", "bias")}
    told |= {name: state[name][0] for name in ("logit_scale", "logit_bias")}
    pool = "vision_model.head."
    picture = {
        **_picture(state, 3),
        "patch_embed.proj.bias": state["vision_model.embeddings.patch_embedding.bias"],
        "pos_embed": state["vision_model.embeddings.position_embedding.weight"][None],
        "attn_pool.latent": state[f"{pool}probe"],
    }
    for end in ("weight", "bias"):
        joined = state[f"{pool}attention.in_proj_{end}"]
        picture |= {f"attn_pool.q.{end}": joined[:32], f"attn_pool.kv.{end}": joined[32:]}
        parts = {
            "attention.out_proj": "proj",
            "layernorm": "norm",
            "mlp.fc1": "mlp.fc1",
            "mlp.fc2": "mlp.fc2",
        }
        picture |= {f"attn_pool.{own}.{end}": state[f"{pool}{one}.{end}"] for one, own in parts.items()}
    args = {**ARGS, "num_classes": 0}
    _written(folder, "vit_base_patch16_siglip_224", args, picture, tower, told, config)
    return model


def _text(state, layers):
    """A text tower's blocks and tables by open_clip's names."""
    own = {
        "token_embedding.weight": state["text_model.embeddings.token_embedding.weight"],
        "positional_embedding": state["text_model.embeddings.position_embedding.weight"],
    }
    parts = {**NORMS, "self_attn.out_proj": "attn.out_proj", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"}
    for end in ("weight", "bias"):
        own[f"ln_final.{end}"] = state[f"text_model.final_layer_norm.{end}"]
        for layer in range(layers):
            theirs, ours = f"text_model.encoder.layers.{layer}.", f"transformer.resblocks.{layer}."
            own |= {f"{ours}{one}.{end}": state[f"{theirs}{name}.{end}"] for name, one in parts.items()}
            own[f"{ours}attn.in_proj_{end}"] = _joined(state, theirs, end)
    return own


def _picture(state, layers):
    """A picture tower's blocks by timm's names."""
    own = {"patch_embed.proj.weight": state["vision_model.embeddings.patch_embedding.weight"]}
    parts = {"layer_norm1": "norm1", "layer_norm2": "norm2", "self_attn.out_proj": "attn.proj",
             "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}  # fmt: skip
    for end in ("weight", "bias"):
        own[f"norm.{end}"] = state[f"vision_model.post_layernorm.{end}"]
        for layer in range(layers):
            theirs, ours = f"vision_model.encoder.layers.{layer}.", f"blocks.{layer}."
            own |= {f"{ours}{one}.{end}": state[f"{theirs}{name}.{end}"] for name, one in parts.items()}
            own[f"{ours}attn.qkv.{end}"] = _joined(state, theirs, end)
    return own


def _joined(state, layer, end):
    return torch.cat([state[f"{layer}self_attn.{one}_proj.{end}"] for one in "qkv"])


def _written(folder, architecture, args, picture, tower, told, config):
    """timm's files and open_clip's beside each other, as hubs hold them; the latter's picture tower is none
    of ours.
    """
    whole = {**tower.state_dict(), **told}
    assert set(whole) == set(tower.state_dict())
    for name, state in (("model", picture), ("open_clip_model", whole)):
        tensors = {key: value.detach().clone().contiguous() for key, value in state.items()}
        save_file(tensors, folder / f"{name}.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    data = {**contrastive.TIMM, "input_size": [3, 32, 32], "num_classes": args["num_classes"]}
    said = {"architecture": architecture, "num_classes": args["num_classes"], "model_args": args}
    (folder / "config.json").write_text(json.dumps({**said, "pretrained_cfg": data}))
