import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vitviz.analyses.filters import display_scaled, filter_responses, principal_filters, raw_filters
from vitviz.errors import VitvizError


def random_weights(width, channel, height, length, seed=0):
    return torch.randn(width, channel, height, length, generator=torch.Generator().manual_seed(seed))


def principal_components(weight: torch.Tensor, count: int):
    """Return eigenvectors of the filters' covariance as images, and their variance shares."""
    filters = weight.double().numpy()
    points = np.array(
        [
            [f[c, i, j] for i in range(f.shape[1]) for j in range(f.shape[2]) for c in range(f.shape[0])]
            for f in filters
        ]
    )
    covariance = sum(np.outer(p, p) for p in points - points.mean(axis=0))
    values, vectors = np.linalg.eigh(covariance)
    images = []
    for k in range(1, count + 1):
        vector = vectors[:, -k]
        vector = vector if vector[np.argmax(abs(vector))] > 0 else -vector
        images.append(vector.reshape(filters.shape[2], filters.shape[3], filters.shape[1]))
    return np.array(images), values[::-1][:count] / values.sum()


@pytest.mark.parametrize("shape", [(40, 3, 2, 4), (9, 3, 4, 2), (30, 1, 3, 3)])
def test_principal_filters_match_eigenvectors(shape):
    weight = random_weights(*shape) + 5  # far from the origin, so that centring matters
    found = principal_filters(weight, 4)
    pictures, shares = principal_components(weight, 4)
    np.testing.assert_allclose(found.pictures, pictures, atol=1e-5)
    np.testing.assert_allclose(found.variance, shares, rtol=1e-5)


@pytest.mark.parametrize(
    "shape, expected", [((100, 3, 4, 4), 28), ((10, 3, 4, 4), 9), ((100, 3, 2, 2), 12), ((100, 1, 1, 1), 1)]
)
def test_principal_filter_count_is_limited_to_28_and_rank(shape, expected):
    found = principal_filters(random_weights(*shape))
    assert found.pictures.shape == (expected, *shape[2:], shape[1]) and found.variance.shape == (expected,)
    assert found.variance.sum() <= 1 + 1e-5 and (found.variance.diff() <= 0).all()


def test_principal_filters_have_positive_peak_and_unit_norm():
    pictures = principal_filters(random_weights(50, 3, 4, 4, seed=1)).pictures.flatten(1)
    assert torch.equal(pictures.abs().max(dim=1).values, pictures.max(dim=1).values)
    torch.testing.assert_close(pictures.norm(dim=1), torch.ones(28))


@pytest.mark.parametrize("margin", [0, 1])
def test_filter_responses_match_strided_convolution(margin):
    weight, draw = random_weights(5, 3, 2, 4), torch.Generator().manual_seed(1)
    pixels = torch.randn(3, 3 * 2 + margin, 2 * 4 + margin, generator=draw)
    expected = torch.nn.functional.conv2d(pixels.double()[None], weight.double(), stride=(2, 4))[0]
    found = filter_responses(weight.permute(0, 2, 3, 1), pixels)
    assert found.shape == (5, 3, 2) and found.dtype == torch.float64
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_equal_filters_have_zero_variance_and_no_nan():
    found = principal_filters(torch.ones(8, 3, 2, 2))
    assert found.variance.tolist() == [0] * 7 and found.pictures.isfinite().all()


@pytest.mark.parametrize("shape, count", [((8, 3, 2, 2), 0), ((1, 3, 2, 2), 28)])
def test_principal_filters_without_components_raise(shape, count):
    with pytest.raises(VitvizError, match=f"{count} components of .*expected at least"):
        principal_filters(random_weights(*shape), count)


def test_raw_filters_are_sorted_by_norm_with_channels_last():
    weight = random_weights(12, 3, 2, 4)
    pictures, norms = raw_filters(weight)
    by_hand = sorted(
        ((sum(x**2 for x in f.flatten().tolist()) ** 0.5, i) for i, f in enumerate(weight)), reverse=True
    )
    assert norms.tolist() == pytest.approx([norm for norm, _ in by_hand], rel=1e-5)
    for picture, (_, i) in zip(pictures, by_hand, strict=True):
        for c in range(3):
            assert torch.equal(picture[:, :, c], weight[i, c])


def test_raw_filters_of_equal_norm_keep_model_order():
    pictures, _ = raw_filters(torch.tensor([1.0, -1.0, 2.0, 1.0]).reshape(4, 1, 1, 1))
    assert pictures.flatten().tolist() == [2, 1, -1, 1]


def test_display_scaled_normalises_each_filter_separately():
    pictures = torch.stack(
        [torch.linspace(-1, 3, 12), torch.linspace(0, 1e-6, 12), torch.full((12,), -4.0)]
    ).reshape(3, 2, 2, 3)
    scaled = display_scaled(pictures).flatten(1)
    for row in scaled[:2]:
        np.testing.assert_allclose(row, np.linspace(0, 1, 12), atol=1e-5)
    assert scaled[2].tolist() == [0.5] * 12


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-1e30, 1e30), min_size=4, max_size=4))
def test_display_scaled_stays_between_0_and_1(values):
    scaled = display_scaled(torch.tensor(values).reshape(1, 2, 2, 1))
    assert ((scaled >= 0) & (scaled <= 1)).all()
