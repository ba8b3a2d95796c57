"""Position tables at other sizes, against transformers' own `interpolate_pos_encoding`."""

import pytest
import torch
import torch.nn.functional as F

import vitviz
from tests.engine.models.transformers_configs import BIASES, beit, dinov3, mae
from tests.engine.models.transformers_models import transformers_models
from tests.engine.random_inspectors import inspect, noise
from tests.engine.small_models import perturbed, small_vit
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
# sizes in pixels; the patch is 7 pixels wide, the native grid 4 x 4
GRIDS = [(56, 56), (14, 14), (42, 21), (14, 56), (35, 28)]


@pytest.fixture(scope="module", params=FAMILIES)
def hf_model(request):
    torch.manual_seed(0)
    model = perturbed(FAMILIES[request.param]())
    model.set_attn_implementation("eager")
    return model


def reference_outputs(model, pixels):
    """Return the attention of every layer, and logits or None, as transformers computes them at any size."""
    kind = model.config.model_type
    options = {} if kind.startswith("dino") else {"interpolate_pos_encoding": True}
    if kind == "vit_mae":  # ViTMAE shuffles its patches by a noise; this noise keeps their order
        options["noise"] = torch.arange(pixels.shape[-2] * pixels.shape[-1] / 49)[None]
    with torch.no_grad():
        outputs = model(pixels, output_attentions=True, **options)
    return [layer_attention[0] for layer_attention in outputs.attentions], outputs.get("logits")


def assert_matches_transformers(inspector, model):
    for size in GRIDS:
        prepared, _ = inspector.forward.prepare(noise(), size)
        trace = inspector.trace(noise(), size=size)
        attention, logits = reference_outputs(model, prepared.tensor[None])
        for layer, expected in zip(trace.layers, attention, strict=True):
            torch.testing.assert_close(layer.weights(), expected, atol=1e-5, rtol=0)
        assert (trace.logits is None) == (logits is None)
        if logits is not None:
            torch.testing.assert_close(trace.logits, logits[0], atol=1e-5, rtol=0)


def test_transformers_folder_resizes_positions_like_transformers(hf_model, tmp_path):
    hf_model.save_pretrained(tmp_path)
    assert_matches_transformers(vitviz.load(str(tmp_path), device="cpu"), hf_model)


@pytest.mark.parametrize("size", [None, 42])
def test_transformers_module_resizes_positions_like_transformers(hf_model, size):
    if hf_model.config.model_type == "vit_mae":
        pytest.skip("leaves out patches at random, so that it is looked into from its folder alone")
    assert_matches_transformers(Inspector.of(hf_model, size=size, device="cpu"), hf_model)


def test_position_table_equals_table_added_by_model(tmp_path):
    torch.manual_seed(0)
    model = perturbed(FAMILIES["vit"]())
    model.save_pretrained(tmp_path)
    inspector = vitviz.load(str(tmp_path), device="cpu")
    table = model.vit.embeddings.position_embeddings[:, 1:].detach().reshape(1, 4, 4, -1).movedim(-1, 1)
    for size in ((56, 56), (14, 21)):
        resized = F.interpolate(table, (size[0] // 7, size[1] // 7), mode="bicubic").flatten(2)[0].T
        trace = inspector.trace(noise(), size=size)
        torch.testing.assert_close(inspector.position_table(size), resized)
        torch.testing.assert_close(inspector.position_tables(size)[0], resized)
        torch.testing.assert_close(inspector.parts(size).positions[-len(resized) :], resized)
        torch.testing.assert_close(
            trace.position_embedded - trace.patch_embedding, resized, atol=1e-5, rtol=0
        )


def test_timm_model_resizes_positions_like_timm():
    inspector = inspect(small_vit())
    table = inspector.model.pos_embed[:, 1:].reshape(1, 4, 4, -1).movedim(-1, 1)
    resized = F.interpolate(table, (2, 3), mode="bicubic", antialias=True).flatten(2)[0].T
    torch.testing.assert_close(inspector.position_table((16, 24)), resized)


def test_inspector_of_another_size_resizes_trained_table():
    """At 64 pixels, then at 48: the table of 32 pixels is resized, not an already resized one."""
    model = small_vit()
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
def test_non_square_table_is_never_resized(config, error, tmp_path):
    """transformers assumes square tables. Models that always resize cannot run with another table."""
    own = {"hidden_size": 48, "num_attention_heads": 4, "num_hidden_layers": 1, "patch_size": 7}
    config = config({**own, "image_size": [28, 42]})
    hf.AutoModel.from_config(config).save_pretrained(tmp_path)
    with pytest.raises(error, match="square"):
        inspector = vitviz.load(str(tmp_path), device="cpu")
        assert inspector.trace(noise()).grid.cols == 6
        inspector.trace(noise(), size=(28, 28))
