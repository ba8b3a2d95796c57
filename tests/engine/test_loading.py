"""Every format against the library that wrote it: timm, Google's loader in timm, and transformers."""

import argparse
import io
import json
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors.torch import save_file

from vitviz.engine.catalogue import find, snapshot
from vitviz.engine.formats import google
from vitviz.engine.loading import load
from vitviz.errors import CheckpointError, UnsupportedModel

SHARED = Path(os.environ.get("VITVIZ_SHARED") or Path(__file__).resolve().parents[3] / "shared") / "weights"
SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 2, "num_heads": 2, "num_classes": 7}
needs_shared = pytest.mark.skipif(not SHARED.is_dir(), reason="genuine weights are not here; name their folder in VITVIZ_SHARED")


def perturbed(model):
    """Away from initial values: parts that begin at zero would compare equal falsely."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def small(architecture="vit_tiny_patch16_224", **changes):
    return perturbed(timm.create_model(architecture, pretrained=False, **{**SMALL, **changes}))


def saved(model, path):
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)
    return path


def logits(model, size=32):
    with torch.no_grad():
        return model(torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1)))


def same(loaded, model, size=32, tolerance=1e-6):
    torch.testing.assert_close(logits(loaded.model, size), logits(model, size), atol=tolerance, rtol=0)


# ----- timm's own form


@pytest.fixture
def folder(tmp_path):
    model = small()
    folder = tmp_path / "mine"
    timm.models.save_for_hf(model, folder, model_args={k: v for k, v in SMALL.items() if k != "num_classes"})
    return folder


def test_local_dir_folder_equals_timms_own_load(folder):
    loaded = load(find(str(folder)))
    same(loaded, timm.create_model(f"local-dir:{folder}", pretrained=True).eval(), tolerance=0)
    assert not loaded.model.training
    assert all(not p.requires_grad and p.dtype == torch.float32 and p.device.type == "cpu" for p in loaded.model.parameters())
    assert loaded.preprocessing.size == (32, 32) and loaded.checkpoint.input_size == (3, 32, 32)
    assert loaded.checkpoint.parameters == sum(p.numel() for p in loaded.model.parameters())


def test_half_precision_is_read_as_float32(folder):
    tensors = {name: value.half() for name, value in small().state_dict().items()}
    save_file(tensors, folder / "model.safetensors")
    loaded = load(find(str(folder)))
    assert torch.equal(loaded.model.head.weight, tensors["head.weight"].float())


def test_config_labels_prefer_descriptions_and_must_fit(folder):
    config = json.loads((folder / "config.json").read_text())
    names = [f"n{i}" for i in range(7)]
    config |= {"label_names": names, "label_descriptions": {name: f"thing {name}" for name in names}}
    (folder / "config.json").write_text(json.dumps(config))
    assert load(find(str(folder))).labels[3] == "thing n3"
    config["label_names"] = names[:5]
    (folder / "config.json").write_text(json.dumps(config))
    assert load(find(str(folder))).labels == ()


def test_config_may_not_make_timm_load_something_else(folder):
    config = json.loads((folder / "config.json").read_text())
    config["model_args"]["checkpoint_path"] = "/somewhere/else.pth"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(CheckpointError, match="checkpoint_path"):
        load(find(str(folder)))


def test_short_config_takes_the_architectures_preprocessing_and_says_so(folder):
    args = {k: v for k, v in SMALL.items() if k != "num_classes"}
    (folder / "config.json").write_text(json.dumps({"architecture": "deit_tiny_patch16_224", "num_classes": 7, "model_args": args}))
    loaded = load(find(str(folder)))
    assert loaded.preprocessing.mean == (0.485, 0.456, 0.406) and "preprocessing" in loaded.checkpoint.note


def test_explicit_architecture_comes_before_the_config(folder):
    with pytest.raises(CheckpointError, match="does not fit deit_tiny_patch16_224"):
        load(find(str(folder), architecture="deit_tiny_patch16_224"))


def test_snapshot_of_a_training_film_is_loaded_with_its_parents_config(folder):
    film = folder / "snapshots"
    film.mkdir()
    model = small(num_classes=7)
    with torch.no_grad():
        model.head.bias.add_(1)
    saved(model, film / "step-000100.safetensors")
    loaded = load(snapshot(find(str(folder)), 100))
    same(loaded, model, tolerance=0)
    assert loaded.checkpoint.name == "mine@100" and "100 steps" in loaded.checkpoint.note


@needs_shared
def test_our_early_checkpoint_equals_timms_load_and_has_its_labels():
    path = SHARED / "vitviz-tiny-early"
    loaded = load(find(str(path)))
    same(loaded, timm.create_model(f"local-dir:{path}", pretrained=True).eval(), size=64, tolerance=0)
    assert loaded.labels[0] == "goldfish" and len(loaded.labels) == 200
    early = load(snapshot(find(str(path)), 0))
    assert not torch.equal(early.model.pos_embed, loaded.model.pos_embed)


@needs_shared
@pytest.mark.parametrize("architecture", ["deit_tiny_patch16_224", None])
def test_genuine_deit_tiny_has_its_own_normalisation_and_labels(architecture):
    path = SHARED / "deit_tiny_patch16_224.safetensors"
    loaded = load(find(str(path), architecture=architecture))
    same(loaded, timm.create_model("deit_tiny_patch16_224", checkpoint_path=path).eval(), size=224, tolerance=0)
    assert loaded.preprocessing.mean == (0.485, 0.456, 0.406) and loaded.preprocessing.std == (0.229, 0.224, 0.225)
    assert loaded.labels[285] == "Egyptian cat"


# ----- what does not fit is named


def test_misfits_name_the_first_three_with_both_shapes(tmp_path):
    path = saved(small(), tmp_path / "some.safetensors")
    with pytest.raises(CheckpointError) as error:
        load(find(str(path), architecture="deit_small_patch16_224"))
    text = str(error.value)
    assert "cls_token is (1, 1, 128) in the file and (1, 1, 384) in the model" in text and text.count(" in the model") == 3
    assert "more" in text and "architecture" in text


def test_a_missing_tensor_is_never_left_random(folder):
    tensors = small().state_dict()
    del tensors["blocks.1.mlp.fc2.bias"]
    save_file(tensors, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"blocks\.1\.mlp\.fc2\.bias \(128\) is missing from the file"):
        load(find(str(folder)))


def test_a_tensor_too_many_is_named(folder):
    save_file(small().state_dict() | {"blocks.0.extra": torch.zeros(3)}, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"blocks\.0\.extra \(3\) of the file is not part of the model"):
        load(find(str(folder)))


def test_position_embeddings_are_never_resampled_behind_the_users_back(folder):
    model = small(img_size=64)
    saved(model, folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"pos_embed is \(1, 65, 128\) in the file and \(1, 17, 128\) in the model"):
        load(find(str(folder)))


def test_patch_embedding_is_never_resampled_behind_the_users_back(folder):
    saved(small(patch_size=16, img_size=64), folder / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"patch_embed\.proj\.weight is \(128, 3, 16, 16\) in the file and \(128, 3, 8, 8\) in the model"):
        load(find(str(folder)))


def test_fine_tuned_file_of_a_named_architecture_keeps_its_classes_and_size(tmp_path):
    model = perturbed(timm.create_model("deit_tiny_patch16_224", num_classes=10, img_size=64))
    path = saved(model, tmp_path / "pets.safetensors")
    loaded = load(find(str(path), architecture="deit_tiny_patch16_224"))
    same(loaded, model, size=64, tolerance=0)
    assert torch.equal(loaded.model.pos_embed, model.pos_embed) and loaded.preprocessing.size == (64, 64)
    assert loaded.preprocessing.mean == (0.485, 0.456, 0.406) and "classes 10" in loaded.checkpoint.note and loaded.labels == ()


def test_a_config_of_one_channel_is_refused(tmp_path):
    path = saved(small(in_chans=1), tmp_path / "digits.safetensors")
    with pytest.raises(CheckpointError, match="1 channel"):
        load(find(str(path)))


# ----- architecture read from the tensors

KINDS = {
    "plain": {},
    "cifar": {"patch_size": 4, "depth": 4, "num_classes": 10},
    "no class token": {"class_token": False, "global_pool": "avg", "fc_norm": False},
    "average pooling": {"global_pool": "avg"},
    "attention pooling": {"global_pool": "map"},
    "registers": {"reg_tokens": 4, "no_embed_class": True},
    "registers with positions": {"reg_tokens": 2},
    "LayerScale": {"init_values": 1e-5},
    "no bias": {"qkv_bias": False},
    "query-key norm": {"qk_norm": True, "num_heads": 4},
    "gated": {"mlp_layer": timm.layers.SwiGLUPacked},
    "norm before": {"pre_norm": True},
    "no classifier": {"num_classes": 0},
    "distilled": {"architecture": "deit_tiny_distilled_patch16_224"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_architecture_is_read_from_the_tensors(kind, tmp_path):
    model = small(**KINDS[kind])
    loaded = load(find(str(saved(model, tmp_path / "weights.safetensors"))))
    same(loaded, model)
    assert ("heads" in loaded.checkpoint.note) == (kind != "query-key norm")
    assert "normalisation" in loaded.checkpoint.note


def test_width_whose_heads_cannot_be_assumed_is_refused_with_a_config_to_write(tmp_path):
    path = saved(small(embed_dim=96), tmp_path / "weights.safetensors")
    with pytest.raises(CheckpointError, match="config.json"):
        load(find(str(path)))


@pytest.mark.parametrize("architecture", ["beit_base_patch16_224", "resnet18"])
def test_tensors_that_are_no_vit_ask_for_the_architecture(architecture, tmp_path):
    args = {"depth": 1} if "beit" in architecture else {}
    path = saved(timm.create_model(architecture, **args), tmp_path / "weights.safetensors")
    with pytest.raises(CheckpointError, match="architecture"):
        load(find(str(path)))


@pytest.mark.parametrize("architecture", ["swin_tiny_patch4_window7_224", "resnet50", "samvit_base_patch16", "vit_dwee_patch16_reg1_gap_256"])
def test_a_model_that_is_no_plain_vit_is_refused_before_anything_is_read(architecture, folder):
    (folder / "config.json").write_text(json.dumps({"architecture": architecture}))
    with pytest.raises(UnsupportedModel, match=f"{architecture} .*Choose a plain Vision Transformer"):
        load(find(str(folder)))


# ----- PyTorch's pickles

WRAPPED = {
    "bare": lambda s: s,
    "state_dict and module.": lambda s: {"epoch": 3, "state_dict": {f"module.{k}": v for k, v in s.items()}},
    "model and Namespace": lambda s: {"model": s, "args": argparse.Namespace(lr=0.1)},
    "compiled": lambda s: {"model": {f"_orig_mod.module.{k}": v for k, v in s.items()}},
    "EMA first": lambda s: {"model": {k: v + 1 for k, v in s.items()}, "model_ema": s},
    "state_dict_ema": lambda s: {"state_dict": {k: v + 1 for k, v in s.items()}, "state_dict_ema": s},
    "DINO teacher": lambda s: {"teacher": {**{f"module.backbone.{k}": v for k, v in s.items()}, "module.head.mlp.0.weight": torch.ones(2, 2)}},
    "MAE decoder": lambda s: {"model": {**s, "mask_token": torch.zeros(1, 1, 64), "decoder_embed.weight": torch.ones(2, 2)}},
}


@pytest.mark.parametrize("suffix", [".pth", ".bin"])
@pytest.mark.parametrize("kind", WRAPPED)
def test_wrappers_and_prefixes_are_taken_off(kind, suffix, tmp_path):
    model = small()
    torch.save(WRAPPED[kind](model.state_dict()), tmp_path / f"weights{suffix}")
    loaded = load(find(str(tmp_path / f"weights{suffix}")))
    same(loaded, model)
    assert ("EMA" in loaded.checkpoint.note) == ("ema" in kind.lower()) and ("training" in loaded.checkpoint.note) == (kind in ("DINO teacher", "MAE decoder"))


class Hostile:
    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.system, (f"touch {self.marker}",)


def hostile_zip(path, payload):
    torch.save({"model": payload}, path)


def hostile_plain(path, payload):
    path.write_bytes(pickle.dumps({"state_dict": payload}, protocol=2))


def hostile_arrays(path, payload):
    np.savez(path, **{"embedding/kernel": np.array([payload], dtype=object)})


@pytest.mark.parametrize(("write", "name"), [(hostile_zip, "a.pth"), (hostile_plain, "a.pt"), (hostile_zip, "a.bin"), (hostile_arrays, "a.npz")])
def test_a_pickle_that_wants_to_run_code_is_refused_and_nothing_runs(write, name, tmp_path):
    marker = tmp_path / "it-ran"
    write(tmp_path / name, Hostile(marker))
    with pytest.raises(CheckpointError, match="run code"):
        load(find(str(tmp_path / name)))
    assert not marker.exists()
    pickle.loads(pickle.dumps(Hostile(marker)))  # the payload works: elsewhere it would have run
    assert marker.exists()


def test_a_whole_pickled_model_is_refused_with_what_to_do(tmp_path):
    torch.save(small(), tmp_path / "whole.pth")
    with pytest.raises(CheckpointError, match=r"timm\..*state_dict"):
        load(find(str(tmp_path / "whole.pth")))


def test_namespace_is_let_in_only_while_a_file_is_read(tmp_path):
    torch.save({"model": small().state_dict(), "args": argparse.Namespace()}, tmp_path / "a.pth")
    load(find(str(tmp_path / "a.pth")))
    assert argparse.Namespace not in torch.serialization.get_safe_globals()


@pytest.mark.parametrize("name", ["a.safetensors", "a.pth", "a.bin", "a.npz"])
@pytest.mark.parametrize("content", ["empty", "noise", "half"])
def test_damaged_files_are_named(name, content, tmp_path):
    whole = io.BytesIO()
    if name.endswith(".safetensors"):
        whole = io.BytesIO(saved(small(), tmp_path / "b.safetensors").read_bytes())
    elif name.endswith(".npz"):
        np.savez(whole, a=np.ones(1000))
    else:
        torch.save(small().state_dict(), whole)
    data = {"empty": b"", "noise": bytes(range(256)) * 9, "half": whole.getvalue()[: len(whole.getvalue()) // 2]}[content]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(CheckpointError, match=name):
        load(find(str(tmp_path / name)))


def test_a_pickle_without_tensors_is_named(tmp_path):
    torch.save({"model": [1, 2]}, tmp_path / "a.pth")
    with pytest.raises(CheckpointError, match="no named tensors"):
        load(find(str(tmp_path / "a.pth")))


# ----- Google's archives, against timm's own loader of them


def google_arrays(width=128, heads=2, depth=2, patch=8, grid=4, classes=7, big_vision=False):
    rng = np.random.default_rng(0)

    def some(*shape):
        return (0.1 * rng.standard_normal(shape)).astype(np.float32)

    mha, mlp, second = ("MultiHeadDotProductAttention_0", "MlpBlock_0", "LayerNorm_1") if big_vision else ("MultiHeadDotProductAttention_1", "MlpBlock_3", "LayerNorm_2")
    arrays = {
        "embedding/kernel": some(patch, patch, 3, width),
        "embedding/bias": some(width),
        "cls": some(1, 1, width),
        "pos_embedding" if big_vision else "Transformer/posembed_input/pos_embedding": some(1, grid * grid + 1, width),
        "Transformer/encoder_norm/scale": some(width),
        "Transformer/encoder_norm/bias": some(width),
        "head/kernel": some(width, classes),
        "head/bias": some(classes),
    }
    for layer in range(depth):
        block = f"Transformer/encoderblock_{layer}"
        for norm in ("LayerNorm_0", second):
            arrays |= {f"{block}/{norm}/scale": some(width), f"{block}/{norm}/bias": some(width)}
        for role in ("query", "key", "value"):
            arrays |= {f"{block}/{mha}/{role}/kernel": some(width, heads, width // heads), f"{block}/{mha}/{role}/bias": some(heads, width // heads)}
        arrays |= {f"{block}/{mha}/out/kernel": some(heads, width // heads, width), f"{block}/{mha}/out/bias": some(width)}
        arrays |= {f"{block}/{mlp}/Dense_0/kernel": some(width, 4 * width), f"{block}/{mlp}/Dense_0/bias": some(4 * width)}
        arrays |= {f"{block}/{mlp}/Dense_1/kernel": some(4 * width, width), f"{block}/{mlp}/Dense_1/bias": some(width)}
    return arrays


def stacked(arrays):
    """big_vision's scanned layers: one array for all blocks."""
    first = "Transformer/encoderblock_0/"
    names = [name.removeprefix(first) for name in arrays if name.startswith(first)]
    layers = {f"Transformer/encoderblock/{n}": np.stack([arrays[f"Transformer/encoderblock_{i}/{n}"] for i in range(2)]) for n in names}
    return {n: a for n, a in arrays.items() if "encoderblock" not in n} | layers


