"""Norms of the embedding, before and after the position embedding is added."""

import numpy as np
import pytest

import vitviz
from vitviz.views import ViewContext
from vitviz.views.patches import PatchesView
from vitviz.views.positions import PositionsView


@pytest.fixture(scope="module")
def subject(inspector, trace):
    return ViewContext(inspector, trace)


def test_norms_match_embedding_with_and_without_positions(subject):
    """From the weights and the image: x_p E + bias, then the rows of the table after the class token's."""
    model, trace = subject.inspector.model, subject.trace
    (tall, wide), preprocessing = trace.grid.patch, subject.inspector.preprocessing
    pixels = (trace.view.picture.astype(np.float64) / 255 - preprocessing.mean) / preprocessing.std
    weight = model.patch_embed.proj.weight.detach().double().numpy()
    bias = model.patch_embed.proj.bias.detach().double().numpy()
    table = model.pos_embed.detach().double().numpy()[0, trace.grid.prefix :]
    without, after = [], []
    for patch in range(trace.grid.patches):
        row, col = divmod(patch, trace.grid.cols)
        square = pixels[row * tall : (row + 1) * tall, col * wide : (col + 1) * wide]
        vector = np.einsum("dcyx,yxc->d", weight, square) + bias
        without.append(np.sqrt((vector**2).sum()))
        after.append(np.sqrt(((vector + table[patch]) ** 2).sum()))
    found = PatchesView().item(subject, "norms", {})
    np.testing.assert_allclose(found, [without, after], rtol=1e-4)
    numbers = PatchesView().numbers(subject, {})
    np.testing.assert_allclose(numbers["norm_before_position"], without, rtol=1e-4)
    np.testing.assert_allclose(numbers["norm_after_position"], after, rtol=1e-4)
    assert not np.allclose(without, after, rtol=1e-3), "else the test could not fail"


@pytest.mark.long
@pytest.mark.usefixtures("short_training")
def test_position_scale_covers_all_training_steps(
    short_training,
):
    """Of any two different patches; each is wholly like itself, which would say nothing."""
    pairs = []
    for frame in vitviz.training_snapshots("vitviz-tiny"):
        inspector = vitviz.load(frame.name, device="cpu")
        table = inspector.model.pos_embed.detach().double().numpy()[0, inspector.grid().prefix :]
        unit = table / np.sqrt((table**2).sum(axis=1, keepdims=True))
        pairs += [(unit[i] @ unit[:i].T).ravel() for i in range(1, len(unit))]
    every = np.concatenate(pairs)
    for name in ("vitviz-tiny@0", "vitviz-tiny@3000", "vitviz-tiny"):
        inspector = vitviz.load(name, device="cpu")
        found = PositionsView().summary(ViewContext(inspector))
        assert [found["minimum"], found["maximum"]] == pytest.approx([every.min(), every.max()], abs=1e-5)
    assert every.max() < 0.999
    large = PositionsView().summary(ViewContext(inspector, grid=inspector.grid((160, 224))))
    table = inspector.position_table((160, 224)).double().numpy()
    cosines = table @ table.T / np.sqrt(np.outer((table**2).sum(1), (table**2).sum(1)))
    cosines = cosines[~np.eye(len(cosines), dtype=bool)]
    assert large["minimum"] <= cosines.min() + 1e-5 and cosines.max() <= large["maximum"] + 1e-5 < 1.0
