"""Faithfulness figure for print: curves of all methods with random maps, and the ranking, also of a set."""

import math
from dataclasses import replace

import numpy as np

from vitviz.analyses.correlation import ranks
from vitviz.analyses.faithfulness.ranking import (
    faithfulness_measure,
    ranking_rows,
    refusal_texts,
    tied_methods_text,
    verdict_text,
    verdict_text_over_images,
)
from vitviz.analyses.protocol import TITLES
from vitviz.charts.chart import Series
from vitviz.charts.mpl.spec import WIDE, FigureSpec, Legend, Scale, TextTable, Tiles, scale_to_rgb
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.printing import fixed, grid_aspect, join_texts
from vitviz.views.trial import image_set
from vitviz.views.trial.compute import correlation_matrix, curve_panels

STARS = (
    "Rows with * are not significantly better than random (mean random gap {mean}, threshold {most}, 5 %"
    " level, corrected for the number of methods)."
)
SHARED = (
    "± is the standard error. Methods with equal rank are statistically tied; rows with * are not"
    " significantly better than random."
)
ACROSS = 6  # maps per row
BRIGHT = "All maps share one scale: bright patches are removed first, dark patches last."
SIGNED = "Orange raises the score, blue lowers it. Logit maps end at {most}, other maps at their own maximum."
CLASSES = (
    "Two classes: correlation of a method’s maps for the two most likely classes; at 1, the map is"
    " independent of the class."
)


def spec(view, subject, settings, style) -> FigureSpec:
    """Return both panels with one legend; with detail also the ranking and the selected panel.

    For a set of images, see `_of_many`.
    """
    if subject.survey is not None:
        return _of_many(view, subject, settings, style)
    trial, score = view.results(subject, settings), settings["score"]
    ranked = [name for name, _ in trial.ranking(score)]
    charts = curve_panels(trial, ranked, subject, settings, settings["method"])
    series = charts[0].series
    near, draws = tied_methods_text(trial, score), len(trial.draws)
    notes = [verdict_text(trial, score), *([near] if near else []), _removed(view, settings["patches_as"])]
    notes.append(LocalizedText("Band: 95 % of random maps, estimated from {count}.", count=draws))
    refused = trial.refused.items()
    reasons = [LocalizedText("{name}: {value}", name=TITLES[name], value=reason) for name, reason in refused]
    if not style.detail:
        return FigureSpec((charts, (Legend(series),)), (*notes, *reasons), width=WIDE)
    mean, reach = trial.chance(score)[0], trial.reach(score)
    unit = "" if score == "logit" else " %"
    chance = {"mean": _value(mean, score) + unit, "most": _value(mean + reach, score) + unit}
    sets = LocalizedText("The model was run on {sets} sets of patches.", sets=trial.sets)
    rows, footnotes = _ranking_panels(trial, _ranking(trial, score, series), subject, settings)
    checks = ((TITLES[name], m.convergence) for name, m in trial.maps.items() if m.convergence)
    reached = [LocalizedText("{name}: {value}", name=name, value=value) for name, value in checks]
    notes += [LocalizedText(STARS, **chance), sets, *footnotes, *reached, *reasons]
    weights = ((1.0, 1.0), (1.6, 1.0)) if settings["show"] == "agreement" else ()
    return FigureSpec((charts, *rows), tuple(notes), weights, WIDE)


def _ranking(trial, score: str, series: tuple[Series, ...]) -> TextTable:
    """Return the table with a row per method, best first; a star marks methods not better than random."""
    beats, rows = trial.beats_chance(score), []
    for place, (name, gap) in enumerate(trial.ranking(score), start=1):
        unexplained = trial.maps[name].unexplained
        numbers = [_value(area, score) for area in (*trial.areas(name, score), gap)]
        numbers += [fixed(trial.curves[name].saco, 2)]
        numbers += [LocalizedText("no sum") if unexplained is None else fixed(unexplained)]
        rows.append((str(place), _method_title(name, name in beats), *numbers))
    return TextTable((*_headings(score), "SaCo", LocalizedText("Rest")), tuple(rows), 1, series)


def _ranking_panels(trial, table: TextTable, subject, settings) -> tuple[tuple, tuple[LocalizedText, ...]]:
    """Return the rows of panels with the ranking and the selected panel, and their notes."""
    if settings["show"] == "agreement":
        matrix = correlation_matrix(trial, settings["score"])
        # numbered like the rows of the table
        numbered = replace(matrix, rows=(), x_label=LocalizedText("Rank"), y_label=LocalizedText("Rank"))
        return ((table, numbered),), matrix.notes
    if settings["show"] == "ranking":
        return ((table,),), ()
    names = [name for name, _ in trial.ranking(settings["score"])]
    tiles, note = _maps(trial, names, grid_aspect(subject.grid), settings["scale"] == "ranks")
    return ((table,), (tiles,)), (note,)


