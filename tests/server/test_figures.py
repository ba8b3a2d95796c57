"""Print figures from the server: by URL, by endpoint and in the zip."""

import base64
import io
import zipfile
from pathlib import Path

import pytest
from PIL import Image

import vitviz
from tests.export.reading import texts
from vitviz.errors import Stopped, TooMuch, Unknown, VitvizError
from vitviz.server.api import figures, lessons
from vitviz.server.api.endpoints import Endpoints
from vitviz.server.options import Limits
from vitviz.traces import cancellation
from vitviz.views import VIEWS
from vitviz.views.printing import is_printable


@pytest.fixture(scope="module")
def expected(inspector, trace, photo):
    return vitviz.figure("rollout", inspector, trace, picture=photo, fusion="max")


def add_sample_credit(caption: str) -> str:
    """Return the caption with the name of the sample, which the Python API does not know."""
    size = "600 × 400 px."
    assert f"Image: {size}" in caption and "alone: 0" not in caption and "auto" not in caption
    title = "Coffee cup (Rachel Michetti, courtesy of Pikolo Espresso Bar, CC0)"
    return caption.replace(f"Image: {size}", f"Image: {title}, {size}")


def test_figure_route_matches_python_figure(service, key, expected):
    data, name = figures.figure_file(service, key, "rollout", "svg", {"fusion": "max"})
    assert data == expected.svg() and name == "vitviz-rollout_coffee_vitviz-tiny_fusion-max.svg"
    data, _ = figures.figure_file(service, key, "rollout", "txt", {"fusion": "max"})
    assert data.decode() == add_sample_credit(expected.caption)
    for form in ("txt", "tex", "md"):
        short = {"fusion": "max", "print.definition": "0"}
        data, name = figures.figure_file(service, key, "rollout", form, short)
        assert data.decode() == expected.caption_as(form, definition=False) and name.endswith(f".{form}")
    asked = {"fusion": "max", "print.width": "100", "print.dpi": "150", "print.detail": "1"}
    data, name = figures.figure_file(service, key, "rollout", "png", asked)
    assert Image.open(io.BytesIO(data)).width == round(100 / 25.4 * 150) and "_detail_" in name
    data, _ = figures.figure_file(service, key, "rollout", "svg", {"print.lang": "ko"})
    assert "패치별 어텐션 비율" in texts(data) or any("어텐션" in text for text in texts(data))


@pytest.mark.parametrize(
    "asked",
    [
        {"print.width": "9999"},
        {"print.width": "1e2"},
        {"print.width": "-5"},
        {"print.dpi": "72"},
        {"print.dpi": "9" * 40},
        {"print.detail": "yes"},
        {"print.definition": "yes"},
        {"print.colour": "red"},
        {"print.lang": "../../x"},
        {"fusion": "sum"},
    ],
)
def test_invalid_figure_setting_is_rejected(service, key, asked):
    with pytest.raises(VitvizError):
        figures.figure_file(service, key, "rollout", "svg", asked)


def test_unknown_format_view_or_key_raises(service, key):
    for wrong in (("no such key", "rollout", "svg"), (key, "cls", "svg"), (key, "rollout", "html")):
        with pytest.raises(Unknown):
            figures.figure_file(service, *wrong, {})
    with pytest.raises(VitvizError, match="no figure for print"):
        figures.figure_file(service, key, "tour", "svg", {})


def test_average_over_image_set_has_a_figure(service, key, uploaded_images):
    survey, _ = list(service.sets.surveying(key, uploaded_images))[-1]
    data, _ = figures.figure_file(service, survey, "distance", "svg", {})
    assert any("mean of 2 images" in text for text in texts(data))
    with pytest.raises(Unknown, match="no average"):
        figures.figure_file(service, survey, "rollout", "svg", {})


def test_figure_endpoint_returns_file_and_caption(service, expected):
    response = Endpoints(service).figure("coffee", settings="fusion=max")
    assert base64.b64decode(response["data"]) == expected.svg() and response["caption"] == add_sample_credit(
        expected.caption
    )
    assert response["name"] == "vitviz-rollout_coffee_vitviz-tiny_fusion-max.svg"
    response = Endpoints(service).figure("coffee", "distance", format="png", width=86, dpi=150)
    assert Image.open(io.BytesIO(base64.b64decode(response["data"]))).width == round(86 / 25.4 * 150)
    response = Endpoints(service).figure("coffee", "filters", format="pdf", without="heads=1.1")
    assert base64.b64decode(response["data"])[:5] == b"%PDF-"
    with pytest.raises(VitvizError, match="name=value"):
        Endpoints(service).figure("coffee", settings="max")


