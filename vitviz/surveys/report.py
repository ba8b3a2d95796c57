"""Output files of a finished survey: tables, averages and a report. One part is in memory at a time.

The report is one HTML file with embedded figures. It opens offline and makes no requests. It contains what a
paper's appendix cites: the averages with standard errors, and all settings that they depend on.

Two tables accompany the report: one row per image, and a long table with one row per image, method and
protocol for measures that define `lines`. The format is Parquet if pyarrow is installed, otherwise CSV. In
the tables, layers and heads count from 0, as in Python. In Parquet, a quantity with several numbers is a list
column whose metadata name its axes; in CSV, every number has its own column, such as distance.distance.3.0
for layer 3, head 0.
"""

import csv
import html
import io
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from vitviz.charts.chart import by_layer
from vitviz.surveys.measure import Quantity
from vitviz.surveys.moments import Moments
from vitviz.surveys.parts import RANKS, SurveyFolder, quantiles_of, saving, write_whole
from vitviz.surveys.result import Survey
from vitviz.surveys.rows import Row, SurveyPart

SHOWN = 100  # skipped images listed in the report; skipped.csv lists all
CONFUSIONS = 20
HEAD = (
    """<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="default-src 'none';"""
    """ style-src 'unsafe-inline'"><meta name="viewport" content="width=device-width, initial-scale=1">"""
)

STYLE = """
:root { color-scheme: light dark; --ink: #1c2430; --line: #d8dde4; --paper: #fff }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e3e8ef; --line: #3a4350; --paper: #14181e } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 46rem;
  margin: 2rem auto; padding: 0 1rem }
svg { width: 100%; height: auto }
table { border-collapse: collapse; width: 100%; font-size: 13px }
td, th { text-align: left; padding: .2rem .6rem .2rem 0;
  border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: anywhere }
figure { margin: 1.5rem 0 } figcaption { font-weight: 600 } small { opacity: .8 }
"""


def write_report(begun: Survey, parts: SurveyFolder) -> Survey:
    """Merge all parts in order and write the output files; return the whole survey.

    The result does not depend on interruptions. The files are pictures.parquet or .csv, skipped.csv,
    averages.npz, report.html and summary.json. Each file is written atomically.

    Raises:
        VitvizError: If a file cannot be written. The same call then resumes.
    """
    with saving(parts.folder):
        result = begun.with_parts(parts.all())
        rows, skipped = Rows(result, parts.folder), SkippedList(parts.folder)
        long = [RowTable(one, parts.folder) for one in result.measures if hasattr(one, "lines")]
        for part in parts.all():
            for one in (rows, skipped, *long):
                one.add(part)
        for one in (rows, skipped, *long):
            one.close()
        shapes = {name: sums.mean.shape for name, sums in result.sums.items()}
        results = quantiles_of(parts.all, shapes, result.images)
        write_whole(parts.folder / "averages.npz", averages(result, results))
        summary = json.dumps(summary_of(result), indent=1, ensure_ascii=False)
        write_whole(parts.folder / "summary.json", summary.encode())
        write_whole(parts.folder / "report.html", page_of(result, results, rows.path.name).encode())
        # remove the table in the other format, left by a run with or without pyarrow
        for name in {"pictures.parquet", "pictures.csv"} - {rows.path.name}:
            (parts.folder / name).unlink(missing_ok=True)
    return result


def averages(survey: Survey, quantiles: Mapping[str, np.ndarray]) -> bytes:
    """Return the bytes of an .npz with mean, standard error, image count and quantiles by quantity."""
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
    """Return the output of `--json`: counts, settings, averages, standard errors (null for one image)."""

    def clean(values: np.ndarray) -> list:  # JSON has no NaN
        return np.where(np.isfinite(values), values, None).tolist()

    def average(name: str, sums: Moments) -> dict[str, Any]:
        numbers = {"mean": clean(sums.mean), "standard_error": clean(sums.error)}
        return {"pictures": sums.count, **numbers, "unit": survey.quantities[name].unit}

    return {
        "checkpoint": survey.checkpoint,
        "head_type": survey.head_type,
        "pictures": survey.images,
        "left_out": survey.left_out,
        "averages": {name: average(name, sums) for name, sums in survey.sums.items()},
        **({"words": survey.words.rows()} if survey.words else {}),
        "skipped": [vars(one) for one in survey.skipped],
        "refused": {part: vars(one) for part, one in survey.refused.items()},
        "about": dict(survey.about),
    }


