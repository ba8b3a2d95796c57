"""A set of pictures whose maps are tried from the page: the numbers of Python, a turn for each picture, and
a bound that costs nothing.
"""

import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gradio as gr
import numpy as np
import pytest
from gradio.utils import get_upload_folder

import vitviz
from tests.ui.test_turns import until
from vitviz.ui.answers import export
from vitviz.ui.memory import sets
from vitviz.ui.memory.studio import Settings, Studio
from vitviz.ui.options import Limits
from vitviz.ui.page.tabs import OverASet
from vitviz.views.trial import Trial


def quick(protocol):
    from vitviz.surveys.measures.trial import TrialMeasure

    return TrialMeasure(("ledger", "rollout"), (protocol,))


@pytest.fixture
def studio(monkeypatch):
    monkeypatch.setattr(sets, "_trial", quick)
    return Studio(Settings(device="cpu", limits=Limits(passes=1)))


@pytest.fixture
def state(studio):
    return {"key": studio.look(studio.pictures.sample("coffee"), "vitviz-tiny")}


@pytest.fixture
def paths():
    """Uploads of two pictures."""
    place = Path(get_upload_folder()) / f"test-{time.time_ns()}"
    place.mkdir(parents=True)
    for name in ("chelsea", "rocket"):
        vitviz.sample_image(name).save(place / f"{name}.png")
    yield sorted(map(str, place.iterdir()))
    shutil.rmtree(place)


def test_it_grows_picture_by_picture_and_is_what_python_says(studio, state, paths):
    pages = list(OverASet(Trial(), studio, [None, None]).survey(state, paths, "black"))
    assert [page[1]["summary"]["pictures"] for page in pages] == [1, 2]
    key = pages[-1][0]["surveys"]["trial"]
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    alone = vitviz.survey(paths, inspector, [quick("black")])
    for name in ("most", "least", "ahead", "alike"):
        np.testing.assert_allclose(studio.sets.survey(key).mean(name), alone.mean(name), atol=1e-4)
    with np.load(export.io.BytesIO(studio.numbers(key, "trial", {"patches_as": "black"}))) as file:
        assert int(file["pictures"]) == 2 and str(file["patches_as"]) == "black"
    archive = export.zipfile.ZipFile(export.io.BytesIO(
        export.everything(studio, state["key"], {"survey.trial": key})))  # fmt: skip
    assert "numbers/trial.npz" in archive.namelist() and "trial-trial.csv" in archive.namelist()


def test_another_visitor_comes_between_two_pictures(studio, state, paths):
    growing = OverASet(Trial(), studio, [None, None]).survey(state, paths, "")
    next(growing)
    line = studio.work.turns._lines["cheap"]
    with ThreadPoolExecutor(1) as threads:
        with studio.work.computing(studio.checkpoints.inspector("vitviz-tiny"), None):
            second = threads.submit(next, growing)
            until(lambda: line.waiting or second.done())
            assert not second.done()
        assert second.result(60)[1]["summary"]["pictures"] == 2


def test_too_many_are_refused_before_anything_is_opened_and_nothing_is_lost(studio, state):
    (page,) = OverASet(Trial(), studio, [None, None]).survey(state, ["/no/upload.png"] * 301, "")
    assert page[:3] == [gr.skip()] * 3 and page[3]["values"] == {"most": 300, "count": 301}
    (page,) = OverASet(Trial(), studio, [None, None]).survey(state, ["/no/upload.png"], "green")
    assert page[:3] == [gr.skip()] * 3 and "expected one of dropped" in page[3]["text"]
