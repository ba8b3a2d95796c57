"""Compatibility with files and links of an earlier release. Version 0.2.0 wrote `tests/golden/`.

trace.pickle: a trace of a random two-layer model. lesson.json: the settings.json of a lesson.
links.json: one link per view, and how that release read it. survey/: a survey of two sample images.
"""

import io
import json
import pickle
import shutil
import zipfile
from pathlib import Path

import numpy as np
import pytest

import vitviz
from vitviz.server.api import lessons, links

GOLDEN = Path(__file__).parent / "golden"


def test_pickled_trace_loads_with_all_numbers():
    trace = pickle.loads((GOLDEN / "trace.pickle").read_bytes())
    label, probability = trace.top(1)[0]
    assert label == "b" and probability == pytest.approx(0.34477250620908995, abs=1e-6)
    assert trace.attention(0).shape == (2, 4, 4) and float(trace.attention(0).sum()) == pytest.approx(8)
    assert trace.kept == (0, 1, 3) and trace.without.text() == "heads=2.1 patches=2"
    assert vitviz.rollout(trace).shape == (2, 2)


@pytest.mark.parametrize(
    "link", json.loads((GOLDEN / "links.json").read_text()), ids=lambda one: one["query"]["tab"]
)
def test_link_is_understood_as_before(link):
    seen = links.parse_link(link["query"])
    assert {"without": seen.without, "strokes": seen.strokes} == {
        name: link["understood"][name] for name in ("without", "strokes")
    }
    assert seen.tab and list(seen.settings.values()) == list(link["understood"]["settings"].values())


def test_lesson_restores_every_setting():
    written = json.loads((GOLDEN / "lesson.json").read_text())
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("settings.json", json.dumps({"lesson": written}))
    lesson = lessons.read_lesson(file.getvalue())
    assert lesson.seen.checkpoint == "vitviz-tiny" and lesson.seen.without == written["without"]
    before = [value for settings in written["settings"].values() for value in settings.values()]
    assert [value for settings in lesson.settings.values() for value in settings.values()] == before


def test_survey_folder_goes_on_without_measuring_again(tmp_path, monkeypatch):
    folder = shutil.copytree(GOLDEN / "survey", tmp_path / "survey")
    images = [vitviz.sample_image(name) for name in ("coffee", "rocket")]
    inspector = vitviz.load("vitviz-positions-none-0", device="cpu")

    def never(*args, **kwargs):
        raise AssertionError("an image was traced again")

    monkeypatch.setattr(type(inspector), "traces", never)
    survey = vitviz.survey(images, inspector, ["distance", "entropy", "ledger", "lens"], out=folder)
    assert survey.mean("distance").shape == survey.mean("entropy").shape
    assert np.isfinite(survey.mean("distance")).all() and survey.mean("distance").min() > 0
