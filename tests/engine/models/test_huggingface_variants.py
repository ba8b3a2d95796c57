"""MAE, BEiT and DINOv3 in the formats of transformers, against transformers. Options that timm lacks are
rejected.
"""

import pytest
import torch

from tests.engine.models.transformers_configs import BIASES, beit, dinov3, hf, mae
from tests.engine.random_inspectors import noise
from tests.engine.small_models import perturbed
from vitviz.engine.adapters.load import load
from vitviz.engine.hub.catalogue import find_checkpoint
from vitviz.engine.inspector import Inspector
from vitviz.errors import CheckpointError


def encode_in_order(encoder, pixels):
    """Run MAE's encoder with a noise that keeps the order of the patches."""
    return encoder(pixels, noise=torch.arange(16.0).repeat(len(pixels), 1)).last_hidden_state


MODELS = {  # name -> (model, features or None for logits)
    "mae with decoder": (
        lambda: hf.ViTMAEForPreTraining(mae()),
        lambda model, pixels: encode_in_order(model.vit, pixels),
    ),
    "mae encoder": (lambda: hf.ViTMAEModel(mae(qkv_bias=False)), encode_in_order),
    "beit, no positions": (lambda: hf.BeitForImageClassification(beit()), None),
    "beit, absolute": (
        lambda: hf.BeitForImageClassification(beit(use_absolute_position_embeddings=True)),
        None,
    ),
    "beit, relative": (lambda: hf.BeitForImageClassification(beit(use_relative_position_bias=True)), None),
    "beit, shared": (
        lambda: hf.BeitForImageClassification(beit(use_shared_relative_position_bias=True)),
        None,
    ),
    "beit, all": (lambda: hf.BeitForImageClassification(beit(**dict.fromkeys(BIASES, True))), None),
    "beit, class token": (lambda: hf.BeitForImageClassification(beit(use_mean_pooling=False)), None),
    "beit, no scale": (lambda: hf.BeitForImageClassification(beit(layer_scale_init_value=0.0)), None),
    "beit, features": (lambda: hf.BeitModel(beit()), lambda model, pixels: model(pixels).last_hidden_state),
    "beit, class features": (
        lambda: hf.BeitModel(beit(use_mean_pooling=False)),
        lambda model, pixels: model(pixels).last_hidden_state,
    ),
    "beit, visual words": (
        lambda: hf.BeitForMaskedImageModeling(beit(use_shared_relative_position_bias=True)),
        lambda model, pixels: model.layernorm(model.beit(pixels).last_hidden_state),
    ),
    "dinov3": (
        lambda: hf.DINOv3ViTModel(dinov3(num_register_tokens=3)),
        lambda model, pixels: model(pixels).last_hidden_state,
    ),
    "dinov3, no registers": (
        lambda: hf.DINOv3ViTModel(dinov3(rope_theta=10.0)),
        lambda model, pixels: model(pixels).last_hidden_state,
    ),
    "dinov3, gated, no bias": (
        lambda: hf.DINOv3ViTModel(
            dinov3(
                use_gated_mlp=True,
                hidden_act="silu",
                query_bias=False,
                value_bias=False,
                num_register_tokens=1,
            )
        ),
        lambda model, pixels: model(pixels).last_hidden_state,
    ),
    "dinov3, wide": (
        lambda: hf.DINOv3ViTModel(dinov3(image_size=[28, 42])),
        lambda model, pixels: model(pixels).last_hidden_state,
    ),
}


@pytest.fixture(params=MODELS)
def kind(request):
    return request.param