def page_of(survey: Survey, quantiles: Mapping[str, np.ndarray], table: str) -> str:
    """Return the report as HTML. Image names and labels are untrusted and therefore escaped."""
    one = "one image" if survey.images == 1 else f"{survey.images} images"
    title = f"vitviz survey: {survey.checkpoint}, {one}"
    each = survey.quantities.items()
    left_out = f"; {survey.left_out} could not be read and were left out" if survey.left_out else ""
    body = [
        f"<h1>{_text(title)}</h1><p>Means over {one}{left_out}, ± their standard errors. {table} has one row"
        " per image, averages.npz the averages, and skipped.csv the skipped images. Layers and heads count"
        " from 1 here, from 0 in the files.</p>",
        *(_quantity_figure(name, what, survey.sums[name], quantiles[name]) for name, what in each),
        _numbers_table(survey),
        _ranking_section(survey),
        _words_section(survey),
        _mistakes_section(survey),
        _skipped_section(survey),
        "<h2>Settings</h2>",
        _table(("", ""), [(name, _cell_text(value)) for name, value in survey.about.items()]),
        "<p><small>source_sha256 covers names, labels and file sizes in the source's order, not pixels;"
        " checkpoint_sha256 covers the weights and their configuration.</small></p>",
    ]
    head = f"{HEAD}<title>{_text(title)}</title><style>{STYLE}</style>"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{"".join(body)}</body></html>\n'


def _quantity_figure(name: str, what: Quantity, sums: Moments, quantiles: np.ndarray) -> str:
    """Return the figure of a quantity by layer, or by layer and head; "" for scalars, which go to a table."""
    if what.axes not in ("layer head", "layer"):
        return ""
    from vitviz.charts.mpl.page import inline_svg  # imports matplotlib, which measuring does not need

    first = 0 if name.startswith("lens.") else 1  # layer 0 of the lens is the input of the first block
    up = what.unit or what.title
    named = {} if sums.mean.ndim > 1 else {"name": "mean over the images, ± its standard error"}
    drawn = inline_svg(by_layer(sums.mean, up, first=first, error=sums.error, unit=what.unit, **named))
    middle = np.median(quantiles, axis=tuple(range(1, quantiles.ndim)))
    ranks = ", ".join(f"{rank:.0%}: {value:.4g}" for rank, value in zip(RANKS, middle, strict=True))
    said = f"{_text(name)}, {sums.count} images; quantiles over images, of the median head or layer, {ranks}"
    return f"<figure><figcaption>{_text(what.title)}</figcaption>{drawn}<small>{said}</small></figure>"


def _numbers_table(survey: Survey) -> str:
    """Return the HTML table of scalar quantities: mean ± standard error; "" if there are none."""
    rows = []
    for name, what in survey.quantities.items():
        if not what.axes:
            sums = survey.sums[name]
            mean = f"{float(sums.mean):.5g} ± {float(sums.error):.2g}"
            rows.append((what.title, mean, what.unit, sums.count))
    return _table(("", "mean", "unit", "images"), rows) if rows else ""


def _ranking_section(survey: Survey) -> str:
    """Return the ranking of saliency methods for each protocol as HTML; "" if not measured."""
    if "trial.most" not in survey.sums:
        return ""
    from vitviz.analyses.faithfulness.ranking import HEAD, faithfulness_measure, ranking_table, refusal_texts

    of = "value over the share of removed patches"
    if survey.head_type != "value":
        of = "probability over the share of removed patches, in %"
    said = (
        f"<p>Area under the prediction's {of}, ± standard errors. A method's rank is 1 plus the number of"
        " methods that are ahead of it by more than two standard errors of the difference, compared image by"
        " image. Methods of one rank do not differ by more than that.</p>"
    )
    said += "".join(f"<p>{_text(sentence)}</p>" for sentence in refusal_texts(survey))
    result = ""
    for place, protocol in enumerate(faithfulness_measure(survey).protocols):
        result += f"<h2>Faithfulness, patches removed: {_text(protocol)}</h2>{said}"
        result += _table(HEAD, ranking_table(survey, place))
    return result


