"""Tables of saliency faithfulness in docs/trial.md: python -m tests.trial_table --pictures 100 --out DIR.

The images are Tiny-ImageNet validation images with boxes, drawn with seed 0, and for DeiT-Tiny the sample
images of vitviz and the dog and cat of the shared folder. The model's own prediction is explained. The
command can be interrupted at any time, or by --minutes; the same command then resumes. The table covers the
images measured so far, whose order is independent of their content. --write updates docs/trial.md.
"""

from __future__ import annotations

import argparse
import random
import time
from pathlib import Path

import numpy as np
import torch

import vitviz
from tests.shared import shared_file
from vitviz.analyses.correlation import spearman
from vitviz.analyses.faithfulness.ranking import HEAD, ranking_rows, ranking_table, refusal_texts
from vitviz.analyses.protocol import TITLES
from vitviz.surveys.labels import Boxes
from vitviz.surveys.measures.trial import FaithfulnessMeasure
from vitviz.surveys.sources import SourceImage
from vitviz.traces import samples

PAGE = Path(__file__).parents[1] / "docs" / "trial.md"
BEGIN, END = "<!-- trial: written by python -m tests.trial_table -->", "<!-- end of trial -->"
PROTOCOLS = {"vitviz-tiny": ("dropped",), "DeiT-Tiny": ("dropped", "mean")}  # the reference used "mean"
PUBLISHED = {  # probability gap in the reference measurement: DeiT-Tiny, 60 images, mean colour
    "gradient_rollout": 40.0, "ledger": 40.6, "grad_cam": 37.1, "frozen": 38.5, "chefer": 36.7,
    "last_attention": 22.6, "attention_grad_cam": 17.2, "rollout": 17.6,
    "input_gradient": 7.5, "hires_cam": 6.4, "random": -2.5,
}  # fmt: skip


def validation(count: int) -> tuple[list[SourceImage], Boxes]:
    """Return `count` validation images and their boxes in pixels of the image, right and bottom exclusive."""
    with np.load(shared_file("data/tiny-imagenet/val.npz")) as file:
        webp, offsets, labels, boxes = (file[name] for name in ("webp", "offsets", "labels", "boxes"))
    chosen = sorted(random.Random(0).sample(range(len(labels)), count))
    items = [
        SourceImage(f"val/{i}", webp[offsets[i] : offsets[i + 1]].tobytes(), int(labels[i])) for i in chosen
    ]
    corners = {f"val/{i}": [[int(v) + (place > 1) for place, v in enumerate(boxes[i])]] for i in chosen}
    return items, Boxes(corners)


def photographs() -> list[SourceImage]:
    """Return the sample images, and the image of a dog and a cat from the shared folder."""
    own = [SourceImage(one.name, samples.sample_image(one.name)) for one in samples.samples()]
    return [*own, SourceImage("both", shared_file("data/both.png"))]


def run(name: str, folder: Path, count: int, protocols: tuple[str, ...], minutes: float):
    """Run or resume the survey of a checkpoint."""
    end = time.monotonic() + 60 * minutes
    if name == "vitviz-tiny":
        inspector, (items, boxes) = vitviz.load("vitviz-tiny", device="cpu"), validation(count)
    else:
        weights = shared_file("weights/deit_tiny_patch16_224.safetensors")
        inspector = vitviz.load(weights, architecture="deit_tiny_patch16_224", device="cpu")
        items, boxes = photographs(), None
    measure = FaithfulnessMeasure(protocols=protocols, boxes=boxes)

    def told(done, total):
        print(f"{name}: {done} of {total}", flush=True)
        return time.monotonic() < end

    return vitviz.survey(items, inspector, [measure], out=folder / name, part=10, batch=2, progress=told)


def markdown(name: str, survey, protocols: tuple[str, ...]) -> str:
    """Return one table per protocol, with the rank correlation to the published order."""
    parts = []
    for place, protocol in enumerate(protocols):
        rows = ranking_table(survey, place)
        columns = [i for i in range(len(HEAD)) if any(row[i] != "–" for row in rows)]
        lines = [" | ".join(HEAD[i] for i in columns), " | ".join("---" for _ in columns)]
        lines += [" | ".join(row[i] for i in columns) for row in rows]
        gaps = {row["method"]: row["gap"] for row in ranking_rows(survey, place)}
        both = [one for one in PUBLISHED if one in gaps]
        alike = spearman(*(torch.tensor([known[one] for one in both]) for known in (PUBLISHED, gaps)))
        told = "".join(f"\n\n{sentence}" for sentence in refusal_texts(survey))
        parts.append(
            f"{name}, {survey.images} pictures, patches removed: {protocol}.\n"
            f"Rank correlation with the order of the reference measurement: {alike:.2f}.\n\n"
            + "\n".join(f"| {line} |" for line in lines)
            + told
        )
    return "\n\n".join(parts)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pictures", type=int, default=100)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", choices=["vitviz-tiny", "DeiT-Tiny"])
    parser.add_argument("--minutes", type=float, default=float("inf"), help="of each checkpoint's set")
    parser.add_argument("--write", action="store_true")
    given = parser.parse_args()
    parts = []
    for name, protocols in PROTOCOLS.items():
        if given.only in (None, name):
            found = run(name, given.out, given.pictures, protocols, given.minutes)
            parts.append(markdown(name, found, protocols))
    text = "\n\n".join(parts)
    print(text)
    if given.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


assert set(PUBLISHED) <= set(TITLES)
if __name__ == "__main__":
    main()
