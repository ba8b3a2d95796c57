"""The checkpoint that ships: that it is the file its card describes, as good as the card says, and the same
everywhere.
"""

import csv
import json
import re
from hashlib import sha256
from pathlib import Path

import numpy as np
import timm
import torch

import vitviz
from tests.shared import shared
from vitviz.samples import sample_image

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


def right(name: str, of: int) -> int:
    """How many of so many validation pictures, spread evenly over the 10,000, a frame of the film names
    rightly.
    """
    import cv2
    from PIL import Image

    inspector = vitviz.load(name, device="cpu")
    with np.load(shared("data/tiny-imagenet/val.npz")) as file:
        webp, offsets, labels = file["webp"], file["offsets"], file["labels"]
    wanted = range(0, len(labels), len(labels) // of)
    pictures = [
        Image.fromarray(cv2.imdecode(webp[offsets[i] : offsets[i + 1]], cv2.IMREAD_COLOR)[:, :, ::-1])
        for i in wanted
    ]
    answers = [inspector.labels[int(trace.logits.argmax())] for trace in map(inspector.trace, pictures)]
    names = [row["label"] for row in json.loads(shared("data/tiny-imagenet/classes.json").read_text())]
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
    frames = vitviz.film("vitviz-tiny")
    assert [frame.step for frame in frames] == sorted(int(row["step"]) for row in rows)
    assert frames[0].step == 0 and all(
        frame.top1 is not None and frame.val_loss is not None for frame in frames
    )


def test_the_film_shows_learning():
    frames = vitviz.film("vitviz-tiny")
    assert frames[0].top1 < 0.02 and frames[-1].top1 == max(frame.top1 for frame in frames)
    middle = frames[len(frames) // 2]
    assert abs(right(middle.name, of=100) / 100 - middle.top1) < 0.13  # three standard errors of 100 pictures


def test_what_stands_for_its_heads_was_made_with_these_weights():
    """Else run weights/vitviz-tiny/reference.py again; other pictures' means are most like those of the same
    layer.
    """
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    means, traces = (
        inspector.reference(),
        [inspector.trace(sample_image(one.name)) for one in vitviz.samples.samples()],
    )
    assert means.pictures == 500 and "Tiny-ImageNet" in means.sentence
    shipped = torch.stack([one.flatten() for one in means.heads])
    seen = torch.stack(
        [
            torch.stack([one.layers[layer].output() for one in traces]).mean(dim=0).flatten()
            for layer in range(8)
        ]
    )
    alike = torch.nn.functional.cosine_similarity(seen[:, None], shipped, dim=-1)
    assert alike.argmax(dim=1).tolist() == list(range(8))


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
