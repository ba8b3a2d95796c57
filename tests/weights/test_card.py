"""What the card of the shipped checkpoint says of its structure and accuracy, measured without vitviz.

Attention is computed in the open from timm's model in float64 of its own hooks, distance and rollout by their
definitions: the figures are the card's, and the card's pipeline is the code's.
"""

import json
import re
from functools import cache
from pathlib import Path

import cv2
import numpy as np
import pytest
import timm
import torch
from PIL import Image
from timm.data import create_transform

from tests.shared import shared_file

HOME = Path(__file__).parents[2] / "weights" / "vitviz-tiny"
CARD = (HOME / "README.md").read_text(encoding="utf-8")
CONFIG = json.loads((HOME / "config.json").read_text(encoding="utf-8"))
PICTURES = 100


@cache
def measured() -> tuple[np.ndarray, int, float]:
    """Distance (layer head) relative to even attention; rollout's peaks in the box; the boxes' share of the
    area.
    """
    model = timm.create_model(f"local-dir:{HOME}", pretrained=True).eval()
    seen: list[torch.Tensor] = []
    for block in model.blocks:
        block.attn.qkv.register_forward_hook(lambda module, args, output: seen.append(output))
    steps = create_transform((3, 112, 112), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225),
                             interpolation="bicubic", crop_pct=1.0)  # fmt: skip
    place = torch.tensor(
        [(8.0 * row, 8.0 * col) for row in range(14) for col in range(14)], dtype=torch.float64
    )
    apart = torch.cdist(place, place)
    distances, hits, areas = [], 0, []
    with np.load(shared_file("data/tiny-imagenet/val.npz")) as file:
        webp, offsets, boxes = file["webp"], file["offsets"], file["boxes"]
    for index in range(0, len(boxes), len(boxes) // PICTURES):
        picture = cv2.imdecode(webp[offsets[index] : offsets[index + 1]], cv2.IMREAD_COLOR)[:, :, ::-1]
        seen.clear()
        with torch.no_grad():
            model(steps(Image.fromarray(picture))[None])
        carried, layers = torch.eye(197, dtype=torch.float64), []
        for output in seen:
            q, k, _ = output[0].double().reshape(197, 3, 3, 64).permute(1, 2, 0, 3)
            weights = (q @ k.transpose(1, 2) / 8).softmax(-1)
            layers.append((weights[:, 1:, 1:] * apart).sum(-1).mean(-1))
            mixed = 0.5 * weights.mean(0) + 0.5 * torch.eye(197, dtype=torch.float64)
            carried = mixed / mixed.sum(-1, keepdim=True) @ carried
        distances.append(torch.stack(layers))
        row, col = divmod(int(carried[0, 1:].argmax()), 14)
        x0, y0, x1, y1 = boxes[index].astype(float)
        x, y = ((one + 0.5) * 64 / 14 for one in (col, row))
        hits += x0 <= x <= x1 + 1 and y0 <= y <= y1 + 1
        areas.append((x1 + 1 - x0) * (y1 + 1 - y0) / 64**2)
    even = (apart.sum() / 196 / 197).item()
    return torch.stack(distances).mean(0).numpy() / even, hits, float(np.mean(areas))


@pytest.mark.sweep
def test_each_heads_distance_is_the_cards():
    found = np.sort(measured()[0], axis=1)
    said = [list(map(float, line.split())) for line in re.findall(r"^  layer \d: ([\d. ]+)$", CARD, re.M)]
    assert np.shape(said) == (8, 3) and np.abs(found - said).max() < 0.006


@pytest.mark.long
def test_the_summary_of_the_distances_is_the_cards():
    found = measured()[0]
    first, last = re.search(r"first 3 layers ([\d.]+), last 3 layers ([\d.]+)", CARD).groups()
    near, wide = re.search(r"most local head ([\d.]+) .*widest ([\d.]+)", CARD).groups()
    assert found[:3].mean() == pytest.approx(float(first), abs=0.002)
    assert found[-3:].mean() == pytest.approx(float(last), abs=0.002)
    assert found[:2].min() == pytest.approx(float(near), abs=0.002)
    assert found[:2].max() == pytest.approx(float(wide), abs=0.002)
    assert found[:2].min() < 0.6 and found[:2].max() > 0.9  # what the card claims of it


def test_the_rollouts_peak_lies_in_the_box_as_often_as_the_card_says():
    _, hits, area = measured()
    said, of, share = re.search(r"inside the box: (\d+) of (\d+); share of the area: ([\d.]+)", CARD).groups()
    assert int(of) == PICTURES and abs(hits - int(said)) <= 1  # two patches may be alike to a rounding
    assert area == pytest.approx(float(share), abs=0.001)


def test_the_accuracy_names_its_pipeline():
    """In the card and in the note that the page shows; the sizes and kinds are those of the code that
    measured.
    """
    note, row = CONFIG["vitviz"]["note"], re.search(r"\| How that was measured \| (.+) \|", CARD)[1]
    code = (HOME / "data.py").read_text() + (HOME / "lesson.py").read_text()
    side, size = int(re.search(r"^SIDE = (\d+)", code, re.M)[1]), CONFIG["pretrained_cfg"]["input_size"][-1]
    for text in (note, row):
        assert f"{side}" in text and f"{size} px" in text and "bicubic" in text and "bfloat16" in text, text
    assert (
        'mode="bicubic", antialias=True' in code and "dtype=torch.bfloat16" in code and "antialiasing" in row
    )
    assert "torch's bicubic, in bfloat16" in (HOME / "export.py").read_text()
