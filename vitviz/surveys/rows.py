"""Measurement loop that all surveys share: from source images to measured rows, one batch at a time."""

from __future__ import annotations

import gc
import hashlib
import os
import time
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby, islice
from typing import TypeVar

import numpy as np
import torch

from vitviz.analyses import Grams, Spread
from vitviz.analyses.cka import LEAST
from vitviz.engine import Inspector
from vitviz.engine.device import Stopwatch, copy_to_host, memory_guard
from vitviz.engine.images.preprocess import Prepared, open_for, prepare
from vitviz.errors import ImageError, OutOfMemory, VitvizError
from vitviz.surveys.effort import BatchSize, Effort
from vitviz.surveys.labels import Labels
from vitviz.surveys.measure import Array, BatchMeasure, Measure, MeasuredBatch, MeasuredImage
from vitviz.surveys.moments import Moments, add_sums
from vitviz.surveys.sources import SourceImage
from vitviz.traces.head_type import HeadType, predictions_of, probabilities_of_predictions
from vitviz.traces.unicode import escape_unencodable

T, U = TypeVar("T"), TypeVar("U")


def compute_ahead(things: Iterable[T], make: Callable[[T], U], depth: int, threads: int = 2) -> Iterator[U]:
    """Yield `make(thing)` in order; threads compute up to `depth` results ahead. Exceptions propagate.

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
_NO_EFFORT = Effort()


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
    """Return the refusals of `rows` by "measure.part", added to those in `before`."""
    result = dict(before or {})
    for row in rows:
        for part, reason in row.refused.items():
            known = result.get(part, Refusal(0, row.name, reason))
            result[part] = replace(known, pictures=known.pictures + 1)
    return result


@dataclass(frozen=True)
class SurveyPart:
    """Results of consecutive images of the source: one batch, or several that `join` has joined."""

    rows: list[Row]
    skipped: list[Skipped]  # unreadable images in the same range
    sums: Mapping[str, Moments] = field(default_factory=dict)  # by quantity; added by `join`
    grams: Sequence[Grams] = ()  # one per batch, if measured and the batch is large enough
    spreads: Mapping[str, Spread] = field(default_factory=dict)  # quantities with `across`
    effort: Effort = _NO_EFFORT  # not stored: of parts that this run has measured

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

    @property
    def first(self) -> int:
        """Index of the first image."""
        return min(one.index for some in (self.rows[:1], self.skipped[:1]) for one in some)


def moments_of(rows: Sequence[Row]) -> dict[str, Moments]:
    """Return the moments of every quantity, over the rows (images) that have the quantity.

    Raises:
        VitvizError: If a measure returned different shapes for different images.
    """
    names: dict[str, None] = {}
    for row in rows:
        names |= dict.fromkeys(row.values)
    result = {}
    for name in names:
        values = [row.values[name] for row in rows if name in row.values]
        if len({value.shape for value in values}) > 1:
            advice = "a measure must return the same shape for every image"
            raise VitvizError(f"{name} has another shape for some images; {advice}.")
        result[name] = Moments.from_values(np.stack(values))
    return result


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
        """Decode and measure (index, item) pairs; yield the results of each batch."""
        return self.measured(self.ahead(items))

    def measured(self, decoded: Iterator[Decoded], part: int | None = None) -> Iterator[SurveyPart]:
        """Measure decoded images batch by batch; yield the results in order.

        With `part`, a result has images of one part of so many images only. On a GPU the host reads the
        results of a batch while the device computes the next.
        """
        waiting: deque[tuple[Callable[[], list[SurveyPart]], Effort]] = deque()

        def oldest() -> list[SurveyPart]:
            finish, waited = waiting.popleft()
            return _with_effort(finish(), waited)

        start = time.perf_counter()
        for some, stacked in self._stacked(decoded, part if self._comparing else None):
            waited = Effort(decode=time.perf_counter() - start)
            try:
                finish = partial(self._finish, some, part, self._launch(some, part, stacked))
            except OutOfMemory as error:
                while waiting:  # frees the memory of the batch before
                    yield from oldest()
                finish = partial(self._halve, some, part, error)
            waiting.append((finish, waited))
            if len(waiting) > self._overlapping:
                yield from oldest()
            start = time.perf_counter()
        while waiting:
            yield from oldest()

    def _stacked(
        self, decoded: Iterator[Decoded], part: int | None
    ) -> Iterator[tuple[list[Decoded], torch.Tensor | None]]:
        """Yield batches, never across parts of `part` images; for a GPU also the images as one tensor."""

        def batches() -> Iterator[list[Decoded]]:
            for _, images in groupby(decoded, key=lambda one: one[0] // part if part else 0):
                while some := list(islice(images, self.batch.images)):
                    yield some

        def stack(some: list[Decoded]) -> tuple[list[Decoded], torch.Tensor | None]:
            sound = [result for *_, result in some if not isinstance(result, str)]
            return some, self.inspector.forward.stack(sound) if sound else None

        if self._overlapping:
            return compute_ahead(batches(), stack, depth=2, threads=1)
        return ((some, None) for some in batches())

    @property
    def _overlapping(self) -> bool:
        """True if a batch is launched before the results of the one before are read."""
        return self.inspector.device.type == "cuda" and all(map(_is_batched, self.measures))

    def ahead(self, items: Iterable[tuple[int, SourceImage]]) -> Iterator[Decoded]:
        """Yield decoded images in order, decoded in threads; the reason instead of an unreadable image."""
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

    def _finish(
        self, decoded: Sequence[Decoded], part: int | None, finish: Callable[[], list[SurveyPart]]
    ) -> list[SurveyPart]:
        """Return a launched batch's results from `finish()`; if memory runs out, measure it in halves."""
        try:
            return finish()
        except OutOfMemory as error:
            return self._halve(decoded, part, error)

    def _halve(self, decoded: Sequence[Decoded], part: int | None, error: OutOfMemory) -> list[SurveyPart]:
        """Measure a batch that did not fit into memory in halves, and return its results."""
        sound = sum(not isinstance(result, str) for *_, result in decoded)
        names = [one.name for one in self.measures if isinstance(one, BatchMeasure)]
        if sound == 1 or names:
            advice = f" The size of a batch changes {names[0]}: choose a smaller one." if names else ""
            raise OutOfMemory(f"{error}{advice}") from error
        gc.collect()  # the tensors of the failed batch
        if self.inspector.device.type == "cuda":
            torch.cuda.empty_cache()
        self.batch.halve(sound)
        parts, rest = [], decoded
        while rest:
            step = self.batch.images  # smaller as soon as a half did not fit either
            try:
                parts += self._launch(rest[:step], part)()
            except OutOfMemory as again:
                parts += self._halve(rest[:step], part, again)
            rest = rest[step:]
        return _with_effort(parts, Effort(failed=sound))

    def _launch(
        self, decoded: Sequence[Decoded], part: int | None, stacked: torch.Tensor | None = None
    ) -> Callable[[], list[SurveyPart]]:
        """Begin to measure a batch; the returned function waits for the results and returns them by part.

        `stacked` are the images as one tensor, if at hand. This method and the returned function raise
        OutOfMemory if the batch does not fit.
        """
        skipped = [Skipped(i, item.name, result) for i, item, result in decoded if isinstance(result, str)]
        sound = [(index, item, result) for index, item, result in decoded if not isinstance(result, str)]
        items, device = [(index, item) for index, item, _ in sound], self.inspector.device
        if not sound:
            return lambda: _split_by_part([], skipped, part)
        several = f"{len(sound)} images at once" if len(sound) > 1 else "one image"
        forward, prepared = self.inspector.forward, [result for *_, result in sound]
        with memory_guard(device, f"Measuring {several}"):
            watch = Stopwatch(device)
            stays = device.type != "mps"  # which has no float64
            batch, finite = (
                forward.launch(prepared, self.size, stacked) if stays
                else (forward.batch(prepared, self.size), torch.tensor(True))
            )  # fmt: skip
            if not self._overlapping:  # measures of values that are not finite fail with other messages
                forward.require_finite(finite)
            watch.mark()
            labels = tuple(self.labels.number(item.label, item.name) for _, item in items)
            names, asked = tuple(item.name for _, item in items), frozenset(one.name for one in self.measures)
            seen = MeasuredBatch(self.inspector, batch, labels, names, measures=asked)
            batched = [one for one in self.measures if _is_batched(one)]
            result = {f"{one.name}.{name}": value for one in batched for name, value in one.of(seen).items()}
            result = result if batch.logits is None else result | {"": batch.logits}
            arrive = _begin_copy(result | {"finite": finite})
            watch.mark()

        def finish() -> list[SurveyPart]:
            with memory_guard(device, f"Measuring {several}"):
                arrived = arrive()
                forward.require_finite(arrived.pop("finite"))
                rows = self._rows(items, seen, arrived)
                grams = ()
                if (comparing := self._comparing) and len(batch) >= LEAST:
                    marks = [hashlib.sha256(item.mark).hexdigest()[:16] for _, item in items]
                    grams = tuple(one.together(batch, marks) for one in comparing)
            if not self._overlapping:
                watch.mark()
            passed, *others = watch.seconds()
            effort = Effort(len(rows), 0.0, passed, sum(others), self.batch.images)
            across = [f"{m.name}.{what.name}" for m in self.measures for what in m.quantities if what.across]
            return _split_by_part(rows, skipped, part, across, grams, effort)

        return finish

    @property
    def _comparing(self) -> list[BatchMeasure]:
        """The measures that compare the images of a batch."""
        return [one for one in self.measures if isinstance(one, BatchMeasure)]

    def _rows(
        self, items: Sequence[tuple[int, SourceImage]], seen: MeasuredBatch, result: Values
    ) -> list[Row]:
        """Return a row per image; `result` has the numbers of the measures that are `batched`."""
        logits, batch, asked = result.pop("", None), seen.trace, seen.measures
        batched = [one for one in self.measures if _is_batched(one)]
        labelled = {f"{one.name}.{what.name}" for one in batched for what in one.quantities if what.labelled}
        answers = _predictions(logits, batch.head_type, seen.label)
        rows = []
        for image, ((index, item), label, answer) in enumerate(zip(items, seen.label, answers, strict=True)):
            absent = labelled if label is None else ()
            values = {name: value[image] for name, value in result.items() if name not in absent}
            refused = {name: why for name, why in seen.refused.items() if name not in absent}
            if len(batched) < len(self.measures):
                alone = MeasuredImage(self.inspector, batch[image], label, item.name, refused, asked)
                for measure in (one for one in self.measures if one not in batched):
                    own = to_host(measure.of(alone))
                    values |= {f"{measure.name}.{name}": value for name, value in own.items()}
            rows.append(Row(index, item.name, item.label, label, *answer[:3], values, refused, answer[3]))
        return rows


