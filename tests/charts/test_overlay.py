import inspect

import numpy as np
import pytest
import torch
from PIL import Image

from vitviz.charts.colormaps import TABLES
from vitviz.charts.overlay import enlarge_map, overlay

image = np.random.default_rng(0).integers(0, 256, (30, 50, 3), dtype=np.uint8)
ramp = np.array([[0.0, 0.01, 0.02], [0.03, 0.04, 0.05]])


def test_full_opacity_shows_only_patch_colours():
    result = overlay(image, ramp, (10.0, 5.0, 40.0, 25.0), opacity=1.0, smooth=False)
    for row in range(2):
        for col in range(3):
            level = round(float(ramp[row, col] / 0.05 * 255))
            block = result[5 + 10 * row : 15 + 10 * row, 10 + 10 * col : 20 + 10 * col]
            assert (block == TABLES["viridis"][level]).all()


def test_zero_opacity_keeps_crop_and_fades_outside():
    box = (10.0, 5.0, 40.0, 25.0)
    result = overlay(image, ramp, box, opacity=0.0)
    np.testing.assert_array_equal(result[5:25, 10:40], image[5:25, 10:40])
    np.testing.assert_allclose(result[:5], 0.38 * image[:5] + 0.62 * 255, atol=0.51)
    np.testing.assert_allclose(overlay(image, ramp, box, form="paper")[:5], 0.15 * image[:5], atol=0.51)


def test_low_sets_start_of_colour_scale_except_in_paper_form():
    high = ramp + 1.0
    same = overlay(image, high, opacity=1.0, smooth=False, low=1.0)
    assert (same == overlay(image, ramp, opacity=1.0, smooth=False)).all()
    assert (
        overlay(image, high, form="paper", low=1.0) == overlay(image, high, form="paper")
    ).all()  # the paper form always shows map / max


def test_paper_form_is_image_times_map_over_max():
    result = overlay(image, ramp, form="paper", smooth=False)
    expected = image * np.kron(ramp / 0.05, np.ones((15, 1))).repeat(50 / 3 + 1, axis=1)[:, :50, None]
    assert result.shape == image.shape
    assert np.abs(result[:, :16].astype(float) - expected[:, :16]).max() <= 1
    assert (overlay(np.full_like(image, 200), np.ones((3, 3)), form="paper") == 200).all()


def test_box_beyond_image_is_clipped():
    result = overlay(image, ramp, (-10.0, -5.0, 60.0, 35.0), opacity=1.0, smooth=False)
    assert (result[-1, -1] == TABLES["viridis"][255]).all()


def test_zero_map_in_paper_form_is_black():
    assert (overlay(image, np.zeros((2, 2)), form="paper") == 0).all()


def test_smooth_enlargement_stays_within_map_range():
    peak = np.zeros((5, 7))
    peak[2, 3] = 1.0
    smooth = enlarge_map(peak, (100, 140))
    assert smooth.shape == (100, 140) and smooth.min() >= 0.0 and smooth.max() <= 1.0 and smooth[50, 70] > 0.9


@pytest.mark.parametrize("change", [{"form": "x"}, {"opacity": 2.0}, {"box": (60.0, 0.0, 70.0, 10.0)}])
def test_invalid_overlay_arguments_raise(change):
    with pytest.raises(ValueError, match="form|opacity|box"):
        overlay(image, ramp, **change)


def test_float_image_raises():
    with pytest.raises(ValueError, match="uint8"):
        inspect.unwrap(overlay)(image / 255, ramp)  # a notebook checks no annotations


def test_pil_image_and_tensor_map_are_accepted():
    given = inspect.unwrap(overlay)(Image.fromarray(image), torch.from_numpy(ramp))
    assert (given == overlay(image, ramp)).all()
