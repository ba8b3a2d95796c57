"""What the explorer hands out is what it shows."""

import numpy as np
import pytest

import vitviz
from vitviz.views import Subject
from vitviz.views.explorer import Explorer


@pytest.fixture(scope="module")
def subject():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    return Subject(inspector, inspector.trace(vitviz.sample_image("coffee")))


def test_the_rollout_in_view_is_among_the_numbers(subject):
    view = Explorer()
    found = view.numbers(
        subject, view.settings({"show": "rollout", "token": "0", "pins": "20.30"}, subject.about)
    )
    for given, query in zip(found["rollout"], ("class", 19, 29), strict=True):
        assert np.array_equal(given, vitviz.rollout(subject.trace, query=query).numpy())
    assert "rollout" not in view.numbers(subject, view.settings({"token": "0"}, subject.about))


def test_attention_among_the_numbers_is_of_the_tokens_in_view(subject):
    view = Explorer()
    found = view.numbers(
        subject,
        view.settings({"layer": "2", "token": "5", "pins": "7", "direction": "column"}, subject.about),
    )
    whole = subject.trace.attention(1).numpy()
    assert found["queries"].tolist() == ["4", "6"], "patches from 0, behind the class token"
    np.testing.assert_allclose(found["attention"], np.stack([whole[:, :, 5], whole[:, :, 7]]), atol=1e-6)
