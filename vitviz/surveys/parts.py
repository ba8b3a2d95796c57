"""Surveys on disk: finished parts are stored, so that an interrupted survey resumes.

Part k covers exactly the items k·n to (k + 1)·n - 1 of the source. A part is written to a temporary file and
then renamed. Renaming is atomic: a part is either complete or computed again. No image is counted twice or
lost, whenever the process is killed. Batches do not cross part boundaries, so the result of a resumed survey
with batches of one size is bitwise identical.

Quantiles over images are exact: the quantile q of n values is the ceil(q n)-th smallest value. They do not
depend on interruptions or on the number of processes.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from vitviz.analyses import Grams, Spread
from vitviz.errors import VitvizError, first_line, quoted
from vitviz.surveys.moments import Moments
from vitviz.surveys.rows import Row, Skipped, SurveyPart
from vitviz.traces.unicode import require_unicode

MANIFEST = "survey.json"


@contextmanager
def saving(folder: Path) -> Iterator[None]:
    """Remove incomplete files of the survey folder if a write inside the context fails.

    Raises:
        VitvizError: If the operating system refuses a write, for example because the disk is full.
    """
    try:
        yield
    except BaseException as error:
        _remove_parts(folder, lambda process: process == os.getpid())
        if not isinstance(error, OSError):
            raise
        raise VitvizError(
            f"The survey cannot be written to {folder.name}: {first_line(error)}. The finished parts are"
            " saved there; free some space and call it again to continue."
        ) from error


def _remove_parts(folder: Path, ended: Callable[[int], bool]) -> None:
    """Remove temporary files of every process, by its id, for which `ended` returns True."""
    for path in (*folder.glob(".*.*"), *folder.glob("parts/.*.*")):
        process = path.name.rpartition(".")[2]
        if process.isdecimal() and ended(int(process)):
            path.unlink(missing_ok=True)


def _has_ended(process: int) -> bool:
    """Return True if the process with this id has ended; on Windows False for every other process.

    A file with this process's own id comes from an earlier process with the same id, which has ended.
    """
    if process == os.getpid():
        return True
    try:
        if os.name == "posix":
            os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return True
    except OSError:  # the process belongs to another user
        return False
    return False


class SurveyFolder:
    """Folder of a survey with its settings and finished parts.

    Raises:
        VitvizError: If the folder contains a survey with other settings or cannot be written.
    """

    def __init__(self, folder: Path, settings: dict[str, Any]):
        self.folder = folder
        require_unicode(str(folder), "the folder of the survey")
        known = folder / MANIFEST
        try:
            (folder / "parts").mkdir(parents=True, exist_ok=True)
            before = json.loads(known.read_text(encoding="utf-8")) if known.exists() else None
            _remove_parts(folder, _has_ended)
        except OSError as error:
            raise VitvizError(
                f"The survey cannot be written to {folder.name[:200]}: {first_line(error)}. Choose another"
                " folder for --out."
            ) from None
        except ValueError:
            before = {}
        if before is not None:
            _require_same(before if isinstance(before, dict) else {}, settings)
        elif self.numbers():
            raise VitvizError(
                f"In {folder.name} lie parts of a survey without its settings ({MANIFEST}); choose another"
                " folder for --out."
            )
        else:
            with saving(folder):
                write_whole(known, json.dumps(settings, indent=1, ensure_ascii=False).encode())

    def numbers(self) -> list[int]:
        """Return the sorted numbers of the finished parts."""
        names = (path.stem for path in (self.folder / "parts").glob("*.npz"))
        return sorted(int(name) for name in names if name.isdecimal())

    def write(self, number: int, part: SurveyPart) -> None:
        """Write a part atomically. Values of an image are stored as float32, sums as float64."""
        about = {
            "rows": [{**vars(row), "values": None} for row in part.rows],
            "skipped": [asdict(one) for one in part.skipped],
            "counts": {n: s.count for n, s in part.sums.items()},
            "spreads": {n: s.count for n, s in part.spreads.items()},
        }
        arrays = {"about": np.frombuffer(json.dumps(about).encode(), np.uint8)}
        for name, sums in part.sums.items():
            arrays[f"mean {name}"], arrays[f"m2 {name}"] = sums.mean, sums.m2
            arrays[f"having {name}"] = np.array([name in row.values for row in part.rows])
            values = np.stack([row.values[name] for row in part.rows if name in row.values])
            arrays[f"values {name}"] = values.astype(np.float32)
        for name, spread in part.spreads.items():
            arrays[f"spread {name}"], arrays[f"spread rows {name}"] = spread.mean, spread.rows
        for place, one in enumerate(part.grams):
            arrays[f"pictures {place}"] = np.asarray(one.pictures)
            arrays |= {f"grams {place} {tokens}": gram.numpy() for tokens, gram in one.of.items()}
        with saving(self.folder):
            file = io.BytesIO()
            np.savez(file, **arrays)
            write_whole(self._path(number), file.getvalue())

    def read(self, number: int) -> SurveyPart:
        """Return the part with this number (from 0), read from its file.

        Raises:
            VitvizError: If the file is damaged.
        """
        path = self._path(number)
        try:
            with np.load(path, allow_pickle=False) as file:
                about = json.loads(file["about"].tobytes())
                counts = about["counts"].items()
                sums = {n: Moments(count, file[f"mean {n}"], file[f"m2 {n}"]) for n, count in counts}
                counts = about.get("spreads", {}).items()
                spreads = {n: Spread(c, file[f"spread {n}"], file[f"spread rows {n}"]) for n, c in counts}
                values: list[dict[str, np.ndarray]] = [{} for _ in about["rows"]]
                for name in sums:
                    places = np.flatnonzero(file[f"having {name}"])
                    for place, value in zip(places, file[f"values {name}"], strict=True):
                        values[place][name] = value
                grams = list(_grams(file))
        except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
            raise VitvizError(
                f"The part {path.name} cannot be read ({type(error).__name__}); delete it, and the survey"
                " computes it again."
            ) from None
        rows = [Row(**{**facts, "values": own}) for facts, own in zip(about["rows"], values, strict=True)]
        return SurveyPart(rows, [Skipped(**one) for one in about["skipped"]], sums, grams, spreads)

    def all(self) -> Iterator[SurveyPart]:
        """Yield the finished parts in order, one in memory at a time."""
        return (self.read(number) for number in self.numbers())

    def _path(self, number: int) -> Path:
        """Return the path of a part's .npz file by the part's number (from 0)."""
        return self.folder / "parts" / f"{number:08d}.npz"


def write_whole(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Write a file atomically: under a temporary name, which is then changed to `path`."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    with temporary.open("wb") as file:
        for block in [data] if isinstance(data, bytes) else data:
            file.write(block)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)


def _grams(file: Mapping[str, np.ndarray]) -> Iterator[Grams]:
    """Yield the Gram matrices of each batch, in order, from the arrays of a part's .npz file."""
    for place in range(sum(name.startswith("pictures ") for name in file)):
        start = f"grams {place} "
        names = [name for name in file if name.startswith(start)]
        grams = {name.removeprefix(start): torch.from_numpy(file[name]) for name in names}
        yield Grams(tuple(file[f"pictures {place}"].tolist()), grams)