ARCHIVES = {
    "paper": (google_arrays(heads=4), ""),
    "optimiser": (google_arrays(heads=4), "opt/target/"),
    "big_vision": (google_arrays(heads=4, big_vision=True), "params/"),
    "big_vision stacked": (stacked(google_arrays(heads=4, big_vision=True)), "params/"),
}


@pytest.mark.parametrize("kind", ARCHIVES)
def test_google_archive_equals_timms_own_loader(kind, tmp_path):
    arrays, prefix = ARCHIVES[kind]
    path = tmp_path / "Ti_8.npz"
    np.savez(path, **{prefix + name: value for name, value in arrays.items()})
    model = timm.create_model("vit_tiny_patch16_224", **{**SMALL, "num_heads": 4}).eval()
    model.load_pretrained(str(path))
    loaded = load(find(str(path)))
    same(loaded, model)
    assert loaded.model.blocks[0].attn.num_heads == 4 and "heads" not in loaded.checkpoint.note
    assert loaded.preprocessing.mean == (0.5, 0.5, 0.5)


def test_google_classifier_behind_a_representation_layer_is_left_out_and_said(tmp_path):
    arrays = google_arrays() | {"pre_logits/kernel": np.ones((128, 128), np.float32), "pre_logits/bias": np.ones(128, np.float32)}
    np.savez(tmp_path / "a.npz", **arrays)
    loaded = load(find(str(tmp_path / "a.npz")))
    assert loaded.model.num_classes == 0 and "representation layer" in loaded.checkpoint.note


