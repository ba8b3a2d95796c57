"""The classroom experiment: the public function of an inspector and a picture, and its single steps.

What is asked, and made of answers, is in `vitviz.analyses.experiment`; here the engine makes the passes.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitviz.analyses.experiment import Experiment, Progress, experiment_of, orders_of
from vitviz.analyses.occlusion import patches_kept
from vitviz.analyses.protocol import DRAWS, SHARES
from vitviz.engine.inspector import Inspector
from vitviz.engine.passes import experiments
from vitviz.engine.passes.removal import Removal
from vitviz.errors import VitvizError, whole_number
from vitviz.record.trace import Trace


class Draws:
    """The picture of one of an inspector's traces, as the untouched model gets it."""

    def __init__(self, inspector: Inspector, trace: Trace):
        self._preprocessing = inspector.preprocessing.with_size(trace.view.picture.shape[:2])
        self._model, self._trace = inspector.placed.at(trace.grid.pixels), trace
        self._pixels = inspector.forward.pixels([experiments.as_seen(trace.view, self._preprocessing)])

    def kept(self, kept: Int[Tensor, "draw kept"], patches_as: str) -> Float[Tensor, "draw class"]:
        """The logits with these patches (from 0) alone; UnsupportedModel where none can be left out."""
        grid, pool = self._trace.grid, self._trace.pool
        removal = Removal(self._model, self._pixels, grid, pool, patches_as, self._preprocessing)
        return removal.answers(kept).float()

    def in_order(self, orders: Int[Tensor, "draw patch"]) -> Float[Tensor, "draw class"]:
        """The logits with the patch `orders[d, i]` at place i; Stopped where nobody waits."""
        grid = self._trace.grid
        return experiments.answers_in_order(self._model, self._pixels, grid, orders).float()


def experiment(
    inspector: Inspector,
    image,
    kind: str = "drop",
    draws: int = DRAWS,
    size=None,
    progress: Progress = lambda share, way: None,
) -> Experiment:
    """How sure a model stays of a picture whose patches are dropped or shuffled at random.

    `image` as for `Inspector.trace`, or a trace of it. `kind`: "drop" takes 0, 10, … 100 % of the patches
    away, left out of the sequence ("dropped") and painted "black"; "shuffle" lets square pieces of them
    change places, ever smaller ones ("shuffled"). `draws`: how many at each step, by the seeds 1, 2, …;
    `progress(share, way)` is told how far it is. `.probability[way]` of the whole picture's answer and
    `.kept[way]` (1 where it stays the likeliest) are (step, draw), `.steps` how many patches are dropped, or
    pieces; `.curve(way)` has means with standard errors, `.frame()` all draws. A way that does not exist
    stands in `.refused` with the reason. Computed in the model's own precision: `.deviation` says how far
    that is from float32. Raises VitvizError for another kind, no draws, a model without a classifier, and a
    trace with something taken away; else Stopped. Source: Naseer et al. 2021 (arXiv 2105.10497).

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = experiment(inspector, vitviz.sample_image("chelsea"), kind="shuffle", draws=2)
    >>> found.steps, found.probability["shuffled"].shape
    ((1, 4, 49, 196), torch.Size([4, 2]))
    """
    if whole_number(draws, least=1) is None:
        raise VitvizError(f"Given draws={draws!r}; expected a whole number from 1.")
    trace = inspector.answered(image) if isinstance(image, Trace) else inspector.trace(image, size)

    def asked(way: str, step: int) -> Tensor:
        return answers(inspector, trace, way, step, draws)

    return experiment_of(trace, kind, asked, progress)


def answers(
    inspector: Inspector, trace: Trace, way: str, step: int, draws: int = DRAWS
) -> Float[Tensor, "draw class"]:
    """The logits of every draw at one step of a way: "dropped", "black" or "shuffled".

    Raises UnsupportedModel where patches cannot be left out, Stopped where nobody waits.
    """
    if step == 0:
        return trace.logits.expand(draws, -1)  # nothing was done: no pass, and the plain answer to the bit
    asked = Draws(inspector, trace)
    if way == "shuffled":
        return asked.in_order(torch.from_numpy(orders_of(trace.grid, "shuffle", draws)[step]))
    seeds = range(1, draws + 1) if SHARES[step] < 100 else (1,)  # of an empty picture there is one
    kept = [torch.from_numpy(patches_kept(trace.grid, SHARES[step], seed)) for seed in seeds]
    return asked.kept(torch.stack(kept), way).expand(draws, -1)