def _words_section(survey: Survey) -> str:
    """Return the HTML section on the words of each head; "" if the survey has none."""
    if survey.words is None:
        return ""
    said = (
        "<p>The words whose directions explain most of the variance of a head's output in the embedding, with"
        " their shares of it. Heads are sorted by the standard deviation of their output, in cosines.</p>"
    )
    rows = survey.words.said()
    return f"<h2>Heads in words</h2>{said}{_table(('head', 'deviation', 'words'), rows)}"


def _mistakes_section(survey: Survey) -> str:
    """Return the HTML section on accuracy, confusions and errors; "" without labels."""
    result = survey.mistakes
    if result is None or not result.labelled:
        return ""

    name = survey.label_of
    common = [(*map(name, pair), count) for pair, count in result.confusions.most_common(CONFUSIONS)]
    columns = ("image", "true class", "prediction", "probability", "of the true class")

    def row_text(row: Row) -> tuple[str, ...]:
        return row.name, name(row.label), name(row.answer), f"{row.probability:.1%}", f"{row.of_label:.1%}"

    right = f"{result.right} of {result.labelled}"
    said = f"<h2>Mistakes</h2><p>{right} labelled images are classified correctly.</p>"
    if not common:
        return said
    said += "<h3>Confusions</h3>" + _table(("true class", "prediction", "images"), common)
    said += "<h3>Most confident errors</h3>" + _table(columns, map(row_text, result.surest))
    return said + "<h3>Closest errors</h3>" + _table(columns, map(row_text, result.nearest))


def _skipped_section(survey: Survey) -> str:
    """Return the HTML section that lists up to SHOWN skipped images; "" if none was skipped."""
    if not survey.left_out:
        return ""
    more = f"<p>The first {SHOWN}; skipped.csv lists all.</p>" if survey.left_out > SHOWN else ""
    rows = [(one.name, one.reason) for one in survey.skipped[:SHOWN]]
    return f"<h2>Skipped</h2>{more}{_table(('image', 'reason'), rows)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return an HTML table with every cell escaped; no header row if all of `head` are empty."""
    kinds = [("th", head)] * any(head) + [("td", row) for row in rows]
    lines = ("".join(f"<{kind}>{_text(cell)}</{kind}>" for cell in row) for kind, row in kinds)
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _cell_text(value: Any) -> str:
    """Return a setting's value as text: a list joined by commas, a dash for None or ""."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value))
    return "–" if value in (None, "") else str(value)


def _text(value: Any) -> str:
    """Return a value as text with HTML's special characters escaped."""
    return html.escape(str(value))


FACTS = {  # columns of the image table and their Arrow types
    "place": "int64", "name": "string", "label_given": "string", "label": "int32", "answer": "int32",
    "answer_name": "string", "probability": "float64", "probability_of_label": "float64",
}  # fmt: skip


class _Table:
    """Table file, written to a temporary name and renamed when complete: Parquet with pyarrow, else CSV."""

    def __init__(self, folder: Path, name: str, plain: bool = False):
        try:
            import pyarrow
        except ImportError:
            pyarrow = None
        self._arrow, self._file = None if plain else pyarrow, None
        self.path = folder / f"{name}.{'parquet' if self._arrow else 'csv'}"
        self._temporary = folder / f".{self.path.name}.{os.getpid()}"

    def add(self, part: SurveyPart) -> None:
        """Append the rows of a part; in Parquet, missing values are null."""
        rows = self._rows(part)
        if rows and self._arrow:
            self._writer.write_table(self._arrow.Table.from_pylist(rows, schema=self._writer.schema))
        elif rows:
            self._writer.writerows(map(self._line, rows))

    def close(self) -> None:
        """Close the file and rename it to its final name; do nothing if no row was written."""
        if self._file is not None:
            self._file.close()
            os.replace(self._temporary, self.path)

    def _begin(self, columns: Mapping[str, str], more: Sequence[Any] = ()) -> None:
        """Open the file; `columns` have Arrow types, `more` columns are Arrow fields, or names in CSV."""
        if self._arrow:
            import pyarrow.parquet as parquet

            fields = [self._arrow.field(name, getattr(self._arrow, kind)()) for name, kind in columns.items()]
            schema = self._arrow.schema([*fields, *more])
            self._file = self._writer = parquet.ParquetWriter(self._temporary, schema)
        else:
            self._file = self._temporary.open("w", newline="", encoding="utf-8")
            self._writer = csv.writer(self._file, lineterminator="\n")
            self._writer.writerow([*columns, *more])

    def _line(self, row: dict[str, Any]) -> Iterable[Any]:
        """Return the cells of a row for CSV; text that would run as a formula is escaped."""
        return map(escape_formula, row.values())


