"""Modules in memory: the inspector computes what the module computes, or rejects it."""

import pytest
import timm
import torch
import torchvision
import transformers
from torch import nn

import vitviz
from tests.engine.models.custom_vits import CustomViT, SeparateHeads, SeparateMatrices, TorchAttention
from tests.engine.small_models import perturbed, small_vit
from tests.shared import shared_file
from vitviz.engine.adapters.proposal import propose_mapping
from vitviz.engine.formats.mapping import to_toml
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.errors import AssumedWarning, CheckpointError, UnsupportedModel, VitvizError

HALF = {"mean": 0.5, "std": 0.5, "device": "cpu"}


def inspect_module(model, **options):
    return vitviz.Inspector.of(model, **{**HALF, **options})


def test_timm_module_equals_its_file():
    model = timm.create_model("deit_tiny_patch16_224", pretrained=False)
    file = shared_file("weights/deit_tiny_patch16_224.safetensors")
    from safetensors.torch import load_file

    model.load_state_dict(load_file(file))
    image = vitviz.sample_image("chelsea")
    from_module, from_file = vitviz.Inspector.of(model, device="cpu"), vitviz.load(file, device="cpu")
    assert from_module.preprocessing == from_file.preprocessing and from_module.labels == from_file.labels
    assert from_module.trace(image).logits.equal(from_file.trace(image).logits)
    assert from_module.trace(image).top(1)[0][0] == "Egyptian cat"


def test_inspecting_leaves_training_state_unchanged():
    model = small_vit(drop_rate=0.5).train().double()
    hook_calls = []
    model.blocks[0].register_forward_hook(lambda *_: hook_calls.append(1))
    weight = model.blocks[0].attn.qkv.weight
    state = torch.get_rng_state()
    inspector = inspect_module(model)
    calls = len(hook_calls)
    inspector.trace(vitviz.sample_image("coffee"))
    # the module's hooks run once, in the pass that verifies the copy, and not in traces
    assert len(hook_calls) == calls
    assert all(module.training for module in model.modules()) and weight.requires_grad
    assert model.blocks[0].attn.qkv.weight is weight and weight.dtype == torch.float64
    assert torch.get_rng_state().equal(state)
    with torch.no_grad():
        weight.zero_()
    assert inspector.model.blocks[0].attn.qkv.weight.abs().sum() > 0


@pytest.mark.long
@pytest.mark.parametrize("wrap", [torch.nn.DataParallel, torch.compile])
def test_wrapped_module_is_unwrapped(wrap):
    assert inspect_module(wrap(small_vit())).grid().patches == 16


def test_hook_that_changes_logits_is_kept():
    """No timm model gives these logits, so the module is inspected directly, with its hook."""
    model = small_vit()
    model.blocks[0].register_forward_hook(lambda module, args, output: output.flip(-1))
    inspector = inspect_module(model, size=32)
    assert "differs from that of its timm copy" in inspector.describe()
    image = vitviz.sample_image("coffee")
    pixels = prepare(open_image(image), inspector.preprocessing).tensor[None]
    with torch.no_grad():
        torch.testing.assert_close(inspector.trace(image).logits, model(pixels)[0], atol=1e-5, rtol=1e-5)


def test_hooked_library_model_keeps_its_classes_and_preprocessing():
    names = {0: "cat", 1: "dog", 2: "cup"}
    classes = {"id2label": names, "label2id": {name: index for index, name in names.items()}}
    config = transformers.ViTConfig(**vit_sizes(), **classes, problem_type="multi_label_classification")
    model = perturbed(transformers.ViTForImageClassification(config))
    timm_model = perturbed(timm.create_model("vit_tiny_patch16_224", img_size=32, patch_size=8, depth=2))
    for one, block in ((model, model.vit.layers[0]), (timm_model, timm_model.blocks[0])):
        plain = vitviz.Inspector.of(one, mean=0.5, std=0.5)
        block.register_forward_hook(lambda module, args, output: output * 1.5)
        hooked = vitviz.Inspector.of(one, mean=0.5, std=0.5)
        assert type(hooked.model).__name__ == "OwnModel"
        assert (hooked.head_type, hooked.labels) == (plain.head_type, plain.labels)
        assert hooked.preprocessing == plain.preprocessing


