"""The comparison: its numbers are those of surveys made by hand, of one checkpoint, two, a film or a set."""

import inspect
import io

import numpy as np
import pytest

import vitviz
from vitviz import analyses
from vitviz.errors import Unknown, WrongSetting
from vitviz.server.api.endpoints import Endpoints, endpoint
from vitviz.server.options import ServiceSettings
from vitviz.server.page.figures import figures_of
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.surveys import parts_of_samples
from vitviz.traces.runs import Ablation
from vitviz.views import VIEWS
from vitviz.views.compared import CURVES

(VIEW,) = [view for view in VIEWS if view.slug == "compared"]
EARLY = "vitviz-tiny@30"
pytestmark = pytest.mark.usefixtures("short_training")


@pytest.fixture(scope="module")
def studio():
    return AnalysisService(ServiceSettings(device="cpu"))


@pytest.fixture(scope="module")
def keys(studio):
    return [studio.look(studio.pictures.sample("coffee"), name) for name in ("vitviz-tiny", EARLY)]


@pytest.fixture(scope="module")
def surveys():
    measures = ["similarity", "distance", "entropy", "skip"]
    loaded = [vitviz.load(name, device="cpu") for name in ("vitviz-tiny", EARLY)]
    return [vitviz.survey(parts_of_samples(), one, measures, batch=8) for one in loaded]


