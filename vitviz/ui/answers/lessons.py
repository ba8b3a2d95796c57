"""A lesson: the zip of everything, read back as what was seen: photograph, checkpoints, view, settings and
edits.

Its pictures and its description are read as a stranger's: as any upload and as any link. What it says decides
nothing that a visitor could not choose by hand.
"""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from vitviz.errors import Unknown
from vitviz.prints.figure import view_called
from vitviz.ui.answers import links
from vitviz.ui.door import zips
from vitviz.ui.memory.studio import Studio
from vitviz.views import VIEWS

# as export.py names them; the last is a file of classes as it was given, whatever its ending
TOLD, PICTURE, OTHER, VECTORS = "settings.json", "upload.jpg", "other.jpg", "classes"
MOST_TOLD = 2**20  # bytes of the description; one of two checkpoints has ten thousand
MOST_OFFERED = 100
NO_LESSON = (
    "This zip is no lesson. Expected one that “Everything (.zip)” of this or another vitviz page has made,"
    " as it was downloaded."
)
GONE = "This lesson is no longer on the server. Load the page again to see which there are."


class NoLesson(zips.NoZip):
    """A zip, but not one that a page could be restored from."""


@dataclass(frozen=True)
class Lesson:
    """What a zip restores: `seen` names checkpoint, sample, view and edits; `settings` are all views'."""

    seen: links.Link
    settings: dict[str, dict[str, str]]  # view -> name -> text, each one checked
    picture: bytes | None  # none of a sample, which every page has
    vectors: bytes | None = None  # a file of classes
    other: bytes | None = None  # one's own photograph that a piece was laid onto


def told(studio: Studio, key: str, given: Mapping[str, str]) -> dict[str, Any]:
    """What the zip of everything says of a run, so that `read` finds it again; `given` as the page asks."""
    run, second = studio.runs.run(key), given.get("second")
    seen = {
        "checkpoint": run.checkpoint,
        "second": studio.runs.run(second).checkpoint if second else "",
        "size": "" if run.size is None else "x".join(map(str, run.size)),
        "sample": studio.pictures.sample_of(run.picture) or "",
        "without": run.without.text(),
        "strokes": run.strokes.told().text(),
        "tab": given.get("tab", ""),
    }
    settings = {
        slug: {name: value for name, value in one.items() if not studio.pictures.has(value)}
        for slug, one in by_view(given).items()
    }
    return {**seen, "settings": settings}  # but a picture's key, which is this server's own


def by_view(given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Settings that are named "view.setting" by their views; Unknown for a view that there is not."""
    asked: dict[str, dict[str, str]] = {view.slug: {} for view in VIEWS}
    for name, value in given.items():
        slug, dot, setting = name.partition(".")
        if dot:
            asked[view_called(slug).slug][setting] = value
    return asked


def read(data: bytes) -> Lesson:
    """The lesson in a zip; NoZip or NoLesson where there is none. What fits no view is passed over."""
    return _read(io.BytesIO(data))


def _read(file: BinaryIO) -> Lesson:
    from vitviz.engine.pictures.images import MAX_BYTES

    found = zips.files(file, {TOLD: MOST_TOLD, **dict.fromkeys((PICTURE, OTHER, VECTORS), MAX_BYTES)})
    try:
        lesson = json.loads(found[TOLD])["lesson"]
        seen, settings = links.read(lesson), [lesson["settings"].get(view.slug) for view in VIEWS]
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise NoLesson(NO_LESSON) from None
    if seen.checkpoint is None or not (seen.sample or PICTURE in found):
        raise NoLesson(NO_LESSON)
    asked = [one if isinstance(one, dict) else {} for one in settings]
    checked = {view.slug: links.fitting(view, one) for view, one in zip(VIEWS, asked, strict=True)}
    picture = None if seen.sample else found[PICTURE]
    return Lesson(seen, checked, picture, found.get(VECTORS), found.get(OTHER))


def offered(folder: Path) -> dict[str, Path]:
    """The lessons in a folder, by the names under which the page offers them; none without a folder."""
    try:
        found = sorted(one for one in folder.iterdir() if one.suffix.lower() == ".zip" and one.is_file())
    except OSError:
        return {}
    named = {one.stem: one for one in found if one.stem.isprintable() and not one.name.startswith(".")}
    return dict(list(named.items())[:MOST_OFFERED])


def opened(folder: Path, name: Any) -> Lesson:
    """A lesson that is offered, of which only what is needed is read; Unknown for any other name."""
    path = offered(folder).get(name) if isinstance(name, str) else None
    if path is None:
        raise Unknown(GONE)
    try:
        with path.open("rb") as file:
            return _read(file)
    except OSError:
        raise Unknown(GONE) from None