def test_google_array_too_many_is_named(tmp_path):
    np.savez(tmp_path / "a.npz", **google_arrays(), **{"Transformer/encoderblock_1/Gate_0/kernel": np.ones(3, np.float32)})
    with pytest.raises(CheckpointError, match="Gate_0"):
        load(find(str(tmp_path / "a.npz")))


def test_google_hybrid_stem_equals_timms_own_loader(tmp_path):
    from timm.models.vision_transformer_hybrid import _create_vision_transformer_hybrid, _resnetv2

    def hybrid():
        return _create_vision_transformer_hybrid("vit_tiny_r_s16_p8_224", backbone=_resnetv2((1, 1)), **{**SMALL, "img_size": 32, "patch_size": 1})

    model = hybrid()
    rng = np.random.default_rng(0)
    arrays = google_arrays(patch=1, grid=model.patch_embed.grid_size[0])
    arrays["embedding/kernel"] = rng.standard_normal((1, 1, model.patch_embed.proj.in_channels, 128), dtype=np.float32)
    stem = model.patch_embed.backbone

    def norm(name, module):
        shape = (1, 1, 1, module.weight.shape[0])
        return {f"{name}/scale": rng.standard_normal(shape, dtype=np.float32), f"{name}/bias": rng.standard_normal(shape, dtype=np.float32)}

    def conv(name, module):
        o, i, h, w = module.weight.shape
        return {f"{name}/kernel": rng.standard_normal((h, w, i, o), dtype=np.float32)}

    arrays |= conv("conv_root", stem.stem.conv) | norm("gn_root", stem.stem.norm)
    for i, stage in enumerate(stem.stages):
        unit, block = f"block{i + 1}/unit1", stage.blocks[0]
        for r in (1, 2, 3):
            arrays |= conv(f"{unit}/conv{r}", getattr(block, f"conv{r}")) | norm(f"{unit}/gn{r}", getattr(block, f"norm{r}"))
        arrays |= conv(f"{unit}/conv_proj", block.downsample.conv) | norm(f"{unit}/gn_proj", block.downsample.norm)
    np.savez(tmp_path / "r.npz", **arrays)
    model.load_pretrained(str(tmp_path / "r.npz"))
    mine, _, _ = google.to_timm({name: torch.from_numpy(value) for name, value in arrays.items()}, "r.npz")
    assert mine.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(mine[name], value), name


