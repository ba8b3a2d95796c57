"""Maps of what an answer is made of, and their trial: the public functions of an inspector and a picture.

Each kind of map is a function in `vitviz.analyses.relevance`; here they meet the engine and its passes.
"""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.protocol import DENSE
from vitviz.analyses.relevance import Relevance, dense, relevance_of
from vitviz.analyses.target import Asked
from vitviz.analyses.trials.trial import DRAWS, SHARES, Progress, Trial, trial_of
from vitviz.engine.asking.models import balanced_ledger
from vitviz.engine.explained import Explained
from vitviz.engine.inspector import Inspector
from vitviz.errors import VitvizError


def relevance(
    inspector: Inspector, image, target: Asked, method: str = "frozen", at: str | int | None = None, size=None
) -> Relevance:
    """Which patches one answer is made of, by one of `vitviz.METHODS`: `.map` (row, col), raw numbers.

    `image` as for `Inspector.trace`, or a trace of it; `target` as for `evidence`. `at`, for frozen and
    input_gradient: 'tokens' (after the position embedding), 'pixels', or the layer that they enter, from 0.
    `.explained` is map, prefix and constants together and `.unexplained` the rest of the answer; None where a
    sum means nothing. Raises VitvizError for a method, target or place that does not exist, UnsupportedModel,
    with the reason, where the method does not apply or balance, OutOfMemory where gradients would not fit.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = relevance(inspector, vitviz.sample_image("chelsea"), target=0)
    >>> found.map.shape, abs(found.unexplained) < 1e-4
    (torch.Size([14, 14]), True)
    """
    return relevance_of(explained(inspector, image, target, size=size), method, at)


def patch_scores(
    inspector: Inspector, image, method: str = "naclip", size=None
) -> Float[Tensor, "class row col"]:
    """Every patch's own logits for all classes, by one of the methods that read patches alone.

    Of sentences, less `classes.bias` and divided by `classes.scale`, these are cosines, of which
    `analyses.relevance.likeliest` makes a map of the likeliest. Raises VitvizError for another method,
    UnsupportedModel, with the reason, where a patch alone cannot be read. Source:
    `vitviz.analyses.relevance.dense`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> patch_scores(inspector, vitviz.sample_image("chelsea")).shape
    torch.Size([200, 14, 14])
    """
    if method not in DENSE:
        raise VitvizError(f"Given the method {method!r}; expected one of {', '.join(DENSE)}.")
    return dense.patch_scores(explained(inspector, image, 0, size=size), method)


def trial(
    inspector: Inspector, image, target: Asked, methods: Sequence[str] | None = None,
    patches_as: str = "dropped", seed: int = 0, size=None, shares: Sequence[float] = SHARES,
    draws: int = DRAWS, progress: Progress | None = None,
) -> Trial:  # fmt: skip
    """Maps on trial on one picture: patches removed, most and least relevant first, beside random maps.

    `methods`: some of `vitviz.METHODS`, None for all (of a model's own classes without those that read each
    patch alone, which were made for sentences). `patches_as`: 'dropped', 'mean', 'blur' or
    'black', as of `Without`. `seed`: of random maps and of the order of equal patches; `draws`: how many
    random maps. `progress(share, what)` is told how far it is. `.curves` by method, `.areas(method, score)`,
    `.ranking(score)`, `.chance(score)`, `.frame()`; scores are 'kept', 'probability' and 'logit'. Methods
    that do not apply stand in `.refused`. VitvizError for what cannot be asked, Stopped where nobody waits.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = trial(inspector, vitviz.sample_image("chelsea"), target=0, methods=["ledger"], draws=2)
    >>> sorted(found.curves), len(found.curves["ledger"].most["logit"])
    (['ledger', 'random'], 11)
    """
    passes = explained(inspector, image, target, patches_as, size)
    return trial_of(passes, methods, patches_as, seed, shares, draws, progress)


def explained(
    inspector: Inspector, image, target: Asked, patches_as: str = "dropped", size=None, **keeping
) -> Explained:
    """A picture and target with the passes that maps need, made once; `once(name, make)` keeps gradients."""
    return Explained(inspector, image, target, balanced_ledger, patches_as, size, **keeping)
