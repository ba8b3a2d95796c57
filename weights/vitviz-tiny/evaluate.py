"""Does the checkpoint show the paper? Structure measured with vitviz on validation pictures.

    python evaluate.py --data <tiny-imagenet> [--checkpoint <folder>] [--pictures 100]

Four things the paper shows (its figures 6 and 7) as figures that can fail: position
embeddings resemble their row, column and neighbours; early heads are local and global;
attention reaches farther in late layers; the rollout finds the object. What they do
not show: that the model is right (see film.csv for accuracy).
"""

import argparse
from pathlib import Path

import data
import numpy as np
import torch
from einops import rearrange
from torch import Tensor


def position_figures(similarity: Tensor) -> dict[str, float]:
    """How much more alike embeddings of one row or column, or of neighbours, are: similarity (row col row2
    col2).
    """
    rows, cols = similarity.shape[:2]
    row, col = torch.meshgrid(torch.arange(rows), torch.arange(cols), indexing="ij")
    row, col = row.flatten(), col.flatten()
    down, right = (row[:, None] - row).abs(), (col[:, None] - col).abs()
    alike = rearrange(similarity, "row col row2 col2 -> (row col) (row2 col2)").float()
    itself = (down + right) == 0
    adjacent = torch.maximum(down, right) == 1
    far_in_line = ((down == 0) | (right == 0)) & (torch.maximum(down, right) > 1)
    elsewhere = ~(itself | adjacent | far_in_line)
    nearest = alike.masked_fill(itself, -2).argmax(dim=1)
    found = adjacent[torch.arange(len(nearest)), nearest]
    return {
        "cosine with adjacent patches": alike[adjacent].mean().item(),
        "cosine in the same row or column, farther": alike[far_in_line].mean().item(),
        "cosine elsewhere": alike[elsewhere].mean().item(),
        "share whose most similar patch is adjacent": found.float().mean().item(),
    }


def inside(peak: tuple[int, int], shape: tuple[int, int], box: np.ndarray) -> bool:
    """Is the centre of the peak's patch inside the box (x0 y0 x1 y1, inclusive, px of the stored picture)?"""
    y, x = ((index + 0.5) * data.SIDE / count for index, count in zip(peak, shape, strict=True))
    x0, y0, x1, y1 = box.astype(float)
    return x0 <= x <= x1 + 1 and y0 <= y <= y1 + 1


def uniform_distance(rows: int, cols: int, patch: int) -> float:
    """Mean distance of attention spread evenly over patches and the class token, not renormalised (px)."""
    y, x = torch.meshgrid(torch.arange(rows), torch.arange(cols), indexing="ij")
    where = torch.stack([y.flatten(), x.flatten()], 1).double() * patch
    return torch.cdist(where, where).sum().item() / (rows * cols) / (rows * cols + 1)


def main() -> None:
    from PIL import Image

    import vitviz

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--checkpoint", default=str(Path(__file__).parent))
    parser.add_argument("--pictures", type=int, default=100)
    args = parser.parse_args()

    inspector = vitviz.load(args.checkpoint)
    for name, value in position_figures(vitviz.position_similarity(inspector)).items():
        print(f"{name:45s} {value:.3f}")

    pictures, _ = data.load_split(args.data, "val")
    with np.load(args.data / "val.npz") as file:
        boxes = file["boxes"]
    distances, hits, areas = [], 0, []
    for index in range(0, len(pictures), len(pictures) // args.pictures):
        picture = Image.fromarray(pictures[index].permute(1, 2, 0).numpy())
        trace = inspector.trace(picture)
        distances.append(vitviz.attention_distance(trace))
        saliency = torch.as_tensor(vitviz.rollout(trace))
        peak = divmod(int(saliency.argmax()), saliency.shape[1])
        hits += inside(peak, tuple(saliency.shape), boxes[index])
        x0, y0, x1, y1 = boxes[index].astype(float)
        areas.append((x1 + 1 - x0) * (y1 + 1 - y0) / data.SIDE**2)
    rows, cols = saliency.shape
    relative = torch.stack(distances).mean(dim=0) / uniform_distance(rows, cols, trace.grid.patch[0])
    third = round(len(relative) / 3)
    print("attention distance relative to uniform attention, layer by layer, heads sorted:")
    for layer, heads in enumerate(relative, start=1):
        print(f"  layer {layer}: " + " ".join(f"{value:.2f}" for value in sorted(heads.tolist())))
    print(
        f"first {third} layers {relative[:third].mean():.3f}, last {third} layers"
        f" {relative[-third:].mean():.3f}"
    )
    early = relative[:2]
    print(
        f"first two layers: most local head {early.min():.3f} (below 0.6), widest {early.max():.3f} (above"
        " 0.9)"
    )
    print(f"rollout's peak inside the box: {hits} of {len(areas)}; share of the area: {np.mean(areas):.3f}")


if __name__ == "__main__":
    main()
