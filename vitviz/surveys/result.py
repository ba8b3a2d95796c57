"""What a survey comes to: means with standard errors, what was left out, mistakes, and two compared."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vitviz import analyses
from vitviz.analyses import Distances, Grams, HeadsInWords, Spread
from vitviz.errors import VitvizError, quoted
from vitviz.surveys.measure import Measure, Quantity
from vitviz.surveys.moments import Moments, added
from vitviz.surveys.rows import Refusal, Row, Skipped, SurveyPart, refused_in
from vitviz.traces.classes import Classes
from vitviz.traces.display import NotebookTable
from vitviz.traces.grid import Grid
from vitviz.traces.head_type import HeadType, predictions_named
from vitviz.traces.text_classes import plain

if TYPE_CHECKING:
    from vitviz.engine import Inspector


WRITTEN = "words.written"
KEPT = 24  # of the surest errors, and of the nearest misses


@dataclass
class Mistakes:
    """Bounded by the number of classes, whatever the number of pictures."""

    labelled: int = 0
    right: int = 0
    # (true class, answer) of the errors
    confusions: Counter[tuple[int, int]] = field(default_factory=Counter)
    surest: list[Row] = field(default_factory=list)  # errors of which the model was surest, surest first
    nearest: list[Row] = field(default_factory=list)  # in which the true class came closest, nearest first

    def add(self, rows: Iterable[Row]) -> None:
        """Counts pictures with a known label; others are passed over."""
        known = [row for row in rows if row.label is not None and row.answer is not None]
        wrong = [row for row in known if row.answer != row.label]
        self.labelled, self.right = self.labelled + len(known), self.right + len(known) - len(wrong)
        self.confusions.update((row.label, row.answer) for row in wrong)
        surest, nearest = [*self.surest, *wrong], [*self.nearest, *wrong]  # of equals the first stays
        self.surest = heapq.nsmallest(KEPT, surest, key=lambda row: -row.probability)
        self.nearest = heapq.nsmallest(KEPT, nearest, key=lambda row: row.probability - row.of_label)


def _answer(row: Row) -> tuple[int | None, float | None]:
    """The class that a picture is taken for, and its probability; of values the largest, and which it is."""
    if not row.outputs:
        return row.answer, row.probability
    return max(range(len(row.outputs)), key=row.outputs.__getitem__), max(row.outputs)


LISTED = 1_000  # reasons kept in memory; the file beside the report has all


@dataclass(frozen=True)
class Survey(NotebookTable):
    """The averages over the pictures done so far. Names are such as "distance.distance"."""

    checkpoint: str
    grid: Grid  # that all pictures were cut into
    dtype: str  # in which the model computed
    measures: tuple[Measure, ...]
    images: int = 0  # how many pictures the averages are over
    sums: Mapping[str, Moments] = field(default_factory=dict)
    skipped: tuple[Skipped, ...] = ()  # the first thousand
    # place, class and probability of what the first thousand are taken for; of values the largest
    answers: tuple[tuple[int, int | None, float | None], ...] = field(default=(), repr=False)
    left_out: int = 0  # how many pictures could not be read
    refused: Mapping[str, Refusal] = field(default_factory=dict)  # "measure.part" -> where and why it is none
    labels: tuple[str, ...] = field(default=(), repr=False)
    about: Mapping[str, Any] = field(default_factory=dict)  # settings, seeds, hashes, versions
    mistakes: Mistakes | None = field(default=None, repr=False)
    folder: Path | None = None  # where the files lie
    # a minibatch each, where similarity was asked for
    grams: tuple[Grams, ...] = field(default=(), repr=False)
    spreads: Mapping[str, Spread] = field(default_factory=dict, repr=False)
    words: HeadsInWords | None = field(default=None, repr=False)  # of the inspector's own classes
    head_type: HeadType = "softmax"
    outputs: int = 0  # how many the classifier has

    @classmethod
    def begun(
        cls, by: Inspector, measures: tuple[Measure, ...], size: tuple[int, int], about: Mapping[str, Any]
    ) -> Survey:
        """Before the first picture."""
        name = by.checkpoint.name
        outputs, head_type = int(getattr(by.model, "num_classes", 0)), by.head_type
        told = {"labels": predictions_named(by.labels, outputs, head_type), "about": about}
        grid = by.grid(size)
        return cls(name, grid, by.dtype, measures, **told, head_type=head_type, outputs=outputs)

    def grown(self, more: SurveyPart) -> Survey:
        """With some pictures more."""
        rows = more.rows[: max(0, LISTED - self.images)]
        answers = ((row.index, *_answer(row)) for row in rows)
        return replace(
            self, images=self.images + len(more.rows), answers=(*self.answers, *answers),
            sums=added(dict(self.sums), more.sums),
            skipped=(*self.skipped, *more.skipped)[:LISTED], left_out=self.left_out + len(more.skipped),
            grams=(*self.grams, *more.grams), refused=refused_in(more.rows, self.refused),
            spreads=added(self.spreads, more.spreads),
        )  # fmt: skip

    def with_parts(self, parts: Iterable[SurveyPart]) -> Survey:
        """With all these parts, in their order, and where the model is wrong in them."""
        result, mistakes = self, Mistakes()
        for part in parts:
            result = result.grown(part)
            mistakes.add(part.rows)
        return replace(result, mistakes=mistakes)

    @property
    def quantities(self) -> dict[str, Quantity]:
        """What there is an average of."""
        every = {f"{one.name}.{what.name}": what for one in self.measures for what in one.quantities}
        return {name: what for name, what in every.items() if name in self.sums}

    layers = property(lambda self: self._by_head[0], doc="How many layers were measured.")
    heads = property(lambda self: self._by_head[1], doc="How many heads each of them has.")

    @property
    def _by_head(self) -> tuple[int, int]:
        found = [name for name, what in self.quantities.items() if what.axes == "layer head"]
        if not found:
            raise VitvizError("Nothing in this survey was measured by layer and head.")
        return self.sums[found[0]].mean.shape

    def label_of(self, number: int) -> str:
        """A class by its label, or by its number where there is none."""
        other = "output" if self.head_type == "value" else "class"
        return self.labels[number] if number < len(self.labels) else f"{other} {number}"

    def moments(self, name: str) -> Moments:
        """Count, mean, variance and standard error of a quantity; VitvizError for one that there is not."""
        found = [full for full in self.sums if name in (full, full.partition(".")[2])]
        if len(found) != 1:
            raise VitvizError(
                f"This survey has no average {quoted(name)}; it has {', '.join(self.sums) or 'none yet'}."
            )
        return self.sums[found[0]]

    def mean(self, name: str) -> np.ndarray:
        """The mean over pictures, float64."""
        return self.moments(name).mean

    def error(self, name: str) -> np.ndarray:
        """The standard error of that mean; not a number for a single picture."""
        return self.moments(name).error

    def rows(self) -> list[dict[str, Any]]:
        """One row a number of every average: place on its axes (from 0), mean, standard error, pictures."""
        found = []
        for name, what in self.quantities.items():
            sums, axes = self.sums[name], what.axes.split()
            for place, mean in np.ndenumerate(sums.mean):
                row = {"quantity": name, **dict(zip(axes, place, strict=True)), "mean": float(mean)}
                found.append({**row, "error": float(sums.error[place]), "pictures": sums.count})
        return found

    @property
    def distances(self) -> Distances:
        """The mean attention distance in both conventions and prefix mass, as `analyses.distances`' are."""
        names = ("distance.distance", "distance.renormalised", "prefix_mass.prefix_mass")
        return Distances(*(torch.from_numpy(self.mean(name)).float() for name in names))

    def __repr__(self) -> str:
        return f"Survey({self.checkpoint!r}, {self.images} pictures, {', '.join(self.sums) or 'nothing yet'})"


