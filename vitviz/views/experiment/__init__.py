"""Perturbations: change the visitor's image step by step and follow the prediction; made for classrooms.

This view is separate from Positions, which uses the weights alone and needs no image. The page requests one
point of the curves after the other: curves grow as points are computed, the bar shows the progress, and a
visitor stops by requesting no further point.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from vitviz import analyses
from vitviz.analyses.protocol import DRAWS, EDITED, KINDS, NO_HEAD, ONE_PATCH, SCORES, WAYS
from vitviz.charts.chart import GREY, SEVERAL, Chart, ReferenceLine, Series, range_with_margin, with_error
from vitviz.charts.mpl.spec import NARROW, WIDE, FigureSpec, Map
from vitviz.errors import UnsupportedModel, WrongSetting
from vitviz.traces.grid import Grid
from vitviz.traces.localized_text import LocalizedText, message_of, text_to_json
from vitviz.views import lazy
from vitviz.views.base import Item, View, ViewTexts, as_json, chart_item, drawing_item
from vitviz.views.controls import Choice, IntSetting
from vitviz.views.parts import ExportDefaults, Scope
from vitviz.views.printing import PrintStyle, join_texts
from vitviz.views.shared import json_bytes, likeliest_classes, score_text
from vitviz.views.subject import Settings, ViewContext

if TYPE_CHECKING:
    from torch import Tensor

NAMES = {"dropped": "left out of the sequence", "black": "painted black", "shuffled": "shuffled"}
DRAWN = {
    "shift": ("to the right", "to the left", "down", "up"),
    "turn": ("counterclockwise", "clockwise"),
}
PATCHES = ("drop", "shuffle")
TOLD = 3  # most likely classes listed per sample
MOST = 16  # last step of the longest experiment: a shift by two patches in eighths of a patch
EXTRA_TEXTS = (
    *(NO_HEAD, EDITED, ONE_PATCH),
    *(text for kind in KINDS.values() for text in kind.texts()),
    *(name for names in DRAWN.values() for name in names),
)


def _is_available(subject: ViewContext, settings: Settings) -> bool:
    """Return True if the logits of all steps after 0 of the selected kind of change are cached."""
    kind = settings["kind"]
    steps = range(1, len(lazy.perturbation.step_sizes(subject.grid, kind)))
    return all(subject.made(_logits_key(way, step)) for way in WAYS[kind] for step in steps)


class PerturbationsView(View):
    title = "Perturbations"
    scope = Scope(every_patch=True, on_request=True, available=_is_available)
    words = ViewTexts.read(__file__)
    controls = (
        Choice("kind", "Kind of change", options=tuple((name, kind.name) for name, kind in KINDS.items())),
        Choice(
            "score", "Metric", options=(("probability", "Probability"), ("kept", "Prediction kept")),
            of_values=(("logit", "Value"),),
        ),
        IntSetting("step", maximum=MOST, default=5),  # selected point of the curves
        IntSetting("draw", minimum=1, maximum=DRAWS, default=1),
        IntSetting("known", maximum=MOST + 1, passing=True),  # number of points that the chart includes
    )  # fmt: skip
    items = (
        Item(
            "probability", "way step draw",
            "of the class predicted for the whole image: patches left out and painted black, or the only way;"
            " NaN if not applicable",
            depends=("kind",),
        ),
        Item("kept", "way step draw", "1 if the prediction is kept, else 0", depends=("kind",)),
        Item(
            "value", "way step draw",
            "for regression, the output that is largest for the whole image; else NaN",
            depends=("kind",),
        ),
        Item("steps", "step", "how many patches, pieces, pixels, degrees or per cent",
             "int32", depends=("kind",)),
        Item(
            "orders", "order draw patch",
            "order of dropping patches; if shuffled, the patch at each position, by step",
            "int32", depends=("kind",),
        ),
        as_json("point", "one step's answers", "kind", "step"),
        as_json("plan", "what is done at each step, and by which draws", "kind"),
        drawing_item("shown", "way height width channel", "what the model was shown, in RGBA",
              "kind", "step", "draw", dtype="uint8"),
        chart_item("kind", "score", "known"),
    )  # fmt: skip
    export = ExportDefaults(
        skipped=lambda subject: ("probability", "kept", "value", "steps", "shown"),
        # the exported script draws the images of these kinds
        values=lambda subject, name: PATCHES if name == "kind" else (),
    )

    def unsupported(self, subject: ViewContext) -> str | None:
        """Return the reason why the image cannot be perturbed, such as no classifier; else None."""
        return lazy.perturbation.unsupported_reason(subject.trace)

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """Return the predicted class of the whole image with its name and scores, for JSON."""
        return {"answer": likeliest_classes(subject.trace, 1)[0]}

    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return an item by name: scores, steps, patch orders, changed images or JSON bytes.

        Scores need all missing forward passes, "point" only those of the selected step.
        """
        kind, grid = settings["kind"], subject.grid
        if name == "orders":
            return lazy.perturbation.perturbation_orders(grid, kind)
        steps = lazy.perturbation.step_sizes(grid, kind)
        if name == "steps":
            return steps
        if name == "plan":
            return json_bytes(_plan(subject, kind))
        if name == "shown":
            step = min(settings["step"], len(steps) - 1)
            return np.stack([_step_image(subject, way, step, settings["draw"] - 1) for way in WAYS[kind]])
        if name in (*SCORES, "value"):
            study = lazy.perturbation.run_perturbation(subject.trace, kind, partial(_require_logits, subject))
            values = getattr(study, "logit" if name == "value" else name)
            missing = np.full((len(steps), DRAWS), np.nan)
            return np.stack([values.get(way, missing) for way in WAYS[kind]])
        if settings["step"] >= len(steps):
            raise WrongSetting(
                f"step={settings['step']} is not valid; expected one of 0 to {len(steps) - 1}."
            )
        return json_bytes(results_at_step(subject, kind, settings["step"]))

    def chart(self, subject: ViewContext, settings: Settings) -> Chart:
        """Return the mean and band of every protocol at the points computed so far."""
        kind, score, known = settings["kind"], settings["score"], settings["known"]
        details, grid = KINDS[kind], subject.grid
        names, x = step_names(grid, kind), lazy.perturbation.step_values(grid, kind)
        answer, label = int(subject.trace.logits.argmax()), likeliest_classes(subject.trace, 1)[0]["name"]
        of_values = subject.trace.head_type == "value"
        of = LocalizedText("value of {class}" if of_values else "probability of {class}", **{"class": label})
        of = LocalizedText("samples that keep the prediction") if score == "kept" else of
        texts = [change_text(grid, kind, step) for step in range(len(x))]
        series, notes = [], []
        if details.over:
            notes.append(LocalizedText(details.over, count=len(draw_names(subject, kind))))
        for way, colour in zip(WAYS[kind], SEVERAL, strict=False):
            result = [_logits_or_reason(subject, way, step) for step in range(min(known, len(x)))]
            refused = next((value for value in result if isinstance(value, str)), None)
            if refused is not None:
                notes.append(LocalizedText("{name}: {value}", name=way_name(way), value=refused))
                continue
            scores = (lazy.perturbation.scores_of(logits, answer, subject.trace) for logits in result)
            means = [analyses.mean_and_error(score_set[score]) for score_set in scores]
            mean, error = np.asarray(means, float).reshape(-1, 2).T
            times, unit = (1, "") if of_values else (100, "%")
            ends = (None, None) if of_values else (0, 1)
            point_options = {
                "band": (np.clip(mean - 2 * error, *ends), np.clip(mean + 2 * error, *ends)),
                "of": {"step": range(len(result))},
                "said": [with_error(times * mean, 2 * times * spread, unit) for mean, spread in means],
                "told": (join_texts(of, way_name(way), by=", "), "{done}"),
                "also": {"done": texts[: len(result)]},
            }
            places = np.asarray(x[: len(result)], float)
            series.append(Series(places, mean, way_name(way), colour, True, True, **point_options))
        marks = (LocalizedText("one patch"), LocalizedText("two patches")) if kind == "shift" else ()
        levels = tuple(
            ReferenceLine(float(count * grid.patch[1]), name, upright=True, colour=GREY)
            for count, name in enumerate(marks, 1)
        )
        shuffle = kind == "shuffle"
        x_range = (0.7, len(x) + 0.3) if shuffle else (-0.02 * x[-1], 1.06 * x[-1])
        label_of_image = LocalizedText("Prediction for the whole image")
        title = LocalizedText("{name}: {value}", name=label_of_image, value=label)
        ticks = tuple(zip(x, names, strict=True))[:: 1 if shuffle else max(1, len(x) // 4)]
        options = {"levels": levels, "percent": not of_values, "ticks": ticks, "notes": tuple(notes)}
        band_ends = np.concatenate([np.zeros(0), *(end for line in series for end in line.band)])
        up = range_with_margin(band_ends, 0.06) if of_values and len(band_ends) else (0.0, 1.0)
        return Chart(LocalizedText(details.along), of, x_range, up, title, tuple(series), **options)


def spec(view: View, subject: ViewContext, settings: Settings, style: PrintStyle) -> FigureSpec:
    """Return the curves; with detail also the images of the selected sample and step, and predictions."""
    chart = view.chart(subject, {**settings, "known": MOST + 1})
    if not style.detail:
        return FigureSpec(((chart,),), chart.notes, width=NARROW + 14)
    kind, ways = settings["kind"], WAYS[settings["kind"]]
    places, draws = lazy.perturbation.step_values(subject.grid, kind), draw_names(subject, kind)
    step, draw = min(settings["step"], len(places) - 1), min(settings["draw"], len(draws)) - 1
    text = change_text(subject.grid, kind, step)
    marker = ReferenceLine(float(places[step]), text, upright=True, colour=GREY)
    images = zip(ways, view.item(subject, "shown", settings), strict=True)
    maps = tuple(Map(way_name(way), image) for way, image in images)
    shown_text = LocalizedText("Shown: {what}, sample {draw}.", what=text, draw=LocalizedText(draws[draw]))
    notes = [*chart.notes, shown_text]
    for way, answers in zip(ways, results_at_step(subject, kind, step), strict=True):
        if "tops" in answers:
            texts = (f"{name} {score_text(score, subject)}" for name, score in answers["tops"][draw])
            texts = join_texts(*texts)
            notes.append(LocalizedText("{name}: {value}", name=way_name(way), value=texts))
    panels = replace(chart, levels=(*chart.levels, marker)), *maps
    return FigureSpec((panels,), tuple(notes), ((2.4, *[1.0] * len(maps)),), width=WIDE)


def way_name(way: str) -> LocalizedText:
    """Return the displayed name of a protocol: a way of removing patches, or a kind of change."""
    return LocalizedText(NAMES[way] if way in NAMES else KINDS[way].name)


def change_text(grid: Grid, kind: str, step: int) -> LocalizedText:
    """Return the text that describes step `step` of a kind of change; step 0 is the whole image."""
    if step == 0:
        return LocalizedText("the whole image")
    count, patches = int(lazy.perturbation.step_sizes(grid, kind)[step]), grid.patches
    details = {"share": lazy.perturbation.step_values(grid, kind)[step], "count": count, "patches": patches}
    return LocalizedText(KINDS[kind].done, side=round((patches / count) ** 0.5), **details)


def step_names(grid: Grid, kind: str) -> list[str]:
    """Return the labels of a kind's steps: percentages, numbers of pieces, pixels or degrees."""
    places = lazy.perturbation.step_sizes if kind == "shuffle" else lazy.perturbation.step_values
    return [f"{place}{KINDS[kind].unit}" for place in places(grid, kind)]


def draw_names(subject: ViewContext, kind: str) -> tuple[str, ...]:
    """Return the names of a kind's draws: numbers, directions, or titles of the other images."""
    if others := _others(subject, kind):
        return tuple(others)
    if kind in PATCHES:
        return tuple(map(str, range(1, DRAWS + 1)))
    tall, wide = subject.grid.patch
    return DRAWN.get(kind, ("1",))[: None if tall == wide else 2]


def _plan(subject: ViewContext, kind: str) -> dict[str, Any]:
    """Return the JSON that the page needs before a kind's first request: steps, texts, draws, protocols."""
    names = step_names(subject.grid, kind)
    return {
        "places": lazy.perturbation.step_values(subject.grid, kind),
        "names": names,
        "done": [text_to_json(change_text(subject.grid, kind, step)) for step in range(len(names))],
        "draws": draw_names(subject, kind),
        "ways": [way_name(way) for way in WAYS[kind]],
        "guess": KINDS[kind].guess,
    }


def _others(subject: ViewContext, kind: str) -> dict[str, np.ndarray]:
    """Return the other images that a kind uses, by title; {} if it uses none."""
    if kind not in ("ground", "texture"):
        return {}
    study = lazy.perturbation_study
    return subject.once("others", lambda: study.other_images(subject.inspector, subject.trace))


def _step_image(subject: ViewContext, way: str, step: int, draw: int) -> np.ndarray:
    """Return the changed image as RGBA (height, width, channel); dropped patches are transparent."""
    grid, picture = subject.grid, subject.trace.view.picture
    rgba = np.dstack([picture, np.full(picture.shape[:2], 255, np.uint8)])
    if way in lazy.image_changes.CHANGES:
        place, others = lazy.perturbation.step_values(grid, way)[step], [*_others(subject, way).values()]
        result = lazy.image_changes.change_image(picture, way, place, grid, others)
        image = (255 * result[min(draw, len(result) - 1)]).round().permute(1, 2, 0)
        rgba[..., :3] = image.numpy()
        return rgba
    (tall, wide), kind = grid.patch, "shuffle" if way == "shuffled" else "drop"
    orders = lazy.perturbation.perturbation_orders(grid, kind)
    inside = rgba[: grid.pixels[0], : grid.pixels[1]]
    cells = inside.reshape(grid.rows, tall, grid.cols, wide, 4).swapaxes(1, 2)  # row col; a view of `whole`
    if way == "shuffled":
        cells[:] = cells.reshape(-1, tall, wide, 4)[orders[step, draw]].reshape(cells.shape)
    else:
        removed = orders[0, draw, : lazy.perturbation.step_sizes(grid, kind)[step]]
        cells[np.unravel_index(removed, cells.shape[:2])] = 0 if way == "dropped" else (0, 0, 0, 255)
    return rgba


def _logits_or_reason(subject: ViewContext, way: str, step: int) -> Tensor | str:
    """Return a step's logits (draw, class), cached, or the reason why the protocol is not applicable."""

    def logits_at() -> Tensor | str:
        try:
            others = [*_others(subject, way).values()]
            return lazy.perturbation_study.perturbed_logits(
                subject.inspector, subject.trace, way, step, others=others
            )
        except UnsupportedModel as reason:
            return message_of(reason)

    once = subject.once_by_passes if step else subject.once  # step 0 needs no pass
    return once(_logits_key(way, step), logits_at)


def _logits_key(way: str, step: int) -> str:
    """Return the cache key of a protocol's logits at a step."""
    return f"experiment {way} {step}"


def _require_logits(subject: ViewContext, way: str, step: int) -> Tensor:
    """Return a step's logits (draw, class); raise UnsupportedModel if the protocol is not applicable."""
    result = _logits_or_reason(subject, way, step)
    if isinstance(result, str):
        raise UnsupportedModel(result)
    return result


def results_at_step(subject: ViewContext, kind: str, step: int) -> list[dict[str, Any]]:
    """Return a step's scores and most likely classes as JSON, one entry per protocol of the kind.

    An entry has the mean and error of each score, the scores of all samples, and the most likely classes of
    each sample. For a protocol that is not applicable it has only "refused", the reason.
    """
    result, answer = [], int(subject.trace.logits.argmax())
    for way in WAYS[kind]:
        logits = _logits_or_reason(subject, way, step)
        if isinstance(logits, str):
            result.append({"refused": text_to_json(logits)})
            continue
        scores = lazy.perturbation.scores_of(logits, answer, subject.trace)
        by_score = {name: draws.tolist() for name, draws in scores.items()}
        means = {name: analyses.mean_and_error(scores[name]) for name in by_score}
        tops = [likeliest_classes(replace(subject.trace, logits=row), TOLD) for row in logits]
        entries = [[[entry["name"], entry[subject.trace.quantity]] for entry in top] for top in tops]
        result.append({"draws": by_score, "means": means, "tops": entries})
    return result
