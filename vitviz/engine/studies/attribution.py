"""What a model's weights alone say: the public functions that take an inspector and hand its weights on."""

import weakref
from weakref import WeakKeyDictionary, WeakSet

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz import analyses
from vitviz.analyses.filters import FilterComponents
from vitviz.analyses.logit_account import Attribution, check_balance
from vitviz.analyses.logit_attribution import LogitTerms
from vitviz.analyses.logit_lens import UNREAD, check_form
from vitviz.analyses.readout_stage import ReadoutStage
from vitviz.analyses.target import TargetLike
from vitviz.engine.inspector import Inspector
from vitviz.errors import VitvizError
from vitviz.traces.trace import Trace

# those whose account has been compared with the model's own logits
_balanced: WeakSet[ReadoutStage] = WeakSet()
# the readout it was made with, and a ledger's part without it
_carried: WeakKeyDictionary[Trace, tuple] = WeakKeyDictionary()


def embedding_filters(inspector: Inspector, count: int = 28) -> FilterComponents:
    """The principal components of the linear embedding's filters (figure 7 left).

    `.pictures` (count, P, P, 3) before display scaling, `.variance` (count,) as shares of the whole. Raises
    VitvizError for a hybrid, whose patches are not cut from pixels.

    >>> import vitviz
    >>> embedding_filters(vitviz.load("vitviz-tiny")).pictures.shape[-1]
    3
    """
    weight = inspector.patch_filters()
    if weight is None:
        raise VitvizError(
            f"{inspector.checkpoint.name} cuts its patches from the features of a stem and not from pixels,"
            " so its embedding has no RGB filters; inspector.stem_filters() has the stem's first convolution."
        )
    return analyses.principal_filters(weight, count)


def position_similarity(
    inspector: Inspector, size: tuple[int, int] | None = None
) -> Float[Tensor, "row col row2 col2"]:
    """Cosine similarity of the patches' position embeddings (figure 7 centre), at a size if given.

    Raises VitvizError for a model without a learned table of absolute positions.

    >>> import vitviz
    >>> similarity = position_similarity(vitviz.load("vitviz-tiny"))
    >>> round(similarity[0, 0, 0, 0].item(), 3)
    1.0
    """
    table = inspector.position_table(size)
    if table is None:
        raise VitvizError(
            f"{inspector.checkpoint.name} has no learned absolute position embeddings (its positions:"
            f" {inspector.position_kind()}), so there is no similarity of them."
        )
    return analyses.position_similarity(table, inspector.grid(size))


def logit_attribution(
    inspector: Inspector, trace: Trace, target: TargetLike, relative: bool = False
) -> Attribution:
    """The account of one logit: every head's, MLP's and bias's share, which add up to it.

    `target`: a class (its number from 0 or its label), (a, b) for a rather than b, or a direction, a tensor
    as long as what the classifier reads. `relative`: to the mean over classes. All in logits: `.heads`
    (layer, head), `.sources` (layer, head, token), `.mlps` and `.projection_biases` (layer), `.patches` (row,
    col), `.start`, `.norm_bias`, `.head_bias`, with `.total` and what it leaves unexplained, `.gap`. Layers
    and heads count from 0; `.minus(before)` accounts for the change from another picture's, line by line. No
    pass is made; the first account of a checkpoint is compared with the model's
    own logits. Raises VitvizError for a target that does not exist, UnsupportedModel where no such account
    exists or does not balance. Source: `vitviz.analyses.logit_account`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> trace = inspector.trace(vitviz.sample_image("chelsea"))
    >>> account = logit_attribution(inspector, trace, target=trace.top(1)[0][0])
    >>> abs(account.gap) < 1e-4 and account.patches.shape == (trace.grid.rows, trace.grid.cols)
    True
    """
    return analyses.account_of(balanced_ledger(inspector, trace), target, relative)


def logit_lens(
    inspector: Inspector, trace: Trace, form: str = "now", patches: bool = False,
    target: TargetLike | None = None
) -> Float[Tensor, "layer class"] | Float[Tensor, "layer row col"]:  # fmt: skip
    """The answer forming: the logits (layer, class) that tokens of each depth give; 0 enters the first block.

    `form`: "now" applies the final norm afresh, so that the last row is the model's logits; "share" holds it
    at the end, so that differences between depths are the lines of `evidence`. With `patches`, every patch's
    own answer for one `target` (as for `evidence`): layer, row, col; a probe where the classifier reads a
    class token (`analyses.lens_kind`). VitvizError where a reading means nothing, or for a form or target.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> trace = inspector.trace(vitviz.sample_image("chelsea"))
    >>> bool((logit_lens(inspector, trace)[-1] - trace.logits).abs().max() < 1e-4)
    True
    """
    check_form(form)
    if patches:
        if target is None:
            raise VitvizError("The lens on patches has one target; hand in target=, a class or (a, b).")
        return analyses.lens_patches(balanced_ledger(inspector, trace), target, form)
    if target is not None:
        raise VitvizError(
            "The lens without patches has all classes; choose a column of it, or ask with patches=True."
        )
    if form == "share":
        return analyses.lens_shares(balanced_ledger(inspector, trace))
    inspector.answered(trace).require_logits(UNREAD)
    return torch.stack([inspector.read_now(tokens, trace.grid.pixels) for tokens in trace.tokens])


def lens_kind(inspector: Inspector) -> str:
    """What a patch's own answer in `lens` is: 'reading' where the classifier reads patches, else 'probe'.

    Raises VitvizError where a patch alone cannot be read.
    """
    return analyses.lens_kind(inspector.tail())


def balanced_ledger(inspector: Inspector, trace: Trace) -> LogitTerms:
    """A trace's ledger, made once; the first of a checkpoint is compared with the model's own logits.

    Raises UnsupportedModel with the figure where it does not add up.
    """
    trace = inspector.answered(trace)
    readout = inspector.tail(trace.grid.pixels, trace.tokens[0].device)
    made_with, carried = _carried.get(trace, (None, None))
    if carried is not None and made_with() is readout:
        return analyses.LogitTerms(trace, readout, carried)
    ledger = analyses.ledger_of(trace, readout)
    if readout not in _balanced:
        check_balance(ledger)
        _balanced.add(readout)
    _carried[trace] = weakref.ref(readout), ledger.carried
    return ledger
