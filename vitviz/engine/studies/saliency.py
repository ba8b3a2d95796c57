"""Maps of what an answer is made of, and their trial: the public functions of an inspector and a picture.

Each kind of map is a function in `vitviz.analyses.saliency`; here they meet the engine and its passes.
"""

import copy
from collections.abc import Iterable, Sequence
from contextlib import suppress

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.analyses.correlation import spearman
from vitviz.analyses.faithfulness.evaluation import DRAWS, SHARES, Faithfulness, OnMethod, trial_of
from vitviz.analyses.protocol import DENSE
from vitviz.analyses.saliency import METHODS, SaliencyMap, dense, relevance_of
from vitviz.analyses.target import TargetLike
from vitviz.engine.forward import capture
from vitviz.engine.inspector import Inspector
from vitviz.engine.runner import ForwardRunner
from vitviz.engine.saliency_inputs import SaliencyInputs as explained
from vitviz.errors import UnsupportedModel, VitvizError, quoted, whole_number


def saliency(
    inspector: Inspector, image, target: TargetLike, method: str = "frozen", at: str | int | None = None,
    size=None, steps: int | None = None,
) -> SaliencyMap:  # fmt: skip
    """Which patches one answer is made of, by one of `vitviz.METHODS`: `.map` (row, col), raw numbers.

    `image` as for `Inspector.trace`, or a trace of it; `target` as for `evidence`. `at`, for frozen and
    input_gradient: 'tokens' (after the position embedding), 'pixels', or the layer that they enter, from 0.
    `.explained` is map, prefix and constants together and `.unexplained` the rest of the answer; None where a
    sum means nothing. `steps`, for integrated_gradients: how many gradients are taken on the way; None
    doubles them until two successive maps differ by at most 5 %, or 512 are reached. `.steps`, `.change` (of
    the last doubling) and `.converged` say what came of it. Raises VitvizError for a method, target, place
    or number of steps that does not exist, UnsupportedModel, with the reason, where the method does not apply
    or balance, OutOfMemory where gradients would not fit, Stopped where nobody waits.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = saliency(inspector, vitviz.sample_image("chelsea"), target=0)
    >>> found.map.shape, abs(found.unexplained) < 1e-4
    (torch.Size([14, 14]), True)
    """
    return relevance_of(explained(inspector, image, target, size=size), method, at, steps)


def patch_scores(
    inspector: Inspector, image, method: str = "naclip", size=None
) -> Float[Tensor, "class row col"]:
    """Every patch's own logits for all classes, by one of the methods that read patches alone.

    Of sentences, less `classes.bias` and divided by `classes.scale`, these are cosines, of which
    `analyses.relevance.likeliest` makes a map of the likeliest. Raises VitvizError for another method,
    UnsupportedModel, with the reason, where a patch alone cannot be read. Source:
    `vitviz.analyses.saliency.dense`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> patch_scores(inspector, vitviz.sample_image("chelsea")).shape
    torch.Size([200, 14, 14])
    """
    if method not in DENSE:
        raise VitvizError(f"Given the method {quoted(method)}; expected one of {', '.join(DENSE)}.")
    return dense.patch_scores(explained(inspector, image, 0, size=size), method)


def faithfulness(
    inspector: Inspector, image, target: TargetLike, methods: Sequence[str] | None = None,
    patches_as: str = "dropped", seed: int = 0, size=None, shares: Sequence[float] = SHARES,
    draws: int = DRAWS, progress: OnMethod | None = None, steps: int | None = None,
) -> Faithfulness:  # fmt: skip
    """Maps on trial on one picture: patches removed, most and least relevant first, beside random maps.

    `methods`: some of `vitviz.METHODS`, None for all (of a model's own classes without those that read each
    patch alone, which were made for sentences). `patches_as`: 'dropped', 'mean', 'blur' or
    'black', as of `Without`. `seed`: of random maps and of the order of equal patches; `draws`: how many
    random maps. `steps`: of integrated gradients, as for `relevance`, which are the dearest of all maps.
    `progress(share, what)` is told how far it is. `.curves` by method, `.areas(method, score)`,
    `.ranking(score)`, `.chance(score)`, `.frame()`; scores are 'kept', 'probability' and 'logit'. Methods
    that do not apply stand in `.refused`. VitvizError for what cannot be asked, Stopped where nobody waits.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = faithfulness(inspector, vitviz.sample_image("chelsea"), target=0, methods=["ledger"], draws=2)
    >>> sorted(found.curves), len(found.curves["ledger"].most["logit"])
    (['ledger', 'random'], 11)
    """
    passes = explained(inspector, image, target, patches_as, size)
    return trial_of(passes, methods, patches_as, seed, shares, draws, progress, steps=steps)


