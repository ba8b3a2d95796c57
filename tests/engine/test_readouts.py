"""Readouts of the classifier against gradients of the logits with respect to the tokens after the last
layer.

Along every feature, a token's fraction of the logit gradient is its weight in the readout, because
everything after the pooling treats all tokens alike.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from timm.models.vision_transformer import VisionTransformer

from tests.engine.random_inspectors import inspect, noise, perturbed
from tests.engine.small_models import SMALL, small_vit
from vitviz.analyses.query import query_weights
from vitviz.analyses.rollout import rollout, rollout_row
from vitviz.engine import readouts
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.traces.grid import Grid
from vitviz.traces.readout import Readout
from vitviz.views import ViewContext
from vitviz.views.rollout import RolloutView
from vitviz.views.tour import TourView

REGISTERS = {"reg_tokens": 2}
BARE = {"class_token": False}
POOLED = {
    "class": ("vit_tiny_patch16_224", {}),
    "class, registers": ("vit_tiny_patch16_224", REGISTERS),
    "class, norm after": ("vit_tiny_patch16_224", {"fc_norm": True}),
    "average": ("vit_tiny_patch16_224", {"global_pool": "avg"}),
    "average, norm before": ("vit_tiny_patch16_224", {"global_pool": "avg", "fc_norm": False}),
    "average of all": (
        "vit_tiny_patch16_224",
        {"global_pool": "avg", "pool_include_prefix": True, **REGISTERS},
    ),
    "average, no prefix": (
        "vit_tiny_patch16_224",
        {"global_pool": "avg", "pool_include_prefix": True, **BARE},
    ),
    "max": ("vit_tiny_patch16_224", {"global_pool": "max"}),
    "max, norm before": ("vit_tiny_patch16_224", {"global_pool": "max", "fc_norm": False}),
    "max of all": ("vit_tiny_patch16_224", {"global_pool": "max", "pool_include_prefix": True}),
    "average and max": ("vit_tiny_patch16_224", {"global_pool": "avgmax", **REGISTERS}),
    "average and max of all": (
        "vit_tiny_patch16_224",
        {"global_pool": "avgmax", "pool_include_prefix": True},
    ),
    "average, BEiT": ("beit_base_patch16_224", {}),
    "class, BEiT": ("beit_base_patch16_224", {"global_pool": "token"}),
    "class, EVA": ("eva02_tiny_patch14_224", {"global_pool": "token"}),
    "max, EVA": ("eva02_tiny_patch14_224", {"global_pool": "max"}),
    "average, relative": ("vit_relpos_small_patch16_224", {}),
    "class, relative": ("vit_relpos_small_patch16_224", {"global_pool": "token", "class_token": True}),
}


def readout_gradient(model, trace):
    """Return d logit / d token, shape (token, feature), after the norm before the pooling, by autograd."""
    with torch.no_grad():
        tokens = model.norm(trace.tokens[-1][None])
    tokens.requires_grad_(True)
    model.forward_head(tokens)[0, 3].backward()
    return tokens.grad[0].double()


@pytest.mark.parametrize("case", POOLED)
def test_readout_weights_equal_gradient_fractions(case):
    name, changes = POOLED[case]
    model = small_vit(name, **changes)
    trace = inspect(model).trace(noise())
    assert trace.pool == trace.readout.name == case.partition(",")[0]
    token_gradients = readout_gradient(model, trace)
    # per feature, the fraction of each token
    expected = (token_gradients / token_gradients.sum(dim=0)).mean(dim=1)
    torch.testing.assert_close(query_weights(trace), expected, atol=1e-5, rtol=0)
    assert query_weights(trace).sum().item() == pytest.approx(1)
    rows = np.stack(
        [rollout_row(trace, query) for query in (*trace.grid.prefix_names, *range(trace.grid.patches))]
    )
    np.testing.assert_allclose(
        rollout(trace).flatten(), (expected.numpy() @ rows)[trace.grid.prefix :], atol=1e-5
    )


def test_distilled_model_reads_two_tokens():
    model = small_vit("deit_tiny_distilled_patch16_224")
    inspector = inspect(model)
    trace = inspector.trace(noise())
    token_gradients = readout_gradient(model, trace)
    assert trace.pool == "class and distillation" and trace.readout.joined == "heads"
    # each head's logit counts half
    torch.testing.assert_close(token_gradients[0], 0.5 * model.head.weight[3].double())
    torch.testing.assert_close(token_gradients[1], 0.5 * model.head_dist.weight[3].double())
    assert not token_gradients[2:].any()


def test_rollout_of_distilled_model_starts_at_class_token():
    trace = inspect(small_vit("deit_tiny_distilled_patch16_224")).trace(noise())
    assert query_weights(trace).nonzero().flatten().tolist() == [0]
    assert query_weights(trace, "distillation").nonzero().flatten().tolist() == [1]


def test_max_pooling_is_per_image_in_batch():
    model = small_vit(global_pool="max")
    inspector = inspect(model)
    batch = inspector.traces(
        [prepare(open_image(noise(seed)), inspector.preprocessing) for seed in (0, 1)], (32, 32)
    )
    for seed, trace in enumerate(batch):
        torch.testing.assert_close(trace.read, inspector.trace(noise(seed)).read)
    assert not torch.equal(batch[0].read, batch[1].read)


def test_tokens_with_equal_maximum_share_weight():
    tokens = torch.tensor([[9.0, 9.0], [1.0, 5.0], [3.0, 5.0], [3.0, 0.0]])
    readout = Readout.by_name("max", Grid(1, 3, (8, 8), ("class",)))
    assert readout.shares(tokens).tolist() == [0, 0.25, 0.5, 0.25]
    with pytest.raises(ValueError, match="not fixed"):
        readout.weights(4)


ATTENTION = [
    {"global_pool": "prr"},
    {"global_pool": "prr", **BARE},
    {"global_pool": "map", **REGISTERS},
    {"global_pool": "map", "pool_include_prefix": True},
    {"architecture": "eva02_tiny_patch14_224", "global_pool": "map"},  # with its class token, as in PE
]


@pytest.mark.parametrize("changes", ATTENTION, ids=str)
def test_attention_pooling_weights_are_used(changes):
    model = small_vit(**changes)
    trace = inspect(model).trace(noise())
    expected = torch.zeros(trace.grid.tokens, dtype=torch.float64)
    attention = trace.pooling
    weights = torch.softmax(attention.q.double() @ attention.k.double().mT * attention.scale, -1)
    mean_weights = weights.mean(dim=0)  # over the heads
    first_only = changes["global_pool"] == "map" or "class_token" not in changes
    assert attention.q.shape[1] == (1 if first_only else trace.grid.tokens)
    expected[-mean_weights.shape[1] :] = mean_weights.mean(dim=0)
    torch.testing.assert_close(query_weights(trace), expected, atol=1e-6, rtol=0)
    assert (
        trace.pool == "attention"
        and trace.readout.summaries[0].start == trace.grid.tokens - attention.k.shape[1]
    )


@pytest.mark.parametrize(
    ("name", "changes"),
    [("beit_base_patch16_224", {}), ("vit_relpos_small_patch16_224", {"class_token": True})],
)
def test_beit_and_relpos_read_first_token_regardless_of_global_pool(name, changes):
    model = small_vit(name, global_pool="token", **changes)
    model.global_pool = "max"  # as another author may set it
    trace = inspect(model).trace(noise())
    token_gradients = readout_gradient(model, trace)
    assert trace.pool == "class" and token_gradients[0].any() and not token_gradients[1:].any()


def test_classifier_of_every_token_is_rejected():
    with pytest.raises(UnsupportedModel, match="reads every token separately"):
        inspect(small_vit(global_pool="")).trace(noise())


def test_unpooled_features_use_conventional_readout():
    inspector = inspect(small_vit(global_pool="", num_classes=0))
    trace = inspector.trace(noise())
    assert trace.pool == "none" and query_weights(trace)[0] == 1
    with torch.no_grad():
        torch.testing.assert_close(inspector.readout(trace), inspector.model.norm(trace.tokens[-1])[0])
    subject = ViewContext(inspector, trace)
    assert RolloutView().summary(subject)["auto"] == "class token"
    assert TourView().summary(subject)["pool"] == "none"
    bare = inspect(small_vit(global_pool="", num_classes=0, class_token=False))
    trace = bare.trace(noise())
    assert query_weights(trace).tolist() == pytest.approx([1 / 16] * 16) and bare.readout(trace).shape == (
        128,
    )


def test_missing_class_token_is_rejected():
    model = small_vit(**BARE, global_pool="avg")
    model.global_pool = "token"
    with pytest.raises(UnsupportedModel, match="pools its tokens by 'token'"):
        inspect(model).trace(noise())


class LastPatchPooling(VisionTransformer):
    """A model that declares a class-token readout and pools the last patch."""

    def pool(self, x, pool_type=None):
        return x[:, -1]


def test_model_with_undeclared_readout_is_rejected():
    with pytest.raises(UnsupportedModel, match="does not read the 'class'"):
        inspect(LastPatchPooling(**SMALL).eval()).trace(noise())


@pytest.mark.parametrize(
    "name", ["vit_base_patch16_siglip_224", "vit_small_patch16_dinov3", "vit_tiny_r_s16_p8_224"]
)
def test_readout_of_genuine_configs_is_verified(name):
    model = perturbed(name, **({} if "r_s16" in name else {"depth": 1}))
    readouts.check_readout(model, inspect(model).trace(noise()).readout, inspect(model).grid(), name)


def test_unknown_readout_is_reported():
    trace = inspect(small_vit()).trace(noise())
    for changes in ({"pool": "bogus", "readout": None}, {"pool": "max", "readout": None}):
        with pytest.raises(VitvizError, match="Choose 'mean', or a patch"):
            query_weights(replace(trace, **changes))
