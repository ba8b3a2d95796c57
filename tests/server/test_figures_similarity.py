"""Print figures of the Similarity view: by URL, by endpoint and in the zip, of one or two checkpoints."""

import base64
import io
import zipfile

import numpy as np
import pytest

import vitviz
from tests.export.reading import texts
from vitviz.errors import Unknown, VitvizError, WrongSetting
from vitviz.server.api import figures, lessons, videos
from vitviz.server.api.endpoints import Endpoints
from vitviz.server.options import ServiceSettings
from vitviz.server.services.analysis_service import AnalysisService

EARLY = "vitviz-tiny@30"
pytestmark = pytest.mark.usefixtures("short_training", "cached_sample_survey")
AGAINST_SECOND = {"against": "beside"}
NAME = "vitviz-compared_vitviz-tiny_vitviz-tiny-30_against-beside"


@pytest.fixture(scope="module")
def pair(service, key):
    return service.runs.pair(key, service.look(service.pictures.sample("coffee"), EARLY))


@pytest.fixture(scope="module")
def expected(inspector):
    return vitviz.figure("compared", inspector, second=vitviz.load(EARLY, device="cpu"), **AGAINST_SECOND)


@pytest.mark.long
def test_figure_route_matches_python_figure(service, key, pair, inspector, expected):
    data, name = figures.figure_file(service, pair, "compared", "svg", AGAINST_SECOND)
    assert data == expected.svg() and name == f"{NAME}.svg"
    assert (
        figures.figure_file(service, pair, "compared", "txt", AGAINST_SECOND)[0].decode() == expected.caption
    )
    data, name = figures.figure_file(service, key, "compared", "svg", {"print.detail": "1"})
    assert data == vitviz.figure("compared", inspector, detail=True).svg()
    assert name == "vitviz-compared_vitviz-tiny_detail.svg"
    with pytest.raises(WrongSetting, match="no second checkpoint"):
        figures.figure_file(service, key, "compared", "svg", AGAINST_SECOND)


def test_uploaded_image_set_is_printed_with_its_size(service, key, tmp_path):
    from vitviz.surveys import sample_crops

    paths = []
    for number, part in enumerate(sample_crops()[:5]):
        part.save(path := tmp_path / f"{number}.png")
        paths.append(str(path))
    survey, _ = next(iter(service.sets.surveying(key, paths, paired=True)))
    data, _ = figures.figure_file(service, survey, "compared", "svg", {})
    assert "Based on 5 images." in texts(data)


@pytest.mark.long
def test_figure_endpoint_accepts_second_checkpoint(service, expected):
    ask = Endpoints(service).figure
    response = ask("coffee", "compared", settings="against=beside", second=EARLY)
    assert base64.b64decode(response["data"]) == expected.svg() and response["name"] == f"{NAME}.svg"
    assert response["checkpoint"] == "vitviz-tiny" and response["caption"] == expected.caption
    assert ask("coffee", "compared")["name"] == "vitviz-compared_vitviz-tiny.svg"
    with pytest.raises(WrongSetting, match="Rollout is of one checkpoint"):
        ask("coffee", "rollout", second=EARLY)
    with pytest.raises(Unknown):
        ask("coffee", "cls", second=EARLY)
    with pytest.raises(VitvizError):
        ask("coffee", "compared", second="no such checkpoint")


@pytest.mark.sweep
def test_zip_compares_both_checkpoints_with_one_survey_each(monkeypatch, expected):
    service, surveyed = AnalysisService(ServiceSettings(device="cpu")), []
    survey = service.sets._survey_in_batches
    monkeypatch.setattr(
        service.sets,
        "_survey_in_batches",
        lambda run, *of: surveyed.append(run.checkpoint) or survey(run, *of),
    )
    first, second = (service.look(service.pictures.sample("coffee"), name) for name in ("vitviz-tiny", EARLY))
    given = {"second": second, "compared.against": "beside", "second.compared.against": "beside"}
    with zipfile.ZipFile(io.BytesIO(lessons.lesson_zip(service, first, given))) as archive:
        assert archive.read(f"figures/{NAME}.svg") == expected.svg()
        assert archive.read(f"figures/{NAME}.txt").decode() == expected.caption
        other = "second/figures/vitviz-compared_vitviz-tiny-30_vitviz-tiny_against-beside.svg"
        assert f"depth of {EARLY}" in texts(archive.read(other))
    assert sorted(surveyed) == ["vitviz-tiny", EARLY], "a checkpoint was surveyed more than once"


@pytest.mark.long
def test_training_video_keeps_the_second_checkpoint(service, pair, expected, monkeypatch):
    monkeypatch.setattr(videos, "MOST", 3)
    video = videos.page_video(service, pair, "compared", AGAINST_SECOND)
    first, *_, last = (frame.spec.rows[0][0] for frame in video.frames)
    np.testing.assert_array_equal(last.values, expected.spec.rows[0][0].values)
    assert {str(matrix.x_label) for matrix in (first, last)} == {f"depth of {EARLY}"}
    assert str(first.y_label) == "depth of vitviz-tiny@0" and not np.allclose(
        first.values, last.values, atol=0.1
    )
