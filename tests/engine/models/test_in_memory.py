"""Models in memory: the inspector's answers are the model's own, and what computes otherwise is refused."""

import pytest
import timm
import torch
import torchvision
import transformers
from torch import nn

import vitviz
from tests.engine.models.theirs import Apart, Heads, Scratch, Torchs
from tests.engine.small import perturbed, small
from tests.shared import shared_file
from vitviz.engine.adapters.proposal import propose_mapping
from vitviz.engine.formats.mapping import to_toml
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.errors import CheckpointError, UnsupportedModel, VitvizError

HALF = {"mean": 0.5, "std": 0.5, "device": "cpu"}


def inspected(model, **options):
    return vitviz.Inspector.of(model, **{**HALF, **options})


def test_a_timm_model_is_looked_into_as_the_same_file_would_be():
    model = timm.create_model("deit_tiny_patch16_224", pretrained=False)
    file = shared_file("weights/deit_tiny_patch16_224.safetensors")
    from safetensors.torch import load_file

    model.load_state_dict(load_file(file))
    picture = vitviz.sample_image("chelsea")
    ours, files = vitviz.Inspector.of(model, device="cpu"), vitviz.load(file, device="cpu")
    assert ours.preprocessing == files.preprocessing and ours.labels == files.labels
    assert ours.trace(picture).logits.equal(files.trace(picture).logits)
    assert ours.trace(picture).top(1)[0][0] == "Egyptian cat"


def test_training_goes_on_as_if_nobody_had_looked():
    model = small(drop_rate=0.5).train().double()
    seen = []
    model.blocks[0].register_forward_hook(lambda *_: seen.append(1))
    weight = model.blocks[0].attn.qkv.weight
    state = torch.get_rng_state()
    inspector = inspected(model)
    calls = len(seen)
    inspector.trace(vitviz.sample_image("coffee"))
    assert len(seen) == calls  # its hooks hear the one pass that proves the copy, and no picture
    assert all(module.training for module in model.modules()) and weight.requires_grad
    assert model.blocks[0].attn.qkv.weight is weight and weight.dtype == torch.float64
    assert torch.get_rng_state().equal(state)
    with torch.no_grad():
        weight.zero_()
    assert inspector.model.blocks[0].attn.qkv.weight.abs().sum() > 0


@pytest.mark.long
@pytest.mark.parametrize("wrap", [torch.nn.DataParallel, torch.compile])
def test_what_is_put_around_a_model_is_taken_off(wrap):
    assert inspected(wrap(small())).grid().patches == 16


def test_a_hook_that_changes_the_answer_is_not_overlooked():
    """No timm model answers so: the module is inspected directly, with its hook."""
    model = small()
    model.blocks[0].register_forward_hook(lambda module, args, output: output.flip(-1))
    inspector = inspected(model, size=32)
    assert "answers otherwise than its copy" in inspector.describe()
    picture = vitviz.sample_image("coffee")
    pixels = prepare(open_image(picture), inspector.preprocessing).tensor[None]
    with torch.no_grad():
        torch.testing.assert_close(inspector.trace(picture).logits, model(pixels)[0], atol=1e-5, rtol=1e-5)


