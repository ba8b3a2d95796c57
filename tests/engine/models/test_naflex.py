"""NaFlex models at one size against timm's own, with random weights."""

from functools import partial

import pytest
import timm
import torch

from tests.engine.looking import inspect, noise, perturbed
from tests.engine.small import same, saved
from tests.tiers import sweep
from vitviz.engine.adapters.load import load
from vitviz.engine.formats.naflex import to_plain_vit
from vitviz.engine.hub.catalogue import checkpoints, find_checkpoint
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.engine.inspector import Inspector
from vitviz.errors import UnsupportedModel

# Average with registers, aspect-preserving positions, positions by row and column, attention pooling, RADIO's
# class token; and three options that a config may set though no registered model does.
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
def test_a_naflex_folder_answers_at_any_size_as_timm_does(name, options, tmp_path):
    theirs = perturbed(name, **SHALLOW, **options)
    timm.models.save_for_hf(theirs, tmp_path, model_args=SHALLOW | options)
    loaded = load(find_checkpoint(str(tmp_path)))
    inspector = Inspector(loaded, "cpu")
    for size in (None, (96, 160)):
        trace = inspector.trace(noise(), size=size)  # with the check that the attention is the model's own
        preprocessing = loaded.preprocessing.with_size(size or loaded.preprocessing.size)
        pixels = prepare(open_image(noise()), preprocessing).tensor[None]
        with torch.no_grad():
            torch.testing.assert_close(
                inspector.placed.at(preprocessing.size)(pixels), theirs(pixels), atol=1e-4, rtol=0
            )
            embedded = theirs.embeds(pixels)[0][0, theirs.num_prefix_tokens :]
        torch.testing.assert_close(trace.position_embedded, embedded, atol=1e-5, rtol=0)
        assert trace.grid.pixels == preprocessing.size and len(trace.layers) == 2


def test_the_variants_of_other_sizes_share_all_weights_but_the_table():
    model = perturbed("naflexvit_base_patch16_gap", **SHALLOW)
    inspector = inspect(to_plain_vit(model, (64, 64), "mine"))
    variant = inspector.placed.at((32, 96))
    own = dict(inspector.model.named_parameters())
    assert [name for name, parameter in variant.named_parameters() if parameter is not own[name]] == [
        "pos_embed"
    ]
    assert inspector.position_table((32, 96)).shape == (12, 768) and inspector.position_kind() == "learned"


def test_a_table_in_half_precision_stays_so():
    model = to_plain_vit(perturbed("naflexvit_base_patch16_gap", **SHALLOW), (64, 64), "mine").to(
        torch.bfloat16
    )
    model.set_input_size((32, 96))
    assert model.pos_embed.dtype == torch.bfloat16 and model.pos_embed.shape == (1, 12, 768)


@pytest.mark.long
def test_a_file_of_a_named_naflex_architecture_is_read(tmp_path, monkeypatch):
    theirs = perturbed("naflexvit_base_patch16_gap", num_classes=4, **SHALLOW)
    path = saved(theirs, tmp_path / "weights.safetensors")
    monkeypatch.setattr(
        timm, "create_model", partial(timm.create_model, **SHALLOW)
    )  # the registered one has 12 blocks
    loaded = load(find_checkpoint(str(path), architecture="naflexvit_base_patch16_gap"))
    same(loaded, theirs, size=384, tolerance=1e-4)
    assert loaded.preprocessing.size == (384, 384) and "classes 4" in loaded.checkpoint.note
    assert Inspector(loaded, "cpu").grid().rows == 24


def test_the_hubs_naflex_models_are_listed(tmp_path):
    listed = {one.name: one for one in checkpoints(tmp_path)}
    assert listed["naflexvit_base_patch16_gap.e300_s576_in1k"].input_size == (3, 384, 384)


@pytest.mark.parametrize("change", [{"rope_type": "axial"}, {"embed_norm_layer": "layernorm"}])
def test_what_a_plain_vit_does_not_have_is_refused_with_the_reason(change):
    model = timm.create_model("naflexvit_base_patch16_gap", **SHALLOW, **change)
    with pytest.raises(UnsupportedModel, match="mine is a NaFlex model with rotary positions or a norm"):
        to_plain_vit(model, (64, 64), "mine")


def test_other_models_are_left_as_they_are():
    model = timm.create_model("vit_tiny_patch16_224", depth=1)
    assert to_plain_vit(model, (64, 64), "mine") is model
