"""Make the shipped folders out of the runs that are finished: config, weights, and seed 0's film.

    python export_twins.py --data <tiny-imagenet> --work <folder> [--to weights] [--steps 0 1000 3000]

Every file that ships is asked about all 10,000 validation pictures, as it stands (float16). A run that
is not finished is named and left out; a folder that is there already is left as it is, since its
weights never change.
"""

import argparse
import csv
import json
import os
import shutil
from concurrent.futures import Executor, ThreadPoolExecutor
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from twins import KINDS, SETTINGS, lesson, plain_model

# isort: split
import data  # these two are vitviz-tiny's: twins.py says where they are
from export import FIGURES, config

POSITIONS = {
    "none": "no position embedding",
    "1d": "a learned position embedding for each patch (1-D)",
    "2d": "a learned position embedding for each column and each line (2-D), shipped as one table",
}


def validated(kind: str, file: Path, checks: tuple[Tensor, Tensor], workers: Executor) -> dict[str, float]:
    """Loss, top-1 and top-5 of a weights file on validation pictures."""
    model = plain_model(kind)
    model.load_state_dict({name: value.float() for name, value in load_file(file).items()})
    values = lesson.scores(model, *checks, SETTINGS.image, workers)
    return {name: round(value, 4) for name, value in zip(FIGURES, values, strict=True)}


def described(
    kind: str, seed: int, classes: tuple[list, list], figures: dict[str, float], pictures: int
) -> dict:
    """config.json of a twin."""
    about = config(SETTINGS, *classes, figures, pictures)
    if kind == "none":
        about["model_args"]["pos_embed"] = "none"
    about["vitviz"]["note"] = f"A twin with {POSITIONS[kind]}, seed {seed}. {about['vitviz']['note']}"
    return about


def export(
    kind: str, seed: int, args: argparse.Namespace, checks: tuple[Tensor, Tensor], workers: Executor
) -> Path | None:
    """The folder made of a run; None where it is not finished."""
    work, to = args.work / f"{kind}-{seed}", args.to / f"vitviz-positions-{kind}-{seed}"
    with (work / "film.csv").open(newline="") as file:
        logged = list(csv.DictReader(file))
    if logged[-1]["weights"] != "average":
        return None
    rows, making = [], to.with_name(f".{to.name}")  # seen by nobody until it is whole
    shutil.rmtree(making, ignore_errors=True)
    (making / "snapshots").mkdir(parents=True)
    for row in logged:
        last, step = row is logged[-1], int(row["step"])
        if not last and (seed != min(args.seeds) or step not in args.steps):
            continue
        name = "model.safetensors" if last else f"snapshots/step-{step:05d}.safetensors"
        shutil.copyfile(work / "snapshots" / f"{row['snapshot']}.safetensors", making / name)
        kept = {key: row[key] for key in ("weights", "step", "epoch", "seconds", "train_loss")}
        rows.append({"file": name, **kept, **validated(kind, making / name, checks, workers)})
    with (making / "film.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader(), writer.writerows(rows)
    about = described(kind, seed, data.load_classes(args.data), rows[-1], len(checks[1]))
    (making / "config.json").write_text(json.dumps(about, indent=1) + "\n")
    if not any((making / "snapshots").iterdir()):
        (making / "snapshots").rmdir()
    return making.rename(to)


def arguments(line: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="the folder that train_twins.py was given")
    parser.add_argument("--to", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--seeds", nargs="+", type=int, default=(0, 1), help="the lowest ships with its film")
    parser.add_argument(
        "--steps", type=int, nargs="*", default=(0, 1000, 3000), help="of the film, that ship"
    )
    parser.add_argument("--pictures", type=int, default=10_000, help="validation pictures")
    return parser.parse_args(line)


def main(line: list[str] | None = None) -> None:
    args = arguments(line)
    torch.set_num_threads(1)
    checks = data.load_split(args.data, "val", args.pictures)
    with ThreadPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,)) as workers:
        for seed in args.seeds:
            for kind in args.kinds:
                folder = args.to / f"vitviz-positions-{kind}-{seed}"
                if folder.exists():
                    print(folder.name, "is there already")
                elif not (args.work / f"{kind}-{seed}" / "film.csv").exists():
                    print(folder.name, "is not begun")
                else:
                    made = export(kind, seed, args, checks, workers)
                    print(folder.name, "is not finished" if made is None else "exported", flush=True)


if __name__ == "__main__":
    main()
