"""Tables of docs/check.md: python -m tests.check_table --out DIR [--write] [--chance].

Runs the model check on healthy models, on the training history of vitviz-tiny, on architectures with random
weights and on planted faults (`tests.diagnostics.faults`). Every result is a file in DIR; the same command
resumes. The checks of maps are left out for faults, because no fault here concerns maps. `--chance` prints
how often healthy models get a serious finding by an alternative, over random sets of images.
"""

from __future__ import annotations

import argparse
import json
import random
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import timm
import torch

import vitviz
from tests.diagnostics.faults import EXPECTED
from tests.shared import shared_file
from vitviz.diagnostics import check, inputs
from vitviz.diagnostics.finding import Report
from vitviz.diagnostics.subject import CheckedImage, CheckSubject, images_of
from vitviz.engine.images.opening import open_image
from vitviz.errors import VitvizError
from vitviz.traces.samples import Sample

PAGE = Path(__file__).parents[1] / "docs" / "check.md"
BEGIN, END = "<!-- check: written by python -m tests.check_table -->", "<!-- end of check -->"
DEIT = "weights/deit_tiny_patch16_224.safetensors"
TWINS = ("vitviz-positions-1d-0", "vitviz-positions-2d-0", "vitviz-positions-none-0")
SEEDS = {"validation": 0, "validation 2": 1}
STEPS = (0, 30, 100, 300, 1000, 3000, 10000, 20000, 36000)
RANDOM = (
    "vit_tiny_patch16_224", "deit_tiny_distilled_patch16_224", "vit_small_patch32_224",
    "beit_base_patch16_224", "vit_small_patch14_reg4_dinov2.lvd142m", "eva02_tiny_patch14_224",
    "vit_relpos_small_patch16_224", "cait_xxs24_224", "vit_base_patch32_clip_224", "flexivit_small",
)  # fmt: skip


def photographs(count: int, seed: int) -> list[tuple[bytes, int]]:
    """Return validation images of Tiny-ImageNet with their class numbers."""
    with np.load(shared_file("data/tiny-imagenet/val.npz")) as file:
        webp, offsets, labels = (file[name] for name in ("webp", "offsets", "labels"))
    chosen = random.Random(seed).sample(range(len(labels)), count)
    return [(webp[offsets[i] : offsets[i + 1]].tobytes(), int(labels[i])) for i in chosen]


def validation(inspector, count: int = 8, seed: int = 0) -> list[CheckedImage]:
    """Return validation images with the true classes by the inspector's labels."""
    classes = json.loads(Path(shared_file("data/tiny-imagenet/classes.json")).read_text(encoding="utf-8"))
    found = []
    for data, number in photographs(count, seed):
        names = tuple(one.strip().lower() for one in classes[number]["label"].split(","))
        truth = Sample("", "", "", classes=names).truth(inspector.labels)
        found.append(CheckedImage(open_image(data), frozenset(truth)))
    return found


def models() -> Iterator[tuple[str, object]]:
    """Yield (name, function that loads an inspector) of every model without a fault."""
    yield "vitviz-tiny", lambda: vitviz.load("vitviz-tiny", device="cpu")
    yield "DeiT-Tiny", lambda: vitviz.load(shared_file(DEIT), device="cpu")
    for name in TWINS:
        yield name, lambda name=name: vitviz.load(name, device="cpu")
    for step in STEPS:
        yield f"vitviz-tiny@{step}", lambda step=step: vitviz.load(f"vitviz-tiny@{step}", device="cpu")
    for name in RANDOM:
        yield f"random {name}", lambda name=name: _random(name)


def _random(name: str):
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, num_classes=1000)
    return vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu", name=name)


def checked(inspector, images, expected: tuple[str, ...] = ()) -> Report:
    """Return the report without maps, up to the first serious finding that is expected.

    Serious findings are ranked in the order of the check, so later ones cannot precede it.
    """
    found = []
    for one in check.findings(inspector, images):
        if one.group == "maps":
            break
        found.append(one)
        if one.severity == "serious" and one.name in expected:
            break
    return Report(inspector.checkpoint.name, len(images), tuple(found))


def cases() -> Iterator[tuple[str, object]]:
    """Yield (key, function that returns a report) of every case."""
    for name, load in models():
        sets = (
            ("samples", "validation", "validation 2")
            if name in ("vitviz-tiny", "DeiT-Tiny")
            else ("samples",)
        )
        for kind in sets:
            yield f"healthy|{name}|{kind}", lambda load=load, kind=kind: _case(load(), None, kind)
    for name, load in list(models())[:2]:
        for kind, fault in product(("samples", "validation"), EXPECTED):
            key = f"fault|{name}|{fault.__name__}|{kind}"
            yield key, lambda load=load, fault=fault, kind=kind: _case(load(), fault, kind)


