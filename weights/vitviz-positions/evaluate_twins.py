"""What the twins know of positions, as the tables of README.md.

    python evaluate_twins.py --data <tiny-imagenet> [--pictures 100] [--shuffled 1000]

Accuracy is read from each film.csv; permutations are made with timm alone; attention distance and
the similarity of position embeddings are vitviz's.
"""

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path

import timm
import torch
from einops import rearrange
from torch import Tensor, nn
from twins import KINDS, SETTINGS

# isort: split
import data  # these two are vitviz-tiny's: twins.py says where they are
from evaluate import position_figures, uniform_distance

HOME = Path(__file__).resolve().parents[1]


def folders(home: Path = HOME) -> list[tuple[str, int, Path]]:
    """Kind, seed and folder of the twins that are there."""
    found = (path.name.rsplit("-", 2) + [path] for path in home.glob("vitviz-positions-*-*"))
    return sorted(
        ((kind, int(seed), path) for _, kind, seed, path in found), key=lambda t: (KINDS.index(t[0]), t[1])
    )


def figures(folder: Path) -> dict[str, float]:
    """What film.csv says of the finished weights."""
    with (folder / "film.csv").open(newline="") as file:
        row = list(csv.DictReader(file))[-1]
    return {name: float(row[name]) for name in ("val_top1", "val_top5", "val_loss")}


def permuted(pictures: Tensor, seed: int = 0) -> Tensor:
    """Each picture (image, rgb, row, col) with its patches in a random order of its own."""
    side = SETTINGS.image // SETTINGS.patch
    patches = rearrange(pictures, "image rgb (r p) (c q) -> image (r c) rgb p q", r=side, c=side)
    chance = torch.rand(patches.shape[:2], generator=torch.Generator().manual_seed(seed))
    patches = patches[torch.arange(len(patches))[:, None], chance.argsort(dim=1)]
    return rearrange(patches, "image (r c) rgb p q -> image rgb (r p) (c q)", r=side)


@torch.inference_mode()
def answers(model: nn.Module, pictures: Tensor) -> Tensor:
    return torch.cat([model(part) for part in pictures.split(100)])


def permutation_figures(model: nn.Module, pictures: Tensor, labels: Tensor) -> dict[str, float]:
    """How far answers move when patches are permuted. `pictures` are normalised."""
    before, after = answers(model, pictures), answers(model, permuted(pictures))
    moved = (before.softmax(-1) - after.softmax(-1)).abs().sum(-1) / 2
    return {
        "top-1": (before.argmax(-1) == labels).float().mean().item(),
        "top-1, permuted": (after.argmax(-1) == labels).float().mean().item(),
        "other answer": (before.argmax(-1) != after.argmax(-1)).float().mean().item(),
        "mean total variation": moved.mean().item(),
        "largest difference of a logit": (before - after).abs().max().item(),
    }


def distances(name: str, pictures: Tensor) -> Tensor:
    """Mean attention distance (layer, head) relative to uniform attention. `pictures` are uint8."""
    from PIL import Image

    import vitviz

    inspector = vitviz.load(name)
    total = 0
    for picture in pictures:
        trace = inspector.trace(Image.fromarray(picture.permute(1, 2, 0).numpy()))
        total = total + vitviz.attention_distance(trace)
    side = SETTINGS.image // SETTINGS.patch
    return total / len(pictures) / uniform_distance(side, side, SETTINGS.patch)


def similarities(name: str) -> dict[str, float]:
    """How alike position embeddings of neighbours, lines and columns are; empty where there are none."""
    import vitviz

    inspector = vitviz.load(name)
    if inspector.position_table() is None:
        return {}
    return position_figures(vitviz.position_similarity(inspector))


def accuracy_rows(twins: list[tuple[str, int, Path]]) -> Iterator[str]:
    yield "| positions | seeds | top-1 | top-5 | loss |\n|---|---|---|---|---|"
    for kind in KINDS:
        found = [(seed, figures(folder)) for other, seed, folder in twins if other == kind]
        if not found:
            continue
        cells = [kind, ", ".join(str(seed) for seed, _ in found)]
        for name, scale, places in (("val_top1", 100, 2), ("val_top5", 100, 2), ("val_loss", 1, 3)):
            values = torch.tensor([row[name] * scale for _, row in found], dtype=torch.float64)
            spread = f" ± {values.std() / len(values) ** 0.5:.{places}f}" if len(values) > 1 else ""
            cells.append(f"{values.mean():.{places}f}{spread}")
        yield "| " + " | ".join(cells) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--pictures", type=int, default=100, help="for attention distance")
    parser.add_argument("--shuffled", type=int, default=1000, help="for permutations")
    args = parser.parse_args()
    twins = folders()
    print("\n".join(accuracy_rows(twins)), "\n")

    pictures, labels = data.load_split(args.data, "val")
    some, few = (slice(None, None, len(labels) // count) for count in (args.shuffled, args.pictures))
    normalised = data.normalised(pictures[some])
    for kind, seed, folder in twins:
        name = f"{kind}-{seed}"
        model = timm.create_model(f"local-dir:{folder}", pretrained=True).eval()
        moved = permutation_figures(model, normalised, labels[some])
        print(
            name, "permuted:", ", ".join(f"{what} {value:.4g}" for what, value in moved.items()), flush=True
        )
        for layer, heads in enumerate(distances(str(folder), pictures[few]), start=1):
            each = " ".join(f"{value:.2f}" for value in sorted(heads.tolist()))
            print(
                name, f"attention distance, layer {layer}: mean {heads.mean():.2f}, heads {each}", flush=True
            )
        for what, value in similarities(str(folder)).items():
            print(name, f"{what}: {value:.3f}")


if __name__ == "__main__":
    main()