def sizes(**changes):
    return {
        "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
        "image_size": 32,
        "patch_size": 8, "num_labels": 5, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    "build",
    [
        lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**sizes())),
        lambda: transformers.DeiTForImageClassification(transformers.DeiTConfig(**sizes())),
        lambda: transformers.Dinov2ForImageClassification(transformers.Dinov2Config(**sizes(mlp_ratio=2))),
        lambda: transformers.Dinov2Model(transformers.Dinov2Config(**sizes(mlp_ratio=2))),
        lambda: transformers.ViTModel(transformers.ViTConfig(**sizes()), add_pooling_layer=False),
    ],
)
def test_transformers_models_answer_as_themselves(build):
    model = perturbed(build())
    inspector = inspected(model, size=32)
    picture = vitviz.sample_image("coffee")
    pixels = prepare(open_image(picture), inspector.preprocessing).tensor[None]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        theirs = model(pixel_values=pixels, output_attentions=True)
    trace = inspector.trace(picture)
    for layer in range(2):
        torch.testing.assert_close(trace.attention(layer), theirs.attentions[layer][0], atol=1e-5, rtol=1e-4)
    if hasattr(theirs, "logits"):
        torch.testing.assert_close(trace.logits, theirs.logits[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("heads", [2, 4, 6])
@pytest.mark.parametrize("attention", [Heads, Apart, Torchs])
def test_a_module_of_ones_own_is_understood_from_its_answers(attention, heads):
    """Its heads, activation and epsilon are found, although only PyTorch's attention says any of them."""
    activation = {2: nn.GELU, 4: nn.ReLU, 6: nn.SiLU}[heads]
    model = perturbed(Scratch(attention, heads, activation=activation))
    inspector = inspected(model)
    noise = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        torch.testing.assert_close(inspector.model(noise), model(noise)[0], atol=1e-4, rtol=1e-4)
    block = inspector.model.blocks[0]
    assert block.attn.num_heads == heads and block.norm1.eps == 1e-5
    assert isinstance(block.mlp.act, activation)
    assert inspector.checkpoint.source == "memory" and "encoder.layers" in inspector.checkpoint.note


def test_a_head_s_attention_is_its_own():
    model = perturbed(Scratch(Heads, 4))
    inspector = inspected(model)
    trace = inspector.trace(vitviz.sample_image("chelsea"))
    x = trace.tokens[0].double()
    layer = model.double().encoder["layers"][0]
    head = layer.attention.heads[2]
    normed = layer.layernorm_1(x)
    theirs = (head.query(normed) @ head.key(normed).T / 12**0.5).softmax(-1)
    torch.testing.assert_close(trace.attention(0)[2].double(), theirs.detach(), atol=1e-5, rtol=0)


def test_a_patch_that_is_flattened_is_found_in_its_order():
    model = perturbed(Scratch(Apart, 4, flat=True))
    assert inspected(model).patch_filters().shape == (48, 3, 8, 8)


def test_torchvisions_own_is_understood():
    model = perturbed(torchvision.models.VisionTransformer(32, 8, 2, 4, 48, 96, num_classes=5))
    inspector = inspected(model)
    assert inspector.model.blocks[0].attn.num_heads == 4 and inspector.model.blocks[0].norm1.eps == 1e-6


@pytest.mark.long
def test_norms_behind_attention_are_found_and_others_refused():
    """A file's tensors have the same names and shapes, and are asked about; a module's answers tell."""
    model = perturbed(Scratch(Apart, 4, post=True))
    inspector = inspected(model)
    noise = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        torch.testing.assert_close(inspector.model(noise), model(noise)[0], atol=1e-4, rtol=1e-4)
    for layer in model.encoder["layers"]:
        layer.forward = lambda x, layer=layer: x + layer.mlp(x) + layer.attention(layer.layernorm_1(x))
    own = inspected(model, heads=4, size=32)
    assert "computes otherwise" in own.describe()
    with pytest.raises(UnsupportedModel, match="its readout"):
        own.tail()


def test_hardly_trained_weights_leave_the_heads_to_their_owner():
    torch.manual_seed(0)
    model = Scratch(Apart, 4)
    with torch.no_grad():
        for layer in model.encoder["layers"]:
            layer.attention.wq.weight.zero_()
    with pytest.raises(VitvizError, match="Say\n? ?heads="):
        inspected(model)
    assert inspected(model, heads=4).model.blocks[0].attn.num_heads == 4


def test_an_answer_that_is_always_the_same_proves_nothing():
    model = Scratch(Apart, 4)
    nn.init.zeros_(model.classifier.weight)
    with pytest.raises(VitvizError, match="cannot be proven"):
        inspected(model)


def test_a_size_that_is_no_model_s_own_is_the_one_that_trace_shows():
    for dynamic in (True, False):
        model = small(dynamic_img_size=dynamic)
        at_64, picture = inspected(model, size=64), vitviz.sample_image("coffee")
        trace = at_64.trace(picture)
        assert at_64.grid().patches == 64 and trace.grid.pixels == (64, 64)
        assert trace.logits.equal(inspected(model).trace(picture, size=64).logits)
        if dynamic:
            pixels = prepare(open_image(picture), at_64.preprocessing).tensor[None]
            with torch.no_grad():
                torch.testing.assert_close(trace.logits, model(pixels)[0], atol=1e-5, rtol=1e-4)
    with pytest.raises(VitvizError, match="does not divide"):
        inspected(small(), size=60)


def test_what_is_saved_in_training_is_computed_in_the_copy():
    model = small()
    model.set_grad_checkpointing(True)
    inspector, picture = inspected(model), vitviz.sample_image("coffee")
    assert model.grad_checkpointing and not inspector.model.grad_checkpointing
    for method in vitviz.METHODS:
        assert vitviz.saliency(inspector, picture, 3, method=method).map.isfinite().all(), method


def test_a_forward_that_draws_gives_its_random_numbers_back():
    class Noisy(type(small())):
        def forward(self, x):
            torch.rand(3)
            return super().forward(x)

    model = small()
    model.__class__ = Noisy
    state = torch.get_rng_state()
    inspected(model)
    assert torch.get_rng_state().equal(state)


@pytest.mark.parametrize("kind", ["ViTMAEModel", "ViTMAEForPreTraining"])
def test_a_masked_autoencoder_shows_its_encoder_and_keeps_its_mask_ratio(kind):
    model = perturbed(getattr(transformers, kind)(transformers.ViTMAEConfig(**sizes(), mask_ratio=0.75)))
    state = torch.get_rng_state()
    inspector = inspected(model)
    assert torch.get_rng_state().equal(state) and model.config.mask_ratio == 0.75
    trace = inspector.trace(vitviz.sample_image("coffee"))
    pixels = prepare(open_image(vitviz.sample_image("coffee")), inspector.preprocessing).tensor[None]
    model.config.mask_ratio = 0.0
    order = torch.arange(trace.grid.patches).expand(1, -1)
    with torch.no_grad():
        tokens = getattr(model, "vit", model)(pixels, noise=order).last_hidden_state[0]
    torch.testing.assert_close(inspector.readout(trace), tokens[0], atol=1e-5, rtol=1e-5)


def test_what_has_to_be_said_is_asked_for():
    with pytest.raises(VitvizError, match="expected mean=… and std=…"):
        vitviz.Inspector.of(Scratch(), device="cpu")
    with pytest.raises(VitvizError, match="expected a timm model"):
        vitviz.Inspector.of("vit.pth")
    with pytest.raises(UnsupportedModel, match="windows"):
        vitviz.Inspector.of(timm.create_model("swin_tiny_patch4_window7_224"), mean=0.5, std=0.5)
    with pytest.raises(UnsupportedModel):
        inspected(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 5)))
    with pytest.raises(VitvizError, match="7 classes"):
        inspected(small(), labels=["one"])


