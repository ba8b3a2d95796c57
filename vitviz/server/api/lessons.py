"""Lessons: export the state of the page as one zip, and restore the page from such a zip.

The numbers in the zip equal those on the screen: each view's numbers come from the same call as that view's
own download, with the page's settings. Views that are unavailable for this model are omitted; settings.json
gives the reasons. An imported zip is untrusted: its images are checked like uploads and its description like
a link. A lesson can only set what a visitor can also set by hand.
"""

import io
import json
import re
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

import vitviz
from vitviz.engine import Inspector
from vitviz.engine.images.opening import MAX_BYTES
from vitviz.errors import Unknown
from vitviz.export.figure import view_by_slug
from vitviz.server.api import figures as prints
from vitviz.server.api import links
from vitviz.server.api.figures import QueryTexts
from vitviz.server.api.serialization import grid_json
from vitviz.server.security import zips
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.traces.head_type import HEAD_TYPES
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.unicode import parse_json
from vitviz.views import VIEWS, Needs, ViewContext
from vitviz.views.availability import refusal
from vitviz.views.printing import is_printable
from vitviz.views.routes import export_axes, parse_settings, settings_for_files

# the last is a class file as uploaded, whatever its extension
TOLD, PICTURE, OTHER, VECTORS = "settings.json", "upload.jpg", "other.jpg", "classes"
MOST_TOLD = 2**20  # bytes of the description; that of two checkpoints has about ten thousand
MOST_OFFERED = 100
NO_LESSON = "This zip is not a lesson. Use an unchanged zip from “Download all” on a vitviz page."
OUTDATED = (
    "The scores in this lesson’s files are wrong: outputs were read as {before}, but {checkpoint} has"
    " {head_type} outputs. The page shows correct scores; download the lesson again."
)
GONE = "This lesson is no longer on the server. Reload the page to see the current lessons."

README = Path(__file__).with_name("lesson.txt")  # the pattern of the zip's README

ON_REQUEST = (
    "This view’s numbers have not been computed yet. Open the view, wait for them, then download again."
)


class NoLesson(zips.NoZip):
    """A valid zip that is not a lesson."""


@dataclass(frozen=True)
class Lesson:
    """State restored from a zip: `seen` has checkpoint, sample, view, edits; `settings` has every view's."""

    seen: links.Link
    settings: dict[str, dict[str, str]]  # view -> name -> text, each checked
    picture: bytes | None  # None for a sample, which every page has
    vectors: bytes | None = None  # a file of classes
    other: bytes | None = None  # the visitor's own image that a region was pasted onto
    head_type: str | None = None  # for the files' scores; None in lessons written before this field existed

    def outdated(self, inspector: Inspector) -> LocalizedText | None:
        """Return a warning if the lesson's scores differ from this model's, else None."""
        before = self.head_type or ("softmax" if inspector.classes is None else inspector.head_type)
        if before == inspector.head_type or not inspector.model.num_classes:
            return None
        details = {"before": before, "head_type": inspector.head_type}
        return LocalizedText(OUTDATED, checkpoint=inspector.checkpoint.name, **details)


def lesson_zip(service: AnalysisService, key: str, query: QueryTexts) -> bytes:
    """Return the zip for one run.

    `query` holds the page's settings as "view.setting"; "survey.view", the key of an average over an image
    set where a view shows one; "tab", the selected view; and "second", the key of the second checkpoint, with
    that checkpoint's settings as "second.view.setting". The second checkpoint's files go into second/.

    Raises VitvizError for unknown names and invalid values.
    """
    surveys, query = prints.split_by_prefix(query, "survey.")
    beside, query = prints.split_by_prefix(query, "second.")
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        second = query.get("second", "")
        left_out = _write(archive, "", service, (key, second), query, surveys)
        if second:
            _write(archive, "second/", service, (second, key), beside, {})
        strokes, names = service.runs.run(key).strokes, {PICTURE: "first"}
        names |= {"retouched.jpg": "upload"} if strokes else {}
        names |= {OTHER: "other"} if strokes.own else {}
        for name, which in names.items():
            archive.writestr(name, service.image(key, which, whole=True), zipfile.ZIP_STORED)
        name = service.subject(key).checkpoint
        if (vectors := service.checkpoints.vectors.of(name)) is not None:
            archive.writestr(VECTORS, vectors[1])
        counted = {"arrays": _arrays(archive), "prefix": service.subject(key).grid.prefix}
        figures = "".join(f"{one}\n" for one in archive.namelist() if one.startswith("figures/"))
        each = [(f"{view.slug}-{file.name}", file.label) for view in VIEWS for file in view.export.files]
        files = "".join(f"{one:<27}{label}\n" for one, label in each)
        views = "".join(f"{v.title}: {left_out.get(v.slug) or v.words.what}\n\n" for v in VIEWS)
        details = {"checkpoint": name, "files": files, "figures": figures, "views": views, **counted}
        archive.writestr("README.txt", README.read_text(encoding="utf-8").format(**details))
    return file.getvalue()


