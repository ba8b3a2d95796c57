"""CLIP and SigLIP of transformers, TimmWrapper folders, and files of the DINOv2 and DINOv3 repositories."""

import pytest
import timm
import torch

from tests.engine.random_inspectors import noise
from tests.engine.small_models import perturbed
from vitviz.engine.adapters.load import load
from vitviz.engine.formats import dino
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.engine.inspector import Inspector

hf = pytest.importorskip("transformers", reason="transformers is the oracle for its own files")

SIZES = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "image_size": 28, "patch_size": 7,
}  # fmt: skip
TEXT = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


def clip(**changes):
    return hf.CLIPConfig(vision_config={**SIZES}, text_config=TEXT, projection_dim=16, **changes)


def siglip(**changes):
    return hf.SiglipConfig(vision_config={**SIZES}, text_config=TEXT, **changes)


MODELS = {  # name -> (model, its output for pixels)
    "clip tower": (lambda: hf.CLIPVisionModel(hf.CLIPVisionConfig(**SIZES)), "pooler_output"),
    "clip tower, gelu": (
        lambda: hf.CLIPVisionModel(hf.CLIPVisionConfig(**SIZES, hidden_act="gelu")), "pooler_output"),
    "clip projected": (
        lambda: hf.CLIPVisionModelWithProjection(hf.CLIPVisionConfig(**SIZES, projection_dim=16)),
        "image_embeds"),
    "clip both": (lambda: hf.CLIPModel(clip()), "image_embeds"),
    "clip classifier": (lambda: hf.CLIPForImageClassification(clip(num_labels=5)), "logits"),
    "siglip tower": (lambda: hf.SiglipVisionModel(hf.SiglipVisionConfig(**SIZES)), "pooler_output"),
    "siglip both": (lambda: hf.SiglipModel(siglip()), "pooler_output"),
    "siglip classifier": (lambda: hf.SiglipForImageClassification(siglip(num_labels=5)), "logits"),
    "timm wrapper": (lambda: hf.TimmWrapperForImageClassification(hf.TimmWrapperConfig.from_dict({
        "architecture": "vit_tiny_patch16_224", "num_classes": 5, "model_args": {"img_size": 32, "depth": 2},
        "pretrained_cfg": {
            "input_size": [3, 32, 32], "num_classes": 5, "mean": [0.5] * 3, "std": [0.5] * 3}})),
        "logits"),
}  # fmt: skip


@pytest.mark.parametrize("kind", MODELS)
def test_saved_folder_gives_transformers_output(kind, tmp_path):
    build, output = MODELS[kind]
    model = perturbed(build())
    model.save_pretrained(tmp_path)
    loaded = load(find_checkpoint(str(tmp_path)))
    pixels = torch.randn(2, 3, *loaded.preprocessing.size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        if kind.endswith("both"):
            features = model.get_image_features(pixels)
            expected = features if isinstance(features, torch.Tensor) else features.pooler_output
        else:
            expected = getattr(model(pixels), output)
        torch.testing.assert_close(loaded.model(pixels), expected, atol=1e-5, rtol=0)
    assert loaded.checkpoint.projects == (output == "image_embeds")
    trace = Inspector(loaded, "cpu").trace(noise())  # the trace includes the attention check
    assert len(trace.layers) == 2 and (trace.logits is not None) == (output == "logits")


def dinov2_state(model):
    """Return the weights under the names of DINOv2's repository."""
    state = {
        name.replace("mlp.fc1", "mlp.w12").replace("mlp.fc2", "mlp.w3") if swiglu(model) else name: value
        for name, value in model.state_dict().items()
    }
    state["register_tokens"] = state.pop("reg_token")
    token = state["cls_token"][:, :1] / 2
    state["pos_embed"] = torch.cat([state["cls_token"] - token, state["pos_embed"]], 1)
    return state | {"cls_token": token, "mask_token": torch.zeros(1, model.embed_dim)}


def swiglu(model):
    return not hasattr(model.blocks[0].mlp, "norm") or hasattr(model.blocks[0].mlp, "chunk_dim")


@pytest.mark.parametrize("gated", [False, True])
def test_dinov2_with_registers_or_gates_gives_timm_output(gated, tmp_path):
    args = {"mlp_layer": timm.layers.SwiGLUPacked, "act_layer": "silu"} if gated else {}
    model = perturbed(timm.create_model(
        "vit_tiny_patch16_224", img_size=28, patch_size=7, embed_dim=128, num_heads=2, depth=2, num_classes=0,
        reg_tokens=4, no_embed_class=True, init_values=0.1, **args))  # fmt: skip
    torch.save(dinov2_state(model), tmp_path / "dinov2.pth")
    loaded, pixels = load(find_checkpoint(str(tmp_path / "dinov2.pth"))), torch.randn(2, 3, 28, 28)
    with torch.no_grad():
        torch.testing.assert_close(loaded.model(pixels), model(pixels), atol=1e-5, rtol=0)


@pytest.mark.parametrize(
    "name", ["vit_small_patch14_reg4_dinov2", "vit_base_patch14_dinov2", "vit_giant_patch14_reg4_dinov2"]
)
def test_published_dino_model_is_recognised_by_sizes(name):
    with torch.device("meta"):
        model = timm.create_model(name)
        state = (
            dinov2_state(model)
            if "reg4" in name
            else model.state_dict() | {"mask_token": torch.zeros(1, 768)}
        )
    assert dino.published_name(state) == name
    v3 = {"storage_tokens": 0, "mask_token": torch.ones(1, 1), "blocks.0.mlp.w1.weight": 0}
    v3 |= {f"blocks.{layer}.norm1.weight": 0 for layer in range(12)}
    v3 |= {"patch_embed.proj.weight": torch.ones(384, 3, 16, 16), "blocks.0.attn.qkv.bias": 0}
    assert dino.published_name(v3) == "vit_small_plus_patch16_dinov3_qkvb"
    # a mask token of this shape belongs to MAE
    assert dino.published_name({**state, "mask_token": torch.zeros(1, 1, 1)}) is None