@pytest.mark.parametrize("build", [small_vit, lambda: transformers_vit()], ids=["timm", "transformers"])
def test_hook_of_model_with_zero_classifier_is_kept(build):
    """All tokens give the same logits, so that only tokens show the hook."""
    model = build()
    head = model.head if hasattr(model, "head") else model.classifier
    nn.init.zeros_(head.weight)
    assert type(inspect_module(model, size=32).model).__name__ == "VisionTransformer"
    block = model.blocks[0] if hasattr(model, "blocks") else model.vit.layernorm
    block.register_forward_hook(lambda module, args, output: output.flip(-1))
    assert "differs from that of its timm copy" in inspect_module(model, size=32).describe()


def transformers_vit():
    return perturbed(transformers.ViTForImageClassification(transformers.ViTConfig(**vit_sizes())))


def vit_sizes(**changes):
    return {
        "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
        "image_size": 32,
        "patch_size": 8, "num_labels": 5, **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    "build",
    [
        lambda: transformers.ViTForImageClassification(transformers.ViTConfig(**vit_sizes())),
        lambda: transformers.DeiTForImageClassification(transformers.DeiTConfig(**vit_sizes())),
        lambda: transformers.Dinov2ForImageClassification(
            transformers.Dinov2Config(**vit_sizes(mlp_ratio=2))
        ),
        lambda: transformers.Dinov2Model(transformers.Dinov2Config(**vit_sizes(mlp_ratio=2))),
        lambda: transformers.ViTModel(transformers.ViTConfig(**vit_sizes()), add_pooling_layer=False),
    ],
)
def test_transformers_module_gives_its_own_output(build):
    model = perturbed(build())
    inspector = inspect_module(model, size=32)
    image = vitviz.sample_image("coffee")
    pixels = prepare(open_image(image), inspector.preprocessing).tensor[None]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(pixel_values=pixels, output_attentions=True)
    trace = inspector.trace(image)
    for layer in range(2):
        torch.testing.assert_close(
            trace.attention(layer), expected.attentions[layer][0], atol=1e-5, rtol=1e-4
        )
    if hasattr(expected, "logits"):
        torch.testing.assert_close(trace.logits, expected.logits[0], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("heads", [2, 4, 6])
@pytest.mark.parametrize("attention", [SeparateHeads, SeparateMatrices, TorchAttention])
def test_custom_module_settings_are_inferred_from_output(attention, heads):
    """Heads, activation and epsilon are inferred. Only PyTorch's attention states any of them."""
    activation = {2: nn.GELU, 4: nn.ReLU, 6: nn.SiLU}[heads]
    model = perturbed(CustomViT(attention, heads, activation=activation))
    inspector = inspect_module(model)
    noise = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        torch.testing.assert_close(inspector.model(noise), model(noise)[0], atol=1e-4, rtol=1e-4)
    block = inspector.model.blocks[0]
    assert block.attn.num_heads == heads and block.norm1.eps == 1e-5
    assert isinstance(block.mlp.act, activation)
    assert inspector.checkpoint.source == "memory" and "encoder.layers" in inspector.checkpoint.note


def test_attention_of_separate_heads_is_correct():
    model = perturbed(CustomViT(SeparateHeads, 4))
    inspector = inspect_module(model)
    trace = inspector.trace(vitviz.sample_image("chelsea"))
    x = trace.tokens[0].double()
    layer = model.double().encoder["layers"][0]
    head = layer.attention.heads[2]
    normed = layer.layernorm_1(x)
    expected = (head.query(normed) @ head.key(normed).T / 12**0.5).softmax(-1)
    torch.testing.assert_close(trace.attention(0)[2].double(), expected.detach(), atol=1e-5, rtol=0)


class UnscaledMatrices(SeparateMatrices):
    """Attention without the factor 1/sqrt(d)."""

    def forward(self, x):
        q, k, v = (layer(x).unflatten(-1, (4, -1)).transpose(1, 2) for layer in (self.wq, self.wk, self.wv))
        self.weights = (q @ k.mT).softmax(-1)
        return self.wo((self.weights @ v).transpose(1, 2).flatten(2))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("attention", [SeparateMatrices, UnscaledMatrices])
def test_attention_with_little_effect_on_output_is_verified(attention, dtype):
    model = perturbed(CustomViT(attention, 4))
    for layer in model.encoder["layers"]:
        layer.attention.wo.weight.data *= 1e-6
    inspector = inspect_module(model.to(dtype), heads=4, size=32)
    twin = type(inspector.model).__name__ == "VisionTransformer"
    assert twin == (attention is SeparateMatrices)
    if not twin:
        trace = inspector.trace(vitviz.sample_image("coffee"))
        with torch.no_grad():
            model.float()(prepare(open_image(trace.view.picture), inspector.preprocessing).tensor[None])
        expected = model.encoder["layers"][1].attention.weights[0]
        torch.testing.assert_close(trace.attention(1), expected, atol=1e-5, rtol=1e-4)


def test_shared_layer_keeps_its_weights():
    model = perturbed(CustomViT(SeparateMatrices, 4))
    model.encoder["layers"][1] = model.encoder["layers"][0]
    kept = [(tensor, tensor.detach().clone()) for tensor in model.parameters()]
    assert len(inspect_module(model).model.blocks) == 2
    for tensor, (own, value) in zip(model.parameters(), kept, strict=True):
        assert tensor is own and tensor.equal(value)


def test_flattened_patch_order_is_inferred():
    model = perturbed(CustomViT(SeparateMatrices, 4, flat=True))
    assert inspect_module(model).patch_filters().shape == (48, 3, 8, 8)


def test_torchvision_module_is_inferred():
    model = perturbed(torchvision.models.VisionTransformer(32, 8, 2, 4, 48, 96, num_classes=5))
    inspector = inspect_module(model)
    assert inspector.model.blocks[0].attn.num_heads == 4 and inspector.model.blocks[0].norm1.eps == 1e-6


@pytest.mark.long
def test_post_norm_module_is_inferred_and_parallel_is_direct():
    """In a file these tensors are ambiguous and are listed as assumptions. A module's output decides."""
    model = perturbed(CustomViT(SeparateMatrices, 4, post=True))
    inspector = inspect_module(model)
    noise = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        torch.testing.assert_close(inspector.model(noise), model(noise)[0], atol=1e-4, rtol=1e-4)
    for layer in model.encoder["layers"]:
        layer.forward = lambda x, layer=layer: x + layer.mlp(x) + layer.attention(layer.layernorm_1(x))
    direct = inspect_module(model, heads=4, size=32)
    assert "does not compute as a plain" in direct.describe()
    with pytest.raises(UnsupportedModel, match="its readout"):
        direct.tail()


def test_untrained_weights_require_explicit_heads():
    torch.manual_seed(0)
    model = CustomViT(SeparateMatrices, 4)
    with torch.no_grad():
        for layer in model.encoder["layers"]:
            layer.attention.wq.weight.zero_()
    with pytest.raises(VitvizError, match="Pass\n? ?heads="):
        inspect_module(model)
    assert inspect_module(model, heads=4).model.blocks[0].attn.num_heads == 4


def test_module_with_constant_output_is_rejected():
    model = CustomViT(SeparateMatrices, 4)
    nn.init.zeros_(model.classifier.weight)
    with pytest.raises(VitvizError, match="cannot be verified"):
        inspect_module(model)


def test_inspector_size_equals_trace_size():
    for dynamic in (True, False):
        model = small_vit(dynamic_img_size=dynamic)
        at_64, image = inspect_module(model, size=64), vitviz.sample_image("coffee")
        trace = at_64.trace(image)
        assert at_64.grid().patches == 64 and trace.grid.pixels == (64, 64)
        assert trace.logits.equal(inspect_module(model).trace(image, size=64).logits)
        if dynamic:
            pixels = prepare(open_image(image), at_64.preprocessing).tensor[None]
            with torch.no_grad():
                torch.testing.assert_close(trace.logits, model(pixels)[0], atol=1e-5, rtol=1e-4)
    with pytest.raises(VitvizError, match="do not divide"):
        inspect_module(small_vit(), size=60)


def test_gradient_checkpointing_is_off_in_copy():
    model = small_vit()
    model.set_grad_checkpointing(True)
    inspector, image = inspect_module(model), vitviz.sample_image("coffee")
    assert model.grad_checkpointing and not inspector.model.grad_checkpointing
    for method in vitviz.METHODS:
        assert vitviz.saliency(inspector, image, 3, method=method).map.isfinite().all(), method


def test_random_state_is_restored_after_inspecting():
    class Noisy(type(small_vit())):
        def forward(self, x):
            torch.rand(3)
            return super().forward(x)

    model = small_vit()
    model.__class__ = Noisy
    state = torch.get_rng_state()
    inspect_module(model)
    assert torch.get_rng_state().equal(state)


@pytest.mark.parametrize("kind", ["ViTMAEModel", "ViTMAEForPreTraining"])
def test_masked_autoencoder_gives_unmasked_encoder_output(kind):
    model = perturbed(getattr(transformers, kind)(transformers.ViTMAEConfig(**vit_sizes(), mask_ratio=0.75)))
    state = torch.get_rng_state()
    with pytest.warns(AssumedWarning, match="Here all patches are kept"):
        inspector = inspect_module(model)
    assert torch.get_rng_state().equal(state) and model.config.mask_ratio == 0.75
    trace = inspector.trace(vitviz.sample_image("coffee"))
    pixels = prepare(open_image(vitviz.sample_image("coffee")), inspector.preprocessing).tensor[None]
    model.config.mask_ratio = 0.0
    order = torch.arange(trace.grid.patches).expand(1, -1)
    with torch.no_grad():
        tokens = getattr(model, "vit", model)(pixels, noise=order).last_hidden_state[0]
    torch.testing.assert_close(inspector.readout(trace), tokens[0], atol=1e-5, rtol=1e-5)


class LoRA(nn.Module):
    """A linear layer with an additive low-rank update that is not merged."""

    def __init__(self, base):
        super().__init__()
        self.up = nn.Linear(4, base.out_features, bias=False)  # first, so its width is not the input's
        self.down = nn.Linear(base.in_features, 4, bias=False)
        self.base, self.dropout = base, nn.Dropout(0.1)

    def forward(self, x):
        return self.base(x) + self.up(self.down(self.dropout(x)))


def test_linear_maps_of_several_layers_are_merged():
    model = small_vit().train()
    for block in model.blocks:
        block.attn.proj, block.mlp.fc1 = LoRA(block.attn.proj), LoRA(block.mlp.fc1)
    model.head = nn.Sequential(nn.Dropout(0.2), model.head)
    state = torch.get_rng_state()
    inspector = inspect_module(model)
    assert torch.get_rng_state().equal(state) and isinstance(model.blocks[0].attn.proj, LoRA)
    assert "a timm model with this checkpoint's weights" in inspector.describe()
    trace = inspector.trace(vitviz.sample_image("coffee"))
    assert abs(vitviz.logit_attribution(inspector, trace, 0).gap) < 1e-5


def test_model_of_several_attentions_in_a_block_is_rejected_at_once():
    with pytest.raises(UnsupportedModel, match="block 1 makes 2 attention calls"):
        inspect_module(small_vit("vit_small_patch16_18x2_224"))


def test_missing_information_is_requested():
    with pytest.raises(VitvizError, match="Pass mean=… and std=…"):
        vitviz.Inspector.of(CustomViT(), device="cpu")
    with pytest.raises(VitvizError, match="Expected a timm model"):
        vitviz.Inspector.of("vit.pth")
    with pytest.raises(UnsupportedModel, match="windows"):
        vitviz.Inspector.of(timm.create_model("swin_tiny_patch4_window7_224"))
    with pytest.raises(UnsupportedModel):
        inspect_module(nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 5)))
    with pytest.raises(VitvizError, match="7 classes"):
        inspect_module(small_vit(), labels=["one"])


