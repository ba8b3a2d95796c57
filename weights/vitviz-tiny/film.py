"""The film of a training in its work folder: snapshots, and film.csv with a row for each."""

import csv
import shutil
from pathlib import Path

from safetensors.torch import save_file
from torch import Tensor

COLUMNS = (
    "snapshot",
    "weights",
    "step",
    "epoch",
    "seconds",
    "train_loss",
    "val_loss",
    "val_top1",
    "val_top5",
    "val_pictures",
)


class Film:
    """Snapshots so far; `before` is what an earlier part of the training did."""

    def __init__(self, work: Path):
        self.work = work
        self.before = {"step": 0, "epoch": 0.0, "seconds": 0}

    def go_on_after(self, earlier: Path) -> None:
        """Takes over the film of an exported training, once."""
        with (earlier / "film.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        self.before = {
            name: kind(rows[-1][name]) for name, kind in (("step", int), ("epoch", float), ("seconds", int))
        }
        if (self.work / "film.csv").exists():
            return
        for row in rows:
            name = f"step-{int(row['step']):05d}"
            shutil.copyfile(earlier / row["file"], self.snapshot(name))
            self.note(
                {"snapshot": name, **{column: value for column, value in row.items() if column in COLUMNS}}
            )

    def snapshot(self, name: str) -> Path:
        (self.work / "snapshots").mkdir(exist_ok=True)
        return self.work / "snapshots" / f"{name}.safetensors"

    def has(self, step: int) -> bool:
        return self.snapshot(f"step-{step:05d}").exists()

    def keep(self, name: str, weights: dict[str, Tensor]) -> None:
        """A snapshot as float16."""
        halves = {key: value.detach().half().cpu().contiguous() for key, value in weights.items()}
        save_file(halves, self.snapshot(name))

    def note(self, row: dict) -> None:
        """A row for film.csv; what export.py measures on all validation pictures may be missing."""
        table = self.work / "film.csv"
        new = not table.exists()
        with table.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            if new:
                writer.writeheader()
            writer.writerow(row)
