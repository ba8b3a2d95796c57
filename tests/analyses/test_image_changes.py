"""Stepwise image changes, against plain loops and SciPy. The image has a border outside every patch."""

import numpy as np
import pytest
from PIL import Image
from scipy import ndimage

from vitviz.analyses.image_changes import CHANGES, change_image
from vitviz.errors import UnsupportedModel
from vitviz.traces.grid import Grid

GRID = Grid(3, 4, (4, 4), ("class",))
X, Y = np.random.default_rng(0).integers(0, 256, (2, 14, 19, 3), np.uint8)
SQUARE = X[:, :14]


def changed(change, step, image=X, others=(Y,), grid=GRID):
    return change_image(image, change, step, grid, others).permute(0, 2, 3, 1).numpy()


@pytest.mark.parametrize("change", list(CHANGES))
def test_step_zero_leaves_image_unchanged(change):
    for one in changed(change, 0):
        np.testing.assert_allclose(one, X / 255, atol=1e-12)


def test_shift_fills_with_mean_colour():
    mean = X.reshape(-1, 3).mean(0) / 255
    for found, (right, down) in zip(changed("shift", 5), ((5, 0), (-5, 0), (0, 5), (0, -5)), strict=True):
        for row, col in np.ndindex(14, 19):
            inside = 0 <= row - down < 14 and 0 <= col - right < 19
            np.testing.assert_allclose(found[row, col], X[row - down, col - right] / 255 if inside else mean)
    assert len(changed("shift", 5, grid=Grid(3, 4, (4, 2), ()))) == 2, "the control steps by a patch width"


def test_turn_matches_scipy_and_quarter_turn_is_exact():
    for found, quarters in zip(changed("turn", 90, SQUARE, ()), (1, 3), strict=True):
        np.testing.assert_allclose(found, np.rot90(SQUARE, quarters) / 255, atol=1e-12)
    mean = X.reshape(-1, 3).mean(0) / 255
    for found, degrees in zip(changed("turn", 30), (30, -30), strict=True):
        options = {"reshape": False, "order": 1, "mode": "grid-constant"}
        np.testing.assert_allclose(
            found, ndimage.rotate(X / 255 - mean, degrees, **options) + mean, atol=1e-9
        )


def test_grey_matches_luma_and_edges_match_sobel():
    luma = X[..., 0] * 0.299 + X[..., 1] * 0.587 + X[..., 2] * 0.114
    assert abs(changed("grey", 100)[0] * 255 - luma[..., None]).max() < 1e-9
    assert abs(luma - np.asarray(Image.fromarray(X).convert("L"), float)).max() < 1
    np.testing.assert_allclose(changed("grey", 30)[0], (0.7 * X + 0.3 * luma[..., None]) / 255)
    slopes = [ndimage.sobel(luma / 255, axis, mode="nearest") for axis in (0, 1)]
    edges = np.minimum(np.hypot(*slopes) / 4, 1)
    np.testing.assert_allclose(changed("edges", 60)[0], 0.4 * X / 255 + 0.6 * edges[..., None], atol=1e-12)
    step = np.zeros((14, 19, 3), np.uint8)
    step[:, 9:] = 255
    assert np.unique(changed("edges", 100, step)[0].round(9)).tolist() == [0, 1], "a step edge is white"
    step[:5] = 0
    assert changed("edges", 100, step)[0].max() == 1, "a steeper corner is clipped to white"


def test_ground_replaces_patches_from_the_border_inwards():
    far = {(row, col): (row - 1) ** 2 + (col - 1.5) ** 2 for row in range(3) for col in range(4)}
    order = sorted(far, key=lambda cell: (-far[cell], cell))
    expected = X / 255
    for row, col in order[:7]:  # 60 % of 12
        expected[4 * row : 4 * row + 4, 4 * col : 4 * col + 4] = (
            Y[4 * row : 4 * row + 4, 4 * col : 4 * col + 4] / 255
        )
    np.testing.assert_allclose(changed("ground", 60)[0], expected)
    assert np.array_equal(changed("ground", 100)[0][:12, :16], Y[:12, :16] / 255)
    assert len(changed("ground", 20, others=(Y, X))) == 2


def test_texture_keeps_mean_colour_of_every_patch():
    expected = X / 255
    for row, col in np.ndindex(3, 4):
        at = np.s_[4 * row : 4 * row + 4, 4 * col : 4 * col + 4]
        own, other = X[at] / 255, Y[at] / 255
        own_mean, other_mean = own.mean((0, 1)), other.mean((0, 1))
        expected[at] = np.clip(own_mean + 0.7 * (own - own_mean) + 0.3 * (other - other_mean), 0, 1)
    np.testing.assert_allclose(changed("texture", 30)[0], expected, atol=1e-12)
    plain = changed("texture", 100, others=(np.full_like(Y, 90),))[0]
    np.testing.assert_allclose(plain[:4, :4], np.broadcast_to(X[:4, :4].mean((0, 1)) / 255, (4, 4, 3)))
    np.testing.assert_allclose(changed("texture", 100, others=(X,))[0], X / 255)


@pytest.mark.parametrize("change", ["ground", "texture"])
def test_ground_and_texture_without_second_image_raise(change):
    with pytest.raises(UnsupportedModel, match="no second image"):
        changed(change, 50, others=())
