"""Surveys in one pass over a source of any size, in stored parts that survive the process."""

import datetime
import hashlib
import json
import os
import platform
import random
import sys
import time
from collections.abc import Container, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from itertools import groupby
from pathlib import Path
from typing import Any

from vitviz.analyses.cka import LEAST
from vitviz.engine import Inspector
from vitviz.errors import ImageError, VitvizError, quoted, require_whole, whole_number
from vitviz.surveys import sources
from vitviz.surveys.effort import SMALL, BatchSize, fitting
from vitviz.surveys.labels import ClassNames, Labels
from vitviz.surveys.measure import BatchMeasure, Measure
from vitviz.surveys.measures import select_measures
from vitviz.surveys.parts import SurveyFolder
from vitviz.surveys.result import WRITTEN, Survey, heads_in_words
from vitviz.surveys.rows import Measurement, OnImage, SurveyPart
from vitviz.traces.head_type import NO_DECISION, predictions_named
from vitviz.traces.public import __version__
from vitviz.traces.unicode import escape_unencodable

PART = 128  # images per part: a killed process loses at most this many


@dataclass(frozen=True)
class Plan:
    """Selection and order of the images of a survey.

    Raises:
        VitvizError: If `limit` or `part` is below 1, or for a `seed` without a `limit`.
    """

    source: sources.Source
    described: sources.SourceSummary
    limit: int | None = None
    seed: int | None = None
    part: int = PART

    def __post_init__(self):
        for name, value in (("limit", self.limit), ("part", self.part)):
            if value is not None:
                require_whole(name, value)
        if self.seed is not None and self.limit is None:
            raise VitvizError("A seed draws a random sample of the images; pass its size as limit.")

    @property
    def count(self) -> int | None:
        """Return the number of images to measure, including unreadable ones; None if that is unknown."""
        return min(self.described.count, self.limit or self.described.count) or None

    def items(self, done: Container[int] = ()) -> Iterator[tuple[int, sources.SourceImage]]:
        """Yield (index from 0, image) of the plan, in the source's order, except the parts in `done`."""
        wanted, place = self._drawn(), 0
        for number, item in enumerate(self.source):
            if self.limit is not None and place >= self.limit:
                return
            if wanted is None or number in wanted:
                if place // self.part not in done:
                    yield place, item
                place += 1

    def _drawn(self) -> set[int] | None:
        """Return the source indices of the images drawn with `seed`; None if none are to be drawn."""
        if self.seed is None or self.limit is None or self.limit >= self.described.count:
            return None
        return set(random.Random(self.seed).sample(range(self.described.count), self.limit))

    def settings(self, measuring: Measurement, classes: ClassNames) -> dict[str, Any]:
        """Return all settings that affect the numbers; a resumed survey must have the same settings."""
        inspector = measuring.inspector
        identity = inspector.checkpoint.identity
        meant = dict(classes) if hasattr(classes, "items") else None if classes is None else list(classes)
        details = json.dumps(meant, sort_keys=True).encode()
        return {
            "checkpoint": inspector.checkpoint.name, "checkpoint_sha256": identity.digest if identity else "",
            **({"given_classes_sha256": inspector.classes.digest} if inspector.classes else
               {} if inspector.head_type == "softmax" else {"head_type": inspector.head_type}),
            "input_size": list(measuring.size), "dtype": inspector.dtype,
            "measures": [getattr(one, "settings", one.name) for one in measuring.measures],
            "source": self.source.kind, "source_sha256": self.described.digest,
            "pictures_listed": self.described.count, "limit": self.limit, "seed": self.seed,
            "classes_sha256": hashlib.sha256(details).hexdigest() if meant else "",
            "batch": measuring.batch.asked or SMALL, "part": self.part,
            "vitviz": __version__,  # works in a clone that is not installed, too
        }  # fmt: skip


def surroundings(device: str) -> dict[str, str]:
    """Return the versions of packages and the machine, for the report; they may differ on resumption."""
    packages = {name: version(name) for name in ("torch", "timm", "numpy", "pillow")}
    here = {"system": f"{platform.system()} {platform.machine()}", "device": device}
    return {"python": sys.version.split()[0], **packages, **here}


@contextmanager
def progress_bar(progress: OnImage | bool | None, **look: Any) -> Iterator[OnImage | None]:
    """Yield the callback `progress`; for True, that of a tqdm bar with the options `look`."""
    if progress is not True:
        yield progress or None
        return
    from tqdm.auto import tqdm

    with ExitStack() as open_:
        bars: list[tqdm] = []

        def tell(done: int, total: int | None) -> None:
            if not bars:  # a resumed survey starts above zero
                bars.append(open_.enter_context(tqdm(initial=done, total=total, unit=" images", **look)))
            bars[0].update(done - bars[0].n)

        yield tell