@pytest.mark.long
def test_zip_contains_figures_and_captions_of_fast_views(service, key, expected):
    with zipfile.ZipFile(io.BytesIO(lessons.lesson_zip(service, key, {"rollout.fusion": "max"}))) as archive:
        names = [name for name in archive.namelist() if name.startswith("figures/")]
        assert archive.read("figures/vitviz-rollout_coffee_vitviz-tiny_fusion-max.svg") == expected.svg()
        readme = archive.read("README.txt").decode()
    figures = [view for view in VIEWS if is_printable(view) and not view.scope.on_request]
    assert len(names) == 2 * len(figures) and all(name in readme for name in names)
    for view in figures:
        assert {f"figures/vitviz-{view.slug}_vitviz-tiny.svg".split(".")[0]} <= {
            name.split(".")[0].replace("_fusion-max", "").replace("_coffee", "") for name in names
        }


@pytest.mark.sweep
@pytest.mark.parametrize("slug", ["trial", "experiment"])
def test_slow_view_figure_requires_computed_results(
    service, inspector, trace, photo, slug, fast_faithfulness
):
    key = service.look(service.pictures.sample("coffee"), "vitviz-tiny")
    given = {"trial": {"patches_as": "blur"}, "experiment": {"kind": "shuffle"}}[slug]
    part = {"experiment": ("point", {"step": "1"}), "trial": ("tried", {"method": "ledger"})}[slug]
    for begun in (False, True):
        if begun:  # partial results do not count
            service.item(key, slug, part[0], given | part[1])
        with pytest.raises(VitvizError) as error:
            figures.figure_file(service, key, slug, "svg", given)
        assert str(error.value) == figures.NOT_YET
    service.numbers(key, slug, given)
    data, name = figures.figure_file(service, key, slug, "svg", {**given, "print.detail": "1"})
    figure = vitviz.figure(slug, inspector, trace, detail=True, picture=photo, **given)
    assert texts(data) == texts(figure.svg()) and name.replace("_coffee", "") == f"{figure.name}.svg"
    with pytest.raises(VitvizError, match="have not been computed yet"):  # no results for other settings
        figures.figure_file(service, key, slug, "svg", {})
    edited = service.look(
        service.pictures.sample("coffee"), "vitviz-tiny", without=vitviz.Ablation(heads=[(4, 1)])
    )
    with pytest.raises(VitvizError, match="needs the full model"):  # edited images never have results
        figures.figure_file(service, edited, slug, "svg", given)


@pytest.mark.long
def test_figure_endpoint_computes_slow_view(service, fast_faithfulness):
    response = Endpoints(service).figure("coffee", "trial", settings="patches_as=black", detail=True)
    said = texts(base64.b64decode(response["data"]))
    assert {"Logit attribution", "Removed patches are: black"} <= {text.removesuffix(" *") for text in said}
    assert response["name"] == "vitviz-trial_coffee_vitviz-tiny_detail_patches-as-black.svg"


@pytest.mark.long
def test_faithfulness_over_image_set_has_a_figure(service, key, uploaded_images, monkeypatch):
    from vitviz.server.services import image_sets
    from vitviz.surveys.measures.trial import FaithfulnessMeasure

    monkeypatch.setattr(
        image_sets, "_trial", lambda protocol: FaithfulnessMeasure(("ledger", "rollout"), (protocol,))
    )
    survey, _ = list(service.sets.surveying(key, uploaded_images, protocol="mean"))[-1]
    data, _ = figures.figure_file(
        service, survey, "trial", "svg", {"patches_as": "mean", "print.detail": "1"}
    )
    said = texts(data)
    assert any(text.startswith("Over 2 images") for text in said) and "Two classes" in said


def test_png_above_pixel_limit_is_rejected(service, key):
    asked = {"print.width": "400", "print.dpi": "600", "print.detail": "1"}
    with pytest.raises(TooMuch, match="million pixels; the limit is 20 million"):
        figures.figure_file(service, key, "tokens", "png", asked)
    dialog = (Path(vitviz.__file__).parent / "frontend/view_footer.js").read_text()
    assert f"const PIXELS = {Limits().pixels // 10**6};" in dialog


def test_cancelled_figure_stops_drawing(service, key):
    figure, checks = figures.figure(service, key, "rollout", {}), []

    def client_left() -> bool:
        checks.append(1)
        return len(checks) > 5

    with cancellation.when(client_left), pytest.raises(Stopped):
        figure.png()
    assert len(checks) == 6
