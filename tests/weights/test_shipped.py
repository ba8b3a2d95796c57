"""The checkpoint that ships: that it is the file its card describes, as good as the card says, and the same
everywhere.
"""

import csv
import itertools
import json
import re
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import timm
import torch
from safetensors import safe_open

import vitviz
from tests.shared import shared_file
from vitviz.engine.images.preprocess import prepare
from vitviz.traces.samples import sample_image

HOME = Path(__file__).parents[2] / "weights" / "vitviz-tiny"
CARD = (HOME / "README.md").read_text(encoding="utf-8")
STORED = Path(__file__).with_name("shipped.json")  # what this file answered when it was made: see `stored`


def stored() -> dict:
    """Logits on a public-domain photograph, and how many of 500 validation pictures are named rightly.

    Made by `python -m tests.weights.test_shipped` when another file is shipped.
    """
    return json.loads(STORED.read_text())


def film() -> list[dict]:
    with (HOME / "film.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def logits() -> torch.Tensor:
    return vitviz.load("vitviz-tiny", device="cpu").trace(sample_image("coffee")).logits


def pictures_of(numbers) -> list:
    """Validation pictures of Tiny-ImageNet by their numbers."""
    import cv2
    from PIL import Image

    with np.load(shared_file("data/tiny-imagenet/val.npz")) as file:
        webp, offsets = file["webp"], file["offsets"]
    return [
        Image.fromarray(cv2.imdecode(webp[offsets[i] : offsets[i + 1]], cv2.IMREAD_COLOR)[:, :, ::-1])
        for i in numbers
    ]


def right(name: str, of: int) -> int:
    """How many of so many validation pictures, spread evenly over the 10,000, a frame of the film names
    rightly.
    """
    inspector = vitviz.load(name, device="cpu")
    with np.load(shared_file("data/tiny-imagenet/val.npz")) as file:
        labels = file["labels"]
    wanted = range(0, len(labels), len(labels) // of)
    prepared = (prepare(one, inspector.preprocessing).tensor for one in pictures_of(wanted))
    answers = []
    with torch.inference_mode():
        while batch := list(itertools.islice(prepared, 25)):
            answers += [inspector.labels[number] for number in inspector.model(torch.stack(batch)).argmax(-1)]
    names = [row["label"] for row in json.loads(shared_file("data/tiny-imagenet/classes.json").read_text())]
    return sum(answer == names[labels[i]] for answer, i in zip(answers, wanted, strict=True))


def test_the_file_is_the_one_that_the_card_describes():
    found = sha256((HOME / "model.safetensors").read_bytes()).hexdigest()
    assert found in CARD
    last = film()[-1]
    assert last["file"] == "model.safetensors" and last["weights"] == "average"
    top1, top5 = (f"{float(last[key]):.1%}".replace("%", " %") for key in ("val_top1", "val_top5"))
    assert f"| {top1} / {top5} |" in CARD
    note = vitviz.load("vitviz-tiny").checkpoint.note
    assert top1 in note and top5 in note


def test_it_loads_with_timm_alone():
    model = timm.create_model(f"local-dir:{HOME}", pretrained=True)
    assert f"{sum(p.numel() for p in model.parameters()):,} parameters" in CARD


def test_its_logits_are_the_same_everywhere():
    torch.testing.assert_close(logits(), torch.tensor(stored()["logits"]), rtol=1e-3, atol=2e-3)


@pytest.mark.sweep  # 500 pictures
def test_it_is_as_good_as_the_card_says():
    found = right("vitviz-tiny", of=500)
    assert abs(found - stored()["right_of_500"]) <= 2  # a rounding may tip a close answer
    assert abs(found / 500 - float(film()[-1]["val_top1"])) < 0.07  # three standard errors of 500 pictures


def test_the_film_is_whole_and_small_enough():
    rows, files = (
        film(),
        sorted(
            path.relative_to(HOME).as_posix()
            for path in HOME.rglob("*.safetensors")
            if path.name != "reference.safetensors"
        ),
    )
    assert sorted(row["file"] for row in rows) == files and len(files) > 10
    assert all((HOME / name).stat().st_size <= 9e6 for name in files)
    assert sum(path.stat().st_size for path in HOME.parent.rglob("*") if path.is_file()) <= 190e6
    frames = vitviz.training_snapshots("vitviz-tiny")
    assert [frame.step for frame in frames] == sorted(int(row["step"]) for row in rows)
    assert frames[0].step == 0 and all(
        frame.top1 is not None and frame.val_loss is not None for frame in frames
    )


@pytest.mark.sweep
def test_the_film_shows_learning():
    frames = vitviz.training_snapshots("vitviz-tiny")
    assert frames[0].top1 < 0.02 and frames[-1].top1 == max(frame.top1 for frame in frames)
    middle = frames[len(frames) // 2]
    assert abs(right(middle.name, of=100) / 100 - middle.top1) < 0.13  # three standard errors of 100 pictures


def handed_on(pictures) -> dict[str, torch.Tensor]:
    """What every head (before the projection) and MLP hands on, summed over prepared pictures, by torch's own
    hooks on timm's own pass.
    """
    model = timm.create_model(f"local-dir:{HOME}", pretrained=True).eval()
    sums = {"heads": [0.0] * len(model.blocks), "mlps": [0.0] * len(model.blocks)}

    def summed(name: str, layer: int, tokens: torch.Tensor) -> None:
        sums[name][layer] = sums[name][layer] + tokens.double().sum(dim=0)

    for layer, block in enumerate(model.blocks):
        block.attn.proj.register_forward_pre_hook(
            lambda module, given, layer=layer: summed("heads", layer, given[0])
        )
        block.mlp.register_forward_hook(lambda module, given, made, layer=layer: summed("mlps", layer, made))
    with torch.no_grad():
        while batch := list(itertools.islice(pictures, 25)):
            model(torch.stack(batch))
    heads = torch.stack(sums["heads"]).unflatten(-1, (model.blocks[0].attn.num_heads, -1))
    return {"heads": heads.movedim(2, 1), "mlps": torch.stack(sums["mlps"])}  # layer head token dim


@pytest.mark.sweep  # 500 pictures
def test_what_stands_for_its_heads_are_the_means_over_the_pictures_that_it_names():
    """All of them anew, to the last digit that the file keeps; else run weights/vitviz-tiny/reference.py."""
    with safe_open(HOME / "reference.safetensors", framework="pt") as file:
        about, stored = file.metadata(), {name: file.get_tensor(name) for name in ("heads", "mlps")}
    assert about["weights"] == sha256((HOME / "model.safetensors").read_bytes()).hexdigest()
    assert "Tiny-ImageNet" in about["source"] and about["pictures"] == "500"
    drawn = np.random.default_rng(int(about["seed"])).choice(10_000, 500, replace=False)
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    prepared = (prepare(one, inspector.preprocessing).tensor for one in pictures_of(sorted(drawn)))
    for name, sums in handed_on(prepared).items():
        torch.testing.assert_close(stored[name].double(), sums / 500, rtol=2**-11, atol=2e-6)
    shown = inspector.reference()
    assert shown.pictures == 500 and "Tiny-ImageNet" in shown.sentence
    assert torch.equal(torch.stack(shown.heads), stored["heads"].float())
    assert torch.equal(torch.stack(shown.mlps), stored["mlps"].float())


def test_its_position_embeddings_know_their_neighbours():
    """The card's claim that needs no pictures; the others are measured by evaluate.py."""
    similarity = vitviz.position_similarity(vitviz.load("vitviz-tiny", device="cpu"))
    rows, cols = similarity.shape[:2]
    found = 0
    for row in range(rows):
        for col in range(cols):
            alike = similarity[row, col].clone()
            alike[row, col] = -2
            r, c = divmod(int(alike.argmax()), cols)
            found += max(abs(r - row), abs(c - col)) == 1
    said = re.search(r"most similar patch is adjacent\D+([\d.]+)", CARD)
    assert said and abs(found / (rows * cols) - float(said[1])) < 0.01


if __name__ == "__main__":
    STORED.write_text(
        json.dumps(
            {"right_of_500": right("vitviz-tiny", of=500), "logits": [round(x, 4) for x in logits().tolist()]}
        )
        + "\n"
    )