USUAL = ("distance", "prefix_mass")


def survey(
    source: Any, inspector: Inspector, measures: Iterable[str | Measure] = USUAL, *,
    out: str | os.PathLike | None = None, size: int | tuple[int, int] | None = None,
    batch: int | None = None, limit: int | None = None, seed: int | None = None, classes: ClassNames = None,
    part: int = PART, progress: OnImage | bool | None = None, workers: int = 0, gpus_per_worker: float = 1,
) -> Survey:  # fmt: skip
    """Measure a set of images in one pass and return means and standard errors over images.

    An image that cannot be read is skipped and listed in `.skipped`.

    Args:
        source: Images: a folder, a folder with one subfolder per class, a list in .csv or .parquet, a .tar
            or a folder of them, "hf:NAME" for a data set of the Hugging Face hub, or in Python several
            images or (image, label) pairs.
        inspector: The model.
        measures: Names in `vitviz.surveys.MEASURES`, or objects that follow `vitviz.surveys.Measure`.
        out: Folder for a table with one row per image, an .npz of averages and a report. If the process is
            killed, the same call resumes.
        size: Input size in pixels, one number or (height, width): multiples of the patch. None for the
            checkpoint's own.
        batch: Images per forward pass, at most. None for as many as fit into free memory, up to 512 on a GPU
            and 8 on a CPU. Where memory runs out, batches are divided in half; `.about` reports the size.
        limit: Maximum number of images: the first ones, or a random sample if there is a `seed`.
        seed: Seed of the random sample of `limit` images.
        classes: Names of the source's labels in the order of the checkpoint's classes, or a mapping from
            the source's labels to class numbers or labels of the checkpoint.
        part: Images per stored part.
        progress: Function of (done, total) called after each batch, which ends the survey by returning
            False; True shows a tqdm bar. `total` is None if the source does not know it.
        workers: Number of Ray actors that share the images (see `vitviz.surveys.cluster`); progress is then
            called after each part. 0 measures in this process.
        gpus_per_worker: GPUs of each worker; a fraction lets several share one.

    Returns:
        Means, standard errors and counts of every quantity. Shapes and units are those of the measures'
        `Quantity`: for example "distance" is (layer, head) in px.

    Raises:
        VitvizError: For an invalid argument, or if `out` contains another survey or cannot be written.
        ImageError: If no image could be read.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = survey([vitviz.sample_image("chelsea"), vitviz.sample_image("coffee")], inspector)
    >>> found.images, found.mean("distance").shape == found.error("distance").shape == (8, 3)
    (2, True)
    """
    plan = Plan(results := sources.source_of(source), sources.summarise(results), limit, seed, part)
    measuring = measuring_of(inspector, measures, size, batch, classes)
    comparing = [one.name for one in measuring.measures if isinstance(one, BatchMeasure)]
    if comparing and min(measuring.batch.asked, part) < LEAST:
        expected = f"batch and part must each be at least {LEAST}"
        raise VitvizError(f"{comparing[0]} compares the images of a batch: {expected}.")
    settings = plan.settings(measuring, classes)
    about = {**settings, "where": escape_unencodable(str(results.where)), "begun": _now()}
    begun = Survey.begun(inspector, measuring.measures, measuring.size, about)
    parts = SurveyFolder(Path(out), settings) if out is not None else None
    if whole_number(workers) is None:
        expected = "how many of Ray's actors, or 0 for none"
        raise VitvizError(f"workers={quoted(workers)} is not valid; expected {expected}.")
    if gpus_per_worker != 1 and not workers:
        raise VitvizError("gpus_per_worker needs Ray's actors; pass their number as workers, too.")
    if not 0 < gpus_per_worker <= 1:
        said = quoted(gpus_per_worker)
        raise VitvizError(f"gpus_per_worker={said} is not valid; expected a number above 0, at most 1.")
    through = partial(_measure_by_actors, workers, gpus_per_worker) if workers else _measure_here
    start = time.perf_counter()
    with progress_bar(progress) as tell:
        result, finished = through(plan, measuring, begun, parts, tell)
    speed = result.effort.facts(time.perf_counter() - start)
    if not result.images and not result.left_out:
        raise VitvizError("A survey needs at least one image; none was given.")
    if not result.images:
        raise ImageError("None of the images could be read. " + str(result.skipped[0]))
    if WRITTEN in result.spreads and result.images > 1:
        result = replace(result, words=heads_in_words(inspector, result))
    about = {**about, "ended": _now(), "finished": finished, **surroundings(str(inspector.device)), **speed}
    if parts is None or not finished:
        return replace(result, about=about)
    from vitviz.surveys.report import write_report

    return write_report(replace(begun, about=about, folder=parts.folder, words=result.words), parts)


