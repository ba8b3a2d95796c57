"""The zip of everything, read back: what was seen is found again, and nothing else can be asked for by it."""

import io
import json
import subprocess
import sys
import textwrap
import zipfile

import numpy as np
import pytest
from PIL import Image

from vitviz.errors import ImageError, Unknown
from vitviz.server.api import lessons
from vitviz.server.api.lessons import NoLesson
from vitviz.server.api.links import LONGEST, Link
from vitviz.server.options import lessons_folder
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.views import VIEWS

pytestmark = pytest.mark.usefixtures("undrawn")

GIVEN = {"rollout.fusion": "max", "rollout.residual": "0.8", "explorer.layer": "3", "tab": "rollout"}


@pytest.fixture(scope="module")
def own(service):
    """The key of a picture of one's own."""
    rows, cols = np.mgrid[0:200, 0:300]
    held = io.BytesIO()
    Image.fromarray(np.stack([rows, cols % 256, rows], -1).astype("uint8")).save(held, "PNG")
    return service.pictures.keep_bytes(held.getvalue())


@pytest.fixture(scope="module")
def zipped(service, own):
    from vitviz.traces.runs import Ablation

    key = service.look(own, "vitviz-tiny@30", (96, 112), without=Ablation(heads=[(1, 2)], patches=[4]))
    second = service.look(own, "vitviz-tiny", (96, 112))
    return lessons.lesson_zip(service, key, {**GIVEN, "second": second})