# ----- Hugging Face transformers


def transformers_models():
    import transformers as hf

    common = {"hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "image_size": 28, "patch_size": 7, "num_labels": 5}
    labels = {"id2label": {i: f"thing {i}" for i in range(5)}, "label2id": {f"thing {i}": i for i in range(5)}}
    vit = {**common, "intermediate_size": 96, **labels}
    dino = {**common, "mlp_ratio": 2, **labels}
    return {
        "vit": lambda: hf.ViTForImageClassification(hf.ViTConfig(**vit)),
        "vit without bias, tanh GELU": lambda: hf.ViTForImageClassification(hf.ViTConfig(**vit, qkv_bias=False, hidden_act="gelu_new")),
        "deit": lambda: hf.DeiTForImageClassification(hf.DeiTConfig(**vit)),
        "deit with teacher": lambda: hf.DeiTForImageClassificationWithTeacher(hf.DeiTConfig(**vit)),
        "dinov2": lambda: hf.Dinov2ForImageClassification(hf.Dinov2Config(**dino)),
        "dinov2 gated": lambda: hf.Dinov2ForImageClassification(hf.Dinov2Config(**dino, use_swiglu_ffn=True)),
        "dinov2 with registers": lambda: hf.Dinov2WithRegistersForImageClassification(hf.Dinov2WithRegistersConfig(**dino, num_register_tokens=3)),
    }


KINDS_OF_TRANSFORMERS = ["vit", "vit without bias, tanh GELU", "deit", "deit with teacher", "dinov2", "dinov2 gated", "dinov2 with registers"]


@pytest.mark.parametrize("kind", KINDS_OF_TRANSFORMERS)
def test_transformers_folder_gives_transformers_logits(kind, tmp_path):
    pytest.importorskip("transformers", reason="transformers is the oracle for its own files")
    model = perturbed(transformers_models()[kind]())
    model.save_pretrained(tmp_path)
    loaded = load(find(str(tmp_path)))
    pixels = torch.randn(2, 3, 28, 28, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        torch.testing.assert_close(loaded.model(pixels), model(pixel_values=pixels).logits, atol=1e-4, rtol=0)
    assert loaded.labels[2] == "thing 2" and "preprocessor_config" in loaded.checkpoint.note


@pytest.mark.parametrize("kind", ["vit", "dinov2 gated"])
def test_transformers_pytorch_bin_under_its_new_names(kind, tmp_path):
    pytest.importorskip("transformers", reason="transformers is the oracle for its own files")
    model = perturbed(transformers_models()[kind]())
    model.config.architectures = None
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    pixels = torch.randn(2, 3, 28, 28)
    with torch.no_grad():
        torch.testing.assert_close(load(find(str(tmp_path))).model(pixels), model(pixel_values=pixels).logits, atol=1e-4, rtol=0)


def test_transformers_features_without_a_classifier(tmp_path):
    hf = pytest.importorskip("transformers", reason="transformers is the oracle for its own files")
    model = perturbed(hf.ViTModel(hf.ViTConfig(hidden_size=48, num_hidden_layers=1, num_attention_heads=4, intermediate_size=96, image_size=28, patch_size=7)))
    model.save_pretrained(tmp_path)
    loaded = load(find(str(tmp_path)))
    pixels = torch.randn(1, 3, 28, 28)
    with torch.no_grad():
        torch.testing.assert_close(loaded.model.forward_features(pixels), model(pixels).last_hidden_state, atol=1e-4, rtol=0)
    assert loaded.model.num_classes == 0 and loaded.labels == ()


PROCESSORS = {  # preprocessor_config.json -> (crop_mode, crop_pct, interpolation)
    "vit": ({"size": {"height": 28, "width": 28}, "resample": 2}, ("squash", 1.0, "bilinear")),
    "deit": ({"size": {"height": 32, "width": 32}, "do_center_crop": True, "crop_size": {"height": 28, "width": 28}, "resample": 3}, ("squash", 28 / 32, "bicubic")),
    "dinov2": ({"size": {"shortest_edge": 32}, "do_center_crop": True, "crop_size": {"height": 28, "width": 28}, "resample": 3}, ("center", 28 / 32, "bicubic")),
    "old": ({"size": 28, "resample": 2}, ("squash", 1.0, "bilinear")),
}


@pytest.mark.parametrize("kind", PROCESSORS)
def test_transformers_preprocessing_is_read(kind, tmp_path):
    hf = pytest.importorskip("transformers", reason="transformers is the oracle for its own files")
    processor, expected = PROCESSORS[kind]
    config = {"hidden_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 96, "image_size": 28, "patch_size": 7}
    hf.ViTModel(hf.ViTConfig(**config)).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(json.dumps({**processor, "image_mean": [0.1, 0.2, 0.3], "image_std": [0.4, 0.5, 0.6]}))
    found = load(find(str(tmp_path))).preprocessing
    assert (found.crop_mode, found.crop_pct, found.interpolation) == expected
    assert found.mean == (0.1, 0.2, 0.3) and found.std == (0.4, 0.5, 0.6) and found.size == (28, 28)


@pytest.mark.parametrize(("kind", "error", "reason"), [("swin", UnsupportedModel, "windows"), ("clip", CheckpointError, "dinov2_with_registers")])
def test_other_types_of_transformers_are_refused(kind, error, reason, tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": kind}))
    saved(small(), tmp_path / "model.safetensors")
    with pytest.raises(error, match=reason):
        load(find(str(tmp_path)))


def test_an_activation_that_timm_lacks_is_refused(tmp_path):
    hf = pytest.importorskip("transformers", reason="transformers is the oracle for its own files")
    config = hf.ViTConfig(hidden_size=48, num_hidden_layers=1, num_attention_heads=4, intermediate_size=96, image_size=28, patch_size=7, hidden_act="relu2")
    hf.ViTModel(config).save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match="relu2"):
        load(find(str(tmp_path)))
