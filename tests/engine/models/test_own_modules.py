"""Modules without a timm twin: attention and tokens equal those of plain hooks or of eager attention."""

import pytest
import timm
import torch
import torchvision
import transformers
from torch import nn

import vitviz
from tests.engine.models.own import Gated, Lists, Simple, Torch
from tests.engine.small import perturbed
from vitviz.errors import UnsupportedModel, VitvizError

OPTIONS = {"mean": 0.5, "std": 0.5, "device": "cpu", "size": 32}
PICTURE = vitviz.sample_image("coffee")


def opened(model, **options):
    return vitviz.Inspector.of(model, **{**OPTIONS, **options})


def pixels_of(trace):
    picture = torch.from_numpy(trace.view.picture.copy()).permute(2, 0, 1)[None].float() / 255
    return (picture - 0.5) / 0.5


def same(ours, theirs):
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def state_of(model):
    """Everything that a look could leave behind."""
    hooks = [
        len(kept) for part in model.modules()
        for kept in (part._forward_hooks, part._forward_pre_hooks, part._backward_hooks)
    ]  # fmt: skip
    modes = torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()
    flags = [part.training for part in model.modules()]
    return hooks, modes, flags, torch.get_rng_state().tolist(), torch.is_grad_enabled()


WAYS = ("matmul", "einsum", "in place", "baddbmm", "temperature", "keys first")


@pytest.mark.parametrize("way", WAYS)
def test_explicit_attention_and_tokens_are_those_of_plain_hooks(way):
    model = Lists(way=way).train()
    before = state_of(model)
    trace = opened(model).trace(PICTURE)
    assert state_of(model) == before
    weights, entering = [], []
    for attention, _ in model.layers:
        attention.attend.register_forward_hook(lambda part, args, output: weights.append(output[0]))
        attention.register_forward_pre_hook(lambda part, args: entering.append(args[0][0]))
    model.norm.register_forward_pre_hook(lambda part, args: entering.append(args[0][0]))
    with torch.no_grad():
        same(trace.logits, model.eval()(pixels_of(trace))[0])
    for layer, theirs in enumerate(weights):
        same(trace.attention(layer), theirs)
    for ours, theirs in zip(trace.tokens, entering, strict=True):
        same(ours, theirs)
    assert trace.grid.prefix_names == ("class",)


def test_simple_vit_s_attention_and_tokens_are_those_of_plain_hooks():
    model = Simple().eval()
    inspector = opened(model)
    trace, weights, entering, embedded = inspector.trace(PICTURE), [], [], []
    for attention, _ in model.transformer.layers:
        attention.attend.register_forward_hook(lambda part, args, output: weights.append(output[0]))
        attention.register_forward_pre_hook(lambda part, args: entering.append(args[0][0]))
    model.transformer.norm.register_forward_pre_hook(lambda part, args: entering.append(args[0][0]))
    model.to_patch_embedding[2].register_forward_hook(lambda part, args, output: embedded.append(output[0]))
    with torch.no_grad():
        same(trace.logits, model(pixels_of(trace))[0])
    for layer, theirs in enumerate(weights):
        same(trace.attention(layer), theirs)
    for ours, theirs in zip(trace.tokens, entering, strict=True):
        same(ours, theirs)
    same(trace.patch_embedding, embedded[0].flatten(0, 1))
    assert trace.grid.prefix_names == () and trace.grid.patches == 16
    assert "blocks: transformer.layers: 2 x ModuleList" in inspector.describe()


def test_tokens_behind_the_patches_are_put_before_them():
    model = Lists(after=2)
    inspector = opened(model)
    trace = inspector.trace(PICTURE)
    assert trace.grid.prefix_names == ("register 1", "register 2") and trace.grid.patches == 16
    same(trace.tokens[0][:2], model.registers[0].detach())


@pytest.mark.parametrize("weights", [True, False])
def test_pytorch_s_attention_is_captured_with_its_fast_path(weights):
    """Without weights, evaluation would take the native fast path, which shows no operation."""
    model = Torch(weights=weights).eval()
    before = state_of(model)
    trace = opened(model, output="scores").trace(PICTURE)
    assert state_of(model) == before and torch.backends.mha.get_fastpath_enabled()
    seen, outputs = [], []
    for block in model.blocks:
        block.weights = True
        block.attention.register_forward_hook(lambda part, args, output: seen.append(output[1][0]))
        block.register_forward_hook(lambda part, args, output: outputs.append(output[0][0].clone()))
    with torch.no_grad():
        same(trace.logits, model(pixels_of(trace))["scores"][0])
    for layer, theirs in enumerate(seen):
        same(trace.attention(layer), theirs)
        same(trace.tokens[layer + 1], outputs[layer])