def close(found, expected):
    np.testing.assert_allclose(found, np.asarray(expected), rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("tokens", ["patches", "class", "all"])
def test_the_matrix_of_one_checkpoint_is_that_of_a_survey(studio, keys, surveys, tokens):
    found = studio.item(keys[0], "compared", "cka", {"tokens": tokens})
    assert found.shape == (9, 9) and found.dtype == np.float32
    close(found, vitviz.cka(surveys[0], tokens=tokens))
    assert studio.item(keys[0], "compared", "error", {"tokens": tokens}).shape == (9, 9)


def test_two_checkpoints_beside_each_other_and_the_other_way_round(studio, keys, surveys):
    there, back = studio.runs.pair(*keys), studio.runs.pair(*keys[::-1])
    found = studio.item(there, "compared", "cka", {"against": "beside"})
    close(found, vitviz.cka(*surveys))
    close(studio.item(back, "compared", "cka", {"against": "beside"}), found.T)
    close(studio.item(there, "compared", "cka", {}), vitviz.cka(surveys[0]))
    with np.load(io.BytesIO(studio.numbers(there, "compared", {}))) as both:
        with np.load(io.BytesIO(studio.numbers(keys[1], "compared", {}))) as second:
            curves = [name for name in both if name.startswith("second_") and name != "second_checkpoint"]
            assert curves
            for name in curves:
                close(both[name], second[name.removeprefix("second_")])
    assert not np.allclose(found, np.eye(9), atol=0.2)


def test_the_film_compares_each_depth_with_itself_at_every_step(studio, keys, surveys):
    found = studio.item(keys[0], "compared", "cka", {"against": "film"})
    steps = studio.item(keys[0], "compared", "steps", {})
    names = [frame["name"] for frame in studio.checkpoints.film("vitviz-tiny")["frames"]]
    assert found.shape == (9, len(names)) and list(steps) == sorted(steps) and steps[0] == 0
    close(found[:, names.index(EARLY)], vitviz.cka(*surveys).diag())
    np.testing.assert_allclose(found[:, -1], 1, atol=1e-6)
    assert found[1:, 0].max() < 0.999, "before its training it is another model"


def test_the_curves_are_means_of_a_survey(studio, keys, surveys):
    found = dict(zip(CURVES, studio.item(keys[0], "compared", "curves", {}), strict=True))
    survey = surveys[0]
    close(found["distance"], survey.mean("distance").mean(1))
    close(found["distance_of_even"], survey.mean("distance").mean(1) / analyses.uniform_distance(survey.grid))
    close(found["entropy"], survey.mean("entropy").mean(1))
    for name in CURVES[3:]:
        close(found[name], survey.mean(f"skip.{name}"))


def test_a_set_of_ones_own_by_two_checkpoints_at_once(studio, keys, tmp_path):
    random = np.random.default_rng(0)
    from PIL import Image

    paths = []
    for number in range(9):
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(random.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(paths[-1])
    steps = list(studio.sets.surveying(keys[0], paths, paired=True, second=keys[1]))
    names = [frame["name"] for frame in studio.checkpoints.film("vitviz-tiny")["frames"]]
    images = [survey.images for _, survey in steps]
    assert images == [5, 9] + [9] * len(names), "nothing is left over: five and four, then the training"
    pair = steps[1][0]
    loaded = [vitviz.load(name, device="cpu") for name in ("vitviz-tiny", EARLY)]
    by_hand = [vitviz.survey(paths, one, ["similarity"], batch=5) for one in loaded]
    close(studio.item(pair, "compared", "cka", {"against": "beside"}), vitviz.cka(*by_hand))
    first, second = figures_of(VIEW, studio, {"key": keys[0], "surveys": {"compared": pair}})
    assert first["summary"]["pictures"] == 9 and first["summary"]["beside"] == EARLY
    assert second["checkpoint"] == EARLY and second["summary"]["beside"] == "vitviz-tiny"
    assert set(first["summary"]["missing"]) == {"film"}, "it has not been gone through yet"
    with pytest.raises(WrongSetting, match="none of them has processed this image set"):
        studio.item(pair, "compared", "cka", {"against": "film"})
    film = studio.item(steps[-1][0], "compared", "cka", {"against": "film"})
    close(film[:, names.index(EARLY)], vitviz.cka(*by_hand).diag())
    assert film.shape == (9, len(names)) and VIEW.summary(studio.subject(steps[-1][0]))["missing"] == {}
    few = next(studio.sets.surveying(keys[0], paths[:3], paired=True))
    with pytest.raises(WrongSetting, match="3 images are too few"):
        studio.item(few[0], "compared", "cka", {})


def test_what_is_not_there_is_said(studio, keys):
    with pytest.raises(WrongSetting, match="There is no second checkpoint"):
        studio.item(keys[0], "compared", "cka", {"against": "beside"})
    assert set(VIEW.summary(studio.subject(keys[0]))["missing"]) == {"beside"}
    without = studio.look(studio.pictures.sample("coffee"), "vitviz-tiny", without=Ablation(heads=[(0, 1)]))
    with pytest.raises(Unknown, match="Restore removed parts first"):
        studio.item(without, "compared", "cka", {})


def test_a_model_without_a_class_token(tmp_path):
    from tests.engine.accounts import small_model
    from tests.engine.looking import inspect, noise
    from vitviz.surveys import LAYERS, surveying
    from vitviz.views import ViewContext

    for family, known in (("norm, then average", True), ("gated, averaged", False)):
        inspector = inspect(small_model(family).float())
        *_, survey = surveying(parts_of_samples()[:6], inspector, LAYERS)
        subject = ViewContext(inspector, inspector.trace(noise()), sampled=lambda survey=survey: survey)
        settings = VIEW.settings({}, subject.about)
        numbers = VIEW.numbers(subject, settings)
        assert "attention_class" not in numbers or "class" in survey.grid.prefix_names
        assert ("mlp_patches" in numbers) == known, "a gate hides what attention adds"
        if "class" not in survey.grid.prefix_names:
            with pytest.raises(WrongSetting, match="has no class token"):
                VIEW.numbers(subject, {**settings, "tokens": "class"})


def test_what_is_taken_home_is_what_is_shown(studio, keys, surveys):
    pair = studio.runs.pair(*keys)
    with np.load(io.BytesIO(studio.numbers(pair, "compared", {"against": "film"}))) as file:
        close(file["cka"][:, -1], np.ones(9))
        assert len(file["steps"]) == file["cka"].shape[1] and file["pictures"] == 20
        assert str(file["second_checkpoint"]) == EARLY and str(file["checkpoint"]) == "vitviz-tiny"
        close(file["second_entropy"], surveys[1].mean("entropy").mean(1))


def test_programs_compare_two_checkpoints_without_a_picture(studio):
    ask = endpoint(VIEW, Endpoints(studio))
    assert list(inspect.signature(ask).parameters) == ["checkpoint", "second", "tokens", "against"]
    names = ("vitviz-tiny", EARLY)
    found, back = (ask(checkpoint=one, second=other, against="beside") for one, other in (names, names[::-1]))
    np.testing.assert_allclose(found["cka"], np.transpose(back["cka"]), atol=1e-5)
    assert ask(tokens="class")["cka"][0] == [None] * 9 and ask()["checkpoint"] == "vitviz-tiny"
    with pytest.raises(WrongSetting, match="no second checkpoint"):
        ask(against="beside")


def test_a_training_is_looked_at_step_by_step_and_each_step_once(monkeypatch):
    studio, asked = AnalysisService(ServiceSettings(device="cpu")), []
    key = studio.look(studio.pictures.sample("coffee"), "vitviz-tiny")
    of_samples = studio.sets._of_samples
    monkeypatch.setattr(
        studio.sets, "_of_samples", lambda run, what: asked.append(run.checkpoint) or of_samples(run, what)
    )
    names = [frame["name"] for frame in studio.checkpoints.film("vitviz-tiny")["frames"]]
    assert VIEW.summary(studio.subject(key))["steps"] == len(names) and not asked, "no pass is made for that"
    for _ in range(2):
        assert studio.item(key, "compared", "looked", {"frame": "2"}).tolist() == [20]
    assert asked == [names[2]]
    with pytest.raises(WrongSetting, match=f"expected a step of the training, below {len(names)}"):
        studio.item(key, "compared", "looked", {"frame": str(len(names))})


def test_over_a_set_of_ones_own_the_training_says_how_far_it_is(studio, keys, tmp_path, monkeypatch):
    from PIL import Image

    from tests.server.conftest import sent
    from vitviz.server.page.over_a_set import ImageSetPanel
    from vitviz.server.security import uploads

    monkeypatch.setattr(uploads, "uploaded", lambda path: path)
    paths = []
    for number in range(4):
        paths.append(str(tmp_path / f"{number}.png"))
        pixels = np.random.default_rng(number).integers(0, 255, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(paths[-1])
    state, over = {"key": keys[0], "set": studio.sets.give(paths)}, ImageSetPanel(studio)
    told = [page[-1]["done"] for page in over.survey(state, sent(view=VIEW.slug))]
    count = len(studio.checkpoints.film("vitviz-tiny")["frames"])
    steps = [[VIEW.slug, step, count, "steps"] for step in range(1, count + 1)]
    assert told == [[VIEW.slug, 4, 4, ""], *steps]
