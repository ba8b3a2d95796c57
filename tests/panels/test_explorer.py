"""What the explorer hands out is what it shows."""

import numpy as np
import pytest

import vitviz
from vitviz.panels.base import Subject
from vitviz.panels.explorer import Explorer


@pytest.fixture(scope="module")
def subject():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    return Subject(inspector, inspector.trace(vitviz.sample_image("coffee")))


def test_the_rollout_in_view_is_among_the_numbers(subject):
    panel = Explorer()
    found = panel.numbers(subject, panel.settings({"show": "rollout", "token": "0", "pins": "20.30"}))
    for given, query in zip(found["rollout"], ("class", 19, 29), strict=True):
        assert np.array_equal(given, vitviz.rollout(subject.trace, query=query).numpy())
    assert "rollout" not in panel.numbers(subject, panel.settings({"token": "0"}))


def test_attention_among_the_numbers_is_of_the_tokens_in_view(subject):
    panel = Explorer()
    found = panel.numbers(subject, panel.settings({"layer": "2", "token": "5", "pins": "7", "direction": "column"}))
    whole = subject.trace.attention(1).numpy()
    assert found["tokens"].tolist() == [5, 7]
    np.testing.assert_allclose(found["attention"], np.stack([whole[:, :, 5], whole[:, :, 7]]), atol=1e-6)