def _case(inspector, fault, kind: str) -> Report:
    given = inspector if fault is None else fault(inspector)
    images = images_of(given, None) if kind == "samples" else validation(given, seed=SEEDS[kind])
    return checked(given, images, EXPECTED.get(fault, ()))


def run(folder: Path, only: str) -> dict[str, list[dict]]:
    """Run every case that has no file yet; return the findings by case."""
    folder.mkdir(parents=True, exist_ok=True)
    found = {}
    for key, report in cases():
        path = folder / f"{key.replace('|', '--').replace(' ', '_')}.json"
        if not path.exists() and only in key:
            start = time.perf_counter()
            try:
                rows = report().rows()
            except VitvizError as error:
                rows = [{"name": "refused", "severity": "number", "sentence": str(error), "number": None}]
            rows = [{name: str(v) if isinstance(v, str) else v for name, v in one.items()} for one in rows]
            path.write_text(json.dumps(rows), encoding="utf-8")
            told = [f"{one['name']} ({one['severity']})" for one in rows if one["severity"] != "number"]
            print(f"{time.perf_counter() - start:5.0f} s  {key}: {', '.join(told)}", flush=True)
        if path.exists():
            found[key] = json.loads(path.read_text(encoding="utf-8"))
    return found


def tables(found: dict[str, list[dict]]) -> str:
    """Return both tables as Markdown."""
    healthy = ["| model | images | serious | notes |", "| --- | --- | --- | --- |"]
    for key, rows in found.items():
        kind, name, *rest = key.split("|")
        if kind == "healthy":
            told = {
                level: ", ".join(f"`{one['name']}`" for one in rows if one["severity"] == level) or "–"
                for level in ("serious", "note")
            }
            refused = [one["sentence"] for one in rows if one["name"] == "refused"]
            told["note"] = f"refused: {refused[0]}" if refused else told["note"]
            healthy.append(f"| {name} | {rest[0]} | {told['serious']} | {told['note']} |")
    names, kinds = [one.__name__ for one in EXPECTED], ("samples", "validation")
    columns = [(name, kind) for name in ("vitviz-tiny", "DeiT-Tiny") for kind in kinds]
    faults = [
        f"| fault | {' | '.join(f'{name}, {kind}' for name, kind in columns)} |",
        "| --- |" + " --- |" * 4,
    ]
    hits, tried = dict.fromkeys(columns, 0), dict.fromkeys(columns, 0)
    for name in names:
        expected = next(keys for one, keys in EXPECTED.items() if one.__name__ == name)
        cells = []
        for column in columns:
            rows = found.get(f"fault|{column[0]}|{name}|{column[1]}")
            first = [one for one in rows or () if one["severity"] != "number"]
            place = next((n for n, one in enumerate(first, 1) if one["name"] in expected), None)
            tried[column] += rows is not None
            hits[column] += place is not None and place <= 2
            cells.append("" if rows is None else f"{place}" if place else "not found")
        faults.append(f"| {name.replace('_', ' ')} | {' | '.join(cells)} |")
    counts = " | ".join(f"{hits[one]} of {tried[one]}" for one in columns)
    faults.append(f"| **named first or second** | {counts} |")
    return "\n\n".join(["\n".join(healthy), "\n".join(faults)])


def chance(images: int = 100, sets: int = 200, sizes: tuple[int, ...] = (4, 8)) -> None:
    """Print the share of random sets of images on which a healthy model gets a serious finding.

    Every alternative is computed once for all images; a set is a choice among them.
    """
    for name, load in list(models())[:2]:
        inspector = load()
        pictures = tuple(CheckedImage(open_image(data)) for data, _ in photographs(images, 77))
        subject = CheckSubject(inspector, pictures, "frozen")
        every = {
            one: {str(key): outputs() for key, outputs in one.variants(subject).items()}
            for one in inputs.COMPARISONS
            if one.verdict
        }
        for size in sizes:
            serious, draw = Counter(), random.Random(1)
            for _ in range(sets):
                chosen = draw.sample(range(images), size)
                own = subject.own_outputs[:, chosen]
                part = SimpleNamespace(
                    inspector=inspector, model=subject.model, own_outputs=own, images=range(size)
                )
                for comparison, logits in every.items():
                    given = {key: lambda of=of, at=chosen: of[:, at] for key, of in logits.items()}
                    for finding in replace(comparison, variants=lambda _, given=given: given)(part):
                        serious[comparison.name] += finding.severity == "serious"
            shares = (f"{one.name} {serious[one.name] / sets:.1%}" for one in every)
            print(f"{name}, {size} images: {', '.join(shares)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--only", default="", help="cases whose key contains this")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--chance", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.chance:
        return chance()
    text = tables(run(given.out, given.only))
    print(text)
    if given.write:
        before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        PAGE.write_text(f"{before}{BEGIN}\n\n{text}\n\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
