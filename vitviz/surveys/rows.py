"""Measurement loop that all surveys share: from source images to measured rows, one batch at a time."""

from __future__ import annotations

import gc
import hashlib
import os
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeVar

import numpy as np
import torch

from vitviz.analyses import Grams, Spread
from vitviz.analyses.cka import LEAST
from vitviz.engine import Inspector
from vitviz.engine.device import memory_guard
from vitviz.engine.images.preprocess import Prepared, open_for, prepare
from vitviz.errors import ImageError, OutOfMemory, VitvizError
from vitviz.surveys.effort import BatchSize, Effort
from vitviz.surveys.labels import Labels
from vitviz.surveys.measure import Array, BatchMeasure, Measure, MeasuredBatch, MeasuredImage
from vitviz.surveys.moments import Moments, add_sums
from vitviz.surveys.sources import SourceImage
from vitviz.traces.head_type import HeadType, predictions_of, probabilities_of_predictions
from vitviz.traces.trace import TraceBatch
from vitviz.traces.unicode import escape_unencodable

T, U = TypeVar("T"), TypeVar("U")


def compute_ahead(things: Iterable[T], make: Callable[[T], U], depth: int, threads: int = 2) -> Iterator[U]:
    """Yield `make(thing)` in order, computing up to `depth` results ahead in threads; exceptions propagate.

    >>> list(compute_ahead([1, 2, 3], lambda number: number * 10, depth=2))
    [10, 20, 30]
    """
    pool = ThreadPoolExecutor(min(threads, os.cpu_count() or 1), thread_name_prefix="vitviz-reading")
    waiting: deque[Future[U]] = deque()
    try:
        for thing in things:
            waiting.append(pool.submit(make, thing))
            if len(waiting) >= depth:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


Values = dict[str, np.ndarray]


@dataclass(frozen=True)
class Row:
    """Results of one measured image."""

    index: int  # position in the source, from 0
    name: str
    given: str | int | None  # label as given by the source
    label: int | None  # true class (from 0)
    answer: int | None  # predicted class; for a single output, 0 is no and 1 is yes
    probability: float | None  # probability of the prediction
    of_label: float | None  # probability of the true class
    values: Values = field(repr=False)  # "measure.quantity" -> float64 array
    refused: Mapping[str, str] = field(default_factory=dict, repr=False)  # "measure.part" -> reason
    outputs: Sequence[float] = ()  # outputs of a head of values, which predicts no class


@dataclass(frozen=True)
class Skipped:
    """Image that could not be read, with the reason."""

    index: int
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@dataclass(frozen=True)
class Refusal:
    """Part of a measure that has no value for some images: their number, the first name and its reason."""

    pictures: int
    name: str
    reason: str


def collect_refusals(rows: Iterable[Row], before: Mapping[str, Refusal] | None = None) -> dict[str, Refusal]:
    """Return the refusals by "measure.part", for these rows and the earlier ones in `before`."""
    result = dict(before or {})
    for row in rows:
        for part, reason in row.refused.items():
            known = result.get(part, Refusal(0, row.name, reason))
            result[part] = replace(known, pictures=known.pictures + 1)
    return result


@dataclass(frozen=True)
class SurveyPart:
    """Results of consecutive images of the source: one batch or several."""

    rows: list[Row]
    skipped: list[Skipped]  # unreadable images in the same range
    sums: Mapping[str, Moments] = field(default_factory=dict)
    grams: Sequence[Grams] = ()  # one per batch, if measured and the batch is large enough
    spreads: Mapping[str, Spread] = field(default_factory=dict)  # quantities with `across`
    effort: Effort = Effort()  # not stored: of parts that this run has measured

    @classmethod
    def join(cls, batches: Iterable[SurveyPart]) -> SurveyPart:
        """Return the batches, in order, as one part, with sums recomputed from all rows."""
        rows, skipped, grams, spreads, effort = [], [], [], {}, Effort()
        for one in batches:
            rows, skipped, grams = rows + one.rows, skipped + one.skipped, [*grams, *one.grams]
            spreads, effort = add_sums(spreads, one.spreads), effort + one.effort
        return cls(rows, skipped, moments_of(rows), grams, spreads, effort)

    def __len__(self) -> int:
        """Return the number of images, including unreadable ones."""
        return len(self.rows) + len(self.skipped)


