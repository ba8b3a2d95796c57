"""Parts of the faithfulness test, cached with the image, and their charts, texts and exported arrays."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import torch

from vitviz.analyses.correlation import agreement, spearman
from vitviz.analyses.faithfulness.curves import t_quantile
from vitviz.analyses.faithfulness.evaluation import CONVERGENCE, Faithfulness, evaluate_methods, join_results
from vitviz.analyses.faithfulness.ranking import CONTROLS, tied_methods_text, verdict_text
from vitviz.analyses.protocol import TITLES
from vitviz.charts.chart import GREY, SEVERAL, Chart, Matrix, Scale, Series, table, to_json
from vitviz.errors import OutOfMemory, UnsupportedModel
from vitviz.traces.localized_text import LocalizedText, text_to_json
from vitviz.views.printing import fixed
from vitviz.views.shared import ClassTarget, passes_of, shared_saliency_map, target_name, to_csv
from vitviz.views.subject import Settings, ViewContext
from vitviz.views.trial import STEPPED, method_group

RANKS = "Spearman’s rank correlation from −1 (blue) to 1 (orange). Rows and columns are in the same order."
LAST = (
    "Last column: correlation of a method’s maps for this class and {class}; at 1, the map is independent of"
    " the class."
)
DASHES = ("", "dashed", "dotted", "dash-dotted")
SIDES = {
    "most": (
        LocalizedText("Most relevant first: lower is better"),
        LocalizedText("{share} % removed, most relevant first"),
    ),
    "least": (
        LocalizedText("Least relevant first: higher is better"),
        LocalizedText("{share} % removed, least relevant first"),
    ),
}
RankingColumn = tuple[str, dict[str, float | None]]  # another class, and rank correlations by method


def evaluate_method(
    subject: ViewContext, target: ClassTarget, patches_as: str, method: str, steps: int | None = None
) -> Faithfulness:
    """Return one method's test; `.refused` has the reason if the method is not applicable."""
    methods = method_group(method)
    steps = steps if STEPPED in methods else None

    def make() -> Faithfulness:
        cached = {}
        for name in methods:
            with suppress(UnsupportedModel, OutOfMemory):  # `evaluate_methods` keeps the reason
                cached[name] = shared_saliency_map(subject, target, name, steps)
        passes = passes_of(subject, target, patches_as)
        return evaluate_methods(passes, methods, patches_as, known_maps=cached, chance=False, steps=steps)

    return subject.once_by_passes(part_key(target, patches_as, method, steps), make).part(method)


def part_key(target: ClassTarget, patches_as: str, method: str, steps: int | None = None) -> str:
    """Return the cache key of the test of a method's group."""
    suffix = f" {steps}" if method == STEPPED else ""
    return f"trial {' '.join(method_group(method))} {target} {patches_as}{suffix}"


def evaluate_all(
    subject: ViewContext, target: ClassTarget, patches_as: str, methods: Sequence[str],
    steps: int | None = None
) -> Faithfulness:  # fmt: skip
    """Return the tests of several methods, for one image, target and way of removal, as one object."""
    return join_results([evaluate_method(subject, target, patches_as, method, steps) for method in methods])


def method_json(trial: Faithfulness) -> dict[str, Any]:
    """Return the map of a test with one method as JSON, or the reason why it is not applicable."""
    for reason in trial.refused.values():
        return {"refused": text_to_json(reason)}
    ((name, result),) = trial.maps.items()
    return {
        "map": to_json(result.map.flatten().tolist()),
        "signed": result.signed,
        "logits": result.adds_up or name == "leave_one_out",
        "at": result.at,
        "nothing": result.nothing_positive,
        "unexplained": result.unexplained,
        "convergence": text_to_json(result.convergence) if result.convergence else None,
    }