class Rows(_Table):
    """Table with one row per image, written part by part."""

    def __init__(self, survey: Survey, folder: Path):
        super().__init__(folder, "pictures")
        self._survey = survey
        self._none = {name: np.full(survey.sums[name].mean.shape, None) for name in survey.quantities}
        several = range(survey.outputs) if survey.head_type == "value" else ()
        self._outputs = ["value"] if len(several) == 1 else [f"value.{number}" for number in several]
        columns = FACTS | dict.fromkeys(self._outputs, "float64")
        self._begin(columns, list(chain.from_iterable(map(self._columns, self._none))))

    def _columns(self, name: str) -> list:
        """Return the columns of a quantity: one per number in CSV, one with axes and shape in Parquet."""
        arrow, none = self._arrow, self._none[name]
        if not arrow:
            return [".".join(map(str, (name, *place))) for place in np.ndindex(none.shape)]
        kind = arrow.list_(arrow.float32(), none.size) if none.ndim else arrow.float32()
        details = {"axes": self._survey.quantities[name].axes, "shape": " ".join(map(str, none.shape))}
        return [arrow.field(name, kind, metadata=details)]

    def _rows(self, part: SurveyPart) -> list[dict[str, Any]]:
        """Return the records of a part's measured images, one per image, in order."""
        return [self._record(row) for row in part.rows]

    def _record(self, row: Row) -> dict[str, Any]:
        """Return an image's record by column: facts, prediction, outputs and flattened quantities."""
        labels, answer = self._survey.labels, row.answer
        named = labels[answer] if answer is not None and answer < len(labels) else None
        given = None if row.given is None else str(row.given)
        facts = row.index, row.name, given, row.label, answer, named, row.probability, row.of_label
        values = {name: one.ravel() if one.ndim else float(one) for name, one in row.values.items()}
        return dict(zip((*FACTS, *self._outputs), (*facts, *row.outputs), strict=True)) | values

    def _line(self, row: dict[str, Any]) -> list[Any]:
        """Return the CSV cells of a record: one per number of a quantity, None where not measured."""
        numbers = (np.ravel(row.get(name, none)).tolist() for name, none in self._none.items())
        return [*(escape_formula(row[name]) for name in (*FACTS, *self._outputs)), *chain(*numbers)]


class SkippedList(_Table):
    """Table skipped.csv: every skipped image with the reason."""

    def __init__(self, folder: Path):
        super().__init__(folder, "skipped", plain=True)
        self._begin(dict.fromkeys(["place", "name", "reason"], "string"))

    def _rows(self, part: SurveyPart) -> list[dict[str, Any]]:
        """Return one record per skipped image of a part: index, name and reason."""
        return list(map(vars, part.skipped))


class RowTable(_Table):
    """Long table of one measure: NAME-rows.parquet or NAME-rows.csv; no file if no image has a row."""

    def __init__(self, measure: Any, folder: Path):
        super().__init__(folder, f"{measure.name}-rows")
        self._measure = measure

    def _rows(self, part: SurveyPart) -> list[dict[str, Any]]:
        """Return the measure's lines for a part's images, with the facts of the image in each line.

        The first line opens the file, because its keys are the columns.
        """
        rows = []
        for row in part.rows:
            facts = {"place": row.index, "name": row.name, "label": row.label, "answer": row.answer}
            rows += [{**facts, **line} for line in self._measure.lines(row.values)]
        if rows and self._file is None:
            kinds = {name: "string" if isinstance(one, str) else "float64" for name, one in rows[0].items()}
            self._begin(kinds | {name: FACTS[name] for name in ("place", "label", "answer")})
        return rows


def escape_formula(value: Any) -> Any:
    """Return a value; text that a spreadsheet would run as a formula gets an apostrophe in front."""
    return "'" + value if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value
