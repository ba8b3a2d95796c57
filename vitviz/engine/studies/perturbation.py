"""Run perturbations: the public function `perturbation`, and its single steps.

`vitviz.analyses.perturbation` defines the perturbations and evaluates the logits. This module runs the
passes.
"""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from vitviz.analyses import perturbation as steps
from vitviz.analyses.image_changes import CHANGES, change_image
from vitviz.analyses.perturbation import OnProgress, Perturbation
from vitviz.analyses.protocol import DRAWS, NOT_RGB, SHARES
from vitviz.engine.forward import shuffling
from vitviz.engine.forward.patch_removal import AT_ONCE, PatchRemoval, outputs_of_batches
from vitviz.engine.images.preprocess import Prepared, normalised, open_for, prepare
from vitviz.engine.inspector import Inspector
from vitviz.engine.readout_stages import require_repeated
from vitviz.errors import UnsupportedModel, VitvizError, require_whole
from vitviz.traces.localized_text import not_applicable
from vitviz.traces.samples import sample_image, samples
from vitviz.traces.trace import Trace

Others = Mapping[Any, UInt8[np.ndarray, "height width 3"]]  # by name


class PerturbedLogits:
    """Logits of the unablated model for changed versions of a trace's image."""

    def __init__(self, inspector: Inspector, trace: Trace):
        self._inspector, self._preprocessing, self._trace = inspector, inspector.preprocessing, trace
        prepared, seen = inspector.forward.prepare(trace.view, None)
        self._model, self._pixels = inspector.placed.at(seen), inspector.forward.pixels([prepared])
        self._at_once = max(1, AT_ONCE // trace.grid.tokens)

    def require_repeated(self) -> None:
        """Raise VitvizError if the unchanged image has other logits than the trace."""
        logits = outputs_of_batches(self._model, [self._pixels])[0]
        name, dtype = self._trace.checkpoint, self._inspector.dtype
        require_repeated(name, logits, self._trace.logits, dtype)

    def kept(self, kept: Int[Tensor, "draw kept"], patches_as: str) -> Float[Tensor, "draw class"]:
        """Return the logits with these patches (from 0) alone.

        Raises UnsupportedModel for a model whose patches cannot be removed.
        """
        grid, pool = self._trace.grid, self._trace.pool
        removal = PatchRemoval(self._model, self._pixels, grid, pool, patches_as, self._preprocessing)
        return removal.answers(kept).float()

    def in_order(self, orders: Int[Tensor, "draw patch"]) -> Float[Tensor, "draw class"]:
        """Return the logits with the patch `orders[d, i]` at position i.

        Raises Stopped if the request was cancelled.
        """
        whole, grid = self._pixels, self._trace.grid
        some = orders.split(self._at_once)
        pixels = (torch.cat([shuffling.reorder_patches(whole, grid, one) for one in each]) for each in some)
        return outputs_of_batches(self._model, pixels).float()

    def to(self, pictures: Float[Tensor, "draw 3 height width"]) -> Float[Tensor, "draw class"]:
        """Return the logits of other images of the trace's size, values from 0 to 1.

        Raises Stopped if the request was cancelled.
        """
        view, seen = self._trace.view, normalised(pictures.float(), self._preprocessing)
        pixels = self._inspector.forward.pixels([Prepared(one, view) for one in seen])
        return outputs_of_batches(self._model, pixels.split(self._at_once)).float()


def other_images(inspector: Inspector, trace: Trace, images: Mapping[Any, Any] | None = None) -> Others:
    """Return other images as model inputs, without the trace's own image; vitviz's samples by default."""
    seen = trace.view.picture
    preprocessing = inspector.preprocessing.with_size(seen.shape[:2])
    images = {sample.title: sample_image(sample.name) for sample in samples()} if images is None else images
    opened = ((name, open_for(image, preprocessing)) for name, image in images.items())
    inputs = {name: prepare(image, preprocessing).view.picture for name, image in opened}
    return {name: pixels for name, pixels in inputs.items() if not np.array_equal(pixels, seen)}


def perturbation(
    inspector: Inspector, image, kind: str = "drop", draws: int = DRAWS, size=None,
    progress: OnProgress = lambda share, way: None, others: Sequence[Any] | None = None
) -> Perturbation:  # fmt: skip
    """Measure how a prediction's probability changes as an image is perturbed step by step.

    Patches are removed or shuffled at random, or the whole image changes. The prediction is the class that
    the model gives the unchanged image. Logits are computed in the model's own precision; `.deviation` is the
    distance of that precision from float32. Source: Naseer et al. 2021 (arXiv 2105.10497).

    Args:
        inspector: The model.
        image: As for `Inspector.trace`, or a trace of the image.
        kind: The perturbation. "drop" removes 0, 10, … 100 % of the patches, either left out of the sequence
            ("dropped") or painted "black". "shuffle" exchanges square pieces of patches, ever smaller ones
            ("shuffled"). "shift" moves the image by 0 to two patches' pixels; "turn" rotates it. "grey",
            "edges", "ground" and "texture" mix it with its luma, its edges or `others`;
            `vitviz.analyses.image_changes` defines them.
        draws: Draws at each step, with the seeds 1, 2, …; at most four for "shift" (directions), two for
            "turn" (senses), the number of `others` for "ground" and "texture", and one for "grey" and
            "edges".
        size: As for `Inspector.trace`.
        progress: Called as `progress(share, way)` with the completed share, from 0 to 1.
        others: Images for "ground" and "texture"; by default the samples that come with vitviz.

    Returns:
        `.probability[way]` (step, draw), the probability of the prediction; `.kept[way]` (step, draw), 1
        where the prediction stays the likeliest class; `.steps`, the number of patches, pieces, pixels,
        degrees or per cent at each step. A model whose outputs are values has `.logit[way]` instead of
        probabilities. `.curve(way)` has means with standard errors, `.frame()` all draws. `.refused` has the
        reason for every way that does not exist for this model.

    Raises:
        VitvizError: Another kind, no draws, a model without a classifier, or a trace with an ablation.
        Stopped: The request was cancelled.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = perturbation(inspector, vitviz.sample_image("chelsea"), kind="shuffle", draws=2)
    >>> found.steps, found.probability["shuffled"].shape
    ((1, 4, 49, 196), torch.Size([4, 2]))
    """
    require_whole("draws", draws)
    if isinstance(image, Trace):
        inspector.forward.require_size(image.view, size)
    trace = inspector.answered(image) if isinstance(image, Trace) else inspector.trace(image, size)
    if isinstance(image, Trace) and not trace.without and trace.logits is not None:
        PerturbedLogits(inspector, trace).require_repeated()
    if not isinstance(others, list | tuple | None):
        raise VitvizError(f"others is a {type(others).__name__}; expected a list of images.")
    images = None if others is None else dict(enumerate(others))
    seconds = [*other_images(inspector, trace, images).values()] if kind in ("ground", "texture") else []
    logits_of = partial(perturbed_logits, inspector, trace, draws=draws, others=seconds)
    return steps.run_perturbation(trace, kind, logits_of, progress)


def perturbed_logits(
    inspector: Inspector, trace: Trace, way: str, step: int, draws: int = DRAWS,
    others: Sequence[UInt8[np.ndarray, "height width 3"]] = ()
) -> Float[Tensor, "draw class"]:  # fmt: skip
    """Return the logits of every draw at one step of a way.

    `way` is "dropped", "black", "shuffled", or one of CHANGES. Raises UnsupportedModel if patches cannot be
    removed or `others` are missing, Stopped if the request was cancelled.
    """
    if way in CHANGES:
        if inspector.preprocessing.channels != 3:
            raise UnsupportedModel(not_applicable(trace.checkpoint, NOT_RGB))
        place = steps.step_values(trace.grid, way)[step]
        pictures = change_image(trace.view.picture, way, place, trace.grid, others)[:draws]
        draws = len(pictures)
    if step == 0:
        return trace.logits.expand(draws, -1)  # no change: the trace's own logits, bit for bit
    perturbed = PerturbedLogits(inspector, trace)
    if way in CHANGES:
        return perturbed.to(pictures)
    if way == "shuffled":
        orders = steps.perturbation_orders(trace.grid, "shuffle", draws)
        return perturbed.in_order(torch.from_numpy(orders[step]))
    seeds = range(1, draws + 1) if SHARES[step] < 100 else (1,)  # an image without patches has one draw
    kept = [torch.from_numpy(steps.patches_kept(trace.grid, SHARES[step], seed)) for seed in seeds]
    return perturbed.kept(torch.stack(kept), way).expand(draws, -1)