def _is_batched(measure: Measure) -> bool:
    return getattr(measure, "batched", False)


def _with_effort(parts: list[SurveyPart], effort: Effort) -> list[SurveyPart]:
    """Return the results of a batch, with `effort` added to the first."""
    first, *others = parts
    return [replace(first, effort=first.effort + effort), *others]


def _split_by_part(
    rows: Sequence[Row], skipped: Sequence[Skipped], part: int | None, across: Sequence[str] = (),
    grams: Sequence[Grams] = (), effort: Effort = _NO_EFFORT,
) -> list[SurveyPart]:  # fmt: skip
    """Return a batch's results by part of `part` images; the first has the Gram matrices and the effort.

    Values of the quantities `across` are removed from the rows and kept as mean and scatter.
    """
    by_part: defaultdict[int, tuple[list[Row], list[Skipped]]] = defaultdict(lambda: ([], []))
    for kind, some in enumerate((rows, skipped)):
        for one in some:
            by_part[one.index // part if part else 0][kind].append(one)
    result = []
    for _, (own, missing) in sorted(by_part.items()):
        spreads = {}
        for name in across:
            if values := [row.values.pop(name) for row in own if name in row.values]:
                spreads[name] = Spread.from_values(np.stack(values))
        result.append(SurveyPart(own, missing, {}, grams, spreads, effort))
        grams, effort = (), _NO_EFFORT
    return result


_Answer = tuple[int | None, float | None, float | None, tuple[float, ...]]


def _predictions(
    logits: np.ndarray | None, head_type: HeadType, labels: Sequence[int | None]
) -> Iterable[_Answer]:
    """Return, per image, prediction, its probability, the true class's, and the values of a value head."""
    if logits is None or not logits.shape[-1]:
        return [(None, None, None, ())] * len(labels)
    if head_type == "value":
        return [(None, None, None, tuple(values)) for values in logits.tolist()]
    logits = torch.from_numpy(logits)
    likely = probabilities_of_predictions(logits, head_type)
    answers = predictions_of(logits, head_type)
    sure = likely.gather(-1, answers.long().unsqueeze(-1)).squeeze(-1).tolist()
    each = zip(likely, labels, strict=True)
    of_labels = (None if label is None else row[label].item() for row, label in each)
    return zip(answers.tolist(), sure, of_labels, [()] * len(labels), strict=True)


def _begin_copy(arrays: Mapping[str, Array]) -> Callable[[], Values]:
    """Begin to copy arrays to the host in float64; return a function that waits for the copies."""
    there = {name: one for name, one in arrays.items() if isinstance(one, torch.Tensor) and not one.is_cpu}
    arrive = copy_to_host(torch.cat([one.double().flatten() for one in there.values()])) if there else None

    def wait() -> Values:
        here = dict(arrays)
        if arrive is not None:
            parts = arrive().split([one.numel() for one in there.values()])
            shapes = (one.shape for one in there.values())
            here |= {n: p.view(s) for n, p, s in zip(there, parts, shapes, strict=True)}
        return {name: np.asarray(one, dtype=np.float64) for name, one in here.items()}

    return wait


def to_host(arrays: Mapping[str, Array]) -> Values:
    """Return arrays in float64 on the host; those of a device are copied together."""
    return _begin_copy(arrays)()


OnImage = Callable[[int, int | None], bool | None]