def cka(
    survey_a: Survey, survey_b: Survey | None = None, tokens: str = "patches"
) -> Float[Tensor, "depth depth2"]:
    """CKA of every depth of one survey's checkpoint with every depth of the other's, or with its own.

    Depth 0 enters block 1, depth l is the raw output of block l. Both are surveys of the same pictures with
    the same `batch`, measuring "similarity"; the checkpoints may have any widths, depths and patch sizes.
    `tokens`: "class", "patches" (their mean) or "all". From -1 to 1; of depths that have nothing in common
    about 0, or a little below. Not a number where all pictures are the same, as the class token entering
    block 1 is. Batches of fewer than 4 pictures do not count. Raises VitvizError where the surveys are of
    different pictures or did not measure it. Source: Nguyen, Raghu and Kornblith 2021 (arXiv 2010.15327),
    equations 2 and 3; `vitviz.analyses.cka_error` has the standard error of the surveys' `.grams`.

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
                f"Nothing to compare in the survey of {survey.checkpoint}: expected one that measured"
                ' "similarity", such as vitviz.survey(pictures, inspector, ["similarity"]), on four pictures'
                " or more."
            )
    return analyses.cka(survey_a.grams, survey_b.grams, tokens)


def heads_in_words(
    inspector: Inspector, survey: Survey, classes: Classes | None = None, most: int = 5
) -> HeadsInWords:
    """What each head writes into the embedding, in words: at most `most` a head, with shares of its variance.

    `survey` measured "words" by this inspector, of whatever classes; `classes` are those to choose from, as
    `vitviz.text` makes them, by default the inspector's own. A head that none of them explains better than
    random vectors do has no words. Raises VitvizError for a survey of another checkpoint, that did not
    measure it, or of fewer than two pictures. Source: `vitviz.analyses.words`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> width = len(inspector.labels)  # what its last layer gives
    >>> asked = inspector.with_classes(vitviz.Classes(["one", "another"], [[1.0] * width, range(width)]))
    >>> pictures = [vitviz.sample_image(name) for name in ("chelsea", "coffee", "rocket")]
    >>> heads_in_words(asked, vitviz.survey(pictures, asked, ["words"])).shares.shape  # layer, head, step
    torch.Size([8, 3, 5])
    """
    classes = inspector.classes if classes is None else classes
    others = plain(survey.checkpoint) != plain(inspector.checkpoint.name)
    if classes is None or WRITTEN not in survey.spreads or others:
        raise VitvizError(
            f"Given a survey of {survey.checkpoint} for {inspector.checkpoint.name}; expected classes, and a"
            ' survey that measured "words" by the same checkpoint, such as vitviz.survey(pictures, inspector,'
            ' ["words"]) of inspector.with_classes(vitviz.text(inspector)).'
        )
    readout = inspector.with_classes(classes).tail(survey.grid.pixels)
    return analyses.heads_in_words(survey.spreads[WRITTEN], readout, classes, most)
