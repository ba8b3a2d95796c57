"""A model that masks by true and false, not by what is added to scores: a window around each patch.

None of timm's plain architectures does; one that is handed over in memory may.
"""

import pytest
import torch
from torch.testing import assert_close

from tests.engine.accounts import small_model
from tests.engine.forward.ablation_oracle import attending, inspector_of, pixels_of
from tests.engine.looking import inspect, noise
from vitviz import Ablation
from vitviz.engine.forward.edits import places_of
from vitviz.engine.forward.patch_removal import PatchRemoval

GONE = (0, 3, 4, 7, 11)


def windowed(inspector):
    """Every token sees the prefix, itself and the patches of its row and the next one."""
    grid = inspector.grid()
    row = torch.arange(grid.patches) // grid.cols
    window = torch.ones(grid.tokens, grid.tokens, dtype=torch.bool)
    window[grid.prefix :, grid.prefix :] = (row[:, None] - row).abs() <= 1

    def with_mask(module, given, named):
        return given, {**named, "attn_mask": window}

    for block in inspector.model.blocks:
        block.attn.register_forward_pre_hook(with_mask, with_kwargs=True)
    return inspector, window


@pytest.fixture(params=["class", "RoPE, averaged"])
def given(request):
    if request.param == "class":
        return windowed(inspect(small_model("class").float()))
    return windowed(inspector_of(request.param))


def answer(inspector, window, kept):
    """The answer where keys of all other places are closed as well, by another way: torch's attention is
    exchanged while timm's own model runs.
    """
    model = inspector.model
    places = places_of(inspector.grid(), kept)
    seen = torch.zeros(len(window), dtype=torch.bool)
    seen[places] = True

    def change(layer, query, key, value, mask, attend):
        assert mask.dtype == torch.bool
        scores = (query.double() @ key.double().mT * query.shape[-1] ** -0.5).masked_fill(
            ~(window & seen), float("-inf")
        )
        return (scores.softmax(dim=-1).nan_to_num() @ value.double()).to(value.dtype)

    with attending(len(model.blocks), change):
        tokens = model.forward_features(pixels_of(inspector))
    with torch.no_grad():
        return model.forward_head(tokens[:, places])[0]


def test_what_is_closed_gets_no_attention(given):
    inspector, window = given
    trace = inspector.trace(noise())
    for layer in range(len(trace.layers)):
        attention = trace.attention(layer)
        assert not attention[:, ~window].any() and (attention[:, window] > 0).all()
    assert_close(trace.logits, answer(inspector, window, range(12)), rtol=1e-5, atol=1e-5)


def test_patches_are_left_out_of_what_is_open(given):
    inspector, window = given
    kept = tuple(patch for patch in range(12) if patch not in GONE)
    expected = answer(inspector, window, kept)
    trace = inspector.trace(noise(), ablation=Ablation(patches=GONE))
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
