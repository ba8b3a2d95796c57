"""Both towers of transformers' random CLIP and SigLIP, saved under timm's and open_clip's names."""

import json

import open_clip
import torch
from safetensors.torch import save_file
from transformers import CLIPConfig, CLIPModel, SiglipConfig, SiglipModel

from tests.engine import contrastive
from tests.engine.small_models import perturbed

SIDE = {"image_size": 32, "patch_size": 8}
VISION = {
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
    """Write a folder with both towers of transformers' CLIP and return the model."""
    config = {**contrastive.CLIP, "embed_dim": 24}
    text = {**TEXT, "vocab_size": 49408, "max_position_embeddings": 20}
    random_model = CLIPModel(CLIPConfig(projection_dim=24, text_config=text, vision_config=VISION))
    model = perturbed(random_model)
    state = model.state_dict()
    tower = perturbed(open_clip.model.CLIP(**config))
    open_clip_state = {**rename_text_state(state, 2), "logit_scale": state["logit_scale"]}
    open_clip_state["text_projection"] = state["text_projection.weight"].T
    vision = "vision_model."
    table = state[f"{vision}embeddings.position_embedding.weight"]
    timm_state = {
        **rename_vision_state(state, 3),
        "cls_token": state[f"{vision}embeddings.class_embedding"][None, None],
        "pos_embed": table[None],
        **{f"norm_pre.{end}": state[f"{vision}pre_layrnorm.{end}"] for end in ("weight", "bias")},
        "head.weight": state["visual_projection.weight"],
        "head.bias": torch.zeros(24),
    }
    save_folder(
        folder,
        "vit_base_patch16_clip_224",
        {**ARGS, "num_classes": 24},
        timm_state,
        tower,
        open_clip_state,
        config,
    )
    return model


def siglip(folder):
    """Write a folder with both towers of transformers' SigLIP, with a tokenizer of eight words, and return
    the model.
    """
    contrastive.siglip(folder)
    config = json.loads((folder / "open_clip_config.json").read_text())["model_cfg"]
    text_cfg = {**config["text_cfg"], "norm_kwargs": {"eps": 1e-6}}  # genuine SigLIP configs set this
    config = {**config, "embed_dim": 32, "vision_cfg": contrastive.CLIP["vision_cfg"], "text_cfg": text_cfg}
    text = {**TEXT, "vocab_size": 8, "max_position_embeddings": 12, "projection_size": 32}
    model = perturbed(SiglipModel(SiglipConfig(text_config=text, vision_config=VISION)))
    state = model.state_dict()
    settings = {name: value for name, value in config.items() if name != "custom_text"}
    tower = perturbed(open_clip.model.CustomTextCLIP(**settings))
    open_clip_state = {f"text.{name}": value for name, value in rename_text_state(state, 2).items()}
    open_clip_state |= {
        f"text.text_projection.{end}": state[f"text_model.head.{end}"] for end in ("weight", "bias")
    }
    open_clip_state |= {name: state[name][0] for name in ("logit_scale", "logit_bias")}
    pool = "vision_model.head."
    timm_state = {
        **rename_vision_state(state, 3),
        "patch_embed.proj.bias": state["vision_model.embeddings.patch_embedding.bias"],
        "pos_embed": state["vision_model.embeddings.position_embedding.weight"][None],
        "attn_pool.latent": state[f"{pool}probe"],
    }
    for end in ("weight", "bias"):
        joined = state[f"{pool}attention.in_proj_{end}"]
        timm_state |= {f"attn_pool.q.{end}": joined[:32], f"attn_pool.kv.{end}": joined[32:]}
        parts = {
            "attention.out_proj": "proj",
            "layernorm": "norm",
            "mlp.fc1": "mlp.fc1",
            "mlp.fc2": "mlp.fc2",
        }
        timm_state |= {
            f"attn_pool.{target}.{end}": state[f"{pool}{source}.{end}"] for source, target in parts.items()
        }
    args = {**ARGS, "num_classes": 0}
    save_folder(folder, "vit_base_patch16_siglip_224", args, timm_state, tower, open_clip_state, config)
    return model


def rename_text_state(state, layers):
    """Return a text tower's layers and tables under open_clip's names."""
    renamed = {
        "token_embedding.weight": state["text_model.embeddings.token_embedding.weight"],
        "positional_embedding": state["text_model.embeddings.position_embedding.weight"],
    }
    parts = {**NORMS, "self_attn.out_proj": "attn.out_proj", "mlp.fc1": "mlp.c_fc", "mlp.fc2": "mlp.c_proj"}
    for end in ("weight", "bias"):
        renamed[f"ln_final.{end}"] = state[f"text_model.final_layer_norm.{end}"]
        for layer in range(layers):
            source, target = f"text_model.encoder.layers.{layer}.", f"transformer.resblocks.{layer}."
            renamed |= {
                f"{target}{target_name}.{end}": state[f"{source}{name}.{end}"]
                for name, target_name in parts.items()
            }
            renamed[f"{target}attn.in_proj_{end}"] = fused_qkv(state, source, end)
    return renamed


def rename_vision_state(state, layers):
    """Return a vision tower's layers under timm's names."""
    renamed = {"patch_embed.proj.weight": state["vision_model.embeddings.patch_embedding.weight"]}
    parts = {"layer_norm1": "norm1", "layer_norm2": "norm2", "self_attn.out_proj": "attn.proj",
             "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}  # fmt: skip
    for end in ("weight", "bias"):
        renamed[f"norm.{end}"] = state[f"vision_model.post_layernorm.{end}"]
        for layer in range(layers):
            source, target = f"vision_model.encoder.layers.{layer}.", f"blocks.{layer}."
            renamed |= {
                f"{target}{target_name}.{end}": state[f"{source}{name}.{end}"]
                for name, target_name in parts.items()
            }
            renamed[f"{target}attn.qkv.{end}"] = fused_qkv(state, source, end)
    return renamed


def fused_qkv(state, layer, end):
    return torch.cat([state[f"{layer}self_attn.{projection}_proj.{end}"] for projection in "qkv"])


def save_folder(folder, architecture, args, timm_state, tower, open_clip_state, config):
    """Write timm's files and open_clip's files into one folder, as model hubs do.

    The vision tower of open_clip's file is not read by vitviz.
    """
    merged = {**tower.state_dict(), **open_clip_state}
    assert set(merged) == set(tower.state_dict())
    for name, state in (("model", timm_state), ("open_clip_model", merged)):
        tensors = {key: value.detach().clone().contiguous() for key, value in state.items()}
        save_file(tensors, folder / f"{name}.safetensors")
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    data = {**contrastive.TIMM, "input_size": [3, 32, 32], "num_classes": args["num_classes"]}
    entry = {"architecture": architecture, "num_classes": args["num_classes"], "model_args": args}
    (folder / "config.json").write_text(json.dumps({**entry, "pretrained_cfg": data}))
