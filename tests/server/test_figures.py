"""Figures for print from the server: by address, by endpoint, and in the zip."""

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


@pytest.fixture(scope="module")
def expected(inspector, trace, photo):
    return vitviz.figure("rollout", inspector, trace, picture=photo, fusion="max")


def credited(caption: str) -> str:
    """The caption with the sample's name, which Python is not told."""
    size = "600 × 400 px."
    assert f"Photograph: {size}" in caption and "alone: 0" not in caption and "auto" not in caption
    title = "Coffee cup (Rachel Michetti, courtesy of Pikolo Espresso Bar, CC0)"
    return caption.replace(f"Photograph: {size}", f"Photograph: {title}, {size}")


def test_an_address_gives_what_python_gives(service, key, expected):
    data, name = figures.figure_file(service, key, "rollout", "svg", {"fusion": "max"})
    assert data == expected.svg() and name == "vitviz-rollout_coffee_vitviz-tiny_fusion-max.svg"
    data, _ = figures.figure_file(service, key, "rollout", "txt", {"fusion": "max"})
    assert data.decode() == credited(expected.caption)
    for form in ("txt", "tex", "md"):
        short = {"fusion": "max", "print.definition": "0"}
        data, name = figures.figure_file(service, key, "rollout", form, short)
        assert data.decode() == expected.caption_as(form, definition=False) and name.endswith(f".{form}")
    asked = {"fusion": "max", "print.width": "100", "print.dpi": "150", "print.detail": "1"}
    data, name = figures.figure_file(service, key, "rollout", "png", asked)
    assert Image.open(io.BytesIO(data)).width == round(100 / 25.4 * 150) and "_detail_" in name
    data, _ = figures.figure_file(service, key, "rollout", "svg", {"print.lang": "ko"})
    assert "패치당 어텐션의 몫" in texts(data) or any("어텐션" in text for text in texts(data))


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
def test_what_does_not_fit_is_refused(service, key, asked):
    with pytest.raises(VitvizError):
        figures.figure_file(service, key, "rollout", "svg", asked)


def test_other_formats_views_and_keys_do_not_exist(service, key):
    for wrong in (("no such key", "rollout", "svg"), (key, "cls", "svg"), (key, "rollout", "html")):
        with pytest.raises(Unknown):
            figures.figure_file(service, *wrong, {})
    with pytest.raises(VitvizError, match="no figure for print"):
        figures.figure_file(service, key, "tour", "svg", {})


def test_a_mean_over_a_set_has_its_figure_too(service, key, two):
    survey, _ = list(service.sets.surveying(key, two))[-1]
    data, _ = figures.figure_file(service, survey, "distance", "svg", {})
    assert any("mean of 2 images" in text for text in texts(data))
    with pytest.raises(Unknown, match="no average"):
        figures.figure_file(service, survey, "rollout", "svg", {})


def test_the_endpoint_gives_the_file_and_its_caption(service, expected):
    found = Endpoints(service).figure("coffee", settings="fusion=max")
    assert base64.b64decode(found["data"]) == expected.svg() and found["caption"] == credited(
        expected.caption
    )
    assert found["name"] == "vitviz-rollout_coffee_vitviz-tiny_fusion-max.svg"
    found = Endpoints(service).figure("coffee", "distance", format="png", width=86, dpi=150)
    assert Image.open(io.BytesIO(base64.b64decode(found["data"]))).width == round(86 / 25.4 * 150)
    found = Endpoints(service).figure("coffee", "filters", format="pdf", without="heads=1.1")
    assert base64.b64decode(found["data"])[:5] == b"%PDF-"
    with pytest.raises(VitvizError, match="name=value"):
        Endpoints(service).figure("coffee", settings="max")