def chance_band(trial: Faithfulness, side: str, score: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the lower and upper ends of the band of 19 in 20 random maps at every step: (step), (step).

    The band uses Student's t over the draws. `side` is "most" or "least". Probabilities and fractions are
    clipped to 0 to 1.
    """
    values = torch.stack([getattr(draw, side)[score] for draw in trial.draws])
    count = len(values)
    away = t_quantile(0.025, count - 1) * (1 + 1 / count) ** 0.5 * values.std(dim=0)
    result = values.mean(dim=0) - away, values.mean(dim=0) + away
    return result if score == "logit" else (result[0].clamp(0, 1), result[1].clamp(0, 1))


def curve_panels(
    trial: Faithfulness, names: Sequence[str], subject: ViewContext, settings: Settings, held: str = ""
) -> tuple[Chart, Chart]:
    """Return the two removal charts (`curve_charts`) for the selected score."""
    return curve_charts(trial, names, settings["score"], _score_names(subject, settings), held)


def curve_charts(
    trial: Faithfulness, names: Sequence[str], score: str, label: str, held: str = ""
) -> tuple[Chart, Chart]:
    """Return both panels with a line per method, the `held` one thick, on one scale.

    The scale runs from 0 to 1; for logits, it covers the values.
    """
    series = {side: _lines(trial, side, score, names, held) for side in SIDES}
    band_ends = [end for side in series.values() for line in side for end in (line.y, *(line.band or ()))]
    low, high = (0.0, *map(np.min, band_ends)), (1.0, *map(np.max, band_ends))
    ends = (float(min(low)), float(max(high))) if score == "logit" else (0.0, 1.0)
    axes = LocalizedText("patches removed"), label, (-2.0, 106.0), ends
    ticks = tuple((at, f"{at} %") for at in range(0, 101, 25))
    options = {"percent": score != "logit", "ticks": ticks, "keyed": True}
    return tuple(Chart(*axes, title, series[side], **options) for side, (title, _) in SIDES.items())


def _lines(trial: Faithfulness, side: str, score: str, names: Sequence[str], held: str) -> tuple[Series, ...]:
    """Return the lines in five colours, first solid, then dashed, dotted and both; controls are grey."""
    styles = iter([(colour, dash) for dash in DASHES for colour in SEVERAL])
    grey, result = {"random": (GREY, "dashed"), "centre": (GREY, "dotted")}, []
    details = (LocalizedText("{method}"), SIDES[side][1], LocalizedText("{whole}"))
    for name in names:
        y = getattr(trial.curves[name], side)[score].numpy()
        colour, dash = grey[name] if name in CONTROLS else next(styles)
        band = tuple(end.numpy() for end in chance_band(trial, side, score)) if name == "random" else None
        title, x = LocalizedText(TITLES[name]), 100 * np.asarray(trial.shares)
        also = {"method": [title] * len(x), "share": np.rint(x).astype(int)}
        also["whole"] = [LocalizedText("the whole image"), *[""] * (len(x) - 1)]
        thick = 0.7 if name == held else 0.35
        line = Series(x, y, title, colour, True, False, band, dash, thick, told=details, also=also, key=name)
        result.append(line)
    return tuple(result)


def _score_names(subject: ViewContext, settings: Settings) -> LocalizedText:
    """Return the displayed name of the score, with its class, or with one class rather than another."""
    if settings["score"] == "kept":
        return LocalizedText("Prediction kept")
    details = {"class": target_name(subject, settings["target"])}
    if settings["score"] != "logit":
        return LocalizedText("probability of {class}", **details)
    of_values = subject.about.head_type == "value"
    return LocalizedText("value of {class}" if of_values else "logit of {class}", **details)


def ranking_json(trial: Faithfulness, score: str) -> dict[str, Any]:
    """Return the ranking, the verdict and the agreement of the maps, for JSON."""
    mean, deviation = trial.chance(score)
    beats, rows = trial.beats_chance(score), []
    for name, gap in trial.ranking(score):
        row = {"method": name, "areas": list(trial.areas(name, score)), "gap": gap}
        row |= {"saco": trial.curves[name].saco, "beats": name in beats}
        row |= {measure: getattr(trial.maps[name], measure) for measure in ("unexplained", *CONVERGENCE)}
        rows.append(row)
    return {
        "verdict": text_to_json(verdict_text(trial, score)),
        "level": text_to_json(tied_methods_text(trial, score)),
        "chance": [mean, deviation],
        "reach": trial.reach(score),
        "sets": trial.sets,
        "rows": rows,
        "agreement": to_json(correlation_matrix(trial, score)),
    }


def map_correlations(trial: Faithfulness, names: Sequence[str]) -> np.ndarray:
    """Return the rank correlations of every two methods' maps; NaN if a map has no order."""
    result = np.eye(len(names))
    for (a, b), value in agreement({name: trial.maps[name].map for name in names}).items():
        i, j = names.index(a), names.index(b)
        result[i, j] = result[j, i] = np.nan if value is None else value
    return result


def correlation_matrix(trial: Faithfulness, score: str, beside: RankingColumn | None = None) -> Matrix:
    """Return the matrix of the maps' rank correlations, in the order of the ranking.

    With `beside`, the name and numbers of another class, a last column after a gap shows each method's
    correlation between the maps of the explained class and of the other.
    """
    names = [name for name, _ in trial.ranking(score)]
    values, titles = map_correlations(trial, names), [LocalizedText(TITLES[name]) for name in names]
    cols, whose = [str(place + 1) for place in range(len(names))], list(titles)
    notes = (LocalizedText(RANKS),)
    if beside is not None:
        other, result = beside
        column = [np.nan if result.get(name) is None else result[name] for name in names]
        values = np.column_stack([values, np.full(len(names), np.nan), column])
        cols, whose = [*cols, "", ""], [*whose, "", LocalizedText("{class}, same method", **{"class": other})]
        notes += (LocalizedText(LAST, **{"class": other}),)
    texts = table(values, lambda value: "–" if np.isnan(value) else fixed(value, 2))
    texts = [[col and text for text, col in zip(row, whose, strict=True)] for row in texts]
    details = tuple(LocalizedText("{line}", line=line) for line in (texts, [[t] for t in titles], [whose]))
    scale = Scale("balance", -1.0, 1.0, LocalizedText("Agreement"))
    title = LocalizedText("Rank correlations of the maps.")
    options = {"told": details, "notes": notes, "unscaled": True}
    return Matrix(values, scale, "", "", title, rows=tuple(titles), cols=tuple(cols), **options)


def class_sensitivity_column(
    subject: ViewContext, target: ClassTarget, methods: Sequence[str]
) -> RankingColumn:
    """Return the most likely other class and each method's rank correlation between the two classes' maps."""
    first = target[0] if isinstance(target, tuple) else target
    other = next(i for i in subject.trace.logits.argsort(descending=True).tolist() if i != first)
    result: dict[str, float | None] = {}
    for method in methods:
        with suppress(UnsupportedModel, OutOfMemory):
            maps = (shared_saliency_map(subject, context, method).map for context in (first, other))
            result[method] = spearman(*maps)
    return subject.trace.named(other), result


def result_arrays(trial: Faithfulness) -> dict[str, np.ndarray]:
    """Return the arrays for export: areas and curves by method, side (most, least first) and score."""
    names = list(trial.curves)
    return {
        "methods": np.asarray(names),
        "scores": np.asarray(trial.scores),
        "shares": np.asarray(trial.shares),
        "maps": np.stack([trial.maps[name].map.numpy() for name in names]),
        "curves": np.stack([_curve_array(trial.curves[name]) for name in names]),
        "areas": np.asarray([[trial.areas(name, score) for score in trial.scores] for name in names]).mT,
        "saco": np.asarray([trial.curves[name].saco for name in names]),
        "chance": np.asarray([trial.chance(score) for score in trial.scores]),
        "random_draws": np.stack([_curve_array(draw) for draw in trial.draws]),
        "agreement": map_correlations(trial, names),
        "target": np.asarray(trial.classes),
        "refused": np.asarray([f"{name}: {reason}" for name, reason in trial.refused.items()], dtype=str),
    }


def result_csv(trial: Faithfulness) -> bytes:
    """Return the CSV table with a row per method, best first."""
    rows = ((TITLES[row["method"]], row) for row in trial.rows())
    return to_csv([{"checkpoint": trial.checkpoint, "title": title, **row} for title, row in rows])


def _curve_array(curves) -> np.ndarray:
    """Return a map's removal curves, most then least relevant first: (side, score, step)."""
    curves_by_side = curves.most, curves.least
    return np.stack([np.stack([curve.numpy() for curve in side.values()]) for side in curves_by_side])
