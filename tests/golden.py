"""Record every number that vitviz computes, and compare a later state of the code with the record.

    python -m tests.golden record golden.json      # before a change that must keep all numbers
    python -m tests.golden compare golden.json     # after it; exits with 1 where a number differs

The record covers two shipped checkpoints: every item of every view under every option and bound of its
settings, every endpoint, and every survey measure over the sample images. An array is stored as a hash of its
bytes with its sum and largest magnitude, so that a difference in the last bit is detected and its size can be
judged. Texts are stored in full; a changed text is listed and fails nothing. Views, settings and options are
numbered, not named, so that renamed ones are still found.

`tests/golden/` holds files that an earlier release wrote; `tests/test_compatibility.py` reads them.
"""

import argparse
import hashlib
import inspect
import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import vitviz
from vitviz.errors import VitvizError
from vitviz.server.api.endpoints import PUBLIC, Endpoints, views_with_endpoints
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.surveys.measures import MEASURES
from vitviz.traces.samples import samples
from vitviz.views import VIEWS, Choice, Control, Slider, View

CHECKPOINTS = ("vitviz-tiny", "vitviz-positions-2d-0")
SAMPLE = "coffee"
# endpoints that return drawings, whose bytes depend on the drawing library, and a stream
SKIPPED = ("film", "figure", "check")


class Record:
    """Numbers and texts by key."""

    def __init__(self) -> None:
        self.numbers: dict[str, list] = {}
        self.texts: dict[str, list[str]] = {}

    def add(self, key: str, value: Any) -> None:
        """Keep a value: an array by its numbers, nested JSON by its numbers and texts in order."""
        if isinstance(value, torch.Tensor):
            value = value.numpy()
        if isinstance(value, np.ndarray) and value.dtype.kind in "fiub":
            self._keep(key, value)
            return
        leaves = list(flatten(value))
        self._keep(key, np.array([leaf for leaf in leaves if not isinstance(leaf, str)], float))
        self.texts[key] = [leaf for leaf in leaves if isinstance(leaf, str)]

    def _keep(self, key: str, array: np.ndarray) -> None:
        finite = array[np.isfinite(array)] if array.dtype.kind == "f" else array
        largest = float(np.abs(finite.astype(float)).max()) if finite.size else 0.0
        digest = hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]
        self.numbers[key] = [digest, list(array.shape), float(finite.sum(dtype=float)), largest]


def flatten(value: Any) -> Iterator[float | str]:
    """Yield the leaves of nested lists and dicts in order; a dict's keys are texts."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield str(name)
            yield from flatten(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from flatten(inner)
    elif isinstance(value, bool | int | float | np.number):
        yield float(value)
    elif isinstance(value, np.ndarray | torch.Tensor):
        yield from flatten(np.asarray(value).ravel().tolist())
    elif value is not None:
        yield str(value)


def variations(view: View, about: Any) -> Iterator[tuple[str, Control | None, dict[str, str]]]:
    """Yield a view's default settings, then each control at each of its options, or at both of its bounds."""
    yield "default", None, {}
    if view.scope.on_request:  # takes minutes per setting
        return
    for place, control in enumerate(view.controls):
        if isinstance(control, Choice):
            values = [value for value, _ in control.options]
        elif isinstance(control, Slider):
            values = [str(about.number(bound)) for bound in (control.minimum, control.maximum)]
        else:
            values = [str(control.start(about))]
        for number, value in enumerate(values):
            yield f"{place}.{number}", control, {control.name: value}


