"""Shuffled patches and zeroed positions: what must agree agrees, what must differ differs, and nothing is
changed.
"""

import numpy as np
import pytest
import torch

from tests.engine.looking import inspect, noise, perturbed
from tests.engine.small import small
from vitviz.engine.forward import shuffling
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.engine.studies import perturbation as asked
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid

AGREES = [
    ("vit_tiny_patch16_224", {}),  # class token
    ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg"}),  # mean of the patches
    ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "map"}),  # attention pooling, as in SigLIP
    ("deit_tiny_distilled_patch16_224", {}),
    ("deit3_small_patch16_224", {}),  # positions for patches alone, LayerScale
]


@pytest.mark.parametrize("name, changes", AGREES)
def test_without_positions_the_order_of_the_patches_leaves_the_answer_as_it_is(name, changes):
    inspector = inspect(small(name, **changes))
    original, shuffled = inspector.trace(noise()), inspector.experiment(noise(), shuffle=3)
    assert (original.logits - shuffled.logits).abs().max() > 1e-2, "with positions the order has to matter"
    zeroed, both = (
        inspector.experiment(noise(), positions=False),
        inspector.experiment(noise(), shuffle=3, positions=False),
    )
    torch.testing.assert_close(zeroed.logits, both.logits, atol=1e-4, rtol=0)
    assert (original.logits - zeroed.logits).abs().max() > 1e-2, "the positions are part of the answer"


def test_without_positions_the_patch_tokens_are_permuted_with_the_patches():
    inspector = inspect(small())
    zeroed, both = (
        inspector.experiment(noise(), positions=False),
        inspector.experiment(noise(), shuffle=3, positions=False),
    )
    order = shuffling.permutation(zeroed.grid.patches, 3)
    assert sorted(order) == list(range(16)) and list(order) != sorted(order)
    torch.testing.assert_close(both.tokens[-1][1:], zeroed.tokens[-1][1:][order], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(zeroed.position_embedded, zeroed.patch_embedding)


def test_the_shuffled_picture_is_the_one_the_model_read():
    inspector = inspect(small())
    original, shuffled = inspector.trace(noise()), inspector.experiment(noise(), shuffle=3)
    order = shuffling.permutation(16, 3)
    for place, patch in enumerate(order):
        (row, col), (row2, col2) = divmod(place, 4), divmod(int(patch), 4)
        there, here = (
            picture[8 * r : 8 * r + 8, 8 * c : 8 * c + 8]
            for picture, r, c in ((shuffled.view.picture, row, col), (original.view.picture, row2, col2))
        )
        np.testing.assert_array_equal(there, here)
    torch.testing.assert_close(shuffled.patch_embedding, original.patch_embedding[order])


def test_the_model_and_its_traces_are_as_before():
    model = small()
    inspector = inspect(model)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    table, before = model.pos_embed, inspector.trace(noise())
    inspector.experiment(noise(), shuffle=1, positions=False)
    after = inspector.trace(noise())
    assert model.pos_embed is table and inspector.model is model
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    torch.testing.assert_close(after.logits, before.logits, atol=0, rtol=0)
    np.testing.assert_array_equal(after.view.picture, before.view.picture)


def test_the_variant_shares_every_weight_but_the_table():
    model = small()
    variant = shuffling.without_positions(model, "small")
    own = dict(model.named_parameters())
    assert [name for name, parameter in variant.named_parameters() if parameter is not own[name]] == [
        "pos_embed"
    ]
    assert not variant.pos_embed.any()


def test_a_view_is_taken_as_it_is():
    inspector = inspect(small())
    trace = inspector.trace(noise())
    prepared = prepare(open_image(noise()), inspector.preprocessing)
    torch.testing.assert_close(
        shuffling.input_from_view(trace.view, inspector.preprocessing).tensor, prepared.tensor, atol=1e-6,
        rtol=0
    )  # fmt: skip
    torch.testing.assert_close(inspector.experiment(trace.view).logits, trace.logits, atol=1e-5, rtol=0)
    wide = inspector.trace(noise(), size=(32, 64))
    assert inspector.experiment(wide.view, shuffle=1).grid.cols == 8


@pytest.mark.parametrize(
    "name, reason",
    [
        ("vit_relpos_small_patch16_224", "relative bias: not applicable, because they are not"),
        ("vit_small_patch16_rope_224", "rotary embedding: not applicable"),
        ("eva02_tiny_patch14_224", "a learned table and rotary embedding: not applicable"),
    ],
)
def test_positions_that_are_no_table_cannot_be_zeroed_but_patches_can_be_shuffled(name, reason):
    inspector = inspect(perturbed(name, depth=1), name)
    with pytest.raises(VitvizError, match=reason):
        inspector.experiment(noise(), positions=False)
    assert inspector.experiment(noise(), shuffle=1).grid.patches > 0


def test_a_model_told_nothing_about_places_says_so():
    inspector = inspect(small(pos_embed="none"))
    with pytest.raises(VitvizError, match="nothing to set to zero"):
        inspector.experiment(noise(), positions=False)


@pytest.mark.parametrize("name, changes", [*AGREES, ("vit_small_patch16_dinov3", {})])
def test_readout_and_parts_are_the_models_own(name, changes):
    model = small(name, **changes)
    inspector = inspect(model)
    trace, parts = inspector.trace(noise()), inspector.parts()
    y = inspector.readout(trace)
    if "distilled" in name:  # two heads, each with a row of its own
        assert y.shape == (128,) and parts.prefix.shape == (2, 128)
    else:
        torch.testing.assert_close(
            parts.classifier.weight @ y + parts.classifier.bias, trace.logits, atol=1e-4, rtol=1e-4
        )
    patch = prepare(open_image(noise()), inspector.preprocessing).tensor[:, :8, :8].permute(1, 2, 0).flatten()
    torch.testing.assert_close(
        parts.embedding.weight @ patch + parts.embedding.bias, trace.patch_embedding[0], atol=1e-4, rtol=1e-4
    )
    assert len(parts.prefix) == trace.grid.prefix and parts.classes == 7 and not parts.stem


def test_answers_in_many_orders_are_those_of_the_orders_one_by_one(monkeypatch):
    inspector = inspect(small())
    trace = inspector.trace(noise())
    orders = torch.stack([torch.from_numpy(shuffling.permutation(16, seed)) for seed in range(5)])
    monkeypatch.setattr(asked, "AT_ONCE", 2 * trace.grid.tokens)  # two pictures at once
    found = asked.PerturbedLogits(inspector, trace).in_order(orders)
    for seed, logits in enumerate(found):
        expected = inspector.experiment(trace.view, shuffle=seed).logits
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_a_rim_that_no_patch_is_cut_from_stays_where_it_is():
    grid = Grid(2, 2, (3, 3), ())
    pixels = torch.arange(2 * 3 * 7 * 8).view(2, 3, 7, 8)
    moved = shuffling.reorder_patches(pixels, grid, torch.tensor([3, 2, 1, 0]))
    torch.testing.assert_close(moved[..., 6:, :], pixels[..., 6:, :])
    torch.testing.assert_close(moved[..., 6:], pixels[..., 6:])
    torch.testing.assert_close(moved[..., :3, 3:6], pixels[..., 3:6, :3])
