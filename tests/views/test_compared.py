"""Similarity view: numbers equal those of surveys, for one or two checkpoints, a training or an image set."""

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
from vitviz.surveys import sample_crops
from vitviz.traces.runs import Ablation
from vitviz.views import VIEWS
from vitviz.views.compared import CURVES
from vitviz.views.routes import parse_settings

(VIEW,) = [view for view in VIEWS if view.slug == "compared"]
EARLY = "vitviz-tiny@30"
pytestmark = pytest.mark.usefixtures("short_training")


@pytest.fixture(scope="module")
def service():
    return AnalysisService(ServiceSettings(device="cpu"))


@pytest.fixture(scope="module")
def keys(service):
    return [service.look(service.pictures.sample("coffee"), name) for name in ("vitviz-tiny", EARLY)]


@pytest.fixture(scope="module")
def surveys():
    measures = ["similarity", "distance", "entropy", "skip"]
    loaded = [vitviz.load(name, device="cpu") for name in ("vitviz-tiny", EARLY)]
    return [vitviz.survey(sample_crops(), one, measures, batch=8) for one in loaded]


def close(found, expected):
    np.testing.assert_allclose(found, np.asarray(expected), rtol=2e-4, atol=2e-5)


@pytest.mark.long
@pytest.mark.parametrize("tokens", ["patches", "class", "all"])
def test_matrix_of_one_checkpoint_equals_survey(service, keys, surveys, tokens):
    found = service.item(keys[0], "compared", "cka", {"tokens": tokens})
    assert found.shape == (9, 9) and found.dtype == np.float32
    close(found, vitviz.cka(surveys[0], tokens=tokens))
    assert service.item(keys[0], "compared", "error", {"tokens": tokens}).shape == (9, 9)


@pytest.mark.long
def test_matrix_of_two_checkpoints_and_their_swap(service, keys, surveys):
    there, back = service.runs.pair(*keys), service.runs.pair(*keys[::-1])
    found = service.item(there, "compared", "cka", {"against": "beside"})
    close(found, vitviz.cka(*surveys))
    close(service.item(back, "compared", "cka", {"against": "beside"}), found.T)
    close(service.item(there, "compared", "cka", {}), vitviz.cka(surveys[0]))
    with np.load(io.BytesIO(service.numbers(there, "compared", {}))) as both:
        with np.load(io.BytesIO(service.numbers(keys[1], "compared", {}))) as second:
            curves = [name for name in both if name.startswith("second_") and name != "second_checkpoint"]
            assert curves
            for name in curves:
                close(both[name], second[name.removeprefix("second_")])
    assert not np.allclose(found, np.eye(9), atol=0.2)


@pytest.mark.long
def test_training_matrix_compares_each_layer_with_every_step(service, keys, surveys):
    found = service.item(keys[0], "compared", "cka", {"against": "film"})
    steps = service.item(keys[0], "compared", "steps", {})
    names = [frame["name"] for frame in service.checkpoints.film("vitviz-tiny")["frames"]]
    assert found.shape == (9, len(names)) and list(steps) == sorted(steps) and steps[0] == 0
    close(found[:, names.index(EARLY)], vitviz.cka(*surveys).diag())
    np.testing.assert_allclose(found[:, -1], 1, atol=1e-6)
    assert found[1:, 0].max() < 0.999, "before its training it is another model"


@pytest.mark.long
def test_before_training_uses_earliest_step(service, keys, surveys):
    inspector = vitviz.load("vitviz-tiny@0", device="cpu")
    expected = vitviz.survey(sample_crops(), inspector, ["similarity", "distance"], batch=8)
    given = {"against": "before"}
    for key, survey in zip(keys, surveys, strict=True):
        close(service.item(key, "compared", "cka", given), vitviz.cka(survey, expected))
    subject = service.subject(keys[0])
    settings = parse_settings(VIEW, given, subject.about)
    matrix, chart = VIEW.matrix(subject, settings), VIEW.chart(subject, settings)
    assert matrix.x_label == "depth of vitviz-tiny@0" and matrix.y_label == "depth of vitviz-tiny"
    assert [one.name for one in chart.series] == ["vitviz-tiny", "vitviz-tiny@0"]
    close(chart.series[1].y, expected.mean("distance").mean(1))
    with np.load(io.BytesIO(service.numbers(keys[0], "compared", given))) as file:
        assert str(file["second_checkpoint"]) == "vitviz-tiny@0"
        close(file["second_distance"], expected.mean("distance").mean(1))


