import inspect

import numpy as np
import pytest
import torch
from PIL import Image

from vitviz.charts.colormaps import TABLES
from vitviz.charts.overlay import enlarge_map, overlay

picture = np.random.default_rng(0).integers(0, 256, (30, 50, 3), dtype=np.uint8)
ramp = np.array([[0.0, 0.01, 0.02], [0.03, 0.04, 0.05]])


def test_full_opacity_shows_the_colours_alone_each_patch_in_its_place():
    result = overlay(picture, ramp, (10.0, 5.0, 40.0, 25.0), opacity=1.0, smooth=False)
    for row in range(2):
        for col in range(3):
            level = round(float(ramp[row, col] / 0.05 * 255))
            block = result[5 + 10 * row : 15 + 10 * row, 10 + 10 * col : 20 + 10 * col]
            assert (block == TABLES["viridis"][level]).all()


def test_no_opacity_leaves_the_crop_and_the_rest_fades_as_on_the_page():
    box = (10.0, 5.0, 40.0, 25.0)
    result = overlay(picture, ramp, box, opacity=0.0)
    np.testing.assert_array_equal(result[5:25, 10:40], picture[5:25, 10:40])
    np.testing.assert_allclose(result[:5], 0.38 * picture[:5] + 0.62 * 255, atol=0.51)
    np.testing.assert_allclose(overlay(picture, ramp, box, form="paper")[:5], 0.15 * picture[:5], atol=0.51)


def test_colours_may_begin_at_the_smallest_value():
    high = ramp + 1.0
    same = overlay(picture, high, opacity=1.0, smooth=False, low=1.0)
    assert (same == overlay(picture, ramp, opacity=1.0, smooth=False)).all()
    assert (
        overlay(picture, high, form="paper", low=1.0) == overlay(picture, high, form="paper")
    ).all()  # is map / max


def test_paper_form_is_picture_times_map_over_max():
    result = overlay(picture, ramp, form="paper", smooth=False)
    expected = picture * np.kron(ramp / 0.05, np.ones((15, 1))).repeat(50 / 3 + 1, axis=1)[:, :50, None]
    assert result.shape == picture.shape
    assert np.abs(result[:, :16].astype(float) - expected[:, :16]).max() <= 1
    assert (overlay(np.full_like(picture, 200), np.ones((3, 3)), form="paper") == 200).all()


def test_a_box_beyond_the_picture_is_cut():
    result = overlay(picture, ramp, (-10.0, -5.0, 60.0, 35.0), opacity=1.0, smooth=False)
    assert (result[-1, -1] == TABLES["viridis"][255]).all()


def test_a_map_of_zeros_is_no_division_by_zero():
    assert (overlay(picture, np.zeros((2, 2)), form="paper") == 0).all()


def test_enlarging_smoothly_stays_within_the_map():
    peak = np.zeros((5, 7))
    peak[2, 3] = 1.0
    smooth = enlarge_map(peak, (100, 140))
    assert smooth.shape == (100, 140) and smooth.min() >= 0.0 and smooth.max() <= 1.0 and smooth[50, 70] > 0.9


@pytest.mark.parametrize("change", [{"form": "x"}, {"opacity": 2.0}, {"box": (60.0, 0.0, 70.0, 10.0)}])
def test_what_does_not_fit_is_said(change):
    with pytest.raises(ValueError, match="form|opacity|box"):
        overlay(picture, ramp, **change)


def test_a_float_picture_is_refused():
    with pytest.raises(ValueError, match="uint8"):
        inspect.unwrap(overlay)(picture / 255, ramp)  # what a notebook meets, where no annotation is checked


def test_a_notebooks_picture_and_map_are_taken_as_they_are():
    given = inspect.unwrap(overlay)(Image.fromarray(picture), torch.from_numpy(ramp))
    assert (given == overlay(picture, ramp)).all()
