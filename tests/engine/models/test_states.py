"""Ordinary states of a model: train mode, unfused attention, pruned or normed weights, autocast and inference
mode give the numbers of a plain model; a state that cannot be read is refused in our own words.
"""

import pytest
import timm
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune, spectral_norm, weight_norm

import vitviz
from tests.engine.models.theirs import Scratch
from tests.engine.small import perturbed, small
from vitviz.errors import UnsupportedModel, VitvizError

HALF = {"mean": 0.5, "std": 0.5, "device": "cpu"}
PICTURE = vitviz.sample_image("coffee")


def looked(model):
    return vitviz.Inspector.of(model, **HALF).trace(PICTURE)


def pixels_of(trace):
    picture = torch.from_numpy(trace.view.picture.copy()).permute(2, 0, 1)[None].float() / 255
    return (picture - 0.5) / 0.5


def unfused(model):
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False
    return model


def pruned(model):
    prune.l1_unstructured(model.blocks[0].mlp.fc1, "weight", amount=0.3)
    return model


def normed(norm):
    def change(model):
        norm(model.blocks[1].mlp.fc2)
        model(torch.zeros(1, 3, 32, 32))  # leaves a weight that is the result of a recorded computation
        return model

    return change


def stepped(model):
    """After a training step, the pruned weight of the last pass is out of date."""
    pruned(model)
    with torch.no_grad():
        model.blocks[0].mlp.fc1.weight_orig.mul_(1.5)
    return model


STATES = {
    "train mode": nn.Module.train, "unfused": unfused, "pruned": pruned, "pruned, then trained": stepped,
    "weight_norm": normed(weight_norm), "spectral_norm": normed(spectral_norm),
    "parametrised": normed(parametrizations.weight_norm),
}  # fmt: skip


@pytest.mark.filterwarnings("ignore:.*weight_norm")
@pytest.mark.parametrize("state", STATES)
def test_a_model_in_a_state_answers_as_itself(state):
    model = STATES[state](small())
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    training = [module.training for module in model.modules()]
    trace = looked(model)
    assert [module.training for module in model.modules()] == training
    assert all(value.equal(kept[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        theirs = model.eval()(pixels_of(trace))[0]
    torch.testing.assert_close(trace.logits, theirs, atol=1e-5, rtol=1e-5)


def test_training_in_place_changes_no_inspector():
    model = small()
    inspector = vitviz.Inspector.of(model, **HALF)
    before = inspector.trace(PICTURE).logits
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)
    assert inspector.trace(PICTURE).logits.equal(before)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_an_inspector_made_in_a_mode_works_outside(mode):
    with mode():
        model = small()
    plain = vitviz.Inspector.of(model, **HALF)
    with mode():
        inspector = vitviz.Inspector.of(model, **HALF)
        trace = inspector.trace(PICTURE)
        inside = vitviz.logit_attribution(inspector, trace, 0)
    map_ = vitviz.saliency(inspector, PICTURE, 0, method="grad_cam").map
    assert map_.equal(vitviz.saliency(plain, PICTURE, 0, method="grad_cam").map)
    assert inside.heads.equal(vitviz.logit_attribution(plain, plain.trace(PICTURE), 0).heads)


def test_autocast_changes_no_public_number():
    inspector = vitviz.Inspector.of(small(), **HALF)
    trace = inspector.trace(PICTURE)

    def numbers():
        return [
            vitviz.attention_distance(trace), vitviz.rollout(trace),
            vitviz.logit_attribution(inspector, trace, 1).heads, vitviz.logit_lens(inspector, trace),
            vitviz.token_similarity(trace, 1, 3), vitviz.position_similarity(inspector),
            inspector.layer_effects(PICTURE, 1),
        ]  # fmt: skip

    plain = numbers()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = numbers()
    assert all(torch.as_tensor(a).equal(torch.as_tensor(b)) for a, b in zip(plain, rounded, strict=True))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore:.*quantize_per_tensor")
def test_a_quantised_model_is_looked_into_as_it_is():
    model = torch.ao.quantization.quantize_dynamic(small(), {nn.Linear})
    trace = vitviz.Inspector.of(model, **HALF, size=32).trace(PICTURE)
    with torch.no_grad():
        torch.testing.assert_close(trace.logits, model(pixels_of(trace))[0], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda: timm.create_model("vit_tiny_patch16_224", depth=1).to("meta"), "on the device meta"),
        (lambda: perturbed(Scratch()).to("meta"), "on the device meta"),
    ],
)
def test_a_state_that_cannot_be_read_is_refused_in_our_words(build, reason):
    with pytest.raises(UnsupportedModel, match=reason):
        looked(build())


def test_a_gated_mlp_is_named():
    tensors = {
        name: value for name, value in small().state_dict().items() if ".mlp." not in name
    }  # fmt: skip
    from vitviz.engine.formats.inference import architecture_of

    with pytest.raises(VitvizError, match="SwiGLU"):
        architecture_of(tensors, "mine", 2)