def test_trace_of_another_inspector_is_rejected():
    first, second = inspect_module(small_vit()), inspect_module(small_vit())
    with pytest.raises(VitvizError, match="Use the inspector that made it"):
        second.readout(first.trace(vitviz.sample_image("coffee")))


def test_mapping_file_resolves_ambiguous_names(tmp_path):
    model = perturbed(CustomViT(SeparateMatrices, 4))
    for layer in model.encoder["layers"]:
        layer.register_module("first", layer.layernorm_1), layer.register_module("second", layer.layernorm_2)
        layer.layernorm_1 = layer.layernorm_2 = None
        layer.forward = swapped_forward(layer)
    text = inspect_module(model, size=32).describe()
    assert "ambiguous" in text and "[names]" in text
    lines = (
        '"encoder.layers.{layer}.first.*" = "blocks.{layer}.norm1.*"\n'
        '"encoder.layers.{layer}.second.*" = "blocks.{layer}.norm2.*"\n'
    )
    text = to_toml(propose_mapping(model.state_dict()).mapping)
    path = tmp_path / "scratch.toml"
    path.write_text(text.replace("[names]\n", "[names]\n" + lines))
    assert inspect_module(model, mapping=path).model.blocks[0].attn.num_heads == 4
    path.write_text(path.read_text() + '\n[model]\nhead_type = "sigmoid"\n')
    assert inspect_module(model, mapping=path).head_type == "sigmoid"
    path.write_text(text.replace("[names]\n", "[names]\n" + lines.replace("first", "third")))
    with pytest.raises(CheckpointError, match="does not name it"):
        inspect_module(model, mapping=path)


def swapped_forward(layer):
    def forward(x):
        x = x + layer.attention(layer.first(x))
        return x + layer.mlp(layer.second(x))

    return forward