def lesson_manifest(service: AnalysisService, key: str, query: QueryTexts) -> dict[str, Any]:
    """Return the zip's description of a run, which `read_lesson` parses; `query` as in `lesson_zip`."""
    run, second = service.runs.run(key), query.get("second")
    seen = {
        "checkpoint": run.checkpoint,
        "second": service.runs.run(second).checkpoint if second else "",
        "size": "" if run.size is None else "x".join(map(str, run.size)),
        "sample": service.pictures.sample_of(run.picture) or "",
        "without": run.without.text(),
        "strokes": run.strokes.told().text(),
        "tab": query.get("tab", ""),
    }
    shared = {name: value for name, value in query.items() if not service.pictures.has(value)}
    # without the image's key, which is private to this server
    return {**seen, "settings": settings_by_view(shared)}


def settings_by_view(query: QueryTexts) -> dict[str, dict[str, str]]:
    """Return the settings named "view.setting", by view. Raises Unknown for an unknown view."""
    asked: dict[str, dict[str, str]] = {view.slug: {} for view in VIEWS}
    for name, value in query.items():
        slug, dot, setting = name.partition(".")
        if dot:
            asked[view_by_slug(slug).slug][setting] = value
    return asked


def file_name(checkpoint: str) -> str:
    """Return the name of a checkpoint's zip, safe in HTTP headers and on every file system."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", checkpoint).strip(".-") or "checkpoint"
    return f"{plain if plain.startswith('vitviz') else 'vitviz-' + plain}.zip"


def _write(
    archive: zipfile.ZipFile, folder: str, service: AnalysisService, keys: tuple[str, str], query: QueryTexts,
    surveys: QueryTexts
) -> dict[str, str]:  # fmt: skip
    """Write the files of a run into a folder of a zip; return the reasons for views left out, by view."""
    key, second = keys
    pair = service.runs.pair(key, second) if second else key
    subject, asked = service.subject(key), settings_by_view(query)
    for slug, survey in surveys.items():
        # the key of a survey or of a pair
        known = service.sets.survey(survey) is not None or service.runs.both(survey)[0] == key
        if not service.view(slug).scope.averages or not known:
            raise Unknown("The requested average is no longer stored. Compute it again.")
    parsed = {view.slug: parse_settings(view, asked[view.slug], subject.about) for view in VIEWS}
    settings = {view.slug: settings_for_files(view, parsed[view.slug], subject.grid) for view in VIEWS}
    left_out = {view.slug: reason for view in VIEWS if (reason := refusal(view, subject))}
    shown = [view for view in VIEWS if view.slug not in left_out and view.slug not in surveys]
    absent = [view for view in shown if not view.scope.available(subject, parsed[view.slug])]
    left_out |= {view.slug: ON_REQUEST for view in absent}
    for view in (view for view in VIEWS if view.slug not in left_out):
        source = surveys.get(view.slug, pair if view.scope.paired or view.scope.sided else key)
        numbers = service.numbers(source, view.slug, asked[view.slug])
        archive.writestr(f"{folder}numbers/{view.slug}.npz", numbers, zipfile.ZIP_STORED)
        if is_printable(view):
            made = prints.figure(service, source, view.slug, asked[view.slug])
            archive.writestr(f"{folder}figures/{made.name}.svg", made.svg())
            archive.writestr(f"{folder}figures/{made.name}.txt", made.caption)
        for file in view.export.files:
            data = service.file(source, view.slug, file.name, asked[view.slug])
            archive.writestr(f"{folder}{view.slug}-{file.name}", data)
    archive.writestr(f"{folder}input.png", service.image(key, "input"), zipfile.ZIP_STORED)
    about = _run_description(subject, settings, left_out, surveys)
    about |= {} if folder else {"lesson": lesson_manifest(service, key, query)}
    archive.writestr(f"{folder}{TOLD}", json.dumps(about, indent=1, ensure_ascii=False))
    return left_out


def _run_description(
    subject: ViewContext, settings: Mapping[str, Any], left_out: Mapping[str, str], surveys: Mapping[str, str]
) -> dict[str, Any]:
    """Return a run's JSON description for its zip: checkpoint, image, grid, prediction and settings.

    `left_out` are the views without files, with reasons; `surveys` are keys of averages by view.
    """
    checkpoint, trace = subject.inspector.checkpoint, subject.trace
    described = ("name", "architecture", "trained_on", "licence", "paper", "note")
    assumed = [assumption.taken or assumption.name for assumption in checkpoint.assumed]
    grid, view = trace.grid, trace.view
    sets = {view.slug for view in VIEWS if view.slug in surveys or view.needs is Needs.SET}
    of = {view.slug: "a set of pictures" if view.slug in sets else "this picture" for view in VIEWS}
    return {
        "vitviz": vitviz.__version__,
        "checkpoint": {**{name: getattr(checkpoint, name) for name in described}, "assumed": assumed},
        "picture": {"upload": list(view.upload), "crop_box": list(view.box), "input": list(grid.pixels)},
        "computed": {"dtype": trace.dtype, "device": trace.device,
                     "from_float32": vars(trace.deviation) if trace.deviation else None},
        "grid": grid_json(grid),
        "retouched": view.retouched.text(),  # the edits, in pixels of upload.jpg
        "without": trace.without.text(),  # the ablation; heads and layers are counted from 1
        "head_type": trace.head_type,
        "prediction": [{"label": label, trace.quantity: score} for label, score in trace.top(5)],
        "averages_are_of": {view.slug: of[view.slug] for view in VIEWS if view.scope.averages},
        "views": {slug: values for slug, values in settings.items() if slug not in left_out},
        "left_out": dict(left_out),
    }  # fmt: skip


def _arrays(archive: zipfile.ZipFile) -> str:
    """Return a text with a line per array of the first checkpoint: the file, the array and its axes."""
    lines = []
    for view in VIEWS:
        name = f"numbers/{view.slug}.npz"
        if name in archive.namelist():
            axes = {**export_axes(view), "prefix_tokens": "prefix"}
            with np.load(io.BytesIO(archive.read(name))) as file:
                kept = [one for one in file.files if one in axes]
            lines += [f"{name:<25}{one:<25}{axes[one] or 'one number'}\n" for one in kept]
    return "".join(lines)


def read_lesson(data: bytes | BinaryIO) -> Lesson:
    """Read a lesson from a zip. Raises NoZip or NoLesson. Settings that fit no view are skipped."""
    file = io.BytesIO(data) if isinstance(data, bytes) else data
    result = zips.read_files(file, {TOLD: MOST_TOLD, **dict.fromkeys((PICTURE, OTHER, VECTORS), MAX_BYTES)})
    try:
        about = parse_json(result[TOLD])
        lesson, head_type = about["lesson"], about.get("head_type")
        seen, settings = links.parse_link(lesson), [lesson["settings"].get(view.slug) for view in VIEWS]
    except (KeyError, TypeError, AttributeError, ValueError, RecursionError):
        raise NoLesson(NO_LESSON) from None
    if seen.checkpoint is None or not (seen.sample or PICTURE in result):
        raise NoLesson(NO_LESSON)
    asked = [one if isinstance(one, dict) else {} for one in settings]
    checked = {view.slug: links.accepted_settings(view, one) for view, one in zip(VIEWS, asked, strict=True)}
    picture = None if seen.sample else result[PICTURE]
    head_type = head_type if head_type in HEAD_TYPES else None
    return Lesson(seen, checked, picture, result.get(VECTORS), result.get(OTHER), head_type)


def lessons_in_folder(folder: Path) -> dict[str, Path]:
    """Return the lessons in a folder by name; empty without a folder."""
    try:
        paths = sorted(one for one in folder.iterdir() if one.suffix.lower() == ".zip" and one.is_file())
    except OSError:
        return {}
    named = {path.stem: path for path in paths if path.stem.isprintable() and not path.name.startswith(".")}
    return dict(list(named.items())[:MOST_OFFERED])


def open_lesson(folder: Path, name: Any) -> Lesson:
    """Open one of the offered lessons, reading only what is needed. Raises Unknown for any other name."""
    path = lessons_in_folder(folder).get(name) if isinstance(name, str) else None
    if path is None:
        raise Unknown(GONE)
    try:
        with path.open("rb") as file:
            return read_lesson(file)
    except OSError:
        raise Unknown(GONE) from None
