"""`vitviz.cka` over surveys: equals the definition, survives resuming, rejects other images."""

import math

import numpy as np
import pytest
import torch

import vitviz
from tests.analyses.helpers import hsic_by_loops
from vitviz.errors import VitvizError


@pytest.fixture(scope="module")
def images():
    random = np.random.default_rng(0)
    smooth = [random.integers(0, 255, (9, 9, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1) for _ in range(9)]
    return [*smooth, *(np.asarray(vitviz.sample_image(name)) for name in ("chelsea", "coffee"))]


@pytest.fixture(scope="module")
def two_inspectors():
    return [vitviz.load(name, device="cpu") for name in ("vitviz-tiny", "vitviz-tiny@0")]


@pytest.fixture(scope="module")
def surveys(images, two_inspectors):
    return [vitviz.survey(images, one, ["similarity"], batch=6) for one in two_inspectors]


def features(inspector, images, depth: int) -> np.ndarray:
    return np.stack([inspector.trace(one).tokens[depth][1:].double().mean(0).numpy() for one in images])


@pytest.mark.long
def test_cka_of_surveys_matches_definition(surveys, two_inspectors, images):
    found = vitviz.cka(*surveys)
    assert found.shape == (9, 9) and found.dtype == torch.float64 and surveys[0].images == 11
    for depth, depth2 in ((0, 0), (3, 8), (8, 2)):
        X, Y = features(two_inspectors[0], images, depth), features(two_inspectors[1], images, depth2)
        both = first = second = 0.0
        for some in (slice(0, 6), slice(6, 11)):
            K, L = X[some] @ X[some].T, Y[some] @ Y[some].T
            both, first, second = (
                both + hsic_by_loops(K, L),
                first + hsic_by_loops(K, K),
                second + hsic_by_loops(L, L),
            )
        assert found[depth, depth2].item() == pytest.approx(both / math.sqrt(first * second), rel=1e-4)


def test_cka_of_one_survey_compares_it_with_itself(surveys):
    own = vitviz.cka(surveys[0])
    assert torch.equal(own, vitviz.cka(surveys[0], surveys[0]))
    torch.testing.assert_close(own.diag(), torch.ones(9, dtype=torch.float64))
    classes = vitviz.cka(surveys[0], tokens="class")
    assert classes[0].isnan().all() and not classes[1:, 1:].isnan().any(), (
        "the class token enters as one vector"
    )


@pytest.mark.long
def test_resumed_survey_gives_bit_equal_cka(images, two_inspectors, tmp_path):
    asked = {"measures": ["similarity", "skip"], "batch": 4, "part": 4}
    whole = vitviz.survey(images, two_inspectors[0], **asked)
    ended = vitviz.survey(
        images, two_inspectors[0], out=tmp_path, progress=lambda done, total: done < 8, **asked
    )
    gone_on = vitviz.survey(images, two_inspectors[0], out=tmp_path, **asked)
    assert [len(one.grams) for one in (whole, ended, gone_on)] == [
        2,
        2,
        2,
    ]  # the last three images are too few for a minibatch
    assert torch.equal(vitviz.cka(whole, gone_on), vitviz.cka(whole))
    assert (tmp_path / "report.html").is_file()
    alone = vitviz.survey(images[:5], two_inspectors[0], ["similarity"], out=tmp_path / "alone")
    assert vitviz.cka(alone).shape == (9, 9) and (tmp_path / "alone/report.html").is_file()


def test_skip_measure_matches_skip_ratios(images, two_inspectors):
    found = vitviz.survey(images, two_inspectors[0], ["skip"])
    assert found.mean("attention_patches").shape == (8,) and (found.mean("mlp_patches") > 0.5).all()
    trace, layers = two_inspectors[0].trace(images[0]), two_inspectors[0].tail().layers
    one = vitviz.survey(images[:1], two_inspectors[0], ["skip"])
    expected = vitviz.analyses.skip_ratios(trace, layers)
    np.testing.assert_allclose(one.mean("attention_patches"), expected.attention[:, 1:].mean(1), rtol=1e-4)
    np.testing.assert_allclose(one.mean("mlp_class"), expected.mlp[:, 0], rtol=1e-4)


def test_incomparable_surveys_raise(surveys, two_inspectors, images):
    turned = vitviz.survey(images[::-1], two_inspectors[1], ["similarity"], batch=6)
    with pytest.raises(VitvizError, match="not the same images in the same order"):
        vitviz.cka(surveys[0], turned)
    plain = vitviz.survey(images[:2], two_inspectors[0], ["entropy"])
    with pytest.raises(
        VitvizError, match='survey of vitviz-tiny has nothing to compare: expected .* "similarity"'
    ):
        vitviz.cka(surveys[0], plain)
