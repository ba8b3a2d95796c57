"""Lesson zips: restored contents, rejected files and the lessons folder."""

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

pytestmark = pytest.mark.usefixtures("figures_not_drawn")

GIVEN = {"rollout.fusion": "max", "rollout.residual": "0.8", "explorer.layer": "3", "tab": "rollout"}


@pytest.fixture(scope="module")
def uploaded_image(service):
    """Return the key of an uploaded image."""
    rows, cols = np.mgrid[0:200, 0:300]
    buffer = io.BytesIO()
    Image.fromarray(np.stack([rows, cols % 256, rows], -1).astype("uint8")).save(buffer, "PNG")
    return service.pictures.keep_bytes(buffer.getvalue())


@pytest.fixture(scope="module")
def lesson_data(service, uploaded_image):
    from vitviz.traces.runs import Ablation

    key = service.look(
        uploaded_image, "vitviz-tiny@30", (96, 112), without=Ablation(heads=[(1, 2)], patches=[4])
    )
    second = service.look(uploaded_image, "vitviz-tiny", (96, 112))
    return lessons.lesson_zip(service, key, {**GIVEN, "second": second})


def write_lesson(description: object, picture: bytes | None = b"") -> bytes:
    """Return a zip with any description."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(
            "settings.json", description if isinstance(description, str | bytes) else json.dumps(description)
        )
        if picture is not None:
            archive.writestr("upload.jpg", picture)
    return buffer.getvalue()


@pytest.mark.long
def test_lesson_restores_image_settings_and_edits(service, uploaded_image, lesson_data):
    read = lessons.read_lesson(lesson_data)
    edits = "heads=2.3 patches=4"
    assert read.seen == Link("vitviz-tiny@30", None, "rollout", "vitviz-tiny", "96x112", edits)
    assert read.settings["rollout"] == {"fusion": "max", "residual": "0.8"}
    assert read.settings["explorer"] == {"layer": "3"} and read.settings["tokens"] == {}
    again, before = (
        service.pictures.opened(service.pictures.keep_bytes(read.picture)),
        service.pictures.opened(uploaded_image),
    )
    assert again.size == before.size == (300, 200)
    assert np.abs(np.asarray(again, int) - np.asarray(before, int)).mean() < 2, "the restored image differs"


def test_uploaded_second_image_is_not_part_of_a_lesson(service, key, uploaded_image):
    given = {"tokens.other": uploaded_image, "tokens.depth": "3"}
    assert lessons.lesson_manifest(service, key, given)["settings"]["tokens"] == {"depth": "3"}
    manifest = lessons.lesson_manifest(service, key, {"tokens.other": "chelsea"})
    assert manifest["settings"]["tokens"] == {"other": "chelsea"}, "a sample image is dropped"


@pytest.mark.long
def test_lesson_refers_to_sample_by_name(service, key):
    read = lessons.read_lesson(lessons.lesson_zip(service, key, GIVEN))
    assert read.seen == Link("vitviz-tiny", "coffee", "rollout") and read.picture is None
    assert service.pictures.sample(read.seen.sample) == service.runs.run(key).picture


def test_invalid_lesson_settings_are_dropped():
    description = {
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
    read = lessons.read_lesson(write_lesson({"lesson": description}, b"a picture"))
    assert read.seen == Link("vitviz-tiny") and read.picture == b"a picture"
    assert read.settings == {**{view.slug: {} for view in VIEWS}, "rollout": {"discard": "0.5"}}


@pytest.mark.parametrize(
    "description",
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
def test_zip_without_lesson_is_rejected(description):
    with pytest.raises(NoLesson, match="This zip is not a lesson"):
        lessons.read_lesson(write_lesson(description))


def test_lesson_without_valid_image_is_rejected(service):
    description = {"lesson": {"checkpoint": "vitviz-tiny", "settings": {}}}
    with pytest.raises(NoLesson):
        lessons.read_lesson(write_lesson(description, None))
    with pytest.raises(ImageError, match="not an image"):
        service.pictures.keep_bytes(lessons.read_lesson(write_lesson(description, b"Dear diary")).picture)


def test_only_listed_lessons_of_the_folder_open(service, lesson_data, tmp_path):
    folder = tmp_path / "lessons"
    assert lessons.lessons_in_folder(folder) == {}, "a missing folder is not empty"
    folder.mkdir()
    (tmp_path / "secret.zip").write_bytes(lesson_data)
    for name in ("2 Two.zip", "1 One.ZIP", ".hidden.zip", "notes.txt", "bad\nname.zip"):
        (folder / name).write_bytes(lesson_data)
    (folder / "3 A folder.zip").mkdir()
    (folder / "4 Empty.zip").touch()
    (folder / "5 Other.zip").write_bytes(b"x" * 99)
    assert list(lessons.lessons_in_folder(folder)) == ["1 One", "2 Two", "4 Empty", "5 Other"]
    assert lessons.open_lesson(folder, "1 One") == lessons.read_lesson(lesson_data)
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
            lessons.open_lesson(folder, name)
    for name in ("4 Empty", "5 Other"):
        with pytest.raises(lessons.zips.NoZip):
            lessons.open_lesson(folder, name)


def test_lesson_of_the_folder_may_exceed_upload_limit(lesson_data, tmp_path):
    buffer = io.BytesIO(lesson_data)
    with zipfile.ZipFile(buffer, "a", zipfile.ZIP_STORED) as archive:
        archive.writestr("numbers/large.npz", bytes(25 * 2**20))
    (tmp_path / "large.zip").write_bytes(buffer.getvalue())
    assert lessons.open_lesson(tmp_path, "large") == lessons.read_lesson(lesson_data)


@pytest.mark.processes
def test_lesson_overwritten_while_read_raises_error(lesson_data, tmp_path):
    """A subprocess, because the operating system kills processes that mapped the file into memory."""
    (tmp_path / "mine.zip").write_bytes(lesson_data)
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
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True)
    assert result.stdout.startswith("This zip is damaged"), (result.returncode, result.stderr[-500:])


def test_default_lessons_folder(tmp_path, monkeypatch):
    assert lessons_folder(tmp_path) == tmp_path
    monkeypatch.setattr("vitviz.server.options.vitviz.__file__", str(tmp_path / "vitviz/__init__.py"))
    assert str(lessons_folder()) == "lessons"
    (tmp_path / "lessons").mkdir()
    assert lessons_folder() == tmp_path / "lessons"
    assert AnalysisService(ServiceSettings(lessons=tmp_path)).settings.lessons == tmp_path