def test_traces_of_two_moments_are_not_mistaken_for_one_another():
    first, second = inspected(small()), inspected(small())
    with pytest.raises(VitvizError, match="Ask the inspector that made it"):
        second.readout(first.trace(vitviz.sample_image("coffee")))


def test_a_mapping_decides_what_names_leave_open(tmp_path):
    model = perturbed(Scratch(Apart, 4))
    for layer in model.encoder["layers"]:
        layer.register_module("first", layer.layernorm_1), layer.register_module("second", layer.layernorm_2)
        layer.layernorm_1 = layer.layernorm_2 = None
        layer.forward = _forward(layer)
    told = inspected(model, size=32).describe()
    assert "more than one possibility" in told and "[names]" in told
    lines = (
        '"encoder.layers.{layer}.first.*" = "blocks.{layer}.norm1.*"\n'
        '"encoder.layers.{layer}.second.*" = "blocks.{layer}.norm2.*"\n'
    )
    told = to_toml(propose_mapping(model.state_dict()).mapping)
    path = tmp_path / "scratch.toml"
    path.write_text(told.replace("[names]\n", "[names]\n" + lines))
    assert inspected(model, mapping=path).model.blocks[0].attn.num_heads == 4
    path.write_text(path.read_text() + '\n[model]\nhead_type = "sigmoid"\n')
    assert inspected(model, mapping=path).head_type == "sigmoid"
    path.write_text(told.replace("[names]\n", "[names]\n" + lines.replace("first", "third")))
    with pytest.raises(CheckpointError, match="does not name it"):
        inspected(model, mapping=path)


def _forward(layer):
    def forward(x):
        x = x + layer.attention(layer.first(x))
        return x + layer.mlp(layer.second(x))

    return forward