def test_opening_state_has_two_models_or_asks_to_choose(service, keys):
    def opening(checkpoint, **state):
        key = service.look(service.pictures.sample("coffee"), checkpoint)
        first, _ = figures_of(VIEW, service, {"key": key, **state})
        default = next(one["default"] for one in first["controls"] if one["name"] == "against")
        return default, first["summary"]["missing"].get(default), first["summary"]["earliest"]

    assert opening("vitviz-tiny") == opening(EARLY) == ("before", None, 0)
    assert opening("vitviz-tiny", second_key=keys[1]) == ("beside", None, 0)
    for checkpoint, said in (("vitviz-tiny@0", "earliest stored"), ("vitviz-positions-1d-1", "Compare with")):
        default, missing, _ = opening(checkpoint)
        assert default == "before" and said in missing["text"]
        assert missing["values"]["checkpoint"]["text"] == checkpoint
    other = service.look(service.pictures.sample("coffee"), "vitviz-positions-1d-1")
    with pytest.raises(WrongSetting, match="has no stored training steps"):
        service.item(other, "compared", "cka", {"against": "before"})
    assert len(VIEW.chart(service.subject(other), parse_settings(VIEW, {"against": "before"})).series) == 1


@pytest.mark.long
def test_the_curves_are_means_of_a_survey(service, keys, surveys):
    found = dict(zip(CURVES, service.item(keys[0], "compared", "curves", {}), strict=True))
    survey = surveys[0]
    close(found["distance"], survey.mean("distance").mean(1))
    close(found["distance_of_even"], survey.mean("distance").mean(1) / analyses.uniform_distance(survey.grid))
    close(found["entropy"], survey.mean("entropy").mean(1))
    for name in CURVES[3:]:
        close(found[name], survey.mean(f"skip.{name}"))


