"""Perturbations of one image: the prediction as patches are removed or shuffled, or the whole image changes.

A change is applied step by step, and the scores become curves. The scores are those of the class that is
predicted for the unchanged image: its probability, and whether the prediction is preserved. For a head with
one output, the yes or no must be preserved; for a head of values, only the largest value is recorded. Every
step has the same draws, each with its own seed, direction or second image. The error is that of the mean over
draws, and says nothing about other images. Changes of a whole image are in `vitviz.analyses.image_changes`,
with their sources.

Occlusion and shuffling: how much of an image a model needs, and whether the positions of the patches matter.

Draw d has a random order pi_d of the N patches. With a fraction p removed, the first floor(p N) patches of
pi_d are removed, so the removed set only grows along a draw. Either their tokens are dropped from the
sequence, or the patches are painted black. Shuffling permutes pieces of k x k patches in a random order other
than the image's own; inside a piece nothing moves. Both ends are known beforehand: with nothing removed the
prediction is that of the image, and with everything removed it is the model's prediction for an empty image,
independent of the image.

Source: Naseer et al. 2021 (arXiv 2105.10497), random PatchDrop and the shuffles, there with one random set
for a batch of images and pieces of whole pixels. Here every draw has its own set, pieces are of whole
patches, and the curves are one image's. They do not show what a model would have learned from such images,
nor how it reacts to other gaps: missing objects are not missing squares.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import product
from math import gcd
from typing import Any

import numpy as np
import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor

from vitviz.analyses.faithfulness.curves import compute_scores
from vitviz.analyses.protocol import DRAWS, EDITED, KINDS, NO_HEAD, ONE_PATCH, SCORES, SHARES, WAYS
from vitviz.errors import UnsupportedModel, VitvizError, quoted, whole_number
from vitviz.traces.display import NotebookChart, NotebookTable
from vitviz.traces.grid import Grid
from vitviz.traces.head_type import HeadType, require_score, scores_named
from vitviz.traces.localized_text import LocalizedText, message_of
from vitviz.traces.trace import Deviation, Trace

LogitsAtStep = Callable[[str, int], Float[Tensor, "draw class"]]  # logits by way and step
OnProgress = Callable[[float, str], None]  # fraction done, and the way in progress


@dataclass(frozen=True, eq=False)
class Perturbation(NotebookChart, NotebookTable):
    """Scores of one image by way, step and draw; unsupported ways are in `refused`, with the reason."""

    checkpoint: str
    kind: str  # one of KINDS
    answer: int  # class whose scores are recorded
    label: str
    patches: int  # number of patches of the whole image
    steps: tuple[int, ...]  # number of patches, pieces, pixels, degrees or per cent
    probability: Mapping[str, Float[Tensor, "step draw"]]  # of the class, by way; empty for values
    # 1 if the prediction is preserved, else 0; empty for values
    kept: Mapping[str, Float[Tensor, "step draw"]]
    refused: Mapping[str, str]
    dtype: str  # precision of the model
    deviation: Deviation | None  # deviation of that precision from float32, if known
    logit: Mapping[str, Float[Tensor, "step draw"]] = field(default_factory=dict)  # for values: the value
    head_type: HeadType = "softmax"

    @property
    def scores(self) -> tuple[str, ...]:
        """Recorded scores: "probability" and "kept"; for values "logit", which is the value itself."""
        return tuple(one for one in SCORES if one in scores_named(self.head_type)) or ("logit",)

    @property
    def ways(self) -> tuple[str, ...]:
        """Supported ways of the change."""
        return tuple(getattr(self, self.scores[0]))

    def curve(self, way: str, score: str | None = None) -> list[tuple[float, float]]:
        """Return the mean over draws and its standard error for every step.

        Raises VitvizError for an unknown way or score.
        """
        score = require_score(score, self.head_type, self.checkpoint)
        if score not in self.scores or way not in self.ways:
            ways, scores = ", ".join(self.ways), ", ".join(self.scores)
            expected = f"expected one of {ways}, and one of {scores}"
            raise VitvizError(f"way={quoted(way)} with score={quoted(score)} is not valid; {expected}.")
        return [mean_and_error(draws) for draws in getattr(self, score)[way]]

    def rows(self) -> list[dict[str, Any]]:
        """Return one row per way, step and draw, for tables and files."""
        what, result = KINDS[self.kind].counts, []
        for way, step in product(self.ways, range(len(self.steps))):
            each = zip(*(getattr(self, score)[way][step].tolist() for score in self.scores), strict=True)
            for draw, scores in enumerate(each, start=1):
                details = dict(zip(self.scores, scores, strict=True))
                result.append({"way": way, what: self.steps[step], "draw": draw, **details})
        return result


def run_perturbation(
    trace: Trace, kind: str, logits_at: LogitsAtStep, progress: OnProgress = lambda share, way: None
) -> Perturbation:
    """Return the scores of a perturbation: `logits_at` computes the logits of each way's steps, in order.

    `logits_at` may raise UnsupportedModel for an unsupported way. Raises VitvizError for an unknown kind or
    an unsuitable trace, and Stopped if the computation is cancelled.
    """
    if kind not in WAYS:
        raise VitvizError(f"kind={quoted(kind)} is not valid; expected one of {', '.join(WAYS)}.")
    if reason := unsupported_reason(trace):
        raise VitvizError(reason)
    steps, answer = step_sizes(trace.grid, kind), int(trace.logits.argmax())
    result: dict[str, dict[str, Tensor]] = {score: {} for score in (*SCORES, "logit")}
    refused: dict[str, str] = {}
    for number, way in enumerate(WAYS[kind]):
        points = []
        try:
            for step in range(len(steps)):
                progress((number + step / len(steps)) / len(WAYS[kind]), way)
                points.append(scores_of(logits_at(way, step), answer, trace))
        except UnsupportedModel as reason:
            refused[way] = message_of(reason)
            continue
        for score in points[0]:
            result[score][way] = torch.stack([one[score] for one in points])
    about = (trace.checkpoint, kind, answer, trace.named(answer), trace.grid.patches, tuple(map(int, steps)))
    of = {"dtype": trace.dtype, "deviation": trace.deviation, "head_type": trace.head_type}
    return Perturbation(*about, **result, refused=refused, **of)


def scores_of(
    logits: Float[Tensor, "draw class"], answer: int, trace: Trace | None = None
) -> dict[str, Float[Tensor, " draw"]]:
    """Return by name the scores of each draw: "probability" and "kept"; for a head of values only "logit".

    `trace` is that of the unchanged image: its head type and its prediction are used.

    >>> found = scores_of(torch.tensor([[1.0, 1.0], [0.0, 2.0]]), answer=0)
    >>> found["kept"].tolist(), found["probability"][0].item()
    ([1.0, 0.0], 0.5)
    """
    head_type, own = ("softmax", answer) if trace is None else (trace.head_type, trace.prediction)
    result = compute_scores(logits.double(), (answer,), own, head_type)
    return result if head_type == "value" else {score: result[score] for score in SCORES}


def unsupported_reason(trace: Trace) -> LocalizedText | None:
    """Return the reason why a trace cannot be perturbed; None if it can."""
    if trace.logits is None:
        return LocalizedText(NO_HEAD, checkpoint=trace.checkpoint)
    if trace.grid.patches == 1:
        return LocalizedText(ONE_PATCH, checkpoint=trace.checkpoint)
    return LocalizedText(EDITED) if trace.without else None


def step_values(grid: Grid, kind: str) -> tuple[int, ...]:
    """Return the value of each step of a perturbation, as the axis shows it.

    Values are per cent, pixels (0 to two patches, in eighths of one), degrees, or the step's number.

    >>> step_values(Grid(2, 2, (4, 4), ()), "shift"), step_values(Grid(2, 2, (4, 4), ()), "shuffle")
    ((0, 1, 2, 3, 4, 5, 6, 7, 8), (1, 2))
    """
    if kind == "shuffle":
        return tuple(range(1, len(piece_sides(grid)) + 2))
    if kind == "shift":
        return tuple(sorted({(2 * eighth * grid.patch[1] + 8) // 16 for eighth in range(17)}))
    return tuple(range(0, 181, 15)) if kind == "turn" else SHARES


def step_sizes(grid: Grid, kind: str) -> Int[np.ndarray, " step"]:
    """Return each step's number of changed patches or of pieces; for other kinds its `step_values` value."""
    if kind == "shuffle":
        return np.array([1, *(grid.patches // side**2 for side in piece_sides(grid))])
    places = np.array(step_values(grid, kind))
    return places * grid.patches // 100 if kind in ("drop", "ground") else places


def perturbation_orders(grid: Grid, kind: str, draws: int = DRAWS) -> Int[np.ndarray, "order draw patch"]:
    """Return the order in which patches are dropped, or for each step the patch at each position.

    For changes that do not move patches, every patch stays at its position.
    """
    seeds = range(1, draws + 1)
    if kind == "drop":
        return np.stack([[permutation(grid.patches, seed) for seed in seeds]])
    plain = [np.arange(grid.patches)] * draws
    sides = piece_sides(grid) if kind == "shuffle" else ()
    return np.stack([plain, *([shuffled_pieces(grid, side, d) for d in seeds] for side in sides)])


def permutation(patches: int, seed: Any) -> Int[np.ndarray, " patch"]:
    """Return the patch (row-major, from 0) that moves to each position, for a seed.

    The result is equal for equal seeds. Raises VitvizError for an invalid seed.

    >>> permutation(5, seed=1).tolist() == permutation(5, seed=1).tolist()
    True
    >>> sorted(permutation(5, seed=2).tolist())
    [0, 1, 2, 3, 4]
    """
    number = whole_number(seed)
    if number is None:
        expected = "expected a seed, a whole number from 0, which is the same order each time"
        raise VitvizError(f"shuffle={quoted(seed)} is not valid; {expected}.")
    return np.random.default_rng(number).permutation(patches)


def patches_kept(grid: Grid, share: int, seed: int) -> Int[np.ndarray, " kept"]:
    """Return the numbers of the remaining patches, ascending from 0, when `share` per cent are dropped.

    Raises VitvizError for a share outside 0 to 100 and for an invalid seed.

    >>> grid = Grid(2, 5, (16, 16), ("class",))
    >>> len(patches_kept(grid, 30, seed=0)), set(patches_kept(grid, 40, 0)) < set(patches_kept(grid, 30, 0))
    (7, True)
    """
    if not 0 <= share <= 100:
        expected = "expected the per cent of patches to drop, from 0 to 100"
        raise VitvizError(f"share={quoted(share)} is not valid; {expected}.")
    return np.sort(permutation(grid.patches, seed)[int(share) * grid.patches // 100 :])


def piece_sides(grid: Grid) -> tuple[int, ...]:
    """Return the possible side lengths of a piece in patches, the largest first.

    The result is empty if nothing can be shuffled. Pieces are square and fill the grid. Raises nothing.

    >>> piece_sides(Grid(14, 14, (16, 16), ("class",))), piece_sides(Grid(10, 14, (16, 16), ()))
    ((7, 2, 1), (2, 1))
    """
    most = gcd(grid.rows, grid.cols)
    return tuple(side for side in range(most, 0, -1) if most % side == 0 and side * side < grid.patches)


def shuffled_pieces(grid: Grid, side: int, seed: int) -> Int[np.ndarray, " patch"]:
    """Return the patch that moves to each position when pieces of `side` x `side` patches are shuffled.

    Raises VitvizError for pieces that do not fill the grid and for an invalid seed.

    >>> shuffled_pieces(Grid(2, 4, (16, 16), ()), side=2, seed=0).tolist()
    [2, 3, 0, 1, 6, 7, 4, 5]
    """
    sides = piece_sides(grid)
    if side not in sides:
        known = ", ".join(map(str, sides)) or "none"
        reason = f"since pieces are squares that fill the grid of {grid.rows} x {grid.cols} patches"
        raise VitvizError(f"side={quoted(side)} is not valid; expected one of {known}, {reason}.")
    rows, cols = grid.rows // side, grid.cols // side
    order = permutation(rows * cols, seed)
    while (order == np.arange(len(order))).all():  # with few pieces, some draws would move nothing
        seed += 1_000
        order = permutation(rows * cols, seed)
    cut = "(row down col across) -> (row col) down across"
    pieces = rearrange(np.arange(grid.patches), cut, down=side, col=cols, across=side)
    return rearrange(pieces[order], "(row col) down across -> (row down col across)", col=cols)


def mean_and_error(values: Float[Tensor, " draw"]) -> tuple[float, float]:
    """Return the mean over draws and its standard error, which is 0 if all draws agree. Raises nothing.

    >>> mean_and_error(torch.tensor([0.0, 1.0, 0.0, 1.0]))
    (0.5, 0.28867513459481287)
    """
    values = values.double()
    spread = values.std().item() if len(values) > 1 else 0.0
    return values.mean().item(), spread / len(values) ** 0.5
