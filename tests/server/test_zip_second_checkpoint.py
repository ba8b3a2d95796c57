"""Zips with an average over an image set or with a second checkpoint."""

import base64
import io
import json

import numpy as np
import pytest

import vitviz
from tests.server.helpers import open_zip, read_numbers
from vitviz.server.api import lessons

pytestmark = pytest.mark.usefixtures("figures_not_drawn")


@pytest.mark.long
def test_zip_contains_average_of_image_set(service, key, uploaded_images):
    survey, measured = list(service.sets.surveying(key, uploaded_images))[-1]
    archive = open_zip(lessons.lesson_zip(service, key, {"survey.distance": survey}))
    arrays = read_numbers(archive, "distance")
    assert (
        np.array_equal(arrays["distance"], measured.distances.distance.numpy())
        and int(arrays["pictures"]) == 2
    )
    chart = service.item(survey, "distance", "chart", {}).tobytes()  # the title contains the number of images
    title = json.loads(chart)["title"]
    assert (title["text"], title["values"]["count"]) == ("{checkpoint}, mean of {count} images", 2)
    assert base64.b64encode(chart).decode() in archive.read("distance-figure.html").decode()
    assert ",2,plain," in archive.read("distance-numbers.csv").decode()
    assert "rollout" in read_numbers(archive, "rollout"), "other views are missing"
    with pytest.raises(KeyError):
        service.numbers(survey, "rollout", {})


def test_average_uses_the_current_input_size(service, key, tmp_path):
    vitviz.sample_image("coffee").save(path := tmp_path / "coffee.png")
    small = service.look(service.pictures.sample("coffee"), "vitviz-tiny", (56, 56))
    _, measured = list(service.sets.surveying(small, [str(path)]))[-1]
    assert measured.grid == service.subject(small).trace.grid
    np.testing.assert_allclose(
        measured.distances.distance, vitviz.attention_distance(service.subject(small).trace), atol=1e-4
    )


@pytest.mark.long
def test_second_checkpoint_has_its_own_zip_folder_and_settings(service, key):
    beside = service.look(service.pictures.sample("coffee"), "vitviz-tiny@0")
    archive = open_zip(
        lessons.lesson_zip(
            service, key, {"second": beside, "rollout.fusion": "max", "second.rollout.fusion": "min"}
        )
    )
    about = json.loads(archive.read("second/settings.json"))
    assert about["checkpoint"]["name"] == "vitviz-tiny@0" and about["views"]["rollout"]["fusion"] == "min"
    with np.load(io.BytesIO(archive.read("second/numbers/rollout.npz"))) as file:
        expected = vitviz.rollout(service.subject(beside).trace, fusion="min").numpy()
        assert np.array_equal(file["rollout"].reshape(expected.shape), expected)
    assert json.loads(archive.read("settings.json"))["views"]["rollout"]["fusion"] == "max"
    assert len([name for name in archive.namelist() if name.startswith("second/")]) >= 8


@pytest.mark.long
def test_zip_comparisons_use_both_checkpoints(service, key):
    beside = service.look(service.pictures.sample("coffee"), "vitviz-tiny@300")
    settings = {"tokens.show": "components", "tokens.basis": "beside", "compared.against": "beside"}
    given = {"second": beside, **settings, **{f"second.{name}": value for name, value in settings.items()}}
    archive = open_zip(lessons.lesson_zip(service, key, given))
    for folder, pair in (("", service.runs.pair(key, beside)), ("second/", service.runs.pair(beside, key))):
        for slug, name, asked in (
            ("tokens", "components", {"show": "components", "basis": "beside"}),
            ("compared", "cka", {"against": "beside"}),
        ):
            with (
                np.load(io.BytesIO(archive.read(f"{folder}numbers/{slug}.npz"))) as arrays,
                np.load(io.BytesIO(service.numbers(pair, slug, asked))) as expected,
            ):
                np.testing.assert_array_equal(arrays[name], expected[name])
