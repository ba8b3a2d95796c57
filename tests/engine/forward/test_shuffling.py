"""Shuffled patches and zeroed position embeddings."""

import numpy as np
import pytest
import torch

from tests.engine.random_inspectors import inspect, noise, perturbed
from tests.engine.small_models import small_vit
from vitviz.engine.forward import shuffling
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.engine.studies import perturbation as asked
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid

ORDER_FREE = [
    ("vit_tiny_patch16_224", {}),  # class token
    ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg"}),  # mean of the patches
    ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "map"}),  # attention pooling, as in SigLIP
    ("deit_tiny_distilled_patch16_224", {}),
    ("deit3_small_patch16_224", {}),  # positions for patches only, LayerScale
]


@pytest.mark.parametrize("name, changes", ORDER_FREE)
def test_patch_order_does_not_matter_without_positions(name, changes):
    inspector = inspect(small_vit(name, **changes))
    original, shuffled = inspector.trace(noise()), inspector.experiment(noise(), shuffle=3)
    assert (original.logits - shuffled.logits).abs().max() > 1e-2, "with positions the order must matter"
    zeroed, zeroed_and_shuffled = (
        inspector.experiment(noise(), positions=False),
        inspector.experiment(noise(), shuffle=3, positions=False),
    )
    torch.testing.assert_close(zeroed.logits, zeroed_and_shuffled.logits, atol=1e-4, rtol=0)
    assert (original.logits - zeroed.logits).abs().max() > 1e-2, "zeroed positions must change the logits"


def test_patch_tokens_are_permuted_with_patches_without_positions():
    inspector = inspect(small_vit())
    zeroed, zeroed_and_shuffled = (
        inspector.experiment(noise(), positions=False),
        inspector.experiment(noise(), shuffle=3, positions=False),
    )
    order = shuffling.permutation(zeroed.grid.patches, 3)
    assert sorted(order) == list(range(16)) and list(order) != sorted(order)
    torch.testing.assert_close(
        zeroed_and_shuffled.tokens[-1][1:], zeroed.tokens[-1][1:][order], atol=1e-4, rtol=1e-4
    )
    torch.testing.assert_close(zeroed.position_embedded, zeroed.patch_embedding)


def test_view_shows_shuffled_model_input():
    inspector = inspect(small_vit())
    original, shuffled = inspector.trace(noise()), inspector.experiment(noise(), shuffle=3)
    order = shuffling.permutation(16, 3)
    for position, patch in enumerate(order):
        (row, col), (row2, col2) = divmod(position, 4), divmod(int(patch), 4)
        moved, original_patch = (
            image[8 * r : 8 * r + 8, 8 * c : 8 * c + 8]
            for image, r, c in ((shuffled.view.picture, row, col), (original.view.picture, row2, col2))
        )
        np.testing.assert_array_equal(moved, original_patch)
    torch.testing.assert_close(shuffled.patch_embedding, original.patch_embedding[order])


def test_experiment_leaves_model_and_traces_unchanged():
    model = small_vit()
    inspector = inspect(model)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    table, before = model.pos_embed, inspector.trace(noise())
    inspector.experiment(noise(), shuffle=1, positions=False)
    after = inspector.trace(noise())
    assert model.pos_embed is table and inspector.model is model
    assert all(torch.equal(value, weights[name]) for name, value in model.state_dict().items())
    torch.testing.assert_close(after.logits, before.logits, atol=0, rtol=0)
    np.testing.assert_array_equal(after.view.picture, before.view.picture)


def test_variant_without_positions_shares_all_other_weights():
    model = small_vit()
    variant = shuffling.without_positions(model, "small")
    own = dict(model.named_parameters())
    assert [name for name, parameter in variant.named_parameters() if parameter is not own[name]] == [
        "pos_embed"
    ]
    assert not variant.pos_embed.any()


def test_experiment_accepts_view_as_input():
    inspector = inspect(small_vit())
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
def test_non_table_positions_cannot_be_zeroed_but_patches_shuffled(name, reason):
    inspector = inspect(perturbed(name, depth=1), name)
    with pytest.raises(VitvizError, match=reason):
        inspector.experiment(noise(), positions=False)
    assert inspector.experiment(noise(), shuffle=1).grid.patches > 0


def test_zeroing_positions_is_rejected_without_position_embedding():
    inspector = inspect(small_vit(pos_embed="none"))
    with pytest.raises(VitvizError, match="nothing to set to zero"):
        inspector.experiment(noise(), positions=False)


@pytest.mark.parametrize("name, changes", [*ORDER_FREE, ("vit_small_patch16_dinov3", {})])
def test_readout_and_parts_reproduce_logits_and_embedding(name, changes):
    model = small_vit(name, **changes)
    inspector = inspect(model)
    trace, parts = inspector.trace(noise()), inspector.parts()
    y = inspector.readout(trace)
    if "distilled" in name:  # two heads, each reads its own token
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


def test_batched_orders_equal_single_shuffles(monkeypatch):
    inspector = inspect(small_vit())
    trace = inspector.trace(noise())
    orders = torch.stack([torch.from_numpy(shuffling.permutation(16, seed)) for seed in range(5)])
    monkeypatch.setattr(asked, "AT_ONCE", 2 * trace.grid.tokens)  # two images at once
    batched = asked.PerturbedLogits(inspector, trace).in_order(orders)
    for seed, logits in enumerate(batched):
        expected = inspector.experiment(trace.view, shuffle=seed).logits
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_pixels_outside_patches_stay_in_place():
    grid = Grid(2, 2, (3, 3), ())
    pixels = torch.arange(2 * 3 * 7 * 8).view(2, 3, 7, 8)
    moved = shuffling.reorder_patches(pixels, grid, torch.tensor([3, 2, 1, 0]))
    torch.testing.assert_close(moved[..., 6:, :], pixels[..., 6:, :])
    torch.testing.assert_close(moved[..., 6:], pixels[..., 6:])
    torch.testing.assert_close(moved[..., :3, 3:6], pixels[..., 3:6, :3])