def class_sensitivity(
    inspector: Inspector, image, one: TargetLike, other: TargetLike, methods: Iterable[str] = tuple(METHODS),
    size=None
) -> dict[str, float | None]:  # fmt: skip
    """Spearman's rank correlation of two targets' maps, by method: 1 for what knows no class (rollout).

    None where a map is constant; what does not apply is left out. A low value is no merit: chance has 0.
    """
    first = explained(inspector, image, one, size=size)
    second = explained(inspector, first.trace, other)
    found = {}
    for method in methods:
        with suppress(UnsupportedModel):
            found[method] = spearman(relevance_of(first, method).map, relevance_of(second, method).map)
    return found


def parameter_randomisation(
    inspector: Inspector, image, target: TargetLike, methods: Iterable[str] = ("frozen",),
    blocks: Sequence[int] = (0, 1, 2), seeds: Sequence[int] = (0, 1, 2), size=None,
) -> dict[str, list[list[float | None]]]:  # fmt: skip
    """Spearman's correlation of signed maps with those of the model with its last parts drawn at random.

    By method, a row for each of `blocks` (how many last blocks are drawn together with the head; 0: the head
    alone) with one number a seed. A copy of the model is drawn; the inspector stays as it is. What stays near
    1 does not show what was learned. UnsupportedModel where one does not apply. Source: Adebayo et al. 2018.
    """
    own = explained(inspector, image, target, size=size)
    view_size = own.trace.view.picture.shape[:2]
    maps = {method: relevance_of(own, method).map for method in methods}
    found: dict[str, list[list[float | None]]] = {method: [[] for _ in blocks] for method in maps}
    for row, count in enumerate(blocks):
        for seed in seeds:
            drawn = explained(randomised(inspector, count, seed), image, own.target, size=view_size)
            for method, given in maps.items():
                found[method][row].append(spearman(given, relevance_of(drawn, method).map))
    return found


HEADS = ("head", "head_dist", "fc_norm", "norm", "attn_pool")  # what stands behind the last block


def randomised(inspector: Inspector, blocks: int, seed: int) -> Inspector:
    """A twin whose head, with all that stands behind the last block, and so many last blocks are drawn anew.

    Every tensor of a part is drawn from a normal distribution of its own mean and deviation, so that norms
    and scales keep their size. What is not drawn is shared with the inspector that is given, which stays as
    it is. `blocks`: 0 for the head alone. Raises VitvizError for more blocks than there are.
    """
    count = len(capture.transformer_blocks(inspector.model))
    if whole_number(blocks, below=count + 1) is None:
        raise VitvizError(
            f"Given {quoted(blocks)} blocks to draw at random; expected 0 (the head alone) to {count}."
        )
    twin = inspector.with_runner(ForwardRunner(copy.copy(inspector.placed)))  # a copy shares the weights
    parts = [getattr(twin.model, name, None) for name in HEADS]
    parts += capture.transformer_blocks(twin.model)[count - blocks :]
    generator = torch.Generator().manual_seed(seed)
    for module in [module for part in parts if isinstance(part, nn.Module) for module in part.modules()]:
        for name, given in list(module.named_parameters(recurse=False)):
            value = given.detach().float().cpu()
            deviation = value.std().item() if value.numel() > 1 else 0.0
            drawn = value.mean() + deviation * torch.randn(value.shape, generator=generator)
            # in the place of one that is shared
            setattr(module, name, nn.Parameter(drawn.to(given), requires_grad=False))
    twin.model.eval()
    return twin