def _require_same(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Raise VitvizError if settings `now` differ from those `before`, of the survey to be resumed."""
    other = [name for name in now if before.get(name) != now[name]]
    if other == ["head_type"] and "head_type" not in before:
        raise VitvizError(
            "The survey in this folder was written before vitviz read what the outputs of its model are"
            f" ({now['head_type']}): the probabilities in its files are those of a softmax and wrong. Choose"
            " another folder for --out, and make it again."
        )
    if other:
        pairs = ((name, str(before.get(name))[:80], str(now[name])[:80]) for name in other)
        details = "; ".join(
            f"{name} was {quoted(then)} and is now {quoted(this)}" for name, then, this in pairs
        )
        advice = "Choose another folder for --out, or ask as before"
        raise VitvizError(f"Another survey was begun in this folder: {details}. {advice}.")


RANKS = (0.05, 0.25, 0.5, 0.75, 0.95)
ROOM = 2**25  # float32 values in memory at once (128 MB)


def quantiles_of(
    parts: Callable[[], Iterable[SurveyPart]], shapes: Mapping[str, tuple[int, ...]], pictures: int
) -> dict[str, np.ndarray]:
    """Return the quantiles at `RANKS` of every quantity.

    Args:
        parts: Function that iterates over all parts. It is called once, or several times if the values of
            all images do not fit into `ROOM`.
        shapes: Shape of every quantity.
        pictures: Number of images.

    Returns:
        Arrays of shape (len(RANKS), *shape) by quantity; NaN where no image has a value.
    """
    room = max(1, ROOM // max(1, pictures))
    none = {name: np.full(shape, np.nan, np.float32) for name, shape in shapes.items()}
    ends = [0, *accumulate(one.size for one in none.values())]
    result = np.full((len(RANKS), ends[-1]), np.nan)

    def side_by_side(row: Row) -> np.ndarray:
        return np.concatenate([row.values.get(name, one).ravel() for name, one in none.items()])

    for start in range(0, ends[-1], room):
        some = slice(start, start + room)
        if rows := [side_by_side(row)[some].copy() for part in parts() for row in part.rows]:
            result[:, some] = _column_quantiles(np.stack(rows))
    each = zip(shapes.items(), pairwise(ends), strict=True)
    return {name: result[:, a:b].reshape(len(RANKS), *shape) for (name, shape), (a, b) in each}


def _column_quantiles(values: np.ndarray) -> np.ndarray:
    """Return the quantiles at `RANKS` of every column, (rank, column), ignoring NaN."""
    ordered, counts = np.sort(values, axis=0), (~np.isnan(values)).sum(axis=0)  # np.sort puts NaN last
    places = np.ceil(np.outer(RANKS, counts) - 1e-9).astype(int) - 1
    return np.where(counts > 0, np.take_along_axis(ordered, places.clip(0), axis=0), np.nan)
