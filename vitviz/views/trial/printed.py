"""The trial for print: curves of every method beside chance, and the ranking; of a set, where they stand."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from vitviz.analyses.methods import TITLES
from vitviz.analyses.trials.standing import said_of_refused, standing, trial_in
from vitviz.analyses.trials.verdict import CONTROLS, verdict, verdict_over
from vitviz.figures.paper.plates import BLUE, SEVERAL, Chart, Legend, Level, Plate, Series, Table
from vitviz.sentence import Sentence
from vitviz.views.printing import WIDE, fixed, joined
from vitviz.views.shared import target_of
from vitviz.views.trial import made, over
from vitviz.views.trial.printed_beside import beside

GREY = "#7d838e"  # of what knows nothing of the answer
DASHES = ("", "dashed", "dotted")
BAND = "Band: two standard deviations of {count} random maps."
STARS = "Rows with * are not told from chance, whose gap is {mean} ± {deviation}."
LINES = "Lines: two standard errors of the difference, picture by picture."
SHARED = "± is the standard error. Who shares a rank cannot be told apart; rows with * not from chance."
CLASSES = "Two classes: how alike a method’s maps of the two likeliest are; 1 means that it knows no class."
HEADS = {
    "most": "Most relevant first: lower is better",
    "least": "Least relevant first: higher is better",
}


def plate(view, subject, settings, asked) -> Plate:
    """Both panels of curves with one legend; with detail the ranking in its place, and what is chosen beside
    it on the page. Of a set: `_of_many`.
    """
    if subject.survey is not None:
        return _of_many(view, subject.survey, settings, asked)
    trial, score = view.whole(subject, settings), settings["score"]
    lines = {side: _lines(trial, side, settings) for side in HEADS}
    ends = _ends(lines, score)
    charts = tuple(_chart(side, lines[side], ends, subject, settings) for side in HEADS)
    notes = [verdict(trial, score), _removed(view, settings["patches_as"])]
    notes.append(Sentence(BAND, count=len(trial.draws)))
    refused = trial.refused.items()
    reasons = [Sentence("{name}: {value}", name=TITLES[name], value=reason) for name, reason in refused]
    if not asked.detail:
        return Plate((charts, (Legend(lines["most"]),)), (*notes, *reasons), width=WIDE)
    mean, deviation = trial.chance(score)
    chance = {"mean": _value(mean, score), "deviation": _value(2 * deviation, score) + _unit(score)}
    sets = Sentence("{sets} sets of patches were asked about.", sets=trial.sets)
    rows, weights, said = beside(trial, _ranking(trial, score, lines["most"]), subject, settings)
    notes += [Sentence(STARS, **chance), sets, *said, *reasons]
    return Plate((charts, *rows), tuple(notes), ((1.0, 1.0), *weights), WIDE)


def _lines(trial, side: str, settings) -> tuple[Series, ...]:
    """A line a method, best first: five colours, first solid, then dashed and dotted; the controls grey."""
    score, styles = settings["score"], [(colour, dash) for dash in DASHES for colour in SEVERAL]
    ranked = [name for name, _ in trial.ranking(score)]
    style = dict(zip([name for name in ranked if name not in CONTROLS], styles, strict=False))
    style |= {"random": (GREY, "dashed"), "centre": (GREY, "dotted")}
    x, found = 100 * np.asarray(trial.shares), []
    for name in ranked:
        y = getattr(trial.curves[name], side)[score].numpy()
        band = tuple(end.numpy() for end in made.reach(trial, side, score)) if name == "random" else None
        colour, dash = style[name]
        thick = 0.7 if name == settings["method"] else 0.35
        title = Sentence(TITLES[name])
        found.append(Series(x, y, title, colour, line=True, band=band, dash=dash, thick=thick))
    return tuple(found)


def _ends(lines: Mapping[str, tuple[Series, ...]], score: str) -> tuple[float, float]:
    """Of the y axis of both panels: shares from 0 to 1; logits as far as any line or band goes."""
    if score != "logit":
        return 0.0, 1.0
    found = np.concatenate(
        [end for side in lines.values() for one in side for end in (one.y, *(one.band or ()))]
    )
    return min(0.0, float(found.min())), max(1.0, float(found.max()))


def _chart(side: str, lines: tuple[Series, ...], ends: tuple[float, float], subject, settings) -> Chart:
    return Chart(
        Sentence("patches taken away"),
        _watched(subject, settings),
        (-2.0, 106.0),
        ends,
        Sentence(HEADS[side]),
        lines,
        percent=settings["score"] != "logit",
        ticks=tuple((at, f"{at} %") for at in range(0, 101, 20)),
        keyed=True,
    )


def _watched(subject, settings) -> Sentence:
    """What is watched, by name: a class, or one rather than another."""
    if settings["score"] == "kept":
        return Sentence("Answer kept")
    target, labels = target_of(subject, settings["target"]), subject.trace.labels
    pair = target if isinstance(target, tuple) else (target,)
    named = len(labels) == subject.trace.logits.numel()
    names = [labels[one] if named else Sentence("class {number}", number=one) for one in pair]
    if len(names) == 2:
        names = [Sentence("{name} rather than {other}", name=names[0], other=names[1])]
    if settings["score"] == "logit":
        return Sentence("logit of {class}", **{"class": names[0]})
    return Sentence("probability of {class}", **{"class": names[0]})


def _ranking(trial, score: str, lines: tuple[Series, ...]) -> Table:
    """A row a method, best first, as on the page; with a star what cannot be told from chance."""
    beats, rows = trial.beats_chance(score), []
    for place, (name, gap) in enumerate(trial.ranking(score), start=1):
        rest = trial.maps[name].unexplained
        numbers = [_value(one, score) for one in (*trial.areas(name, score), gap)]
        numbers += [fixed(trial.curves[name].saco, 2), Sentence("no sum") if rest is None else fixed(rest)]
        rows.append((str(place), _starred(name, name in beats), *numbers))
    return Table((*_columns(score), "SaCo", Sentence("Unexplained")), tuple(rows), 1, lines)


def _of_many(view, survey, settings, asked) -> Plate:
    """How far each method lies ahead of chance, with two standard errors; with detail also the ranking."""
    place, score = over.protocol_of(survey, settings), settings["score"]
    rows = standing(survey, place, score)
    notes = [verdict_over(rows, survey.images), _removed(view, trial_in(survey).protocols[place])]
    notes.append(Sentence(LINES))
    charts = [(_ahead(rows, score),)]
    if asked.detail:
        charts.append((_standing(rows, score),))
        notes += [Sentence(SHARED), Sentence(CLASSES)]
    return Plate(tuple(charts), (*notes, *said_of_refused(survey)), width=WIDE if asked.detail else 120.0)


def _ahead(rows, score: str) -> Chart:
    """A dot a method on its mean, the first above all others; chance lies at nothing."""
    times, last = (1.0 if score == "logit" else 100.0), len(rows)
    mean = times * np.array([row["ahead"] for row in rows])
    reach = 2 * times * np.nan_to_num([row["ahead_error"] for row in rows])
    y = np.arange(last, 0, -1.0)
    dots, lines = [], []
    told = ((Sentence("better than chance"), BLUE, True), (Sentence("not told from chance"), GREY, False))
    for name, colour, beats in told:
        own = np.array([row["beats_chance"] is beats for row in rows])
        if own.any():
            dots.append(Series(mean[own], y[own], name, colour, dots=True))
        for at in np.flatnonzero(own & (reach > 0)):
            ends = np.array([mean[at] - reach[at], mean[at] + reach[at]])
            lines.append(Series(ends, y[[at, at]], "", colour, line=True))
    low, high = min(0.0, *(mean - reach)), max(0.01 * times, *(mean + reach))
    spare = 0.04 * (high - low)
    names = [joined(str(row["rank"]), Sentence(TITLES[row["method"]])) for row in rows]
    return Chart(
        Sentence("gap less chance’s, logits") if score == "logit" else Sentence("gap less chance’s, %"),
        Sentence("Method"),
        (low - spare, high + 2 * spare),
        (0.4, last + 0.6),
        series=(*lines, *dots),
        levels=(Level(0.0, Sentence("chance"), upright=True, colour=GREY),),
        whole=False,
        aspect=0.06 + 0.042 * last,
        rungs=tuple(zip(y.tolist(), names, strict=True)),
    )


def _standing(rows, score: str) -> Table:
    """A row a method, best first; who cannot be told apart shares a rank."""

    def both(row, name: str) -> str:
        mean, error = (_value(row[one], score) for one in (name, f"{name}_error"))
        return mean if error == "–" else f"{mean} ± {error}"

    told = [
        (
            str(row["rank"]),
            _starred(row["method"], row["beats_chance"]),
            both(row, "most"),
            both(row, "least"),
            _value(row["gap"], score),
            "–" if math.isnan(row["alike"]) else fixed(row["alike"], 2),
        )
        for row in rows
    ]
    return Table((*_columns(score), Sentence("Two classes")), tuple(told), 1)


def _columns(score: str) -> tuple[str, ...]:
    numbers = (Sentence("Most first ↓"), Sentence("Least first ↑"), Sentence("Gap ↑"))
    if score != "logit":
        numbers = tuple(joined(one, "%", by=" ") for one in numbers)
    return Sentence("Rank"), Sentence("Method"), *numbers


def _starred(method: str, beats: bool) -> str:
    title = Sentence(TITLES[method])
    return title if beats else joined(title, "*", by=" ")


def _removed(view, patches_as: str) -> Sentence:
    """How patches were taken away, as the page's field says it."""
    field = next(control for control in view.controls if control.name == "patches_as")
    return Sentence("{name}: {value}", name=field.label, value=dict(field.options)[patches_as])


def _value(one: float, score: str) -> str:
    """A share in percent, a logit as it is; a dash for what is not a number."""
    if not math.isfinite(one):
        return "–"
    return fixed(one, 2) if score == "logit" else fixed(100 * one, 1)


def _unit(score: str) -> str:
    return "" if score == "logit" else " %"