def assert_same_output(loaded, model, reference):
    pixels = torch.randn(2, 3, *loaded.preprocessing.size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        actual = loaded.model(pixels) if reference is None else loaded.model.forward_features(pixels)
        expected = model(pixels).logits if reference is None else reference(model, pixels)
        torch.testing.assert_close(actual, expected, atol=1e-4, rtol=0)


def test_saved_folder_gives_transformers_output(kind, tmp_path):
    build, reference = MODELS[kind]
    model = perturbed(build())
    model.save_pretrained(tmp_path)
    assert_same_output(load(find_checkpoint(str(tmp_path))), model, reference)


def test_newer_parameter_names_are_read(kind, tmp_path):
    build, reference = MODELS[kind]
    model = perturbed(build())
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    assert_same_output(load(find_checkpoint(str(tmp_path))), model, reference)


def test_saved_folder_can_be_traced(kind, tmp_path):
    perturbed(MODELS[kind][0]()).save_pretrained(tmp_path)
    trace = Inspector(load(find_checkpoint(str(tmp_path))), "cpu").trace(
        noise()
    )  # the pass includes the attention check
    assert len(trace.layers) == 2 and trace.grid.rows == 4
    assert (trace.logits is not None) == (MODELS[kind][1] is None)


@pytest.mark.parametrize(
    ("kind", "left_out"), [("mae with decoder", "decoder"), ("beit, visual words", "lm_head")]
)
def test_training_only_weights_are_dropped_with_note(kind, left_out, tmp_path):
    perturbed(MODELS[kind][0]()).save_pretrained(tmp_path)
    loaded = load(find_checkpoint(str(tmp_path)))
    assert (
        f"used only in training were dropped: {left_out}." in loaded.checkpoint.note
        and loaded.model.num_classes == 0
    )


def test_beit_features_are_pooled_like_transformers(tmp_path):
    for averaged in (True, False):
        model = perturbed(hf.BeitModel(beit(use_mean_pooling=averaged)))
        model.save_pretrained(tmp_path)
        pixels = torch.randn(2, 3, 28, 28)
        with torch.no_grad():
            torch.testing.assert_close(
                load(find_checkpoint(str(tmp_path))).model(pixels), model(pixels).pooler_output, atol=1e-4,
                rtol=0
            )  # fmt: skip


def test_nearest_timm_architecture_is_named(tmp_path):
    for config, model, name in (
        (mae(), hf.ViTMAEModel, "vit_tiny_patch16_224"),
        (beit(), hf.BeitModel, "beit_base_patch16_224"),
        (dinov3(), hf.DINOv3ViTModel, "vit_small_patch16_dinov3_qkvb"),
    ):
        model(config).save_pretrained(tmp_path)
        assert load(find_checkpoint(str(tmp_path))).checkpoint.architecture == name


@pytest.mark.parametrize(
    ("model", "mean", "interpolation", "crop"),
    [
        (lambda: hf.ViTMAEModel(mae()), (0.485, 0.456, 0.406), "bicubic", ("center", 0.875)),
        (lambda: hf.BeitModel(beit()), (0.5, 0.5, 0.5), "bicubic", ("squash", 1.0)),
        (lambda: hf.DINOv3ViTModel(dinov3()), (0.485, 0.456, 0.406), "bilinear", ("squash", 1.0)),
    ],
)
def test_missing_preprocessor_defaults_to_usual_values_with_note(model, mean, interpolation, crop, tmp_path):
    model().save_pretrained(tmp_path)
    loaded = load(find_checkpoint(str(tmp_path)))
    actual = loaded.preprocessing
    assert (actual.mean, actual.interpolation, (actual.crop_mode, actual.crop_pct)) == (
        mean,
        interpolation,
        crop,
    )
    assert "preprocessor_config" in loaded.checkpoint.note
    assert [assumption.name for assumption in loaded.checkpoint.assumed] == [
        "normalisation",
        "crop_pct",
        "interpolation",
    ]


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (lambda: hf.BeitModel(beit(hidden_act="relu")), "'relu'; timm's BEiT supports gelu"),
        (lambda: hf.BeitModel(beit(image_size=[28, 42])), "28 x 42 px; only square"),
        (
            lambda: hf.BeitForMaskedImageModeling(beit(use_mean_pooling=False)),
            r"holds both .*layernorm\.(weight|bias) and .* norm\.",
        ),
        (lambda: hf.DINOv3ViTModel(dinov3(key_bias=True)), "has key_bias True; timm's DINOv3"),
        (lambda: hf.DINOv3ViTModel(dinov3(value_bias=False)), "has value_bias False"),
        (
            lambda: hf.DINOv3ViTModel(dinov3(proj_bias=False, mlp_bias=False)),
            "has proj_bias False, mlp_bias False",
        ),
        (
            lambda: hf.DINOv3ViTModel(dinov3(hidden_act="silu")),
            "'silu'; timm's DINOv3 has gelu in an ungated MLP",
        ),
        (
            lambda: hf.DINOv3ViTModel(dinov3(use_gated_mlp=True)),
            "'gelu'; timm's DINOv3 has silu in a gated MLP",
        ),
    ],
)
def test_options_missing_in_timm_are_rejected_with_reason(model, reason, tmp_path):
    model().save_pretrained(tmp_path)
    with pytest.raises(CheckpointError, match=reason):
        load(find_checkpoint(str(tmp_path)))


def test_layer_norm_epsilon_of_config_is_used(tmp_path):
    for model in (hf.ViTMAEModel(mae(layer_norm_eps=0.1)), hf.DINOv3ViTModel(dinov3(layer_norm_eps=0.1))):
        perturbed(model).save_pretrained(tmp_path)
        assert_same_output(
            load(find_checkpoint(str(tmp_path))),
            model,
            MODELS["mae encoder"][1] if model.config.model_type == "vit_mae" else MODELS["dinov3"][1],
        )
