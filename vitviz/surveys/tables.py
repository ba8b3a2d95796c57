"""A row a picture: Parquet where pyarrow is installed, else CSV. Layers and heads count from 0, as in Python.

In Parquet a quantity of several numbers is a list, its axes in the column's metadata; in CSV it has a column
for each number, such as distance.distance.3.0 for layer 3, head 0.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from vitviz.surveys.parts import Part
from vitviz.surveys.result import Survey
from vitviz.surveys.rows import Row, Skipped

FACTS = (
    "place",
    "name",
    "label_given",
    "label",
    "answer",
    "answer_name",
    "probability",
    "probability_of_label",
)


class Rows:
    """The table of pictures, written part by part and renamed when it is whole."""

    def __init__(self, survey: Survey, folder: Path):
        try:
            import pyarrow
        except ImportError:
            pyarrow = None
        self._survey, self._arrow = survey, pyarrow
        self.path = folder / ("pictures.parquet" if pyarrow else "pictures.csv")
        self._temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        self._shapes = {name: survey.sums[name].mean.shape for name in survey.quantities}
        self._writer = self._parquet() if pyarrow else self._csv()

    def add(self, part: Part) -> None:
        """One part's pictures."""
        if self._arrow:
            if part.rows:
                self._writer.write_table(self._table(part.rows))
        else:
            self._writer.writerows(self._lines(part.rows))

    def close(self) -> None:
        """Renames what was written to its name."""
        (self._writer if self._arrow else self._file).close()
        os.replace(self._temporary, self.path)

    def _facts(self, row: Row) -> list[Any]:
        labels, answer = self._survey.labels, row.answer
        named = labels[answer] if answer is not None and answer < len(labels) else None
        given = None if row.given is None else str(row.given)
        return [row.index, row.name, given, row.label, answer, named, row.probability, row.of_label]

    def _csv(self):
        self._file = self._temporary.open("w", newline="", encoding="utf-8")
        writer = csv.writer(self._file, lineterminator="\n")
        columns = [
            ".".join(map(str, (name, *place)))
            for name, shape in self._shapes.items()
            for place in np.ndindex(shape)
        ]
        writer.writerow([*FACTS, *columns])
        return writer

    def _lines(self, rows: Sequence[Row]) -> Iterator[list[Any]]:
        for row in rows:
            numbers = []
            for name, shape in self._shapes.items():
                size = int(np.prod(shape, dtype=int))
                numbers += row.values[name].ravel().tolist() if name in row.values else [None] * size
            yield [*map(harmless, self._facts(row)), *numbers]

    def _parquet(self):
        import pyarrow.parquet as parquet

        arrow = self._arrow
        kinds = (
            arrow.int64(),
            arrow.string(),
            arrow.string(),
            arrow.int32(),
            arrow.int32(),
            arrow.string(),
            arrow.float64(),
            arrow.float64(),
        )
        fields = [arrow.field(name, kind) for name, kind in zip(FACTS, kinds, strict=True)]
        for name, shape in self._shapes.items():
            kind = arrow.list_(arrow.float32(), int(np.prod(shape, dtype=int))) if shape else arrow.float32()
            told = {"axes": self._survey.quantities[name].axes, "shape": " ".join(map(str, shape))}
            fields.append(arrow.field(name, kind, metadata=told))
        return parquet.ParquetWriter(self._temporary, arrow.schema(fields))

    def _table(self, rows: Sequence[Row]):
        columns = [list(column) for column in zip(*map(self._facts, rows), strict=True)]
        for name, shape in self._shapes.items():
            values = [row.values.get(name) for row in rows]
            flat = [None if value is None else value.ravel() if shape else float(value) for value in values]
            columns.append(flat)
        schema = self._writer.schema
        arrays = [
            self._arrow.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)
        ]
        return self._arrow.Table.from_arrays(arrays, schema=schema)


class SkippedList:
    """skipped.csv: every picture that was left out, and why."""

    def __init__(self, folder: Path):
        self.path = folder / "skipped.csv"
        self._temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        self._file = self._temporary.open("w", newline="", encoding="utf-8")
        self._writer = csv.writer(self._file, lineterminator="\n")
        self._writer.writerow(["place", "name", "reason"])

    def add(self, skipped: Iterable[Skipped]) -> None:
        """One part's."""
        self._writer.writerows([one.index, harmless(one.name), harmless(one.reason)] for one in skipped)

    def close(self) -> None:
        """Renames what was written to its name."""
        self._file.close()
        os.replace(self._temporary, self.path)


def harmless(value: Any) -> Any:
    """Text that spreadsheets would take for a formula gets an apostrophe: names come from strangers."""
    return "'" + value if isinstance(value, str) and value[:1] in "=+-@\t\r" and value else value


__all__ = ["FACTS", "Rows", "SkippedList", "harmless"]
