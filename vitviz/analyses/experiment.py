"""The classroom experiment on one picture: what is answered when patches go or move, or all of it changes.

Which patches are taken away or moved is in `vitviz.analyses.occlusion`, other changes in its `altered`, with
the sources; here they are gone through step by step, and the answers become curves. Watched is the class that
the whole picture is most likely to show: its probability, and whether it stays the likeliest. Every step has
the same draws, each with a seed, direction or second picture of its own; the error is of the mean over draws,
and says nothing of other pictures.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitviz.analyses.occlusion import mean_and_error, permutation, piece_sides, shuffled_pieces
from vitviz.analyses.protocol import DRAWS, EDITED, KINDS, NO_HEAD, ONE_PATCH, SCORES, SHARES, WAYS
from vitviz.analyses.trials.curves import scored
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.record.grid import Grid
from vitviz.record.sentence import Sentence, said
from vitviz.record.shown import Tabled
from vitviz.record.trace import Deviation, Trace

Asked = Callable[[str, int], Float[Tensor, "draw class"]]  # the logits by way and step
Progress = Callable[[float, str], None]  # the share that is done, and the way that is being asked about


@dataclass(frozen=True, eq=False)
class Experiment(Tabled):
    """What was found on one picture. A way that the model does not have is in `refused`, with the reason."""

    checkpoint: str
    kind: str  # one of KINDS
    answer: int  # the class that is watched
    label: str
    patches: int  # of the whole picture
    steps: tuple[int, ...]  # how many patches, pieces, pixels, degrees or per cent
    probability: Mapping[str, Float[Tensor, "step draw"]]  # of the answer, by way
    kept: Mapping[str, Float[Tensor, "step draw"]]  # 1 where the answer stays the likeliest, else 0
    refused: Mapping[str, str]
    dtype: str  # the precision in which the model answered
    deviation: Deviation | None  # of that precision from float32, where it is known

    def curve(self, way: str, score: str = "probability") -> list[tuple[float, float]]:
        """Mean over draws and standard error at every step; VitvizError for no such way or score."""
        known = getattr(self, score) if score in SCORES else None
        if known is None or way not in known:
            ways = ", ".join(self.probability)
            raise VitvizError(
                f"Given way={way!r}, score={score!r}; expected one of {ways}, and one of {', '.join(SCORES)}."
            )
        return [mean_and_error(draws) for draws in known[way]]

    def rows(self) -> list[dict[str, Any]]:
        """One row a way, step and draw, for tables and files."""
        what, found = KINDS[self.kind].counts, []
        for way, step in product(self.probability, range(len(self.steps))):
            each = zip(*(getattr(self, score)[way][step].tolist() for score in SCORES), strict=True)
            for draw, scores in enumerate(each, start=1):
                told = dict(zip(SCORES, scores, strict=True))
                found.append({"way": way, what: self.steps[step], "draw": draw, **told})
        return found


def experiment_of(
    trace: Trace, kind: str, asked: Asked, progress: Progress = lambda share, way: None
) -> Experiment:
    """All steps of every way, asked about one after the other.

    `asked` may raise UnsupportedModel for a way that there is not. Raises VitvizError for another kind, and
    where there is nothing to ask about; Stopped where nobody waits.
    """
    if kind not in WAYS:
        raise VitvizError(f"Given kind={kind!r}; expected one of {', '.join(WAYS)}.")
    if reason := why_not(trace):
        raise VitvizError(reason)
    steps, answer = steps_of(trace.grid, kind), int(trace.logits.argmax())
    found: dict[str, dict[str, Tensor]] = {score: {} for score in SCORES}
    refused: dict[str, str] = {}
    for number, way in enumerate(WAYS[kind]):
        points = []
        try:
            for step in range(len(steps)):
                progress((number + step / len(steps)) / len(WAYS[kind]), way)
                points.append(scores_of(asked(way, step), answer, trace))
        except UnsupportedModel as reason:
            refused[way] = said(reason)
            continue
        for score, by_way in found.items():
            by_way[way] = torch.stack([one[score] for one in points])
    about = (trace.checkpoint, kind, answer, trace.named(answer), trace.grid.patches, tuple(map(int, steps)))
    return Experiment(*about, **found, refused=refused, dtype=trace.dtype, deviation=trace.deviation)


def scores_of(
    logits: Float[Tensor, "draw class"], answer: int, trace: Trace | None = None
) -> dict[str, Float[Tensor, " draw"]]:
    """Each of SCORES by draw; a `trace` of the same classes says what logits make probabilities.

    >>> found = scores_of(torch.tensor([[1.0, 1.0], [0.0, 2.0]]), answer=0)
    >>> found["kept"].tolist(), found["probability"][0].item()
    ([1.0, 0.0], 0.5)
    """
    return scored(logits.double(), (answer,), answer, trace and trace.probabilities)


def why_not(trace: Trace) -> Sentence | None:
    """Why there is no experiment on a trace; None where there is one."""
    if trace.logits is None:
        return Sentence(NO_HEAD, checkpoint=trace.checkpoint)
    if trace.grid.patches == 1:
        return Sentence(ONE_PATCH, checkpoint=trace.checkpoint)
    return Sentence(EDITED) if trace.without else None


def places_of(grid: Grid, kind: str) -> tuple[int, ...]:
    """Where each step stands on the axis: per cent, pixels (0 to two patches, in eighths of one), degrees, or
    its number.

    >>> places_of(Grid(2, 2, (4, 4), ()), "shift"), places_of(Grid(2, 2, (4, 4), ()), "shuffle")
    ((0, 1, 2, 3, 4, 5, 6, 7, 8), (1, 2))
    """
    if kind == "shuffle":
        return tuple(range(1, len(piece_sides(grid)) + 2))
    if kind == "shift":
        return tuple(sorted({(2 * eighth * grid.patch[1] + 8) // 16 for eighth in range(17)}))
    return tuple(range(0, 181, 15)) if kind == "turn" else SHARES


def steps_of(grid: Grid, kind: str) -> Int[np.ndarray, " step"]:
    """How many patches are dropped or another's by step; how many pieces are shuffled; else its place."""
    if kind == "shuffle":
        return np.array([1, *(grid.patches // side**2 for side in piece_sides(grid))])
    places = np.array(places_of(grid, kind))
    return places * grid.patches // 100 if kind in ("drop", "ground") else places


def orders_of(grid: Grid, kind: str, draws: int = DRAWS) -> Int[np.ndarray, "order draw patch"]:
    """In which order patches are dropped; shuffled, which patch stands at each place, by step; else none."""
    seeds = range(1, draws + 1)
    if kind == "drop":
        return np.stack([[permutation(grid.patches, seed) for seed in seeds]])
    plain = [np.arange(grid.patches)] * draws
    sides = piece_sides(grid) if kind == "shuffle" else ()
    return np.stack([plain, *([shuffled_pieces(grid, side, d) for d in seeds] for side in sides)])