def _maps(trial, names: list[str], aspect: float, ranked: bool) -> tuple[Tiles, LocalizedText]:
    """Return all maps, drawn as the removal order of the patches or as values, and the note on colours."""
    maps, titles = [trial.maps[name] for name in names], [LocalizedText(TITLES[name]) for name in names]
    nothing = LocalizedText("No positive values here.")
    pairs = zip(titles, maps, strict=True)
    captions = tuple(join_texts(t, nothing) if result.nothing_positive else t for t, result in pairs)
    title, options = LocalizedText("All maps"), {"captions": captions, "aspect": aspect}
    if ranked:
        order = [ranks(m.map.flatten()).view(m.map.shape) / max(1, m.map.numel() - 1) for m in maps]
        scale = Scale("viridis", 0.0, 1.0, LocalizedText("Removal order"))
        return Tiles(np.stack(order), ACROSS, title, scale=scale, **options), LocalizedText(BRIGHT)
    logits = [m.adds_up or name == "leave_one_out" for name, m in zip(names, maps, strict=True)]
    reach = [float(m.map.abs().max()) for m in maps]
    shared = max([top for top, logit in zip(reach, logits, strict=True) if logit], default=0.0) or 1.0
    pictures = []
    for saliency, limit, logit in zip(maps, reach, logits, strict=True):
        limit = shared if logit else limit or 1.0
        scale = Scale("balance", -limit, limit, "") if saliency.signed else Scale("viridis", 0.0, limit, "")
        pictures.append(scale_to_rgb(saliency.map.numpy(), scale))
    return Tiles(np.stack(pictures), ACROSS, title, **options), LocalizedText(SIGNED, most=fixed(shared))


def _of_many(view, subject, settings, style) -> FigureSpec:
    """Return each method's lead over random maps, with two standard errors; with detail also the ranking."""
    survey, score = subject.survey, settings["score"]
    place = image_set.protocol_of(survey, settings)
    rows = ranking_rows(survey, place, score)
    removed = _removed(view, faithfulness_measure(survey).protocols[place])
    notes = [verdict_text_over_images(rows, survey.images), removed]
    notes.append(LocalizedText("Lines: two standard errors of the paired difference over images."))
    charts = [(view.chart(subject, settings),)]
    if style.detail:
        charts.append((_standing(rows, score),))
        notes += [LocalizedText(SHARED), LocalizedText(CLASSES)]
    return FigureSpec(tuple(charts), (*notes, *refusal_texts(survey)), width=WIDE if style.detail else 120.0)


def _standing(rows, score: str) -> TextTable:
    """Return the table with a row per method, best first; statistically tied methods share a rank."""

    def both(row, name: str) -> str:
        mean, error = (_value(row[key], score) for key in (name, f"{name}_error"))
        return mean if error == "–" else f"{mean} ± {error}"

    details = []
    for row in rows:
        numbers = [both(row, "most"), both(row, "least"), _value(row["gap"], score)]
        numbers.append("–" if math.isnan(row["alike"]) else fixed(row["alike"], 2))
        details.append((str(row["rank"]), _method_title(row["method"], row["beats_chance"]), *numbers))
    return TextTable((*_headings(score), LocalizedText("Two classes")), tuple(details), 1)


def _headings(score: str) -> tuple[str, ...]:
    """Return the headings of the table: rank, method, both areas and the gap ("%" unless in logits)."""
    numbers = (LocalizedText("Most first ↓"), LocalizedText("Least first ↑"), LocalizedText("Gap ↑"))
    if score != "logit":
        numbers = tuple(join_texts(text, "%", by=" ") for text in numbers)
    return LocalizedText("Rank"), LocalizedText("Method"), *numbers


def _method_title(method: str, beats: bool) -> str:
    """Return the method's title, with a star if the method does not beat random maps."""
    title = LocalizedText(TITLES[method])
    return title if beats else join_texts(title, "*", by=" ")


def _removed(view, patches_as: str) -> LocalizedText:
    """Return the text that says how patches were removed."""
    field = next(control for control in view.controls if control.name == "patches_as")
    return LocalizedText("{name}: {value}", name=field.label, value=dict(field.options)[patches_as])


def _value(value: float, score: str) -> str:
    """Format a score: in per cent, or as it is for score "logit"; a dash for NaN and infinity."""
    if not math.isfinite(value):
        return "–"
    return fixed(value, 2) if score == "logit" else fixed(100 * value, 1)
