"""Snapshots of a training: weights saved on the way, with losses and accuracy at each.

Files beside a checkpoint: `snapshots/step-<number>.safetensors`, and `film.csv` with a row for each.
"""

import csv
import re
from dataclasses import dataclass, replace
from pathlib import Path

from safetensors import safe_open
from torch import Tensor

from vitviz.engine.checkpoint import Checkpoint
from vitviz.errors import CheckpointError
from vitviz.traces.localized_text import LocalizedText

_STEP = re.compile(r"step-(\d{1,12})\.safetensors")


@dataclass(frozen=True)
class Snapshot:
    """One saved step of a training; values that film.csv lacks are None.

    `name` is the argument of `vitviz.load`, "vitviz-tiny@300" or, for the last one, the finished model
    "vitviz-tiny". Losses are cross-entropies in nats; `top1` is the fraction of validation images classified
    correctly. `averaged` is True for an average of weights; before the last snapshot, it marks the end of a
    part of the training.
    """

    name: str
    step: int | None
    epoch: float | None = None
    train_loss: float | None = None
    val_loss: float | None = None
    top1: float | None = None
    averaged: bool = False


def all_snapshots(checkpoint: Checkpoint) -> list[Snapshot]:
    """Return all snapshots of a checkpoint's training, first step first, the finished model last.

    Empty without snapshots. `checkpoint` may be one of its own snapshots.
    """
    steps, name = snapshot_files(checkpoint), checkpoint.name.partition("@")[0]
    if not steps:
        return []
    rows = _rows(_model_folder(checkpoint) / "film.csv")
    last = rows.get("model.safetensors", {})
    step_of = _number(last.get("step"))
    figures = ((step, rows.get(f"snapshots/{path.name}", {})) for step, path in steps)
    listed = [_snapshot_of_row(f"{name}@{step}", step, row) for step, row in figures]
    return [*listed, _snapshot_of_row(name, None if step_of is None else int(step_of), last)]


def snapshot_files(checkpoint: Checkpoint) -> list[tuple[int, Path]]:
    """Return the steps of a checkpoint's snapshots with their files, in order; empty if there are none."""
    root = _model_folder(checkpoint)
    if checkpoint.source in ("hub", "memory") or not (root / "snapshots").is_dir():
        return []
    files, within = (root / "snapshots").iterdir(), root.resolve()
    # A link may point anywhere on the machine; the page offers only files inside the folder.
    named = ((_STEP.fullmatch(path.name), path) for path in files)
    inside = ((step, path) for step, path in named if step and path.resolve().is_relative_to(within))
    return sorted((int(step[1]), path) for step, path in inside)


def snapshot_checkpoint(checkpoint: Checkpoint, step: int) -> Checkpoint:
    """Return the snapshot of one step as a checkpoint; raise CheckpointError if the step was not saved."""
    paths = dict(snapshot_files(checkpoint))
    if step not in paths:
        steps = ", ".join(map(str, paths)) or "none"
        raise CheckpointError(f"{checkpoint.name} has no snapshot of step {step}; available are: {steps}.")
    note = LocalizedText("After {step} steps of training.", step=f"{step:,}")
    return replace(checkpoint, name=f"{checkpoint.name}@{step}", location=str(paths[step]), note=note)


def kept_tensors(checkpoint: Checkpoint, *names: str) -> list[Tensor]:
    """Read the tensors with these name endings from every snapshot and the finished model.

    The list is empty without snapshots.
    """
    paths = [path for _, path in snapshot_files(checkpoint)]
    tensors = []
    for path in [*paths, *([_model_folder(checkpoint) / "model.safetensors"] if paths else [])]:
        if path.is_file():
            with safe_open(path, framework="pt") as file:
                tensors += [file.get_tensor(name) for name in file.keys() if name.endswith(names)]
    return tensors


def folder_of(checkpoint: Checkpoint) -> Path:
    """Return the folder that holds a checkpoint of this name and its snapshots."""
    return _model_folder(checkpoint).parent


def _model_folder(checkpoint: Checkpoint) -> Path:
    """Return the folder of the finished model, also for a checkpoint of its training history."""
    place = Path(checkpoint.location)
    return place.parent.parent if place.parent.name == "snapshots" else place


def _rows(table: Path) -> dict[str, dict[str, str]]:
    """Return the rows of a film.csv by file name; empty if the table cannot be read."""
    try:
        with table.open(newline="", encoding="utf-8") as file:
            return {row.get("file") or "": row for row in csv.DictReader(file)}
    except (OSError, UnicodeDecodeError, csv.Error):
        return {}


def _snapshot_of_row(name: str, step: int | None, row: dict[str, str]) -> Snapshot:
    """Return the snapshot of a name and step with the figures of its film.csv row ({} if absent)."""
    figures = (_number(row.get(key)) for key in ("epoch", "train_loss", "val_loss", "val_top1"))
    return Snapshot(name, step, *figures, averaged=row.get("weights") == "average")


def _number(text: str | None) -> float | None:
    """Return a table cell as a number; None if it is empty, not a number, or not finite."""
    try:
        value = float(text or "nan")
    except ValueError:
        return None
    return value if abs(value) < float("inf") else None  # also false for "nan"