def moments_of(rows: Sequence[Row]) -> dict[str, Moments]:
    """Return the moments of every quantity over the images that have it.

    Raises:
        VitvizError: If a measure returned different shapes for different images.
    """
    result: dict[str, list[np.ndarray]] = {}
    for row in rows:
        for name, value in row.values.items():
            result.setdefault(name, []).append(value)
    for name, values in result.items():
        if len({value.shape for value in values}) > 1:
            advice = "a measure must return the same shape for every image"
            raise VitvizError(f"{name} has another shape for some images; {advice}.")
    return {name: Moments.from_values(np.stack(values)) for name, values in result.items()}


Decoded = tuple[int, SourceImage, Prepared | str]  # index, item, and the reason if the image is unreadable


@dataclass(frozen=True)
class Measurement:
    """Picklable configuration of the loop: checkpoint, measures, labels, input size and batch size."""

    inspector: Inspector
    measures: tuple[Measure, ...]
    labels: Labels
    size: tuple[int, int]
    batch: BatchSize

    def batches(self, items: Iterable[tuple[int, SourceImage]]) -> Iterator[SurveyPart]:
        """Decode and measure (index, item) pairs; yield one part per batch."""
        return self.measured(self.ahead(items))

    def measured(self, decoded: Iterator[Decoded]) -> Iterator[SurveyPart]:
        """Measure decoded images batch by batch."""
        start = time.perf_counter()
        while some := list(islice(decoded, self.batch.images)):
            waited = Effort(decode=time.perf_counter() - start)
            part = self.measure(some)
            yield replace(part, effort=part.effort + waited)
            start = time.perf_counter()

    def ahead(self, items: Iterable[tuple[int, SourceImage]]) -> Iterator[Decoded]:
        """Decode images in threads, in order; an unreadable image is replaced by the reason."""
        preprocessing = self.inspector.preprocessing.with_size(self.size)
        there = self.inspector.device.type == "cuda"  # bytes go to the device, which normalises them

        def read(placed: tuple[int, SourceImage]) -> Decoded:
            index, item = placed
            try:
                opened = open_for(item.picture, preprocessing)
                return index, item, prepare(opened, preprocessing, normalise=not there)
            except ImageError as error:
                return index, item, escape_unencodable(str(error))
            except OSError as error:
                return index, item, f"It could not be read ({type(error).__name__})."

        # Decoding releases the GIL. On a CPU every thread competes with the model, and two stay ahead of it.
        return compute_ahead(items, read, 2 * self.batch.images, threads=16 if there else 2)

    def measure(self, decoded: Sequence[Decoded]) -> SurveyPart:
        """Run one forward pass over the readable images of a batch and apply all measures.

        If memory runs out, the batch and all later ones are divided in half.
        """
        sound = [(index, item, result) for index, item, result in decoded if not isinstance(result, str)]
        names = [one.name for one in self.measures if isinstance(one, BatchMeasure)]
        try:
            part = self._measured(sound)
            skipped = [
                Skipped(i, item.name, result) for i, item, result in decoded if isinstance(result, str)
            ]
            return replace(part, skipped=skipped)
        except OutOfMemory as error:
            if len(sound) == 1 or names:
                advice = f" The size of a batch changes {names[0]}: choose a smaller one." if names else ""
                raise OutOfMemory(f"{error}{advice}") from error
        gc.collect()  # the tensors of the failed batch
        if self.inspector.device.type == "cuda":
            torch.cuda.empty_cache()
        self.batch.halve(len(sound))
        parts, rest = [SurveyPart([], [], effort=Effort(failed=len(sound)))], decoded
        while rest:
            step = self.batch.images  # smaller as soon as a half did not fit either
            parts.append(self.measure(rest[:step]))
            rest = rest[step:]
        return SurveyPart.join(parts)

    def _measured(self, sound: Sequence[tuple[int, SourceImage, Prepared]]) -> SurveyPart:
        """Run one forward pass over prepared images, apply all measures and return the part.

        Raise OutOfMemory if the batch does not fit.
        """
        if not sound:
            return SurveyPart([], [])
        device, start = self.inspector.device, time.perf_counter()
        several = f"{len(sound)} images at once" if len(sound) > 1 else "one image"
        with memory_guard(device, f"Measuring {several}"):
            stays = device.type != "mps"  # MPS has no float64
            batch = self.inspector.batch([result for *_, result in sound], self.size, keep_on_device=stays)
            passed = time.perf_counter()
            rows = self._rows([(index, item) for index, item, _ in sound], batch)
            marks = [hashlib.sha256(item.mark).hexdigest()[:16] for _, item, _ in sound]
            asked = [one for one in self.measures if isinstance(one, BatchMeasure) and len(batch) >= LEAST]
            grams = tuple(one.together(batch, marks) for one in asked)
        spreads = {}
        for name in (f"{m.name}.{what.name}" for m in self.measures for what in m.quantities if what.across):
            if result := [row.values.pop(name) for row in rows if name in row.values]:
                spreads[name] = Spread.from_values(np.stack(result))
        sums, ended = moments_of(rows), time.perf_counter()
        effort = Effort(len(rows), 0.0, passed - start, ended - passed, self.batch.images)
        return SurveyPart(rows, [], sums, grams, spreads, effort)

    def _rows(self, items: Sequence[tuple[int, SourceImage]], batch: TraceBatch) -> list[Row]:
        """Apply the measures: those that are `batched` to all images at once, the others to each image."""
        labels = tuple(self.labels.number(item.label, item.name) for _, item in items)
        names, asked = tuple(item.name for _, item in items), frozenset(one.name for one in self.measures)
        seen = MeasuredBatch(self.inspector, batch, labels, names, measures=asked)
        batched = [one for one in self.measures if getattr(one, "batched", False)]
        result = {f"{one.name}.{name}": value for one in batched for name, value in one.of(seen).items()}
        result = to_host(result if batch.logits is None else result | {"": batch.logits})
        logits = result.pop("", [None] * len(items))
        labelled = {f"{one.name}.{what.name}" for one in batched for what in one.quantities if what.labelled}
        rows = []
        for image, ((index, item), label) in enumerate(zip(items, labels, strict=True)):
            absent = labelled if label is None else ()
            values = {name: value[image] for name, value in result.items() if name not in absent}
            refused = {name: reason for name, reason in seen.refused.items() if name not in absent}
            if len(batched) < len(self.measures):
                alone = MeasuredImage(self.inspector, batch[image], label, item.name, refused, asked)
                for measure in (one for one in self.measures if one not in batched):
                    own = to_host(measure.of(alone))
                    values |= {f"{measure.name}.{name}": value for name, value in own.items()}
            answer = _answer(logits[image], batch.head_type, label)
            rows.append(Row(index, item.name, item.label, label, *answer[:3], values, refused, answer[3]))
        return rows


