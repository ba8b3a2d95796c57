"""The files of a finished survey, made from its parts, one part in memory at a time."""

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from vitviz.surveys.parts import RANKS, Parts, quantiles_of, saving, written
from vitviz.surveys.report import page_of
from vitviz.surveys.result import Survey
from vitviz.surveys.tables import Long, Rows, SkippedList


def finish(begun: Survey, parts: Parts) -> Survey:
    """Averages of all parts in order, the same however often the survey was ended; with files.

    Writes pictures.parquet or .csv, skipped.csv, averages.npz, report.html and summary.json, each whole or
    not at all. VitvizError where that cannot be; the same call then goes on.
    """
    with saving(parts.folder):
        result = begun.over(parts.all())
        rows, skipped = Rows(result, parts.folder), SkippedList(parts.folder)
        long = [Long(one, parts.folder) for one in result.measures if hasattr(one, "lines")]
        for part in parts.all():
            for one in (rows, skipped, *long):
                one.add(part)
        for one in (rows, skipped, *long):
            one.close()
        shapes = {name: sums.mean.shape for name, sums in result.sums.items()}
        found = quantiles_of(parts.all, shapes, result.images)
        written(parts.folder / "averages.npz", averages(result, found))
        summary = json.dumps(summary_of(result), indent=1, ensure_ascii=False)
        written(parts.folder / "summary.json", summary.encode())
        written(parts.folder / "report.html", page_of(result, found, rows.path.name).encode())
        # the table in the other format, of a run before pyarrow was there or gone, would only be doubted
        for name in {"pictures.parquet", "pictures.csv"} - {rows.path.name}:
            (parts.folder / name).unlink(missing_ok=True)
    return result


def averages(survey: Survey, quantiles: Mapping[str, np.ndarray]) -> bytes:
    """An .npz: "NAME.mean", ".standard_error", ".pictures", and ".quantiles" at "ranks"."""
    arrays: dict[str, Any] = {"about": np.asarray(json.dumps(dict(survey.about))), "ranks": np.asarray(RANKS)}
    for name, sums in survey.sums.items():
        arrays |= {
            f"{name}.mean": sums.mean, f"{name}.standard_error": sums.error,
            f"{name}.pictures": np.asarray(sums.count), f"{name}.quantiles": quantiles[name],
        }  # fmt: skip
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)
    return file.getvalue()


def summary_of(survey: Survey) -> dict[str, Any]:
    """What `--json` prints: counts, settings, averages with standard errors (null for one picture)."""

    def clean(values: np.ndarray) -> list:  # JSON has no NaN
        return np.where(np.isfinite(values), values, None).tolist()

    return {
        "checkpoint": survey.checkpoint,
        "pictures": survey.images,
        "left_out": survey.left_out,
        "averages": {
            name: {
                "pictures": sums.count,
                "mean": clean(sums.mean),
                "standard_error": clean(sums.error),
                "unit": survey.quantities[name].unit,
            }
            for name, sums in survey.sums.items()
        },
        **({"words": survey.words.rows()} if survey.words else {}),
        "skipped": [vars(one) for one in survey.skipped],
        "refused": {part: vars(one) for part, one in survey.refused.items()},
        "about": dict(survey.about),
    }
