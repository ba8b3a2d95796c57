"""Public functions for saliency maps and their faithfulness tests.

Each method is a function in `vitviz.analyses.saliency`. This module supplies the passes that it needs.
"""

import copy
from collections.abc import Iterable, Sequence
from contextlib import suppress

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.analyses.correlation import spearman
from vitviz.analyses.faithfulness.evaluation import DRAWS, SHARES, Faithfulness, OnMethod, evaluate_methods
from vitviz.analyses.protocol import DENSE
from vitviz.analyses.saliency import METHODS, SaliencyMap, dense, saliency_map
from vitviz.analyses.target import TargetLike
from vitviz.engine.forward import capture
from vitviz.engine.inspector import Inspector
from vitviz.engine.runner import ForwardRunner
from vitviz.engine.saliency_inputs import SaliencyInputs as explained
from vitviz.errors import UnsupportedModel, VitvizError, quoted, require_whole, whole_number


def saliency(
    inspector: Inspector, image, target: TargetLike, method: str = "frozen", at: str | int | None = None,
    size=None, steps: int | None = None,
) -> SaliencyMap:  # fmt: skip
    """Return a map of each patch's relevance to one logit, by one of `vitviz.METHODS`.

    Args:
        inspector: The model, in float32.
        image: As for `Inspector.trace`, or a trace of the image.
        target: As for `logit_attribution`.
        method: One of `vitviz.METHODS`.
        at: For frozen and input_gradient: 'tokens' (after the position embedding), 'pixels', or the layer,
            from 0, that the tokens enter.
        size: As for `Inspector.trace`.
        steps: For integrated_gradients: the number of gradients along the path. None doubles the number until
            two successive maps differ by at most 5 %, or 512 are reached.

    Returns:
        `.map` (row, col), unscaled. `.explained` is the sum of map, prefix and constants, `.unexplained` the
        rest of the logit; both are None for a method whose sum has no meaning. `.steps`, `.change` (of the
        last doubling) and `.converged` describe integrated_gradients.

    Raises:
        VitvizError: The method, target, layer or number of steps does not exist.
        UnsupportedModel: The method does not apply, or its sum does not balance.
        OutOfMemory: The gradients do not fit into memory.
        Stopped: The request was cancelled.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = saliency(inspector, vitviz.sample_image("chelsea"), target=0)
    >>> found.map.shape, abs(found.unexplained) < 1e-4
    (torch.Size([14, 14]), True)
    """
    return saliency_map(explained(inspector, image, target, size=size), method, at, steps)


def patch_scores(
    inspector: Inspector, image, method: str = "naclip", size=None
) -> Float[Tensor, "class row col"]:
    """Return every patch's own logits (class, row, col), by a method that reads patches alone.

    For classes from sentences, subtract `classes.bias` and divide by `classes.scale` to get cosines;
    `analyses.saliency.likeliest_class` turns these into a map of the likeliest class. Source:
    `vitviz.analyses.saliency.dense`.

    Args:
        inspector: The model, in float32.
        image, size: As for `saliency`.
        method: One of the methods that read patches alone: "own_patches", "maskclip", "maskclip_kept",
            "sclip", "clearclip" or "naclip".

    Raises:
        VitvizError: Another method.
        UnsupportedModel: A patch cannot be read alone.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> patch_scores(inspector, vitviz.sample_image("chelsea")).shape
    torch.Size([200, 14, 14])
    """
    if method not in DENSE:
        raise VitvizError(f"The method {quoted(method)} does not exist; expected one of {', '.join(DENSE)}.")
    return dense.patch_scores(explained(inspector, image, 0, size=size), method)


def faithfulness(
    inspector: Inspector, image, target: TargetLike, methods: Sequence[str] | None = None,
    patches_as: str = "dropped", seed: int = 0, size=None, shares: Sequence[float] = SHARES,
    draws: int = DRAWS, progress: OnMethod | None = None, steps: int | None = None,
) -> Faithfulness:  # fmt: skip
    """Test saliency methods on one image: remove patches in each map's order and rerun the model.

    Patches are removed most relevant first and least relevant first, and compared with random maps.

    Args:
        inspector: The model, in float32.
        image, target, size: As for `saliency`.
        methods: Some of `vitviz.METHODS`. None for all; for a model's own classes without those that read
            each patch alone, which were made for sentences.
        patches_as: Replacement of removed patches: 'dropped', 'mean', 'blur' or 'black', as in `Ablation`.
        seed: Seed of the random maps and of the order of equal patches.
        shares: Fractions of the patches to remove, from 0 to 1.
        draws: Number of random maps.
        progress: Called as `progress(share, what)` with the completed share, from 0 to 1.
        steps: Of integrated gradients, the most expensive method, as for `saliency`.

    Returns:
        `.curves` by method, `.areas(method, score)`, `.ranking(score)`, `.chance(score)` and `.frame()`;
        scores are 'kept', 'probability' and 'logit'. `.refused` has the reason for every method that does not
        apply.

    Raises:
        VitvizError: An argument is invalid.
        Stopped: The request was cancelled.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = faithfulness(inspector, vitviz.sample_image("chelsea"), target=0, methods=["ledger"], draws=2)
    >>> sorted(found.curves), len(found.curves["ledger"].most["logit"])
    (['ledger', 'random'], 11)
    """
    require_whole("draws", draws)
    passes = explained(inspector, image, target, patches_as, size)
    return evaluate_methods(passes, methods, patches_as, seed, shares, draws, progress, steps=steps)


