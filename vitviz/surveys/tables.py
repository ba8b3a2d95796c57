"""A row a picture, and a long table with a row for every picture, method and protocol of measures that have
such rows (`lines`): Parquet where pyarrow is installed, else CSV, renamed when whole.

Layers and heads count from 0, as in Python. In Parquet a quantity of several numbers is a list, its axes in
the column's metadata; in CSV a column a number, such as distance.distance.3.0 for layer 3, head 0.
"""

import csv
import os
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from vitviz.surveys.result import Survey
from vitviz.surveys.rows import Part, Row

FACTS = {  # of a picture, each with its type
    "place": "int64", "name": "string", "label_given": "string", "label": "int32", "answer": "int32",
    "answer_name": "string", "probability": "float64", "probability_of_label": "float64",
}  # fmt: skip


class _Table:
    """A file that is written under another name, and renamed when whole: Parquet with pyarrow, or CSV."""

    def __init__(self, folder: Path, name: str, arrow: Any = None):
        self.path = folder / f"{name}.{'parquet' if arrow else 'csv'}"
        self._temporary = folder / f".{self.path.name}.{os.getpid()}"
        self._arrow, self._file = arrow, None

    def close(self) -> None:
        """Renames what was written to its name; nothing where nothing was."""
        if self._file is not None:
            self._file.close()
            os.replace(self._temporary, self.path)

    def _begun(self, head: Iterable[str], *about: Any):
        """A writer of lines below such a head, or of what `_fields` makes columns of."""
        if self._arrow:
            import pyarrow.parquet as parquet

            self._file = parquet.ParquetWriter(self._temporary, self._arrow.schema(self._fields(*about)))
            return self._file
        self._file = self._temporary.open("w", newline="", encoding="utf-8")
        writer = csv.writer(self._file, lineterminator="\n")
        writer.writerow(head)
        return writer

    def _write(self, rows: list[dict[str, Any]]) -> None:
        """To Parquet, by columns' names; what a row does not have is null."""
        self._writer.write_table(self._arrow.Table.from_pylist(rows, schema=self._writer.schema))


class Rows(_Table):
    """The table of pictures, written part by part."""

    def __init__(self, survey: Survey, folder: Path):
        super().__init__(folder, "pictures", _pyarrow())
        self._survey = survey
        self._none = {name: np.full(survey.sums[name].mean.shape, None) for name in survey.quantities}
        places = ((name, place) for name, none in self._none.items() for place in np.ndindex(none.shape))
        columns = [*FACTS, *(".".join(map(str, (name, *place))) for name, place in places)]
        self._writer = self._begun(columns)

    def add(self, part: Part) -> None:
        if not self._arrow:
            self._writer.writerows(map(self._line, part.rows))
        elif part.rows:
            self._write([self._record(row) for row in part.rows])

    def _facts(self, row: Row) -> list[Any]:
        labels, answer = self._survey.labels, row.answer
        named = labels[answer] if answer is not None and answer < len(labels) else None
        given = None if row.given is None else str(row.given)
        return [row.index, row.name, given, row.label, answer, named, row.probability, row.of_label]

    def _line(self, row: Row) -> list[Any]:
        numbers = (row.values.get(name, none).ravel().tolist() for name, none in self._none.items())
        return [*map(harmless, self._facts(row)), *chain(*numbers)]

    def _fields(self) -> list:
        arrow = self._arrow
        fields = [arrow.field(name, getattr(arrow, kind)()) for name, kind in FACTS.items()]
        for name, none in self._none.items():
            kind = arrow.list_(arrow.float32(), none.size) if none.ndim else arrow.float32()
            told = {"axes": self._survey.quantities[name].axes, "shape": " ".join(map(str, none.shape))}
            fields.append(arrow.field(name, kind, metadata=told))
        return fields

    def _record(self, row: Row) -> dict[str, Any]:
        values = {name: one.ravel() if one.ndim else float(one) for name, one in row.values.items()}
        return dict(zip(FACTS, self._facts(row), strict=True)) | values


class SkippedList(_Table):
    """skipped.csv: every picture that was left out, and why."""

    def __init__(self, folder: Path):
        super().__init__(folder, "skipped")
        self._writer = self._begun(["place", "name", "reason"])

    def add(self, part: Part) -> None:
        self._writer.writerows([one.index, harmless(one.name), harmless(one.reason)] for one in part.skipped)


class Long(_Table):
    """Of one measure: NAME-rows.parquet or NAME-rows.csv; none where no picture had a row."""

    def __init__(self, measure: Any, folder: Path):
        super().__init__(folder, f"{measure.name}-rows", _pyarrow())
        self._measure = measure

    def add(self, part: Part) -> None:
        rows = []
        for row in part.rows:
            facts = {"place": row.index, "name": row.name, "label": row.label, "answer": row.answer}
            rows += [{**facts, **line} for line in self._measure.lines(row.values)]
        if not rows:
            return
        if self._file is None:
            self._writer = self._begun(rows[0], rows[0])
        if self._arrow:
            self._write(rows)
        else:
            self._writer.writerows(map(harmless, row.values()) for row in rows)

    def _fields(self, first: dict[str, Any]) -> list:
        arrow = self._arrow
        kinds = {"place": arrow.int64(), "label": arrow.int32(), "answer": arrow.int32()}
        kinds |= {name: arrow.string() for name, value in first.items() if isinstance(value, str)}
        return [arrow.field(name, kinds.get(name, arrow.float64())) for name in first]


def _pyarrow() -> Any:
    try:
        import pyarrow
    except ImportError:
        return None
    return pyarrow


def harmless(value: Any) -> Any:
    """Text that spreadsheets would take for a formula gets an apostrophe: names come from strangers."""
    return "'" + value if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value