@pytest.mark.long
def test_the_zip_holds_every_views_figure_that_is_at_hand_with_its_caption(service, key, expected):
    with zipfile.ZipFile(io.BytesIO(lessons.lesson_zip(service, key, {"rollout.fusion": "max"}))) as archive:
        names = [name for name in archive.namelist() if name.startswith("figures/")]
        assert archive.read("figures/vitviz-rollout_coffee_vitviz-tiny_fusion-max.svg") == expected.svg()
        readme = archive.read("README.txt").decode()
    figures = [view for view in VIEWS if view.printable and not view.on_request]
    assert len(names) == 2 * len(figures) and all(name in readme for name in names)
    for view in figures:
        assert {f"figures/vitviz-{view.slug}_vitviz-tiny.svg".split(".")[0]} <= {
            name.split(".")[0].replace("_fusion-max", "").replace("_coffee", "") for name in names
        }


@pytest.mark.sweep
@pytest.mark.parametrize("slug", ["trial", "experiment"])
def test_what_takes_long_is_printed_from_what_the_view_itself_has_found(
    service, inspector, trace, photo, slug, fast_faithfulness
):
    key = service.look(service.pictures.sample("coffee"), "vitviz-tiny")
    given = {"trial": {"patches_as": "blur"}, "experiment": {"kind": "shuffle"}}[slug]
    part = {"experiment": ("point", {"step": "1"}), "trial": ("tried", {"method": "ledger"})}[slug]
    for begun in (False, True):
        if begun:  # what has been begun is not whole
            service.item(key, slug, part[0], given | part[1])
        with pytest.raises(VitvizError) as told:
            figures.figure_file(service, key, slug, "svg", given)
        assert str(told.value) == figures.NOT_YET
    service.numbers(key, slug, given)
    data, name = figures.figure_file(service, key, slug, "svg", {**given, "print.detail": "1"})
    figure = vitviz.figure(slug, inspector, trace, detail=True, picture=photo, **given)
    assert texts(data) == texts(figure.svg()) and name.replace("_coffee", "") == f"{figure.name}.svg"
    with pytest.raises(
        VitvizError, match="have not been computed yet"
    ):  # with other settings nothing is known
        figures.figure_file(service, key, slug, "svg", {})
    edited = service.look(
        service.pictures.sample("coffee"), "vitviz-tiny", without=vitviz.Ablation(heads=[(4, 1)])
    )
    with pytest.raises(VitvizError, match="needs the full model"):  # and no promise where there will be none
        figures.figure_file(service, edited, slug, "svg", given)


@pytest.mark.long
def test_a_program_gets_what_takes_long_made(service, fast_faithfulness):
    found = Endpoints(service).figure("coffee", "trial", settings="patches_as=black", detail=True)
    said = texts(base64.b64decode(found["data"]))
    assert {"Logit attribution", "Removed patches are: black"} <= {text.removesuffix(" *") for text in said}
    assert found["name"] == "vitviz-trial_coffee_vitviz-tiny_detail_patches-as-black.svg"


@pytest.mark.long
def test_a_trial_over_a_set_has_its_figure(service, key, two, monkeypatch):
    from vitviz.server.services import image_sets
    from vitviz.surveys.measures.trial import FaithfulnessMeasure

    monkeypatch.setattr(
        image_sets, "_trial", lambda protocol: FaithfulnessMeasure(("ledger", "rollout"), (protocol,))
    )
    survey, _ = list(service.sets.surveying(key, two, protocol="mean"))[-1]
    data, _ = figures.figure_file(
        service, survey, "trial", "svg", {"patches_as": "mean", "print.detail": "1"}
    )
    said = texts(data)
    assert any(text.startswith("Over 2 images") for text in said) and "Two classes" in said


def test_a_large_png_is_refused_before_it_is_drawn_and_the_dialog_says_the_same_bound(service, key):
    asked = {"print.width": "400", "print.dpi": "600", "print.detail": "1"}
    with pytest.raises(TooMuch, match="million pixels; the limit is 20 million"):
        figures.figure_file(service, key, "tokens", "png", asked)
    dialog = (Path(vitviz.__file__).parent / "frontend/view_footer.js").read_text()
    assert f"const PIXELS = {Limits().pixels // 10**6};" in dialog


def test_a_figure_that_nobody_waits_for_is_drawn_no_further(service, key):
    made, drawn = figures.figure(service, key, "rollout", {}), []

    def left() -> bool:
        drawn.append(1)
        return len(drawn) > 5

    with cancellation.when(left), pytest.raises(Stopped):
        made.png()
    assert len(drawn) == 6
