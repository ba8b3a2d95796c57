"""Make the shipped folder out of a finished (or running) training: config, weights, snapshots, film.csv.

    python export.py --data <tiny-imagenet> --work <folder> [--to <folder>] [--steps 0 30 100 …]

Every snapshot that ships is asked about all 10,000 validation pictures, as the file
stands (float16). The last one of the film is the shipped average, model.safetensors.
"""

import argparse
import csv
import hashlib
import json
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import data
import torch
from lesson import new_model, scores
from safetensors.torch import load_file, save_file
from settings import Settings

FIGURES = ("val_loss", "val_top1", "val_top5")


def config(
    s: Settings, wordnet_ids: list[str], names: list[str], figures: dict[str, float], pictures: int
) -> dict:
    """timm's config.json: with it, `timm.create_model("local-dir:…", pretrained=True)` needs nothing else.

    What stands under "vitviz" is for the page, which shows the note beside every prediction.
    """
    first, five = (f"{figures[key]:.1%}".replace("%", " %") for key in ("val_top1", "val_top5"))
    how = "in bfloat16"
    if s.image != data.SIDE:
        how = f"enlarged from {data.SIDE} to {s.image} px by torch's bicubic, in bfloat16"
    return {
        "architecture": "vit_tiny_patch16_224",
        "num_classes": s.classes,
        "num_features": s.width,
        "global_pool": "token",
        "model_args": {
            "img_size": s.image,
            "patch_size": s.patch,
            "embed_dim": s.width,
            "depth": s.depth,
            "num_heads": s.heads,
        },
        "pretrained_cfg": {
            "tag": "tiny_imagenet",
            "input_size": [3, s.image, s.image],
            "fixed_input_size": True,
            "interpolation": "bicubic",
            "crop_pct": 1.0,
            "crop_mode": "center",
            "mean": list(data.MEAN),
            "std": list(data.STD),
            "num_classes": s.classes,
            "pool_size": None,
            "first_conv": "patch_embed.proj",
            "classifier": "head",
        },
        "label_names": wordnet_ids,
        "label_descriptions": dict(zip(wordnet_ids, names, strict=True)),
        "vitviz": {
            "note": (
                f"Our own training: it names {first} of {pictures:,} validation pictures of Tiny-ImageNet"
                f" rightly ({five} within five guesses; whole pictures, {how})."
            ),
            "trained_on": "Tiny-ImageNet-200 (64 px, 200 classes)",
            "licence": "ImageNet's terms: non-commercial research and education",
            "paper": "arXiv 2010.11929",
        },
    }


def validated(file: Path, s: Settings, pictures: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
    """Loss, top-1 and top-5 of a weights file on validation pictures."""
    model = new_model(s)
    model.load_state_dict({name: value.float() for name, value in load_file(file).items()})
    with ThreadPoolExecutor(os.cpu_count(), initializer=torch.set_num_threads, initargs=(1,)) as workers:
        values = scores(model, pictures, labels, s.image, workers)
    return {name: round(value, 4) for name, value in zip(FIGURES, values, strict=True)}


def average_of(work: Path, to: Path) -> None:
    """The average that a running training holds now, as model.safetensors."""
    state = torch.load(work / "state.pt", map_location="cpu", weights_only=False)
    save_file({name: value.half().contiguous() for name, value in state["average"].items()}, to)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True, help="the folder that train.py was given")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent)
    parser.add_argument("--steps", type=int, nargs="*", help="steps of the film that ship; all without it")
    parser.add_argument("--pictures", type=int, default=10000, help="validation pictures")
    return parser.parse_args()


def main() -> None:
    args, s = arguments(), Settings()
    torch.set_num_threads(1)
    pictures, labels = data.load_split(args.data, "val", args.pictures)
    (args.to / "snapshots").mkdir(parents=True, exist_ok=True)
    with (args.work / "film.csv").open() as file:
        logged = list(csv.DictReader(file))
    rows = []
    finished = logged[-1]["snapshot"].endswith("-average")  # an earlier part's average has lost the ending
    for row in logged:
        step, last = int(row["step"]), finished and row is logged[-1]
        if not last and args.steps is not None and step not in args.steps:
            continue
        name = "model.safetensors" if last else f"snapshots/step-{step:05d}.safetensors"
        shutil.copyfile(args.work / "snapshots" / f"{row['snapshot']}.safetensors", args.to / name)
        known = {
            name: float(row[name]) for name in FIGURES if row[name]
        }  # of an earlier part, exported before
        figures = known if len(known) == len(FIGURES) else validated(args.to / name, s, pictures, labels)
        kept = {key: row[key] for key in ("weights", "step", "epoch", "seconds", "train_loss")}
        rows.append({"file": name, **kept, **figures})
        print(rows[-1], flush=True)
    if not finished:
        average_of(args.work, args.to / "model.safetensors")
        figures = validated(args.to / "model.safetensors", s, pictures, labels)  # the last row's otherwise
        print("not finished; average of now:", figures)
    about = config(s, *data.load_classes(args.data), figures, len(labels))
    (args.to / "config.json").write_text(json.dumps(about, indent=1) + "\n")
    with (args.to / "film.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader(), writer.writerows(rows)
    print("sha256", hashlib.sha256((args.to / "model.safetensors").read_bytes()).hexdigest())


if __name__ == "__main__":
    main()