def test_torchvision_s_vision_transformer():
    model = perturbed(torchvision.models.VisionTransformer(32, 8, 2, 4, 48, 96, num_classes=5))
    trace = opened(model, blocks="encoder.layers").trace(PICTURE)
    twin = opened(model).trace(PICTURE)
    for layer in range(2):
        torch.testing.assert_close(trace.attention(layer), twin.attention(layer), atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(trace.tokens[layer], twin.tokens[layer], atol=1e-5, rtol=1e-5)
    same(trace.patch_embedding, twin.patch_embedding)


SIZES = {
    "hidden_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 96,
    "image_size": 32, "patch_size": 8,
}  # fmt: skip


@pytest.mark.parametrize(
    "build",
    [
        lambda: transformers.CLIPVisionModel(transformers.CLIPVisionConfig(**SIZES)),
        lambda: transformers.SiglipVisionModel(transformers.SiglipVisionConfig(**SIZES)),
        lambda: transformers.IJepaModel(transformers.IJepaConfig(**SIZES)),
        lambda: transformers.ViTMSNModel(transformers.ViTMSNConfig(**SIZES)),
    ],
    ids=["CLIP", "SigLIP", "I-JEPA", "MSN"],
)
def test_transformers_towers_equal_their_eager_attention(build):
    model = perturbed(build())
    trace = opened(model).trace(PICTURE)
    model.set_attn_implementation("eager")
    with torch.no_grad():
        theirs = model(pixels_of(trace), output_attentions=True, output_hidden_states=True)
    for layer, attention in enumerate(theirs.attentions):
        same(trace.attention(layer), attention[0])
    for layer in range(2):
        torch.testing.assert_close(trace.tokens[layer], theirs.hidden_states[layer][0], atol=1e-5, rtol=1e-5)


class Windows(nn.Module):
    """Attends within halves of the sequence."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x.reshape(2, -1, x.shape[-1])).reshape(x.shape)


def windowed():
    model = Lists(after=2)
    for pair in model.layers:
        pair[0] = Windows(pair[0])
    return model


REFUSED = {
    "talking heads before": lambda: Lists(way="mixed before"),
    "talking heads after": lambda: Lists(way="mixed after"),
    "weights changed after the softmax": lambda: Lists(way="changed after"),
    "windows": windowed,
    "Swin": lambda: timm.create_model(
        "swin_tiny_patch4_window7_224",
        img_size=32,
        window_size=4,
        embed_dim=24,
        depths=(2, 2),
        num_heads=(2, 2),
    ),
    "convolutions": lambda: torchvision.models.resnet18(num_classes=5),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_has_no_single_attention_map_is_refused_and_left_alone(kind):
    model = REFUSED[kind]().train()
    before = state_of(model)
    with pytest.raises(UnsupportedModel) as refused:
        opened(model)
    assert state_of(model) == before and str(refused.value).count(". ") <= 2


def test_a_failing_module_is_named_and_left_alone():
    model = Torch()
    model.blocks[1].mlp = nn.Linear(31, 31)
    before = state_of(model)
    with pytest.raises(UnsupportedModel, match="RuntimeError"):
        opened(model, output="scores")
    assert state_of(model) == before


def test_an_ambiguous_output_and_unknown_names_are_asked_about():
    with pytest.raises(VitvizError, match="output='scores'"):
        opened(Torch())
    with pytest.raises(VitvizError, match="scores, side"):
        opened(Torch(), output="logits")
    with pytest.raises(VitvizError, match="layers"):
        opened(Lists(), blocks="transformer.layers")


def test_what_needs_the_readout_tells_that_it_is_not_known():
    inspector = opened(Lists(mlp=lambda: Gated(32)))
    trace, name = inspector.trace(PICTURE), inspector.checkpoint.name
    known = [
        vitviz.rollout(trace), vitviz.attention_distance(trace), vitviz.token_similarity(trace, 1, 3),
        vitviz.token_norms(trace), vitviz.token_components([trace], 1).scores,
    ]  # fmt: skip
    assert all(torch.as_tensor(one).isfinite().all() for one in known)
    assert "layers: 3 x ModuleList" in inspector.describe() and "proven" in inspector.describe()
    for ask in (
        lambda: vitviz.logit_attribution(inspector, trace, 0),
        lambda: vitviz.logit_lens(inspector, trace),
        lambda: vitviz.saliency(inspector, PICTURE, 0),
        lambda: vitviz.faithfulness(inspector, PICTURE, 0, methods=["random", "gradient_rollout"]),
        lambda: vitviz.attribution_paths(inspector, trace, 0),
        lambda: vitviz.upstream_contributions(inspector, trace, 0, 1, 0),
        lambda: vitviz.attention_score_attribution(inspector, trace, 0, 1, 0, 0),
        lambda: vitviz.edge_ablation(inspector, trace, 0),
        lambda: vitviz.sufficient_edges(inspector, trace),
        lambda: vitviz.token_similarity(trace, 1, 3, norm=inspector),
        lambda: inspector.trace(PICTURE, ablation=vitviz.Ablation(heads=[(0, 1)])),
        lambda: inspector.effects(PICTURE, 0),
        lambda: inspector.layer_effects(PICTURE, 0),
        lambda: inspector.experiment(PICTURE, positions=False),
        lambda: inspector.readout(trace),
        lambda: inspector.tail(),
        lambda: inspector.parts(),
        lambda: vitviz.position_similarity(inspector),
    ):
        with pytest.raises(VitvizError, match=name):
            ask()
            pytest.fail(str(ask.__code__.co_firstlineno))
