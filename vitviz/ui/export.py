"""Everything on the page as one zip, and the distance chart's own downloads: the numbers are those on the screen.

Each view's numbers come from the same call as its own download, with the settings that stand in the page; what a view
cannot show for this model is left out, and settings.json says why.
"""

from __future__ import annotations

import csv
import io
import json
import re
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np

import vitviz
from vitviz.panels import PANELS
from vitviz.ui.studio import Studio
from vitviz.ui.written import encoded

README = """vitviz: what {checkpoint} made of one picture

settings.json      checkpoint, picture, grid, prediction, and every setting of every view; views left out, with the reason
upload.jpg         the picture, upright
input.png          what the model saw: resized and cropped, lossless
rollout.png        the rollout over the picture, as in the tab (on a light page)
distance.html      attention distance by depth, to be opened in a browser; needs no network
distance.csv       the same as a table
numbers/*.npz      each view's numbers by name, its settings (setting_...) and the checkpoint, for numpy.load
second/            the same of the checkpoint beside, where there is one

{views}
In files, arrays count layers and heads from 0; settings count them from 1, as the page and the paper do. Distances are
pixels of the model's input. Boxes are left, top, right, bottom in pixels of the upload.
"""


def everything(studio: Studio, key: str, given: Mapping[str, str]) -> bytes:
    """The zip for one picture and checkpoint.

    `given` holds the page's settings as "view.setting"; "survey", the key of an average of attention distances, where that
    is on the screen; and "second", the key of the checkpoint beside, with its settings as "second.view.setting": its files
    lie in second/. KeyError for what is not known, ValueError for a setting that does not fit.
    """
    beside = {name.removeprefix("second."): value for name, value in given.items() if name.startswith("second.")}
    given = {name: value for name, value in given.items() if not name.startswith("second.")}
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        left_out = _write(archive, "", studio, key, given, given.get("survey") or None)
        if given.get("second"):
            _write(archive, "second/", studio, given["second"], beside, None)
        archive.writestr("upload.jpg", studio.image(key, "upload"), zipfile.ZIP_STORED)
        archive.writestr("README.txt", README.format(checkpoint=studio.subject(key).inspector.checkpoint.name, views=_views(left_out)))
    return file.getvalue()


