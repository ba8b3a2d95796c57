"""The long table: a row for every picture, method and protocol of measures that have such rows (`lines`).

Parquet where pyarrow is installed, else CSV, as with the table of pictures; written part by part and renamed
when it is whole.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vitviz.surveys.parts import Part
from vitviz.surveys.tables import harmless


class Long:
    """Of one measure: NAME-rows.parquet or NAME-rows.csv."""

    def __init__(self, measure: Any, folder: Path):
        try:
            import pyarrow
        except ImportError:
            pyarrow = None
        self._measure, self._arrow = measure, pyarrow
        self.path = folder / f"{measure.name}-rows.{'parquet' if pyarrow else 'csv'}"
        self._temporary = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        self._writer: Any = None

    def add(self, part: Part) -> None:
        """One part's pictures."""
        rows = list(self._rows(part))
        if rows and self._arrow:
            self._write(rows)
        elif rows:
            if self._writer is None:
                self._file = self._temporary.open("w", newline="", encoding="utf-8")
                self._writer = csv.DictWriter(self._file, list(rows[0]), lineterminator="\n")
                self._writer.writeheader()
            self._writer.writerows({name: harmless(value) for name, value in row.items()} for row in rows)

    def close(self) -> None:
        """Renames what was written; nothing where no picture had a row."""
        if self._writer is not None:
            (self._writer if self._arrow else self._file).close()
            os.replace(self._temporary, self.path)

    def _rows(self, part: Part) -> Iterator[dict[str, Any]]:
        for row in part.rows:
            facts = {"place": row.index, "name": row.name, "label": row.label, "answer": row.answer}
            yield from ({**facts, **line} for line in self._measure.lines(row.values))

    def _write(self, rows: list[dict[str, Any]]) -> None:
        import pyarrow.parquet as parquet

        arrow = self._arrow
        if self._writer is None:
            kinds = {"place": arrow.int64(), "label": arrow.int32(), "answer": arrow.int32()}
            text = {name for name, value in rows[0].items() if isinstance(value, str)}
            fields = [
                arrow.field(name, kinds.get(name, arrow.string() if name in text else arrow.float64()))
                for name in rows[0]
            ]
            self._writer = parquet.ParquetWriter(self._temporary, arrow.schema(fields))
        self._writer.write_table(arrow.Table.from_pylist(rows, schema=self._writer.schema))


__all__ = ["Long"]
