"""A survey on disk: what has been done lies in parts, so that it goes on where it was ended.

Part k covers items k·n to (k + 1)·n - 1 of the source and no others. It is written whole under another name
and then renamed, which a filesystem does at once or not at all: a part is there and complete, or is made
again. So no picture is counted twice and none is lost, whenever the process is killed; and because batches do
not reach over parts, the result is the same to the last bit.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from vitviz.analyses import Grams
from vitviz.errors import VitvizError
from vitviz.surveys.moments import Moments
from vitviz.surveys.rows import Row, Skipped, moments_of

MANIFEST = "survey.json"


@dataclass(frozen=True)
class Part:
    """Some consecutive pictures of the source."""

    rows: list[Row]
    skipped: list[Skipped]
    sums: dict[str, Moments]
    grams: list[Grams]

    @classmethod
    def of(cls, rows: list[Row], skipped: list[Skipped], grams: Sequence[Grams] = ()) -> Part:
        return cls(rows, skipped, moments_of(rows), list(grams))

    def __len__(self) -> int:
        """How many pictures, the unreadable counted."""
        return len(self.rows) + len(self.skipped)


class Parts:
    """The folder of a survey. VitvizError where another survey lies in it."""

    def __init__(self, folder: Path, settings: dict[str, Any]):
        self.folder = folder
        (folder / "parts").mkdir(parents=True, exist_ok=True)
        known = folder / MANIFEST
        if known.exists():
            _require_same(json.loads(known.read_text(encoding="utf-8")), settings)
        elif self.numbers():
            raise VitvizError(
                f"In {folder.name} lie parts of a survey without its settings ({MANIFEST}); choose another"
                " folder for --out."
            )
        else:
            written(known, json.dumps(settings, indent=1, ensure_ascii=False).encode())

    def numbers(self) -> list[int]:
        """The parts that are done."""
        return sorted(
            int(path.stem) for path in (self.folder / "parts").glob("*.npz") if path.stem.isdecimal()
        )

    def write(self, number: int, part: Part) -> None:
        """All at once, or not at all. Values of a picture are kept as float32, sums as float64."""
        facts = [{**vars(row), "values": None} for row in part.rows]
        about = {
            "rows": facts,
            "skipped": [asdict(one) for one in part.skipped],
            "counts": {n: s.count for n, s in part.sums.items()},
        }
        arrays = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
        for name, sums in part.sums.items():
            arrays[f"mean {name}"], arrays[f"m2 {name}"] = sums.mean, sums.m2
            having = np.array([name in row.values for row in part.rows])
            arrays[f"having {name}"] = having
            arrays[f"values {name}"] = np.stack(
                [row.values[name] for row in part.rows if name in row.values]
            ).astype(np.float32)
        for place, one in enumerate(part.grams):
            arrays[f"pictures {place}"] = np.asarray(one.pictures)
            arrays |= {f"grams {place} {tokens}": gram.numpy() for tokens, gram in one.of.items()}
        path = self._path(number)
        temporary = path.with_name(f".{path.stem}.{os.getpid()}.npz")
        with temporary.open("wb") as file:
            np.savez(file, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)

    def read(self, number: int) -> Part:
        """VitvizError for a part that is damaged."""
        path = self._path(number)
        try:
            with np.load(path, allow_pickle=False) as file:
                about = json.loads(file["about"].tobytes())
                sums = {
                    n: Moments(count, file[f"mean {n}"], file[f"m2 {n}"])
                    for n, count in about["counts"].items()
                }
                values: list[dict[str, np.ndarray]] = [{} for _ in about["rows"]]
                for name in sums:
                    places = np.flatnonzero(file[f"having {name}"])
                    for place, value in zip(places, file[f"values {name}"], strict=True):
                        values[place][name] = value
                grams = list(_grams(file))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise VitvizError(
                f"The part {path.name} cannot be read ({type(error).__name__}); delete it, and the survey"
                " makes it again."
            ) from None
        rows = [Row(**{**facts, "values": own}) for facts, own in zip(about["rows"], values, strict=True)]
        return Part(rows, [Skipped(**one) for one in about["skipped"]], sums, grams)

    def all(self) -> Iterator[Part]:
        """The parts in order, one in memory at a time."""
        return (self.read(number) for number in self.numbers())

    def _path(self, number: int) -> Path:
        return self.folder / "parts" / f"{number:08d}.npz"


def written(path: Path, data: bytes | Iterable[bytes]) -> None:
    """A file written whole under another name, then renamed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        for block in [data] if isinstance(data, bytes) else data:
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _grams(file: Mapping[str, np.ndarray]) -> Iterator[Grams]:
    for place in range(sum(name.startswith("pictures ") for name in file)):
        start = f"grams {place} "
        found = {name.removeprefix(start): file[name] for name in file if name.startswith(start)}
        yield Grams(
            tuple(file[f"pictures {place}"].tolist()),
            {tokens: torch.from_numpy(gram) for tokens, gram in found.items()},
        )


def _require_same(before: dict[str, Any], now: dict[str, Any]) -> None:
    """A survey goes on only as what it was begun as."""
    other = [name for name in now if before.get(name) != now[name]]
    if other:
        told = "; ".join(
            f"{name} was {str(before.get(name))[:80]!r} and is now {str(now[name])[:80]!r}" for name in other
        )
        raise VitvizError(
            f"Another survey was begun in this folder: {told}. Choose another folder for --out, or ask as"
            " before."
        )


__all__ = ["Part", "Parts", "written"]
