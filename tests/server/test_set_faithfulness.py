"""Faithfulness over an image set: the numbers of Python, one turn per image, and limits."""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gradio as gr
import numpy as np
import pytest
from gradio.utils import get_upload_folder

import vitviz
from tests.server.conftest import event_data
from tests.server.helpers import wait_until
from vitviz.engine.images.opening import open_image
from vitviz.server.api import lessons
from vitviz.server.options import Limits
from vitviz.server.page import over_a_set
from vitviz.server.page.over_a_set import AVERAGED, ImageSetPanel
from vitviz.server.services import image_sets
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings

pytestmark = pytest.mark.usefixtures("figures_not_drawn")


def two_method_measure(protocol):
    from vitviz.surveys.measures.trial import FaithfulnessMeasure

    return FaithfulnessMeasure(("ledger", "rollout"), (protocol,))


@pytest.fixture
def service(monkeypatch):
    monkeypatch.setattr(image_sets, "_trial", two_method_measure)
    return AnalysisService(ServiceSettings(device="cpu", limits=Limits(passes=1)))


@pytest.fixture
def paths():
    """Upload two images."""
    folder = Path(get_upload_folder()) / f"test-{time.time_ns()}"
    folder.mkdir(parents=True)
    for name in ("chelsea", "rocket"):
        vitviz.sample_image(name).save(folder / f"{name}.png")
    yield sorted(map(str, folder.iterdir()))
    shutil.rmtree(folder)


@pytest.fixture
def state(service, paths):
    key = service.look(service.pictures.sample("coffee"), "vitviz-tiny")
    return {"key": key, "set": service.sets.give(paths)}


def figure(page):
    """Return the Faithfulness figure of a response for all averaging views."""
    return page[1 + 2 * [view.slug for view in AVERAGED].index("trial")]


@pytest.mark.long
def test_set_evaluation_grows_per_image_and_matches_python(service, state, paths):
    pages = list(ImageSetPanel(service).survey(state, event_data(view="trial", way="black")))
    assert [figure(page)["summary"]["pictures"] for page in pages] == [1, 2]
    key = pages[-1][0]["surveys"]["trial"]
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    expected = vitviz.survey(paths, inspector, [two_method_measure("black")])
    for name in ("most", "least", "ahead", "alike"):
        np.testing.assert_allclose(service.sets.survey(key).mean(name), expected.mean(name), atol=1e-4)
    with np.load(lessons.io.BytesIO(service.numbers(key, "trial", {"patches_as": "black"}))) as file:
        assert int(file["pictures"]) == 2 and str(file["patches_as"]) == "black"
    archive = lessons.zipfile.ZipFile(lessons.io.BytesIO(
        lessons.lesson_zip(service, state["key"], {"survey.trial": key})))  # fmt: skip
    assert "numbers/trial.npz" in archive.namelist() and "trial-trial.csv" in archive.namelist()


def test_set_evaluation_takes_a_turn_per_image(service, state):
    growing = ImageSetPanel(service).survey(state, event_data(view="trial"))
    next(growing)
    line = service.work.turns._lines["cheap"]
    with ThreadPoolExecutor(1) as threads:
        with service.work.computing(service.checkpoints.inspector("vitviz-tiny"), None):
            second = threads.submit(next, growing)
            wait_until(lambda: line.waiting or second.done())
            assert not second.done()
        assert figure(second.result(60))["summary"]["pictures"] == 2


def test_too_many_images_or_wrong_options_are_rejected(service, state, paths):
    over = ImageSetPanel(service)
    for count, limit in ((1001, 1000), (301, 300)):
        updates = over.give(state, paths[:1] * count)
        if limit == 300:
            (updates,) = over.survey(updates[0], event_data(view="trial"))
        assert updates[0] == gr.skip()
        message = next(one["told"] for one in updates if isinstance(one, dict) and "told" in one)
        assert message["values"] == {"most": limit, "count": count}
    (page,) = over.survey(state, event_data(view="trial", way="green"))
    assert page[:-1] == [gr.skip()] * 7 and "expected one of dropped" in page[-1]["told"]["text"]
    for slug in ("patches", "nothing"):
        (page,) = over.survey(state, event_data(view=slug))
        assert page[0] == gr.skip() and page[-1]["told"]["text"]


def test_image_set_shows_predictions_and_none_for_invalid_file(service, state, paths):
    (bad := Path(paths[0]).with_name("bad.png")).write_text("no picture")
    over = ImageSetPanel(service)
    state, panel, _ = over.give(state, [*paths, str(bad)])
    assert panel["count"] == 3 and panel["answers"] == [None] * 3
    *_, panel = over.answer(state)
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    for path, (name, share, head_type) in zip(paths, panel["answers"], strict=False):
        [(said, sure)] = inspector.trace(path).top(1)
        assert (name, share, head_type) == (said, pytest.approx(sure, abs=1e-3), "softmax")
    assert panel["answers"][2] == []
    strip = open_image(service.image(state["set"], "thumbnails"))
    assert strip.size == (3 * 56, 56)
    other = {**state, "key": service.look(service.pictures.sample("coffee"), "vitviz-tiny@0")}
    assert over_a_set.panel_value(service, other)["answers"] == [None] * 3, (
        "predictions of another checkpoint are shown"
    )