@pytest.mark.long
def test_own_image_set_is_surveyed_by_two_checkpoints(service, keys, tmp_path):
    random = np.random.default_rng(0)
    from PIL import Image

    paths = []
    for number in range(9):
        paths.append(str(tmp_path / f"{number}.png"))
        Image.fromarray(random.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(paths[-1])
    steps = list(service.sets.surveying(keys[0], paths, paired=True, second=keys[1]))
    names = [frame["name"] for frame in service.checkpoints.film("vitviz-tiny")["frames"]]
    images = [survey.images for _, survey in steps]
    assert images == [5, 9] + [9] * len(names), "nothing is left over: five and four, then the training"
    pair = steps[1][0]
    loaded = [vitviz.load(name, device="cpu") for name in ("vitviz-tiny", EARLY)]
    by_hand = [vitviz.survey(paths, one, ["similarity"], batch=5) for one in loaded]
    close(service.item(pair, "compared", "cka", {"against": "beside"}), vitviz.cka(*by_hand))
    first, second = figures_of(VIEW, service, {"key": keys[0], "surveys": {"compared": pair}})
    assert first["summary"]["pictures"] == 9 and first["summary"]["beside"] == EARLY
    assert second["checkpoint"] == EARLY and second["summary"]["beside"] == "vitviz-tiny"
    assert set(first["summary"]["missing"]) == {"film", "before"}, "it has not been gone through yet"
    with pytest.raises(WrongSetting, match="none of them has processed this image set"):
        service.item(pair, "compared", "cka", {"against": "film"})
    before = VIEW.numbers(service.subject(steps[2][0]), {"tokens": "patches", "against": "before"})
    assert before["second_checkpoint"] == "vitviz-tiny@0" and "second_distance" in before
    film = service.item(steps[-1][0], "compared", "cka", {"against": "film"})
    close(film[:, names.index(EARLY)], vitviz.cka(*by_hand).diag())
    assert film.shape == (9, len(names)) and VIEW.summary(service.subject(steps[-1][0]))["missing"] == {}
    few = next(service.sets.surveying(keys[0], paths[:3], paired=True))
    with pytest.raises(WrongSetting, match="3 images are too few"):
        service.item(few[0], "compared", "cka", {})


def test_missing_comparisons_raise(service, keys):
    with pytest.raises(WrongSetting, match="There is no second checkpoint"):
        service.item(keys[0], "compared", "cka", {"against": "beside"})
    assert set(VIEW.summary(service.subject(keys[0]))["missing"]) == {"beside"}
    without = service.look(service.pictures.sample("coffee"), "vitviz-tiny", without=Ablation(heads=[(0, 1)]))
    with pytest.raises(Unknown, match="Restore removed parts first"):
        service.item(without, "compared", "cka", {})


def test_a_model_without_a_class_token(tmp_path):
    from tests.engine.constructions import small_model
    from tests.engine.random_inspectors import inspect, noise
    from vitviz.surveys import LAYERS, surveying
    from vitviz.views import ViewContext

    for family, known in (("norm, then average", True), ("gated, averaged", False)):
        inspector = inspect(small_model(family).float())
        *_, survey = surveying(sample_crops()[:6], inspector, LAYERS)
        subject = ViewContext(inspector, inspector.trace(noise()), sampled=lambda survey=survey: survey)
        settings = parse_settings(VIEW, {}, subject.about)
        numbers = VIEW.numbers(subject, settings)
        assert "attention_class" not in numbers or "class" in survey.grid.prefix_names
        assert ("mlp_patches" in numbers) == known, "a gate hides what attention adds"
        if "class" not in survey.grid.prefix_names:
            with pytest.raises(WrongSetting, match="has no class token"):
                VIEW.numbers(subject, {**settings, "tokens": "class"})


@pytest.mark.long
def test_exported_files_equal_displayed_numbers(service, keys, surveys):
    pair = service.runs.pair(*keys)
    with np.load(io.BytesIO(service.numbers(pair, "compared", {"against": "film"}))) as file:
        close(file["cka"][:, -1], np.ones(9))
        assert len(file["steps"]) == file["cka"].shape[1] and file["pictures"] == 20
        assert str(file["second_checkpoint"]) == EARLY and str(file["checkpoint"]) == "vitviz-tiny"
        close(file["second_entropy"], surveys[1].mean("entropy").mean(1))


def test_endpoint_compares_two_checkpoints_without_image(service):
    ask = endpoint(VIEW, Endpoints(service))
    assert list(inspect.signature(ask).parameters) == ["checkpoint", "second", "tokens", "against"]
    names = ("vitviz-tiny", EARLY)
    found, back = (ask(checkpoint=one, second=other, against="beside") for one, other in (names, names[::-1]))
    np.testing.assert_allclose(found["cka"], np.transpose(back["cka"]), atol=1e-5)
    assert ask(tokens="class")["cka"][0] == [None] * 9 and ask()["checkpoint"] == "vitviz-tiny"
    with pytest.raises(WrongSetting, match="no second checkpoint"):
        ask(against="beside")


def test_each_training_step_is_computed_once(monkeypatch):
    service, asked = AnalysisService(ServiceSettings(device="cpu")), []
    key = service.look(service.pictures.sample("coffee"), "vitviz-tiny")
    survey = service.sets._survey_in_batches
    monkeypatch.setattr(
        service.sets, "_survey_in_batches", lambda run, *of: asked.append(run.checkpoint) or survey(run, *of)
    )
    names = [frame["name"] for frame in service.checkpoints.film("vitviz-tiny")["frames"]]
    assert VIEW.summary(service.subject(key))["steps"] == len(names) and not asked, "no pass is made for that"
    for name in ("matrix", "chart"):  # the figure that the page opens with: two checkpoints, each once
        service.item(key, "compared", name, {"against": "before"})
    assert sorted(asked) == ["vitviz-tiny", "vitviz-tiny@0"]
    asked.clear()
    for _ in range(2):
        assert service.item(key, "compared", "looked", {"frame": "2"}).tolist() == [20]
    assert asked == [names[2]]
    with pytest.raises(WrongSetting, match=f"expected a step of the training, below {len(names)}"):
        service.item(key, "compared", "looked", {"frame": str(len(names))})


def test_training_over_own_set_reports_progress(service, keys, tmp_path, monkeypatch):
    from PIL import Image

    from tests.server.conftest import event_data
    from vitviz.server.page.over_a_set import ImageSetPanel
    from vitviz.server.security import uploads

    monkeypatch.setattr(uploads, "resolve_upload", lambda path: path)
    paths = []
    for number in range(4):
        paths.append(str(tmp_path / f"{number}.png"))
        pixels = np.random.default_rng(number).integers(0, 255, (40, 40, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(paths[-1])
    state, over = {"key": keys[0], "set": service.sets.give(paths)}, ImageSetPanel(service)
    told = [page[-1]["done"] for page in over.survey(state, event_data(view=VIEW.slug))]
    count = len(service.checkpoints.film("vitviz-tiny")["frames"])
    steps = [[VIEW.slug, step, count, "steps"] for step in range(1, count + 1)]
    assert told == [[VIEW.slug, 4, 4, ""], *steps]
