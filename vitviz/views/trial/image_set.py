"""Faithfulness test over a set of images, as JSON, arrays and a table; the survey holds the measurements."""

from typing import Any

import numpy as np

from vitviz.analyses.faithfulness import ranking
from vitviz.analyses.protocol import TITLES
from vitviz.charts.chart import BLUE, GREY, Chart, ReferenceLine, Series, with_error
from vitviz.traces.head_type import scores_named
from vitviz.traces.localized_text import LocalizedText, text_to_json
from vitviz.views.printing import join_texts
from vitviz.views.subject import Settings


def protocol_of(survey: Any, settings: Settings) -> int:
    """Return the index of the protocol to show: the selected way of removal if tested, else the first."""
    tried = ranking.faithfulness_measure(survey).protocols
    return tried.index(settings["patches_as"]) if settings["patches_as"] in tried else 0


def ranking_json(survey: Any, settings: Settings) -> dict[str, Any]:
    """Return the ranking and the verdict by the selected score, for JSON."""
    place = protocol_of(survey, settings)
    rows = ranking.ranking_rows(survey, place, settings["score"])
    return {
        "pictures": survey.images,
        "patches_as": ranking.faithfulness_measure(survey).protocols[place],
        "verdict": text_to_json(ranking.verdict_text_over_images(rows, survey.images)),
        "rows": [{name: _finite_or_none(value) for name, value in row.items()} for row in rows],
        "refused": [text_to_json(sentence) for sentence in ranking.refusal_texts(survey)],
    }


def lead_chart(survey: Any, settings: Settings) -> Chart:
    """Return the chart with a dot per method at its mean lead, best at the top; random maps are at zero."""
    score = settings["score"]
    rows = ranking.ranking_rows(survey, protocol_of(survey, settings), score)
    times, last = (1.0 if score == "logit" else 100.0), len(rows)
    mean = times * np.array([row["ahead"] for row in rows])
    reach = 2 * times * np.nan_to_num([row["ahead_error"] for row in rows])
    y = np.arange(last, 0, -1.0)
    dots, lines = [], []
    details = (
        (LocalizedText("significantly better than random"), BLUE, True),
        (LocalizedText("not significantly better than random"), GREY, False),
    )
    for name, colour, beats in details:
        selection = np.array([row["beats_chance"] is beats for row in rows])
        if selection.any():
            texts = [with_error(*pair) for pair in zip(mean[selection], reach[selection] / 2, strict=True)]
            methods = [LocalizedText(TITLES[row["method"]]) for row in rows if row["beats_chance"] is beats]
            point_details = {"said": texts, "told": (LocalizedText("{method}"),), "also": {"method": methods}}
            dots.append(Series(mean[selection], y[selection], name, colour, dots=True, **point_details))
        for at in np.flatnonzero(selection & (reach > 0)):
            ends = np.array([mean[at] - reach[at], mean[at] + reach[at]])
            lines.append(Series(ends, y[[at, at]], "", colour, line=True))
    low, high = min(0.0, *(mean - reach)), max(0.01 * times, *(mean + reach))
    spare = 0.04 * (high - low)
    names = [join_texts(str(row["rank"]), LocalizedText(TITLES[row["method"]])) for row in rows]
    x_label = LocalizedText("gap minus random gap, logits" if score == "logit" else "gap minus random gap, %")
    x_label = LocalizedText("gap minus random gap, values") if survey.head_type == "value" else x_label
    axes = x_label, LocalizedText("Method"), (low - spare, high + 2 * spare), (0.4, last + 0.6)
    level = ReferenceLine(0.0, LocalizedText("chance"), upright=True, colour=GREY)
    options = {"whole": False, "aspect": 0.06 + 0.042 * last}
    options["y_ticks"] = tuple(zip(y.tolist(), names, strict=True))
    return Chart(*axes, series=(*lines, *dots), levels=(level,), **options)


def arrays(survey: Any, settings: Settings) -> dict[str, np.ndarray]:
    """Return the arrays for export: methods, best first by probability, and their numbers by score."""
    place, measure = protocol_of(survey, settings), ranking.faithfulness_measure(survey)
    rows, scores = ranking.ranking_rows_all_scores(survey, place), scores_named(survey.head_type)
    names = ("rank", "most", "most_error", "least", "least_error", "gap", "ahead", "ahead_error")
    return {
        "methods": np.asarray([row["method"] for row in rows]),
        "scores": np.asarray(scores),
        "shares": np.asarray(measure.shares),
        "patches_as": np.asarray(measure.protocols[place]),
        "pictures": np.asarray(survey.images),
        **{key: np.asarray([[row[f"{key}_{score}"] for score in scores] for row in rows]) for key in names},
        "alike": np.asarray([row["alike"] for row in rows]),
        "refused": np.asarray(list(map(str, ranking.refusal_texts(survey))), dtype=str),
    }


def rows(survey: Any, settings: Settings) -> list[dict[str, Any]]:
    """Return a row per method for a table, best first; methods without a rank follow with the reason."""
    place = protocol_of(survey, settings)
    protocol = ranking.faithfulness_measure(survey).protocols[place]
    details = {"checkpoint": survey.checkpoint, "pictures": survey.images, "patches_as": protocol}
    result = [{**row, "refused": 0, "reason": ""} for row in ranking.ranking_rows_all_scores(survey, place)]
    result += [
        {**dict.fromkeys(result[0], ""), "method": method, "refused": row.pictures, "reason": str(row.reason)}
        for method, row in ranking.refused_methods(survey).items()
    ]
    return [{**details, "title": TITLES[row["method"]], **row} for row in result]


def _finite_or_none(value: Any) -> Any:
    """Return the value for JSON: None for NaN and infinity."""
    return None if isinstance(value, float) and not np.isfinite(value) else value