def _write(archive: zipfile.ZipFile, folder: str, studio: Studio, key: str, given: Mapping[str, str], survey: str | None) -> dict[str, str]:
    """One checkpoint's files, into a folder; returns the views that are left out, with the reasons."""
    subject, asked = studio.subject(key), _by_view(given)
    grid = subject.trace.grid
    for panel in PANELS:
        if any(parameter.name == "token" for parameter in panel.parameters):  # the patch in the middle, with which the page begins
            asked[panel.slug].setdefault("token", str(grid.token(grid.rows // 2, grid.cols // 2)))
    settings = {panel.slug: panel.settings(asked[panel.slug]) for panel in PANELS}
    left_out = {panel.slug: reason for panel in PANELS if (reason := panel.unsupported(subject))}
    source = {panel.slug: survey if survey and panel.drawn_by == "chart" else key for panel in PANELS}
    for panel in PANELS:
        if panel.slug not in left_out:
            numbers = studio.numbers(source[panel.slug], panel.slug, asked[panel.slug])
            archive.writestr(f"{folder}numbers/{panel.slug}.npz", numbers, zipfile.ZIP_STORED)
    archive.writestr(f"{folder}distance.html", distance_page(studio, source["distance"], asked["distance"]))
    archive.writestr(f"{folder}distance.csv", distance_table(studio, source["distance"], asked["distance"]))
    archive.writestr(f"{folder}input.png", studio.image(key, "input"), zipfile.ZIP_STORED)
    archive.writestr(f"{folder}rollout.png", _rollout_picture(studio, key, asked["rollout"]), zipfile.ZIP_STORED)
    archive.writestr(f"{folder}settings.json", json.dumps(_about(subject, settings, left_out, survey), indent=1, ensure_ascii=False))
    return left_out


def distance_page(studio: Studio, key: str, given: Mapping[str, str]) -> str:
    """The chart of attention distance as an HTML page that needs no other file."""
    panel = studio.panel("distance")
    checkpoint, numbers, pictures = _distances(studio, key, given)
    figure = panel.draw(numbers, panel.settings(given), subtitle=f"{checkpoint}, {pictures}")
    figure.update_layout(paper_bgcolor="white", plot_bgcolor="white", height=520)
    return figure.to_html(include_plotlyjs=True, config={"displaylogo": False, "responsive": True})


def distance_table(studio: Studio, key: str, given: Mapping[str, str]) -> str:
    """The distances as CSV, a line for each head, layers and heads counted from 1; settings stand in every line."""
    settings = studio.panel("distance").settings(given)
    checkpoint, numbers, pictures = _distances(studio, key, given)
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["checkpoint", "pictures", "rows", "layer", "head", "distance_px", "prefix_mass", "uniform_px", "dtype"])
    same = [_cell(checkpoint), numbers.get("pictures", 1), settings["rows"]]
    for (layer, head), distance in np.ndenumerate(numbers["distance"]):
        writer.writerow([*same, layer + 1, head + 1, distance, numbers["prefix_mass"][layer, head], numbers["uniform"], studio.settings.dtype])
    return text.getvalue()


def file_name(checkpoint: str, ending: str) -> str:
    """A name that is safe in a header and on every disk."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", checkpoint).strip(".-") or "checkpoint"
    return f"{plain if plain.startswith('vitviz') else 'vitviz-' + plain}{ending}"


def _distances(studio: Studio, key: str, given: Mapping[str, str]) -> tuple[str, dict[str, np.ndarray], str]:
    """Checkpoint, numbers, and of how many pictures they are."""
    panel = studio.panel("distance")
    settings, survey = panel.settings(given), studio.survey(key)
    if survey is not None:
        return survey.checkpoint, panel.averaged(survey, settings), f"mean of {survey.images} pictures"
    subject = studio.subject(key)
    return subject.inspector.checkpoint.name, panel.numbers(subject, settings), "one picture"


def _rollout_picture(studio: Studio, key: str, given: Mapping[str, str]) -> bytes:
    from vitviz.figures.overlay import overlay

    panel, subject = studio.panel("rollout"), studio.subject(key)
    settings = panel.settings(given)
    laid = panel.item(subject, "view", settings)
    picture = overlay(
        np.asarray(studio.upload(key)),
        laid,
        subject.trace.view.box,
        form=settings["overlay"],
        opacity=settings["opacity"],
        colours=settings["colormap"],
        smooth=settings["smooth"] == "on",
        low=float(laid.min()) if settings["scale"] == "data" else 0.0,
    )
    return encoded(picture, ".png")


def _by_view(given: Mapping[str, str]) -> dict[str, dict[str, str]]:
    asked: dict[str, dict[str, str]] = {panel.slug: {} for panel in PANELS}
    for name, value in given.items():
        slug, dot, setting = name.partition(".")
        if dot:
            asked[slug][setting] = value
    return asked


def _about(subject, settings: Mapping[str, Any], left_out: Mapping[str, str], survey: str | None) -> dict[str, Any]:
    checkpoint, trace = subject.inspector.checkpoint, subject.trace
    return {
        "vitviz": vitviz.__version__,
        "checkpoint": {name: getattr(checkpoint, name) for name in ("name", "architecture", "trained_on", "licence", "paper", "note")},
        "picture": {"upload": list(trace.view.upload), "crop_box": list(trace.view.box), "input": list(trace.grid.pixels)},
        "computed": {"dtype": trace.dtype, "device": trace.device, "from_float32": vars(trace.deviation) if trace.deviation else None},
        "grid": {
            "rows": trace.grid.rows,
            "cols": trace.grid.cols,
            "patch": list(trace.grid.patch),
            "prefix": list(trace.grid.prefix_names),
        },
        "prediction": [{"label": label, "probability": probability} for label, probability in trace.top(5)],
        "distance_is_of": "a set of pictures" if survey else "this picture",
        "views": {slug: values for slug, values in settings.items() if slug not in left_out},
        "left_out": dict(left_out),
    }


def _views(left_out: Mapping[str, str]) -> str:
    return "".join(f"{panel.title}: {left_out.get(panel.slug) or panel.explanation.what}\n\n" for panel in PANELS)


def _cell(text: str) -> str:
    """A name that no spreadsheet takes for a formula."""
    return "'" + text if text[:1] in "=+-@\t\r" else text
