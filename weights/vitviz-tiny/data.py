"""Tiny-ImageNet in memory, and random views of it made straight as patches.

A view is a random resized crop, perhaps mirrored, of a 64 px picture, enlarged to
the model's input. Early in training most patches are dropped; those are never
sampled at all: one `grid_sample` reads only the pixels of the patches that are kept.
"""

import json
import math
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # ImageNet's, as timm's ViTs expect
SIDE = 64  # of the stored pictures


def decoded(shard: Path, limit: int | None) -> tuple[np.ndarray, np.ndarray]:
    """Pictures (image, row, col, rgb; uint8) and labels (int64) of one shard, the first `limit`."""
    import cv2

    with np.load(shard) as file:
        webp, offsets, labels = file["webp"], file["offsets"], file["labels"][:limit]
    pictures = np.empty((len(labels), SIDE, SIDE, 3), np.uint8)
    for i in range(len(labels)):
        bgr = cv2.imdecode(webp[offsets[i] : offsets[i + 1]], cv2.IMREAD_COLOR)
        pictures[i] = bgr[:, :, ::-1]
    return pictures, labels.astype(np.int64)


def load_split(folder: Path, split: str, limit: int | None = None) -> tuple[Tensor, Tensor]:
    """All pictures (image, rgb, row, col; uint8) and labels of "train" or "val"."""
    shards = sorted(folder.glob(f"{split}*.npz"))
    if not shards:
        raise FileNotFoundError(f"no {split}*.npz in {folder}; give the Tiny-ImageNet folder with --data")
    pictures, labels = [], []
    for shard in shards:
        some_pictures, some_labels = decoded(shard, limit)
        pictures.append(some_pictures)
        labels.append(some_labels)
        if limit is not None and sum(map(len, labels)) >= limit:
            break
    stacked = torch.from_numpy(np.concatenate(pictures)[:limit])
    planes = rearrange(stacked, "image row col rgb -> image rgb row col").contiguous()
    return planes, torch.from_numpy(np.concatenate(labels)[:limit])


def load_classes(folder: Path) -> tuple[list[str], list[str]]:
    """WordNet ids and names of the classes, by label."""
    rows = json.loads((folder / "classes.json").read_text())
    return [row["wnid"] for row in rows], [row["label"] for row in rows]


def normalised(pictures: Tensor) -> Tensor:
    """uint8 pictures as the model wants them: float, ImageNet's mean 0 and deviation 1."""
    mean = torch.tensor(MEAN, device=pictures.device).view(1, 3, 1, 1)
    std = torch.tensor(STD, device=pictures.device).view(1, 3, 1, 1)
    return (pictures.float() / 255 - mean) / std


def enlarged(pictures: Tensor, size: int) -> Tensor:
    """Normalised pictures of `size` px, the whole picture, bicubic as in config.json."""
    return F.interpolate(normalised(pictures), size=size, mode="bicubic", antialias=True)


def jittered(x: Tensor) -> Tensor:
    """Random brightness, contrast, saturation and sharpness, on the small pictures where it is cheap.

    Sharpness matters here: pictures that users bring are sharper at 112 px than
    enlarged 64 px ones, and a model that saw only soft ones would be lost.
    """
    count = len(x)

    def factor(low: float, high: float) -> Tensor:
        return torch.empty(count, 1, 1, 1, device=x.device).uniform_(low, high)

    soft = F.avg_pool2d(x, 3, stride=1, padding=1, count_include_pad=False)
    x = torch.lerp(soft, x, factor(0.5, 2.5))
    grey = x.mean(dim=1, keepdim=True)
    x = torch.lerp(grey, x, factor(0.6, 1.4))
    level = x.mean(dim=(1, 2, 3), keepdim=True)
    return torch.lerp(level, x, factor(0.7, 1.3)) + factor(-0.4, 0.4)


def random_crops(count: int, smallest: float, device: torch.device) -> Tensor:
    """Affine maps (image, 2, 3), view to picture: area `smallest` … 1, aspect 3:4 … 4:3, mirrored or not."""
    side = torch.empty(count, device=device).uniform_(smallest, 1).sqrt()
    aspect = torch.empty(count, device=device).uniform_(-math.log(4 / 3), math.log(4 / 3)).exp().sqrt()
    width, height = (side * aspect).clamp(max=1), (side / aspect).clamp(max=1)
    mirror = torch.where(torch.rand(count, device=device) < 0.5, -1.0, 1.0)
    maps = torch.zeros(count, 2, 3, device=device)
    maps[:, 0, 0], maps[:, 1, 1] = width * mirror, height
    maps[:, 0, 2] = (torch.rand(count, device=device) * 2 - 1) * (1 - width)
    maps[:, 1, 2] = (torch.rand(count, device=device) * 2 - 1) * (1 - height)
    return maps


def pixel_centres(size: int, patch: int, device: torch.device) -> Tensor:
    """Where the pixels of each patch lie, in grid_sample's coordinates: (patch, pixel, xy)."""
    line = (torch.arange(size, device=device) * 2 + 1) / size - 1
    y, x = torch.meshgrid(line, line, indexing="ij")
    rows = size // patch
    return rearrange(
        torch.stack([x, y], -1), "(row p) (col q) xy -> (row col) (p q) xy", row=rows, col=rows, p=patch
    )


def sampled_patches(x: Tensor, maps: Tensor, centres: Tensor, kept: Tensor | None) -> Tensor:
    """Pixels of each view's kept patches: (image, kept patch, rgb · pixel), in the projection's order."""
    where = centres.expand(len(x), -1, -1, -1) if kept is None else centres[kept]
    scale = maps[:, None, None, [0, 1], [0, 1]]
    where = where * scale + maps[:, None, None, :, 2]
    seen = F.grid_sample(x, where, mode="bilinear", padding_mode="reflection", align_corners=False)
    return rearrange(seen, "image rgb patch pixel -> image patch (rgb pixel)")


def random_patches(count: int, patches: int, share: float, device: torch.device) -> Tensor | None:
    """Which patches each image keeps, (image, kept), a random `share` of them; None for all."""
    keep = round(patches * share)
    if keep >= patches:
        return None
    return torch.rand(count, patches, device=device).argsort(dim=1)[:, :keep]
