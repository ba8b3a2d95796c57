"""Models in ordinary states give the logits of a plain model; unreadable states are rejected.

States: train mode, unfused attention, pruned or normed weights, autocast and inference mode.
"""

import pytest
import timm
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

import vitviz
from tests.engine.models.custom_vits import CustomViT
from tests.engine.small_models import perturbed, small_vit
from vitviz.errors import UnsupportedModel, VitvizError

HALF = {"mean": 0.5, "std": 0.5, "device": "cpu"}
IMAGE = vitviz.sample_image("coffee")


def trace_of(model):
    return vitviz.Inspector.of(model, **HALF).trace(IMAGE)


def pixels_of(trace):
    picture = torch.from_numpy(trace.view.picture.copy()).permute(2, 0, 1)[None].float() / 255
    return (picture - 0.5) / 0.5


def disable_fused_attention(model):
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
    return model


def prune_layer(model):
    prune.l1_unstructured(model.blocks[0].mlp.fc1, "weight", amount=0.3)
    return model


def with_norm(norm):
    def change(model):
        norm(model.blocks[1].mlp.fc2)
        model(torch.zeros(1, 3, 32, 32))  # leaves a weight that is the result of a recorded computation
        return model

    return change


def prune_and_step(model):
    """After a training step, the stored pruned weight is stale."""
    prune_layer(model)
    with torch.no_grad():
        model.blocks[0].mlp.fc1.weight_orig.mul_(1.5)
    return model


STATES = {
    "train mode": nn.Module.train, "unfused": disable_fused_attention, "pruned": prune_layer,
    "pruned, then trained": prune_and_step,
    "weight_norm": with_norm(weight_norm), "spectral_norm": with_norm(spectral_norm),
    "parametrised": with_norm(parametrizations.weight_norm),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("state", STATES)
def test_model_state_does_not_change_logits(state):
    model = STATES[state](small_vit())
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    training = [module.training for module in model.modules()]
    trace = trace_of(model)
    assert [module.training for module in model.modules()] == training
    assert all(value.equal(kept[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        expected = model.eval()(pixels_of(trace))[0]
    torch.testing.assert_close(trace.logits, expected, atol=1e-5, rtol=1e-5)


class MergedLoRA(nn.Linear):
    """A linear layer whose low-rank weights are merged for evaluation, as those of loralib."""

    def __init__(self, width):
        super().__init__(width, width)
        self.a, self.b, self.merged = *(nn.Parameter(torch.randn(2, width)) for _ in "ab"), False

    def train(self, mode=True):
        super().train(mode)
        if mode == self.merged:
            self.weight.data += (-1 if mode else 1) * (self.b.T @ self.a)
            self.merged = not mode
        return self

    def forward(self, x):
        return super().forward(x) if self.merged else super().forward(x) + x @ self.a.T @ self.b


def test_weights_merged_for_evaluation_are_restored():
    model = small_vit()
    for block in model.blocks:
        block.attn.proj = MergedLoRA(128)
    model.train().blocks[1].eval()
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    states = [(part.training, getattr(part, "merged", None)) for part in model.modules()]
    trace = trace_of(model)
    assert [(part.training, getattr(part, "merged", None)) for part in model.modules()] == states
    assert all(value.equal(kept[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        torch.testing.assert_close(trace.logits, model(pixels_of(trace))[0], atol=1e-4, rtol=1e-4)


def test_in_place_training_does_not_change_inspector():
    model = small_vit()
    inspector = vitviz.Inspector.of(model, **HALF)
    before = inspector.trace(IMAGE).logits
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    assert inspector.trace(IMAGE).logits.equal(before)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_inspector_made_without_gradients_works_outside(mode):
    with mode():
        model = small_vit()
    plain = vitviz.Inspector.of(model, **HALF)
    with mode():
        inspector = vitviz.Inspector.of(model, **HALF)
        trace = inspector.trace(IMAGE)
        inside = vitviz.logit_attribution(inspector, trace, 0)
    map_ = vitviz.saliency(inspector, IMAGE, 0, method="grad_cam").map
    assert map_.equal(vitviz.saliency(plain, IMAGE, 0, method="grad_cam").map)
    assert inside.heads.equal(vitviz.logit_attribution(plain, plain.trace(IMAGE), 0).heads)


def test_autocast_does_not_change_public_results():
    inspector = vitviz.Inspector.of(small_vit(), **HALF)
    trace = inspector.trace(IMAGE)

    def numbers():
        return [
            vitviz.attention_distance(trace), vitviz.rollout(trace),
            vitviz.logit_attribution(inspector, trace, 1).heads, vitviz.logit_lens(inspector, trace),
            vitviz.token_similarity(trace, 1, 3), vitviz.position_similarity(inspector),
            inspector.layer_effects(IMAGE, 1),
        ]  # fmt: skip

    plain = numbers()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = numbers()
    assert all(torch.as_tensor(a).equal(torch.as_tensor(b)) for a, b in zip(plain, rounded, strict=True))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*quantize_per_tensor")
def test_quantised_model_is_traced():
    model = torch.ao.quantization.quantize_dynamic(small_vit(), {nn.Linear})
    trace = vitviz.Inspector.of(model, **HALF, size=32).trace(IMAGE)
    with torch.no_grad():
        torch.testing.assert_close(trace.logits, model(pixels_of(trace))[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: timm.create_model("vit_tiny_patch16_224", depth=1).to("meta"), "on the meta device"),
        (lambda: perturbed(CustomViT()).to("meta"), "on the meta device"),
    ],
)
def test_meta_device_model_is_rejected(build, reason):
    with pytest.raises(UnsupportedModel, match=reason):
        trace_of(build())


def test_gated_mlp_is_named_in_error():
    tensors = {
        name: value for name, value in small_vit().state_dict().items() if ".mlp." not in name
    }  # fmt: skip
    from vitviz.engine.formats.inference import architecture_of

    with pytest.raises(VitvizError, match="SwiGLU"):
        architecture_of(tensors, "mine", 2)
