"""A model with a Boolean attention mask instead of an additive one: a window around each patch.

timm's plain architectures have no Boolean mask. A model handed over in memory may have one.
"""

import pytest
import torch
from torch.testing import assert_close

from tests.engine.constructions import small_model
from tests.engine.forward.ablation_oracle import inspector_of, pixels_of, replaced_attention
from tests.engine.random_inspectors import inspect, noise
from vitviz import Ablation
from vitviz.engine.forward.patch_removal import PatchRemoval
from vitviz.traces.trace import sequence_places

REMOVED = (0, 3, 4, 7, 11)


def add_window_mask(inspector):
    """Limit each token to the prefix, itself, and the patches of its own and adjacent rows."""
    grid = inspector.grid()
    row = torch.arange(grid.patches) // grid.cols
    window = torch.ones(grid.tokens, grid.tokens, dtype=torch.bool)
    window[grid.prefix :, grid.prefix :] = (row[:, None] - row).abs() <= 1

    def with_mask(module, args, kwargs):
        return args, {**kwargs, "attn_mask": window}

    for block in inspector.model.blocks:
        block.attn.register_forward_pre_hook(with_mask, with_kwargs=True)
    return inspector, window


@pytest.fixture(params=["class", "RoPE, averaged"])
def windowed_model(request):
    if request.param == "class":
        return add_window_mask(inspect(small_model("class").float()))
    return add_window_mask(inspector_of(request.param))


def masked_logits(inspector, window, kept):
    """Return the logits with all other positions masked as well, computed by timm's model with torch's
    attention replaced.
    """
    model = inspector.model
    positions = sequence_places(inspector.grid(), kept)
    allowed = torch.zeros(len(window), dtype=torch.bool)
    allowed[positions] = True

    def change(layer, query, key, value, mask, attend):
        assert mask.dtype == torch.bool
        scores = (query.double() @ key.double().mT * query.shape[-1] ** -0.5).masked_fill(
            ~(window & allowed), float("-inf")
        )
        return (scores.softmax(dim=-1).nan_to_num() @ value.double()).to(value.dtype)

    with replaced_attention(len(model.blocks), change):
        tokens = model.forward_features(pixels_of(inspector))
    with torch.no_grad():
        return model.forward_head(tokens[:, positions])[0]


def test_masked_keys_get_zero_attention(windowed_model):
    inspector, window = windowed_model
    trace = inspector.trace(noise())
    for layer in range(len(trace.layers)):
        attention = trace.attention(layer)
        assert not attention[:, ~window].any() and (attention[:, window] > 0).all()
    assert_close(trace.logits, masked_logits(inspector, window, range(12)), rtol=1e-5, atol=1e-5)


def test_patch_removal_respects_boolean_mask(windowed_model):
    inspector, window = windowed_model
    kept = tuple(patch for patch in range(12) if patch not in REMOVED)
    expected = masked_logits(inspector, window, kept)
    trace = inspector.trace(noise(), ablation=Ablation(patches=REMOVED))
    assert_close(trace.logits, expected, rtol=1e-5, atol=1e-5)
    removal = PatchRemoval(
        inspector.model,
        pixels_of(inspector),
        inspector.grid(),
        trace.pool,
        "dropped",
        inspector.preprocessing,
    )
    assert_close(removal.answers(torch.tensor([kept]))[0], expected, rtol=1e-5, atol=1e-5)
