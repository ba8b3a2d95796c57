"""Small random CLIP and SigLIP models of open_clip, in folders laid out like a download."""

import json

import open_clip
import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import PreTrainedTokenizerFast

from tests.browser.conftest import copy_checkpoint
from tests.engine.small_models import perturbed

WORDS = ["<pad>", "<unk>", "a", "photo", "of", "cat", "dog", "the"]
TIMM = {"mean": [0.5] * 3, "std": [0.5] * 3, "interpolation": "bicubic", "crop_pct": 1.0}
CLIP = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 64, "layers": 3, "width": 128, "head_width": 64, "patch_size": 16},
    "text_cfg": {"context_length": 20, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 2},
}
SIGLIP = {
    "embed_dim": 192,
    "init_logit_bias": -1.5,
    "init_logit_scale": 2.0,
    "custom_text": True,
    "vision_cfg": {"image_size": 224, "timm_model_name": "vit_tiny_patch16_224", "timm_pool": "map",
                   "timm_proj": "none"},
    "text_cfg": {"context_length": 12, "vocab_size": len(WORDS), "width": 16, "heads": 2, "layers": 2,
                 "hf_tokenizer_name": "there", "no_causal_mask": True, "proj_bias": True,
                 "pool_type": "last", "tokenizer_kwargs": {"clean": "canonicalize"}},
}  # fmt: skip


def clip(folder):
    """Write a folder with both towers of CLIP and return the model."""
    torch.manual_seed(0)
    model = perturbed(open_clip.model.CLIP(**CLIP))
    args = {"img_size": 64, "patch_size": 16, "embed_dim": 128, "depth": 3, "num_heads": 2, "num_classes": 24}
    save_folder(folder, model, CLIP, "vit_base_patch16_clip_224", args, 64)
    return model


def siglip(folder):
    """Write a folder with both towers of SigLIP and return the model.

    The model has attention pooling, a sigmoid loss, and a tokenizer of eight words in the folder.
    """
    torch.manual_seed(0)
    settings = {name: value for name, value in SIGLIP.items() if name != "custom_text"}
    model = perturbed(open_clip.model.CustomTextCLIP(**settings))
    save_folder(folder, model, SIGLIP, "vit_tiny_patch16_224", {"global_pool": "map", "num_classes": 0}, 224)
    words = Tokenizer(WordLevel({word: number for number, word in enumerate(WORDS)}, "<unk>"))
    words.pre_tokenizer = Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", unk_token="<unk>", model_input_names=["input_ids"]
    ).save_pretrained(folder)
    return model


def write_towers(folder):
    """Write both models as the checkpoints my-clip and my-siglip of a weights folder, beside the shipped
    checkpoint.
    """
    copy_checkpoint(folder / "vitviz-tiny")
    for name, write in (("my-clip", clip), ("my-siglip", siglip)):
        (folder / name).mkdir()
        write(folder / name)
    return folder


def save_folder(folder, model, config, architecture, args, size):
    (folder / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": {}}))
    state = {name: value.detach().contiguous() for name, value in model.state_dict().items()}
    save_file(state, folder / "open_clip_model.safetensors")
    data = {**TIMM, "input_size": [3, size, size], "num_classes": args["num_classes"]}
    entry = {"architecture": architecture, "num_classes": args["num_classes"], "model_args": args}
    (folder / "config.json").write_text(json.dumps({**entry, "pretrained_cfg": data}))
