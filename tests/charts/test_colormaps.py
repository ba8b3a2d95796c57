import numpy as np
import plotly.graph_objects as go
import pytest
from plotly.colors import unlabel_rgb

from vitviz.charts.colormaps import TABLES, colorscale, map_to_rgb


@pytest.mark.parametrize(
    "name, first, last",
    [
        ("viridis", (68, 1, 84), (253, 231, 37)),
        ("magma", (0, 0, 4), (252, 253, 191)),
        ("inferno", (0, 0, 4), (252, 255, 164)),
        ("cividis", (0, 34, 78), (254, 232, 56)),
    ],
)
def test_table_has_known_end_colours(name, first, last):
    table = TABLES[name]
    assert table.shape == (256, 3) and table.dtype == np.uint8
    assert np.abs(table[0].astype(int) - first).max() <= 3 and np.abs(table[-1].astype(int) - last).max() <= 3


@pytest.mark.parametrize("name", [name for name in TABLES if not name.startswith("balance")])
def test_lightness_increases_along_table(name):
    lightness = TABLES[name] @ np.array([0.2126, 0.7152, 0.0722])
    assert (np.diff(lightness) > -1.0).all() and lightness[-1] - lightness[0] > 150


@pytest.mark.parametrize("name, sign, room", [("balance", 1, 120), ("balance_dark", -1, 100)])
def test_diverging_table_is_symmetric_in_lightness(name, sign, room):
    lightness = sign * (TABLES[name] @ np.array([0.2126, 0.7152, 0.0722]))
    assert (np.diff(lightness[:128]) > 0).all() and (np.diff(lightness[128:]) < 0).all(), (
        "the middle is the lightest, or on dark pages the darkest"
    )
    assert abs(lightness[127]) > 220 if sign > 0 else abs(lightness[127]) < 40
    assert lightness[127] - lightness[0] > room
    assert np.abs(lightness - lightness[::-1]).max() < 16
    blue, orange = TABLES[name][0].astype(int), TABLES[name][-1].astype(int)
    assert blue[2] - blue[0] > 100 and orange[0] - orange[2] > 100, (
        "told apart by blue and yellow, with any colour vision"
    )


@pytest.mark.parametrize("name", TABLES)
def test_plotly_colorscale_equals_table(name):
    scale = go.Heatmap(colorscale=colorscale(name)).colorscale  # plotly's own check of the form
    positions, colours = zip(*scale, strict=True)
    np.testing.assert_allclose(positions, np.linspace(0, 1, 256), rtol=1e-12)
    np.testing.assert_array_equal([unlabel_rgb(colour) for colour in colours], TABLES[name])


def test_values_outside_range_are_clamped():
    table = TABLES["magma"]
    np.testing.assert_array_equal(
        map_to_rgb(np.array([[-5.0, 5.0]]), 0.0, 1.0, "magma"), [[table[0], table[255]]]
    )
    np.testing.assert_array_equal(
        map_to_rgb(np.full((2, 2), 3.0), 3.0, 3.0, "magma"), np.broadcast_to(table[0], (2, 2, 3))
    )


def test_unknown_colormap_raises():
    with pytest.raises(ValueError, match="'jet'.*viridis"):
        map_to_rgb(np.zeros(1), 0.0, 1.0, "jet")
