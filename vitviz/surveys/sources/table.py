"""A list of pictures in a CSV or Parquet file: a column of paths, and one of labels where they are known."""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from vitviz.errors import VitvizError
from vitviz.surveys.items import Item

PATHS = ("path", "image", "file", "file_name", "filename", "picture")
LABELS = ("label", "class", "target")


@dataclass(frozen=True)
class Table:
    """Paths are relative to the table. Columns are found by name: see `PATHS` and `LABELS`."""

    where: str

    @property
    def kind(self) -> str:
        return "list in Parquet" if self.where.lower().endswith((".parquet", ".pq")) else "list in CSV"

    def __iter__(self) -> Iterator[Item]:
        rows = _of_parquet if self.kind == "list in Parquet" else _of_csv
        for number, row in enumerate(rows(self.where), start=1):
            path, label = row
            if not path:
                raise VitvizError(
                    f"Line {number} of {Path(self.where).name} names no picture; expected a path in each."
                )
            yield Item(str(path), os.path.join(os.path.dirname(self.where), str(path)), label)


def _of_csv(path: str) -> Iterator[tuple[str, str | None]]:
    with open(path, newline="", encoding="utf-8-sig") as file:
        reader = csv.DictReader(file)
        column, label = _columns(reader.fieldnames or (), path)
        for row in reader:
            yield row[column], (row[label] or None) if label else None


def _of_parquet(path: str) -> Iterator[tuple[str, Any]]:
    try:
        import pyarrow.parquet as parquet
    except ImportError:
        raise VitvizError(
            "A list in Parquet needs pyarrow; install it with pip install 'vitviz[data]', or write CSV."
        ) from None
    file = parquet.ParquetFile(path)
    column, label = _columns(file.schema_arrow.names, path)
    for batch in file.iter_batches(4096, columns=[name for name in (column, label) if name]):
        values: Mapping[str, list] = batch.to_pydict()
        yield from zip(values[column], values[label] if label else [None] * len(values[column]), strict=True)


def _columns(names, path: str) -> tuple[str, str | None]:
    by_lower = {str(name).strip().lower(): name for name in names}
    found = next((by_lower[name] for name in PATHS if name in by_lower), None)
    if found is None:
        raise VitvizError(
            f"{Path(path).name} has the columns {', '.join(map(str, names)) or 'none'}; expected the"
            f" pictures' paths in one called {', '.join(PATHS[:-1])} or {PATHS[-1]}, and labels, if there are"
            f" any, in {' or '.join(LABELS)}."
        )
    return found, next((by_lower[name] for name in LABELS if name in by_lower), None)
