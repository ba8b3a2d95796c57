"""Results of a survey: means with standard errors, skipped images, errors, and comparison of two surveys."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vitviz import analyses
from vitviz.analyses import Distances, Grams, HeadsInWords, Spread
from vitviz.engine import Inspector
from vitviz.errors import VitvizError, quoted
from vitviz.surveys.effort import Effort
from vitviz.surveys.measure import Measure, Quantity
from vitviz.surveys.moments import Moments, add_sums
from vitviz.surveys.rows import Refusal, Row, Skipped, SurveyPart, collect_refusals
from vitviz.traces.classes import Classes
from vitviz.traces.display import NotebookChart, NotebookTable
from vitviz.traces.grid import Grid
from vitviz.traces.head_type import HeadType, predictions_named
from vitviz.traces.text_classes import plain_name

WRITTEN = "words.written"
KEPT = 24  # rows kept in each list of errors


@dataclass
class Mistakes:
    """Counts and examples of wrong predictions. Memory is bounded by the number of classes, not of images."""

    labelled: int = 0
    right: int = 0
    # (true class, prediction) -> number of errors
    confusions: Counter[tuple[int, int]] = field(default_factory=Counter)
    surest: list[Row] = field(default_factory=list)  # errors by decreasing probability of the prediction
    nearest: list[Row] = field(default_factory=list)  # errors by increasing gap to the true class

    def add(self, rows: Iterable[Row]) -> None:
        """Count the images that have a label and a prediction; ignore others."""
        known = [row for row in rows if row.label is not None and row.answer is not None]
        wrong = [row for row in known if row.answer != row.label]
        self.labelled, self.right = self.labelled + len(known), self.right + len(known) - len(wrong)
        self.confusions.update((row.label, row.answer) for row in wrong)
        surest, nearest = [*self.surest, *wrong], [*self.nearest, *wrong]  # ties keep the earlier row
        self.surest = heapq.nsmallest(KEPT, surest, key=lambda row: -row.probability)
        self.nearest = heapq.nsmallest(KEPT, nearest, key=lambda row: row.probability - row.of_label)


def _prediction(row: Row) -> tuple[int | None, float | None]:
    """Return (predicted class, probability); for a head of values, (largest output, its value)."""
    if not row.outputs:
        return row.answer, row.probability
    return max(range(len(row.outputs)), key=row.outputs.__getitem__), max(row.outputs)


LISTED = 1_000  # skipped images kept in memory; skipped.csv lists all


@dataclass(frozen=True)
class Survey(NotebookChart, NotebookTable):
    """Averages over the images measured so far.

    Quantities are named "measure.quantity", such as "distance.distance". `mean`, `error` and `moments`
    also accept the part behind the dot if it is unambiguous.
    """

    checkpoint: str
    grid: Grid  # patch grid of all images
    dtype: str  # dtype of the computation
    measures: tuple[Measure, ...]
    images: int = 0  # number of measured images
    sums: Mapping[str, Moments] = field(default_factory=dict)  # "measure.quantity" -> moments
    skipped: tuple[Skipped, ...] = ()  # first 1,000 unreadable images
    # (index, predicted class, probability) of the first 1,000 images; for values, the largest output
    answers: tuple[tuple[int, int | None, float | None], ...] = field(default=(), repr=False)
    left_out: int = 0  # number of unreadable images
    refused: Mapping[str, Refusal] = field(default_factory=dict)  # "measure.part" -> why it has no value
    labels: tuple[str, ...] = field(default=(), repr=False)
    about: Mapping[str, Any] = field(default_factory=dict)  # settings, seeds, hashes, versions
    mistakes: Mistakes | None = field(default=None, repr=False)
    folder: Path | None = None  # folder of the output files
    # one per batch, if "similarity" was measured
    grams: tuple[Grams, ...] = field(default=(), repr=False)
    spreads: Mapping[str, Spread] = field(default_factory=dict, repr=False)
    words: HeadsInWords | None = field(default=None, repr=False)  # for the inspector's own classes
    head_type: HeadType = "softmax"
    outputs: int = 0  # number of outputs of the classifier
    effort: Effort = field(default=Effort(), repr=False)  # of the images that this run measured

    @classmethod
    def begun(
        cls, by: Inspector, measures: tuple[Measure, ...], size: tuple[int, int], about: Mapping[str, Any]
    ) -> Survey:
        """Return an empty survey of the inspector `by`, before the first image."""
        name = by.checkpoint.name
        outputs, head_type = int(getattr(by.model, "num_classes", 0)), by.head_type
        details = {"labels": predictions_named(by.labels, outputs, head_type), "about": about}
        grid = by.grid(size)
        return cls(name, grid, by.dtype, measures, **details, head_type=head_type, outputs=outputs)

    def grown(self, more: SurveyPart) -> Survey:
        """Return the survey extended by the images of a part."""
        rows = more.rows[: max(0, LISTED - self.images)]
        answers = ((row.index, *_prediction(row)) for row in rows)
        return replace(
            self, images=self.images + len(more.rows), answers=(*self.answers, *answers),
            sums=add_sums(dict(self.sums), more.sums),
            skipped=(*self.skipped, *more.skipped)[:LISTED], left_out=self.left_out + len(more.skipped),
            grams=(*self.grams, *more.grams), refused=collect_refusals(more.rows, self.refused),
            spreads=add_sums(self.spreads, more.spreads), effort=self.effort + more.effort,
        )  # fmt: skip

    def with_parts(self, parts: Iterable[SurveyPart]) -> Survey:
        """Return the survey extended by all parts in order, with examples of wrong predictions."""
        result, mistakes = self, Mistakes()
        for part in parts:
            result = result.grown(part)
            mistakes.add(part.rows)
        return replace(result, mistakes=mistakes)

    @property
    def quantities(self) -> dict[str, Quantity]:
        """Return the measured quantities by full name, "measure.quantity"."""
        every = {f"{one.name}.{what.name}": what for one in self.measures for what in one.quantities}
        return {name: what for name, what in every.items() if name in self.sums}

    layers = property(lambda self: self._by_head[0], doc="How many layers were measured.")
    heads = property(lambda self: self._by_head[1], doc="How many heads each of them has.")

    @property
    def _by_head(self) -> tuple[int, int]:
        """The numbers of layers and heads, from the first quantity measured by layer and head.

        Raises VitvizError if there is no such quantity.
        """
        result = [name for name, what in self.quantities.items() if what.axes == "layer head"]
        if not result:
            raise VitvizError("Nothing in this survey was measured by layer and head.")
        return self.sums[result[0]].mean.shape

    def label_of(self, number: int) -> str:
        """Return the label of class `number` (from 0), or "class N" ("output N" for values) without one."""
        other = "output" if self.head_type == "value" else "class"
        return self.labels[number] if number < len(self.labels) else f"{other} {number}"

    def moments(self, name: str) -> Moments:
        """Return count, mean, variance and standard error over images of one quantity.

        Args:
            name: Full name ("distance.entropy") or, if unambiguous, the part behind the dot.

        Raises:
            VitvizError: If the survey has no such quantity.
        """
        result = [full for full in self.sums if name in (full, full.partition(".")[2])]
        if len(result) != 1:
            known = ", ".join(self.sums) or "none yet"
            raise VitvizError(f"This survey has no average {quoted(name)}; it has {known}.")
        return self.sums[result[0]]

    def mean(self, name: str) -> np.ndarray:
        """Return the mean of a quantity over images: float64, shape of the quantity, in its unit."""
        return self.moments(name).mean

    def error(self, name: str) -> np.ndarray:
        """Return the standard error of the mean, in the shape and unit of `mean`; NaN for a single image."""
        return self.moments(name).error

    def rows(self) -> list[dict[str, Any]]:
        """Return one dict per number: quantity, index on each axis (from 0), mean, standard error, images."""
        result = []
        for name, what in self.quantities.items():
            sums, axes = self.sums[name], what.axes.split()
            for place, mean in np.ndenumerate(sums.mean):
                row = {"quantity": name, **dict(zip(axes, place, strict=True)), "mean": float(mean)}
                result.append({**row, "error": float(sums.error[place]), "pictures": sums.count})
        return result

    @property
    def distances(self) -> Distances:
        """Return the mean attention distance (px, both conventions) and prefix mass over images.

        Raises:
            VitvizError: If the survey did not measure "distance" and "prefix_mass".
        """
        names = ("distance.distance", "distance.renormalised", "prefix_mass.prefix_mass")
        return Distances(*(torch.from_numpy(self.mean(name)).float() for name in names))

    def __repr__(self) -> str:
        return f"Survey({self.checkpoint!r}, {self.images} images, {', '.join(self.sums) or 'nothing yet'})"


def cka(
    survey_a: Survey, survey_b: Survey | None = None, tokens: str = "patches"
) -> Float[Tensor, "depth depth2"]:
    """Return the CKA of every layer of one surveyed checkpoint with every layer of another, or of itself.

    Depth 0 is the input of block 1; depth l is the raw output of block l. Batches of fewer than 4 images are
    ignored. Source: Nguyen, Raghu and Kornblith 2021 (arXiv 2010.15327), equations 2 and 3.
    `vitviz.analyses.cka_error` computes the standard error from the surveys' `.grams`.

    Args:
        survey_a: Survey that measured "similarity".
        survey_b: Survey of the same images with the same `batch`; None for `survey_a`. The two checkpoints
            may differ in width, number of layers and patch size.
        tokens: "class", "patches" (the mean over patches) or "all".

    Returns:
        Tensor of shape (depths of a, depths of b) with values from -1 to 1. Unrelated layers have about 0,
        or slightly less. NaN where all images have the same representation, as for the class token at
        depth 0.

    Raises:
        VitvizError: If the surveys cover different images or did not measure "similarity".

    >>> import vitviz
    >>> pictures = [vitviz.sample_image(sample.name) for sample in vitviz.samples.samples()]
    >>> of = lambda name: vitviz.survey(pictures, vitviz.load(name), ["similarity"])
    >>> cka(of("vitviz-tiny"), of("vitviz-tiny")).shape
    torch.Size([9, 9])
    """
    survey_b = survey_a if survey_b is None else survey_b
    for survey in (survey_a, survey_b):
        if not survey.grams:
            raise VitvizError(
                f"The survey of {survey.checkpoint} has nothing to compare: expected one that measured"
                ' "similarity", such as vitviz.survey(images, inspector, ["similarity"]), on four'
                " images or more."
            )
    return analyses.cka(survey_a.grams, survey_b.grams, tokens)


def heads_in_words(
    inspector: Inspector, survey: Survey, classes: Classes | None = None, most: int = 5
) -> HeadsInWords:
    """Describe the output of each head in words, with the share of its variance that each word explains.

    A head whose variance no word explains better than random vectors has no words. Source:
    `vitviz.analyses.words`.

    Args:
        inspector: The inspector that made the survey.
        survey: Survey that measured "words", with any classes.
        classes: Candidate words, as made by `vitviz.text`; None for the inspector's own classes.
        most: Maximum number of words per head.

    Returns:
        Words of every head. `shares` has the shape (layer, head, step) and holds fractions of the variance.

    Raises:
        VitvizError: If the survey is of another checkpoint, did not measure "words", or has fewer than two
            images.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> width = len(inspector.labels)  # what its last layer gives
    >>> asked = inspector.with_classes(vitviz.Classes(["one", "another"], [[1.0] * width, range(width)]))
    >>> pictures = [vitviz.sample_image(name) for name in ("chelsea", "coffee", "rocket")]
    >>> heads_in_words(asked, vitviz.survey(pictures, asked, ["words"])).shares.shape  # layer, head, step
    torch.Size([8, 3, 5])
    """
    classes = inspector.classes if classes is None else classes
    others = plain_name(survey.checkpoint) != plain_name(inspector.checkpoint.name)
    if classes is None or WRITTEN not in survey.spreads or others:
        raise VitvizError(
            f"A survey of {survey.checkpoint} does not fit {inspector.checkpoint.name}; expected classes,"
            ' and a survey that measured "words" with the same checkpoint, such as vitviz.survey(images,'
            ' inspector, ["words"]) of inspector.with_classes(vitviz.text(inspector)).'
        )
    readout = inspector.with_classes(classes).tail(survey.grid.pixels)
    return analyses.heads_in_words(survey.spreads[WRITTEN], readout, classes, most)