def record_views(record: Record, service: AnalysisService, checkpoint: str) -> None:
    """Record every item of every view."""
    key = service.look(service.pictures.sample(SAMPLE), checkpoint)
    about = service.subject(key).about
    for number, view in enumerate(VIEWS):
        start = time.monotonic()
        for label, control, given in variations(view, about):
            for place, item in enumerate(view.items):
                if control is not None and control.name not in item.depends:
                    continue
                name = f"{checkpoint} view {number} item {place} setting {label}"
                try:
                    array = service.item(key, view.slug, item.name, given)
                except VitvizError as error:
                    record.texts[name] = [str(error)]
                    continue
                if item.axes == "byte":
                    record.add(name, json.loads(array.tobytes()))
                else:
                    record.add(name, array)
        print(f"{checkpoint} {view.slug}: {time.monotonic() - start:.1f} s", flush=True)


def record_endpoints(record: Record, service: AnalysisService, checkpoint: str) -> None:
    """Record the response of every endpoint to its default parameters."""
    endpoints = Endpoints(service)
    functions = [getattr(endpoints, name) for name in PUBLIC if name not in SKIPPED]
    for number, function in enumerate(functions):
        parameters = inspect.signature(function).parameters
        given = {"image": SAMPLE, "checkpoint": checkpoint, "without": "heads=2.1"}
        name = f"{checkpoint} endpoint {number}"
        try:
            record.add(name, function(**{one: value for one, value in given.items() if one in parameters}))
        except VitvizError as error:
            record.texts[name] = [str(error)]
    for number, view in enumerate(views_with_endpoints()):
        key = service.look(service.pictures.sample(SAMPLE), checkpoint)
        try:
            found = service.numbers(key, view.slug, {})
        except VitvizError as error:
            record.texts[f"{checkpoint} numbers {number}"] = [str(error)]
            continue
        with tempfile.TemporaryFile() as file:
            file.write(found)
            file.seek(0)
            with np.load(file) as arrays:
                for place, name in enumerate(arrays.files):
                    record.add(f"{checkpoint} numbers {number} {place}", arrays[name])


def record_surveys(record: Record, checkpoint: str) -> None:
    """Record mean and standard error of every quantity of every measure over the sample images."""
    inspector = vitviz.load(checkpoint, device="cpu")
    images = [vitviz.sample_image(sample.name) for sample in samples()]
    for number, measure in enumerate(MEASURES):
        try:
            survey = vitviz.survey(images, inspector, [measure])
            for place, quantity in enumerate(MEASURES[measure].quantities):
                for kind in ("mean", "error"):
                    record.add(
                        f"{checkpoint} measure {number} {place} {kind}", getattr(survey, kind)(quantity.name)
                    )
        except VitvizError as error:
            record.texts[f"{checkpoint} measure {number}"] = [str(error)]


def run() -> Record:
    """Compute everything anew."""
    torch.set_num_threads(1)  # fixes the order of sums
    record, service = Record(), AnalysisService(ServiceSettings(device="cpu"))
    for checkpoint in CHECKPOINTS:
        record_views(record, service, checkpoint)
        record_endpoints(record, service, checkpoint)
        record_surveys(record, checkpoint)
    return record


def compare(before: dict, record: Record) -> int:
    """Print what differs; return the number of differing numbers."""
    wrong = 0
    for key in sorted(before["numbers"].keys() | record.numbers.keys()):
        old, new = before["numbers"].get(key), record.numbers.get(key)
        if old != new:
            wrong += 1
            print(f"{key}: was {old}, is {new}")
    for key in sorted(before["texts"].keys() & record.texts.keys()):
        changed = [pair for pair in zip(before["texts"][key], record.texts[key], strict=False)
                   if pair[0] != pair[1]]  # fmt: skip
        for old, new in changed[:3]:
            print(f"text of {key}: {old[:100]!r} → {new[:100]!r}")
    print(f"{len(record.numbers)} arrays compared, {wrong} differ")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("record", "compare"))
    parser.add_argument("file", type=Path)
    asked = parser.parse_args()
    record = run()
    if asked.action == "record":
        asked.file.write_text(json.dumps({"numbers": record.numbers, "texts": record.texts}))
        return 0
    return int(compare(json.loads(asked.file.read_text()), record) > 0)


if __name__ == "__main__":
    sys.exit(main())
