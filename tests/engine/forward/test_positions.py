"""Position tables at another size, against transformers' own `interpolate_pos_encoding`."""

import pytest
import torch
import torch.nn.functional as F

import vitviz
from tests.engine.looking import inspect, noise
from tests.engine.models.transformers_classes import transformers_models
from tests.engine.models.transformers_kin import BIASES, beit, dinov3, mae
from tests.engine.small import perturbed, small
from vitviz.engine.inspector import Inspector
from vitviz.errors import CheckpointError, UnsupportedModel

hf = pytest.importorskip("transformers", reason="transformers is the oracle for its own rule")

FAMILIES = {
    **transformers_models(),
    "beit": lambda: hf.BeitForImageClassification(beit(**dict.fromkeys(BIASES, True))),
    "beit, relative": lambda: hf.BeitForImageClassification(beit(use_relative_position_bias=True)),
    "beit, shared": lambda: hf.BeitForImageClassification(beit(use_shared_relative_position_bias=True)),
    "mae": lambda: hf.ViTMAEModel(mae()),
    "dinov3": lambda: hf.DINOv3ViTModel(dinov3(num_register_tokens=2)),
}
GRIDS = [(56, 56), (14, 14), (42, 21), (14, 56), (35, 28)]  # pixels; of 7 a patch, the own grid is 4 x 4


@pytest.fixture(scope="module", params=FAMILIES)
def theirs(request):
    torch.manual_seed(0)
    model = perturbed(FAMILIES[request.param]())
    model.set_attn_implementation("eager")
    return model


def answer(model, pixels):
    """Attention of every layer, and logits or None, as transformers computes them at any size."""
    kind = model.config.model_type
    options = {} if kind.startswith("dino") else {"interpolate_pos_encoding": True}
    if kind == "vit_mae":  # shuffles its patches by a noise, here one that is in order
        options["noise"] = torch.arange(pixels.shape[-2] * pixels.shape[-1] / 49)[None]
    with torch.no_grad():
        found = model(pixels, output_attentions=True, **options)
    return [one[0] for one in found.attentions], found.get("logits")


def same(inspector, model):
    for size in GRIDS:
        prepared, _ = inspector.forward.prepare(noise(), size)
        trace = inspector.trace(noise(), size=size)
        attention, logits = answer(model, prepared.tensor[None])
        for layer, one in zip(trace.layers, attention, strict=True):
            torch.testing.assert_close(layer.weights(), one, atol=1e-5, rtol=0)
        assert (trace.logits is None) == (logits is None)
        if logits is not None:
            torch.testing.assert_close(trace.logits, logits[0], atol=1e-5, rtol=0)


def test_a_folder_of_transformers_follows_its_rule_at_another_size(theirs, tmp_path):
    theirs.save_pretrained(tmp_path)
    same(vitviz.load(str(tmp_path), device="cpu"), theirs)


@pytest.mark.parametrize("size", [None, 42])
def test_a_module_of_transformers_follows_its_rule_at_another_size(theirs, size):
    if theirs.config.model_type == "vit_mae":
        pytest.skip("leaves out patches at random, so that it is looked into from its folder alone")
    same(Inspector.of(theirs, size=size, device="cpu"), theirs)


def test_the_table_shown_is_the_one_the_model_adds(tmp_path):
    torch.manual_seed(0)
    model = perturbed(FAMILIES["vit"]())
    model.save_pretrained(tmp_path)
    inspector = vitviz.load(str(tmp_path), device="cpu")
    table = model.vit.embeddings.position_embeddings[:, 1:].detach().reshape(1, 4, 4, -1).movedim(-1, 1)
    for size in ((56, 56), (14, 21)):
        laid = F.interpolate(table, (size[0] // 7, size[1] // 7), mode="bicubic").flatten(2)[0].T
        trace = inspector.trace(noise(), size=size)
        torch.testing.assert_close(inspector.position_table(size), laid)
        torch.testing.assert_close(inspector.position_tables(size)[0], laid)
        torch.testing.assert_close(inspector.parts(size).positions[-len(laid) :], laid)
        torch.testing.assert_close(trace.position_embedded - trace.patch_embedding, laid, atol=1e-5, rtol=0)


def test_a_model_of_timm_keeps_timms_rule():
    inspector = inspect(small())
    table = inspector.model.pos_embed[:, 1:].reshape(1, 4, 4, -1).movedim(-1, 1)
    laid = F.interpolate(table, (2, 3), mode="bicubic", antialias=True).flatten(2)[0].T
    torch.testing.assert_close(inspector.position_table((16, 24)), laid)


def test_an_inspector_at_another_size_resizes_the_trained_table():
    """At 64, then at 48: not what was resized before, but the table of 32 px."""
    model = small()
    at_64, own = (Inspector.of(model, size=size, device="cpu") for size in (64, None))
    for size in ((32, 32), (48, 48), (64, 64)):
        assert torch.equal(at_64.position_table(size), own.position_table(size))
    assert torch.equal(at_64.on("cpu").position_table(), own.position_table((64, 64)))
    assert at_64.grid().rows == 8 and at_64.trace(noise()).grid.rows == 8


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (lambda own: hf.Dinov2Config(**own, mlp_ratio=2), CheckpointError),
        (lambda own: hf.Dinov2WithRegistersConfig(**own, mlp_ratio=2), CheckpointError),
        (lambda own: hf.ViTConfig(**own, intermediate_size=96), UnsupportedModel),
        (lambda own: hf.DeiTConfig(**own, intermediate_size=96), UnsupportedModel),
    ],
)
def test_a_table_that_is_not_square_is_never_resized(config, error, tmp_path):
    """transformers takes every table for a square one; those that it always resizes cannot be run at all."""
    own = {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 1, "patch_size": 7}
    config = config({**own, "image_size": [28, 42]})
    hf.AutoModel.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(error, match="square"):
        inspector = vitviz.load(str(tmp_path), device="cpu")
        assert inspector.trace(noise()).grid.cols == 6
        inspector.trace(noise(), size=(28, 28))