def class_sensitivity(
    inspector: Inspector, image, target: TargetLike, other_target: TargetLike,
    methods: Iterable[str] = tuple(METHODS), size=None
) -> dict[str, float | None]:  # fmt: skip
    """Return Spearman's rank correlation of two targets' maps, by method.

    1 for a method that ignores the class (rollout), None for a constant map; methods that do not apply are
    omitted. A low value alone is no merit: unrelated maps have 0.

    Args:
        inspector, image, size: As for `saliency`.
        target, other_target: The two targets, as for `logit_attribution`.
        methods: Some of `vitviz.METHODS`.
    """
    first = explained(inspector, image, target, size=size)
    second = explained(inspector, first.trace, other_target)
    correlations = {}
    for method in methods:
        with suppress(UnsupportedModel):
            correlations[method] = spearman(saliency_map(first, method).map, saliency_map(second, method).map)
    return correlations


def parameter_randomisation(
    inspector: Inspector, image, target: TargetLike, methods: Iterable[str] = ("frozen",),
    blocks: Sequence[int] = (0, 1, 2), seeds: Sequence[int] = (0, 1, 2), size=None,
) -> dict[str, list[list[float | None]]]:  # fmt: skip
    """Return Spearman's correlation of signed maps before and after the model's last parts are randomised.

    A copy of the model is randomised; the inspector stays unchanged. A map whose correlation stays near 1
    does not show what was learned. Source: Adebayo et al. 2018.

    Args:
        inspector, image, target, size: As for `saliency`.
        methods: Some of `vitviz.METHODS`.
        blocks: Numbers of last blocks that are randomised together with the head; 0 for the head alone.
        seeds: Seeds of the random weights.

    Returns:
        By method, a row for each of `blocks` with one correlation a seed; None for a constant map.

    Raises:
        UnsupportedModel: A method does not apply.
    """
    own = explained(inspector, image, target, size=size)
    maps = {method: saliency_map(own, method).map for method in methods}
    correlations: dict[str, list[list[float | None]]] = {method: [[] for _ in blocks] for method in maps}
    for row, count in enumerate(blocks):
        for seed in seeds:
            variant = explained(randomise_weights(inspector, count, seed), own.trace.view, own.target)
            for method, own_map in maps.items():
                correlations[method][row].append(spearman(own_map, saliency_map(variant, method).map))
    return correlations


HEADS = ("head", "head_dist", "fc_norm", "norm", "attn_pool")  # all parts after the last block


def randomise_weights(inspector: Inspector, blocks: int, seed: int) -> Inspector:
    """Return a copy whose head and last `blocks` blocks have random weights.

    Norms and pooling after the last block are randomised with the head. Every tensor is drawn from a normal
    distribution with its own mean and deviation, so that norms and scales keep their size. All other weights
    are shared with the given inspector, which stays unchanged. `blocks` is 0 for the head alone. Raises
    VitvizError for more blocks than the model has.
    """
    count = len(capture.transformer_blocks(inspector.model))
    if whole_number(blocks, below=count + 1) is None:
        raise VitvizError(
            f"{quoted(blocks)} randomised blocks are not valid; expected 0 (the head alone) to {count}."
        )
    twin = inspector.with_runner(ForwardRunner(copy.copy(inspector.placed)))  # a copy shares the weights
    parts = [getattr(twin.model, name, None) for name in HEADS]
    parts += capture.transformer_blocks(twin.model)[count - blocks :]
    generator = torch.Generator().manual_seed(seed)
    for module in [module for part in parts if isinstance(part, nn.Module) for module in part.modules()]:
        for name, parameter in list(module.named_parameters(recurse=False)):
            value = parameter.detach().float().cpu()
            deviation = value.std().item() if value.numel() > 1 else 0.0
            values = value.mean() + deviation * torch.randn(value.shape, generator=generator)
            # a new Parameter, since the old one is shared with the given inspector
            setattr(module, name, nn.Parameter(values.to(parameter), requires_grad=False))
    twin.model.eval()
    return twin
