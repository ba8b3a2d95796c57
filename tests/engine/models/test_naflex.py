"""NaFlex models at one size against timm's own, with random weights."""

from functools import partial

import pytest
import timm
import torch

from tests.engine.random_inspectors import inspect, noise, perturbed
from tests.engine.small_models import assert_same_logits, save_model
from tests.tiers import sweep
from vitviz.engine.adapters.load import load
from vitviz.engine.formats.naflex import to_plain_vit
from vitviz.engine.hub.catalogue import checkpoints, find_checkpoint
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.engine.inspector import Inspector
from vitviz.errors import UnsupportedModel

# Average pooling with registers, aspect-preserving positions, positions by row and column, attention pooling,
# RADIO's class token; and three options that no registered model uses, but a config may.
ARCHITECTURES = [
    ("naflexvit_base_patch16_gap", {}),
    ("naflexvit_base_patch16_gap", {"pool_include_prefix": True, "embed_proj_type": "conv"}),
    ("naflexvit_base_patch16_par_gap", {}),
    ("naflexvit_base_patch16_parfac_gap", {}),
    ("naflexvit_base_patch16_map", {}),
    ("naflexvit_base_patch16_siglip", {"patchify_channels_last": False}),
    ("naflexvit_base_patch16_radio_v3", {}),
]
SHALLOW = {"depth": 2}


@pytest.mark.long
@sweep("name, options", ARCHITECTURES, quick=1)
def test_naflex_folder_gives_timm_logits_at_any_size(name, options, tmp_path):
    timm_model = perturbed(name, **SHALLOW, **options)
    timm.models.save_for_hf(timm_model, tmp_path, model_args=SHALLOW | options)
    loaded = load(find_checkpoint(str(tmp_path)))
    inspector = Inspector(loaded, "cpu")
    for size in (None, (96, 160)):
        trace = inspector.trace(noise(), size=size)  # the pass includes the attention check
        preprocessing = loaded.preprocessing.with_size(size or loaded.preprocessing.size)
        pixels = prepare(open_image(noise()), preprocessing).tensor[None]
        with torch.no_grad():
            torch.testing.assert_close(
                inspector.placed.at(preprocessing.size)(pixels), timm_model(pixels), atol=1e-4, rtol=0
            )
            embedded = timm_model.embeds(pixels)[0][0, timm_model.num_prefix_tokens :]
        torch.testing.assert_close(trace.position_embedded, embedded, atol=1e-5, rtol=0)
        assert trace.grid.pixels == preprocessing.size and len(trace.layers) == 2


def test_resized_naflex_variants_share_all_weights_but_positions():
    model = perturbed("naflexvit_base_patch16_gap", **SHALLOW)
    inspector = inspect(to_plain_vit(model, (64, 64), "mine"))
    variant = inspector.placed.at((32, 96))
    own = dict(inspector.model.named_parameters())
    assert [name for name, parameter in variant.named_parameters() if parameter is not own[name]] == [
        "pos_embed"
    ]
    assert inspector.position_table((32, 96)).shape == (12, 768) and inspector.position_kind() == "learned"


def test_resized_table_keeps_half_precision():
    model = to_plain_vit(perturbed("naflexvit_base_patch16_gap", **SHALLOW), (64, 64), "mine").to(
        torch.bfloat16
    )
    model.set_input_size((32, 96))
    assert model.pos_embed.dtype == torch.bfloat16 and model.pos_embed.shape == (1, 12, 768)


@pytest.mark.long
def test_file_of_named_naflex_architecture_is_loaded(tmp_path, monkeypatch):
    timm_model = perturbed("naflexvit_base_patch16_gap", num_classes=4, **SHALLOW)
    path = save_model(timm_model, tmp_path / "weights.safetensors")
    monkeypatch.setattr(
        timm, "create_model", partial(timm.create_model, **SHALLOW)
    )  # the registered architecture has 12 layers
    loaded = load(find_checkpoint(str(path), architecture="naflexvit_base_patch16_gap"))
    assert_same_logits(loaded, timm_model, size=384, tolerance=1e-4)
    assert loaded.preprocessing.size == (384, 384) and "classes 4" in loaded.checkpoint.note
    assert Inspector(loaded, "cpu").grid().rows == 24


def test_naflex_models_of_hub_are_listed(tmp_path):
    listed = {one.name: one for one in checkpoints(tmp_path)}
    assert listed["naflexvit_base_patch16_gap.e300_s576_in1k"].input_size == (3, 384, 384)


@pytest.mark.parametrize("change", [{"rope_type": "axial"}, {"embed_norm_layer": "layernorm"}])
def test_naflex_option_missing_in_plain_vit_is_rejected(change):
    model = timm.create_model("naflexvit_base_patch16_gap", **SHALLOW, **change)
    with pytest.raises(UnsupportedModel, match="mine is a NaFlex model with rotary positions or a norm"):
        to_plain_vit(model, (64, 64), "mine")


def test_plain_model_is_returned_unchanged():
    model = timm.create_model("vit_tiny_patch16_224", depth=1)
    assert to_plain_vit(model, (64, 64), "mine") is model
