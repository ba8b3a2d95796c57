"""vitviz.cka over surveys: of the models' own tokens, the same from parts on disk, never of other ones."""

import math

import numpy as np
import pytest
import torch

import vitviz
from tests.analyses.helpers import hsic_by_loops
from vitviz.errors import VitvizError


@pytest.fixture(scope="module")
def pictures():
    random = np.random.default_rng(0)
    smooth = [random.integers(0, 255, (9, 9, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1) for _ in range(9)]
    return [*smooth, *(np.asarray(vitviz.sample_image(name)) for name in ("chelsea", "coffee"))]


@pytest.fixture(scope="module")
def two():
    return [vitviz.load(name, device="cpu") for name in ("vitviz-tiny", "vitviz-tiny@0")]


@pytest.fixture(scope="module")
def surveys(pictures, two):
    return [vitviz.survey(pictures, one, ["similarity"], batch=6) for one in two]


def features(inspector, pictures, depth: int) -> np.ndarray:
    return np.stack([inspector.trace(one).tokens[depth][1:].double().mean(0).numpy() for one in pictures])


@pytest.mark.long
def test_it_is_the_definition_over_the_models_own_tokens(surveys, two, pictures):
    found = vitviz.cka(*surveys)
    assert found.shape == (9, 9) and found.dtype == torch.float64 and surveys[0].images == 11
    for depth, depth2 in ((0, 0), (3, 8), (8, 2)):
        X, Y = features(two[0], pictures, depth), features(two[1], pictures, depth2)
        both = first = second = 0.0
        for some in (slice(0, 6), slice(6, 11)):
            K, L = X[some] @ X[some].T, Y[some] @ Y[some].T
            both, first, second = (
                both + hsic_by_loops(K, L),
                first + hsic_by_loops(K, K),
                second + hsic_by_loops(L, L),
            )
        assert found[depth, depth2].item() == pytest.approx(both / math.sqrt(first * second), rel=1e-4)


def test_one_survey_alone_is_compared_with_itself(surveys):
    own = vitviz.cka(surveys[0])
    assert torch.equal(own, vitviz.cka(surveys[0], surveys[0]))
    torch.testing.assert_close(own.diag(), torch.ones(9, dtype=torch.float64))
    classes = vitviz.cka(surveys[0], tokens="class")
    assert classes[0].isnan().all() and not classes[1:, 1:].isnan().any(), (
        "the class token enters as one vector"
    )


@pytest.mark.long
def test_ended_and_gone_on_from_parts_it_is_the_same_to_the_last_bit(pictures, two, tmp_path):
    asked = {"measures": ["similarity", "skip"], "batch": 4, "part": 4}
    whole = vitviz.survey(pictures, two[0], **asked)
    ended = vitviz.survey(pictures, two[0], out=tmp_path, progress=lambda done, total: done < 8, **asked)
    gone_on = vitviz.survey(pictures, two[0], out=tmp_path, **asked)
    assert [len(one.grams) for one in (whole, ended, gone_on)] == [2, 2, 2]  # the last three are too few
    assert torch.equal(vitviz.cka(whole, gone_on), vitviz.cka(whole))
    assert (tmp_path / "report.html").is_file()
    alone = vitviz.survey(pictures[:5], two[0], ["similarity"], out=tmp_path / "alone")
    assert vitviz.cka(alone).shape == (9, 9) and (tmp_path / "alone/report.html").is_file()


def test_the_skip_is_longer_than_what_blocks_add(pictures, two):
    found = vitviz.survey(pictures, two[0], ["skip"])
    assert found.mean("attention_patches").shape == (8,) and (found.mean("mlp_patches") > 0.5).all()
    trace, layers = two[0].trace(pictures[0]), two[0].tail().layers
    one = vitviz.survey(pictures[:1], two[0], ["skip"])
    expected = vitviz.analyses.skip_ratios(trace, layers)
    np.testing.assert_allclose(one.mean("attention_patches"), expected.attention[:, 1:].mean(1), rtol=1e-4)
    np.testing.assert_allclose(one.mean("mlp_class"), expected.mlp[:, 0], rtol=1e-4)


def test_other_pictures_or_nothing_measured_is_said(surveys, two, pictures):
    turned = vitviz.survey(pictures[::-1], two[1], ["similarity"], batch=6)
    with pytest.raises(VitvizError, match="not the same ones in the same order"):
        vitviz.cka(surveys[0], turned)
    plain = vitviz.survey(pictures[:2], two[0], ["entropy"])
    with pytest.raises(
        VitvizError, match='Nothing to compare in the survey of vitviz-tiny: expected .* "similarity"'
    ):
        vitviz.cka(surveys[0], plain)