def _answer(
    logits: np.ndarray | None, head_type: HeadType, label: int | None
) -> tuple[int | None, float | None, float | None, tuple[float, ...]]:
    """Return the prediction, its probability, that of the true class, and the outputs of a head of values."""
    if logits is None or not len(logits):
        return None, None, None, ()
    if head_type == "value":
        return None, None, None, tuple(logits.tolist())
    logits = torch.from_numpy(logits)
    likely = probabilities_of_predictions(logits, head_type)
    answer = int(predictions_of(logits, head_type))
    return answer, likely[answer].item(), None if label is None else likely[label].item(), ()


def to_host(arrays: Mapping[str, Array]) -> Values:
    """Return arrays in float64 on the host; those of a device are copied together."""
    there = {name: one for name, one in arrays.items() if isinstance(one, torch.Tensor) and not one.is_cpu}
    if there:
        flat = torch.cat([one.double().flatten() for one in there.values()]).cpu()
        parts = flat.split([one.numel() for one in there.values()])
        shapes = (one.shape for one in there.values())
        arrays = {**arrays, **{n: p.view(s) for n, p, s in zip(there, parts, shapes, strict=True)}}
    return {name: np.asarray(one, dtype=np.float64) for name, one in arrays.items()}


OnImage = Callable[[int, int | None], bool | None]
