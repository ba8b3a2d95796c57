"""Files of training scripts against the saved model. Other files are identified in the error."""

import collections
import pathlib
import re
import sys
import types

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from tests.engine.small_models import assert_same_logits, small_vit
from vitviz.engine.adapters.load import load
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.errors import CheckpointError


def with_prefix(state, prefix):
    return {prefix + name: value for name, value in state.items()}


def projection_heads(prefix="", *names):
    return {f"{prefix}head.{name}": torch.ones(3, 128) for name in names}


def in_chunks(state):
    """Rename layers as DINOv2 trained with FSDP does, two layers per chunk."""
    return {
        re.sub(r"^blocks\.(\d+)", lambda match: f"blocks.{int(match[1]) // 2}.{match[1]}", name): value
        for name, value in state.items()
    }


OPTIONS = {
    "lr": np.float64(0.1), "classes": np.arange(3), "data": pathlib.PurePosixPath("/data"),
    "loss": torch.nn.CrossEntropyLoss(), "act": torch.nn.GELU, "count": collections.defaultdict(list, a=[1]),
}  # fmt: skip
FILES = {  # name -> (content of the file, text of the note)
    "Lightning": (lambda a, b: {"pytorch-lightning_version": "2.5", "state_dict": with_prefix(a, "model."),
                                "hyper_parameters": OPTIONS}, ""),
    "Lightning, own name": (lambda a, b: {"state_dict": {**with_prefix(a, "net.encoder."),
                                                         "criterion.weight": torch.ones(7)}}, "criterion"),
    "metric of a best epoch": (lambda a, b: {"state_dict": a, "metric": np.float32(77.1)}, ""),
    "iBOT": (lambda a, b: {"student": b, "teacher": {
        **with_prefix(a, "backbone."), "backbone.masked_embed": torch.ones(1, 128),
        **projection_heads("", "mlp.0.weight", "last_layer.weight_v", "last_layer2.weight_v")}},
        "head.last_layer2"),
    "MoCo v3": (lambda a, b: {"arch": "vit_small", "state_dict": {
        **with_prefix(b, "module.momentum_encoder."), **with_prefix(a, "module.base_encoder."),
        **projection_heads("module.base_encoder.", "0.weight", "3.weight"),
        "module.predictor.0.weight": torch.ones(3, 3)}}, "dropped: head."),
    "DINOv2 in chunks": (lambda a, b: {"teacher": {
        **with_prefix(in_chunks(a), "backbone."), "backbone.mask_token": torch.ones(1, 128),
        **projection_heads("dino_", "mlp.0.weight"), **projection_heads("ibot_", "last_layer.weight_v")}},
        "dino_head.mlp, ibot_head"),
}  # fmt: skip


@pytest.mark.parametrize("kind", FILES)
def test_training_file_gives_output_of_its_model(kind, tmp_path):
    headless = {"num_classes": 0} if kind in ("iBOT", "MoCo v3", "DINOv2 in chunks") else {}
    model, other = small_vit(depth=4, **headless), small_vit(depth=4, **headless)
    with torch.no_grad():
        other.norm.weight.mul_(-1)
    content, note = FILES[kind]
    torch.save(content(model.state_dict(), other.state_dict()), tmp_path / "last.ckpt")
    loaded = load(find_checkpoint(str(tmp_path / "last.ckpt")))
    assert_same_logits(loaded, model)
    assert note in loaded.checkpoint.note


def test_foreign_objects_in_file_are_never_imported(tmp_path, monkeypatch):
    module = types.ModuleType("omegaconf")
    module.DictConfig = type("DictConfig", (), {"__module__": "omegaconf"})
    monkeypatch.setitem(sys.modules, "omegaconf", module)
    config = module.DictConfig()
    config.lr = 0.1
    model = small_vit()
    torch.save({"state_dict": model.state_dict(), "hyper_parameters": config}, tmp_path / "a.ckpt")
    monkeypatch.delitem(sys.modules, "omegaconf")
    assert_same_logits(load(find_checkpoint(str(tmp_path / "a.ckpt"))), model)
    assert "omegaconf" not in sys.modules


class CustomOptions:
    pass


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:0\n"
LORA = {"base_model.model.blocks.0.attn.qkv.lora_A.weight": torch.ones(2, 4)}
LIGHTNING = {
    "pytorch-lightning_version": "2.5",
    "state_dict": {"a": torch.ones(1)},
    "hyper_parameters": CustomOptions(),
}


def text(content):
    return lambda path: path.write_text(content)


def in_torch(content):
    return lambda path: torch.save(content, path)


def in_safetensors(content):
    return lambda path: save_file(content, path)


@pytest.mark.parametrize(
    ("name", "write", "kind", "advice"),
    [
        ("a.safetensors", text(POINTER), "a Git LFS pointer", "git lfs pull"),
        ("a.pth", text("\n<!DOCTYPE html><html>"), "a web page", "download link"),
        ("a.ckpt", in_torch(LIGHTNING), f"a Lightning checkpoint .*{__name__}.CustomOptions",
         "model.state_dict"),
        ("a.pth", in_torch(small_vit()), "a whole pickled model .*VisionTransformer", "model.state_dict"),
        ("a.safetensors", in_safetensors(LORA), "a LoRA adapter", "merge_and_unload"),
        ("a.pth", in_torch(timm.create_model("resnet10t").state_dict()), "a ResNet", "Choose a plain"),
        ("a.safetensors", in_safetensors({"model.embed_tokens.weight": torch.ones(4, 2)}), "a language model",
         "Choose a plain"),
        ("a.pth", in_torch({"state": {"a": torch.ones(1)}}), "not a plain ViT", "Inspector.of"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_non_vit_file_is_identified_with_advice(name, write, kind, advice, tmp_path):
    write(tmp_path / name)
    with pytest.raises(CheckpointError, match=rf"{kind}(.|\n)*{advice}") as raised:
        load(find_checkpoint(str(tmp_path / name)))
    assert len(re.findall(r"[.?!]( |$)", str(raised.value))) <= 3