def lesson(told: object, picture: bytes | None = b"") -> bytes:
    """A zip with any description."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        archive.writestr("settings.json", told if isinstance(told, str | bytes) else json.dumps(told))
        if picture is not None:
            archive.writestr("upload.jpg", picture)
    return held.getvalue()


@pytest.mark.long
def test_everything_that_was_seen_is_found_again(service, own, zipped):
    found = lessons.read_lesson(zipped)
    edits = "heads=2.3 patches=4"
    assert found.seen == Link("vitviz-tiny@30", None, "rollout", "vitviz-tiny", "96x112", edits)
    assert found.settings["rollout"] == {"fusion": "max", "residual": "0.8"}
    assert found.settings["explorer"] == {"layer": "3"} and found.settings["tokens"] == {}
    again, before = (
        service.pictures.opened(service.pictures.keep_bytes(found.picture)),
        service.pictures.opened(own),
    )
    assert again.size == before.size == (300, 200)
    assert np.abs(np.asarray(again, int) - np.asarray(before, int)).mean() < 2, "a JPEG of it"


def test_a_picture_of_ones_own_in_a_setting_is_no_part_of_a_lesson(service, key, own):
    given = {"tokens.other": own, "tokens.depth": "3"}
    assert lessons.lesson_manifest(service, key, given)["settings"]["tokens"] == {"depth": "3"}
    told = lessons.lesson_manifest(service, key, {"tokens.other": "chelsea"})
    assert told["settings"]["tokens"] == {"other": "chelsea"}, "a sample is on every page"


@pytest.mark.long
def test_a_sample_is_named_and_so_the_same_to_the_pixel(service, key):
    found = lessons.read_lesson(lessons.lesson_zip(service, key, GIVEN))
    assert found.seen == Link("vitviz-tiny", "coffee", "rollout") and found.picture is None
    assert service.pictures.sample(found.seen.sample) == service.runs.run(key).picture


def test_a_description_decides_nothing_that_a_visitor_could_not():
    told = {
        "checkpoint": "vitviz-tiny",
        "sample": "../../etc/passwd",
        "second": 3,
        "size": ["x"],
        "tab": "<img>",
        "without": "heads=1e9",
        "settings": {
            "rollout": {"fusion": "${alert(1)}", "residual": 0.5, "discard": "0.5", "colour": "red"},
            "../x": {"a": "b"},
            "tokens": ["layer"],
            "explorer": None,
        },
    }
    found = lessons.read_lesson(lesson({"lesson": told}, b"a picture"))
    assert found.seen == Link("vitviz-tiny") and found.picture == b"a picture"
    assert found.settings == {**{view.slug: {} for view in VIEWS}, "rollout": {"discard": "0.5"}}


@pytest.mark.parametrize(
    "told",
    [
        "",
        "{",
        b"\xff\xfe\xff",
        "[" * 100_000,
        f'{{"lesson": {"9" * 9_999}}}',
        [],
        3,
        None,
        {},
        {"lesson": []},
        {"lesson": {"settings": {}}},
        {"lesson": {"checkpoint": "vitviz-tiny"}},
        {"lesson": {"checkpoint": "vitviz-tiny", "settings": []}},
        {"lesson": {"checkpoint": "\0", "settings": {}}},
        {"lesson": {"checkpoint": "x" * (LONGEST + 1), "settings": {}}},
    ],
)
def test_a_zip_of_another_kind_is_a_sentence(told):
    with pytest.raises(NoLesson, match="This zip is not a lesson"):
        lessons.read_lesson(lesson(told))


def test_without_its_picture_it_is_none_and_what_is_no_picture_is_refused(service):
    told = {"lesson": {"checkpoint": "vitviz-tiny", "settings": {}}}
    with pytest.raises(NoLesson):
        lessons.read_lesson(lesson(told, None))
    with pytest.raises(ImageError, match="not a picture"):
        service.pictures.keep_bytes(lessons.read_lesson(lesson(told, b"Dear diary")).picture)


def test_the_lessons_of_a_folder_are_offered_by_name_and_nothing_else_is_opened(service, zipped, tmp_path):
    place = tmp_path / "lessons"
    assert lessons.lessons_in_folder(place) == {}, "there need be no folder"
    place.mkdir()
    (tmp_path / "secret.zip").write_bytes(zipped)
    for name in ("2 Two.zip", "1 One.ZIP", ".hidden.zip", "notes.txt", "bad\nname.zip"):
        (place / name).write_bytes(zipped)
    (place / "3 A folder.zip").mkdir()
    (place / "4 Empty.zip").touch()
    (place / "5 Other.zip").write_bytes(b"x" * 99)
    assert list(lessons.lessons_in_folder(place)) == ["1 One", "2 Two", "4 Empty", "5 Other"]
    assert lessons.open_lesson(place, "1 One") == lessons.read_lesson(zipped)
    for name in (
        "../secret",
        "3 A folder",
        "notes",
        "",
        "\0",
        None,
        3,
        ["1 One"],
        {},
        str(tmp_path / "secret"),
    ):
        with pytest.raises(Unknown, match="no longer on the server"):
            lessons.open_lesson(place, name)
    for name in ("4 Empty", "5 Other"):
        with pytest.raises(lessons.zips.NoZip):
            lessons.open_lesson(place, name)


def test_a_lesson_beside_the_app_may_be_larger_than_an_upload(zipped, tmp_path):
    held = io.BytesIO(zipped)
    with zipfile.ZipFile(held, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr("numbers/large.npz", bytes(25 * 2**20))
    (tmp_path / "large.zip").write_bytes(held.getvalue())
    assert lessons.open_lesson(tmp_path, "large") == lessons.read_lesson(zipped)


@pytest.mark.processes
def test_a_lesson_that_is_overwritten_while_it_is_read_does_not_end_the_process(zipped, tmp_path):
    """By a process of its own: the operating system ends one that has the file mapped into its memory."""
    (tmp_path / "mine.zip").write_bytes(zipped)
    code = f"""
    import os
    from pathlib import Path
    from vitviz.server.api import lessons
    own = lessons.zips.read_files
    def cut(file, wanted):
        os.truncate({str(tmp_path / "mine.zip")!r}, 100)  # as `cp` does before it writes
        return own(file, wanted)
    lessons.zips.read_files = cut
    try:
        lessons.open_lesson(Path({str(tmp_path)!r}), "mine")
    except lessons.zips.NoZip as error:
        print(error)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert done.stdout.startswith("This zip is damaged"), (done.returncode, done.stderr[-500:])


def test_where_lessons_lie(tmp_path, monkeypatch):
    assert lessons_folder(tmp_path) == tmp_path
    monkeypatch.setattr("vitviz.server.options.vitviz.__file__", str(tmp_path / "vitviz/__init__.py"))
    assert str(lessons_folder()) == "lessons"
    (tmp_path / "lessons").mkdir()
    assert lessons_folder() == tmp_path / "lessons"
    assert AnalysisService(ServiceSettings(lessons=tmp_path)).settings.lessons == tmp_path