def surveying(
    images: Iterable, inspector: Inspector, measures: Iterable[str | Measure] = USUAL, *, batch: int = SMALL,
    size: int | tuple[int, int] | None = None,
) -> Iterator[Survey]:  # fmt: skip
    """Yield the running averages after each batch of images; nothing is written to disk.

    Images are named by their position, from 1.

    Args:
        images: Images or (image, label) pairs; an iterator is consumed lazily.
        inspector: The model.
        measures: As for `survey`.
        batch: Images per forward pass.
        size: Input size in pixels, as for `survey`.

    Yields:
        The survey of all images so far, with means, standard errors and counts.

    Raises:
        VitvizError: For an invalid argument.
        ImageError: If no image could be read.
    """
    measuring = measuring_of(inspector, measures, size, batch, None)
    sources.source_of(images if isinstance(images, list | tuple) else [])  # validates the set of images
    result = Survey.begun(inspector, measuring.measures, measuring.size, {})
    for one in measuring.batches(enumerate(sources.ImageList(images, by_path=False))):
        result = result.grown(SurveyPart.join([one]))
        if result.images:
            yield result
    if result.left_out and not result.images:
        raise ImageError("None of the images could be read. " + str(result.skipped[0]))


def measuring_of(inspector: Inspector, measures, size, batch: int | None, classes: ClassNames) -> Measurement:
    """Return the configuration for measuring images; raise VitvizError for an invalid argument."""
    if batch is not None and whole_number(batch, least=1) is None:
        expected = "the number of images in one forward pass, 1 or more"
        raise VitvizError(f"batch={quoted(batch)} is not valid; expected {expected}.")
    measures = select_measures(measures)
    required = any(one.name == "accuracy" for one in measures)
    outputs, head_type = int(getattr(inspector.model, "num_classes", 0)), inspector.head_type
    if required and head_type == "value":
        raise VitvizError(f"{NO_DECISION.format(name=inspector.checkpoint.name)}; leave accuracy out.")
    yes_or_no = outputs == 1 and head_type == "sigmoid"
    counted = 0 if head_type == "value" else 2 if yes_or_no else outputs
    names = predictions_named(inspector.labels, outputs, head_type) if counted else ()
    labels = Labels(counted, names, classes, required)
    grid = inspector.grid(size if size is None or isinstance(size, tuple) else (size, size))
    own = inspector.preprocessing.size
    pixels = own if size is None else grid.pixels
    if any(isinstance(one, BatchMeasure) for one in measures):
        batch = batch or SMALL  # a minibatch, whose size changes the result
    batches = BatchSize(batch, batch or fitting(inspector, pixels))
    return Measurement(inspector, measures, labels, pixels, batches)


def _measure_here(
    plan: Plan, measuring: Measurement, begun: Survey, parts: SurveyFolder | None, progress: OnImage | None
) -> tuple[Survey, bool]:
    """Measure all images that are not done; return the survey, and whether all are measured.

    With `parts`, finished parts are read from and written to the folder; otherwise nothing is stored.
    """
    done, at, goes_on = set(parts.numbers()) if parts else set(), 0, True

    def every() -> Iterator[SurveyPart]:
        nonlocal at, goes_on
        for number in sorted(done):
            at += len(part := parts.read(number))
            yield part
        measured = measuring.measured(measuring.ahead(plan.items(done)), plan.part)
        for number, some in groupby(measured, key=lambda one: one.first // plan.part):
            batches = []
            for one in some:
                batches.append(one)
                at += len(one)
                goes_on = progress is None or progress(at, plan.count) is not False
                if not goes_on:
                    break
            part = SurveyPart.join(batches)
            if parts is not None and goes_on:
                parts.write(number, part)
            yield part
            if not goes_on:
                return

    return begun.with_parts(every()), goes_on


def _measure_by_actors(
    workers: int, gpus: float, plan: Plan, measuring: Measurement, begun: Survey, parts: SurveyFolder | None,
    tell: OnImage | None
) -> tuple[Survey, bool]:  # fmt: skip
    """Measure like `_measure_here`, in Ray actors; parts are merged in order, not in order of completion."""
    from vitviz.surveys.cluster import measure_parts

    result = {number: parts.read(number) for number in parts.numbers()} if parts else {}
    at, goes_on = sum(map(len, result.values())), True
    for number, part in measure_parts(plan, measuring, set(result), workers, gpus):
        if parts is not None:
            parts.write(number, part)
        result[number], at = part, at + len(part)
        goes_on = tell is None or tell(at, plan.count) is not False
        if not goes_on:
            break
    return begun.with_parts(result[number] for number in sorted(result)), goes_on


def _now() -> str:
    """Return the current time in UTC as ISO 8601 text, to the second."""
    return datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
