"""Public functions on an inspector's weights: filters, position embeddings, attribution, logit lens."""

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
from vitviz.analyses.streaming import BLOCK_ELSEWHERE
from vitviz.analyses.target import TargetLike
from vitviz.engine.forward.shuffling import input_from_view
from vitviz.engine.inspector import Inspector
from vitviz.engine.readout_stages import require_same_logits
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.trace import Trace, TraceBatch

NO_RESPONSE = (
    "Not applicable, because {checkpoint} does not embed patches by one linear map of their pixels: a"
    " filter has no response to a patch."
)
CHECKED = 8  # patches whose embedding is compared with the filters' responses
# relative to the largest entry: rounding in float32, and in 16 bits
TOLERANCES = {"float32": 1e-3}
ROUGH = 0.05
# readouts whose attribution has been checked against the model's own logits
_balanced: WeakSet[ReadoutStage] = WeakSet()
# trace -> (weak reference to its readout, the part of its LogitTerms that needs no readout)
_carried: WeakKeyDictionary[Trace | TraceBatch, tuple] = WeakKeyDictionary()


def embedding_filters(inspector: Inspector, count: int = 28) -> FilterComponents:
    """Return the principal components of the linear embedding's filters (figure 7 left).

    Args:
        inspector: The model.
        count: Number of components.

    Returns:
        `.pictures` (count, P, P, 3) before display scaling; `.variance` (count,), each a fraction of the
        total.

    Raises:
        VitvizError: The model is a hybrid, whose patches are not cut from pixels.

    >>> import vitviz
    >>> embedding_filters(vitviz.load("vitviz-tiny")).pictures.shape[-1]
    3
    """
    weight = inspector.patch_filters()
    if weight is None:
        raise VitvizError(
            f"{inspector.checkpoint.name} takes its patches from the features of a stem, not from pixels, so"
            " its embedding has no RGB filters. inspector.stem_filters() returns the stem's first"
            " convolution."
        )
    return analyses.principal_filters(weight, count)


def filter_responses(
    inspector: Inspector, trace: Trace, filters: Float[Tensor, "filter row col channel"] | None = None
) -> Float[Tensor, "filter row2 col2"]:
    """Return the response of filters of the patch embedding in each patch of an image.

    The response of a filter w in patch p is w . x_p, the entry of the embedding E x_p + b without its bias b.
    The filters are first compared with the embedding of the pass.

    Args:
        inspector: The model.
        trace: A trace of this model.
        filters: Filters of P x P pixels, such as `embedding_filters(inspector).pictures`; by default all of
            the model's own, in the model's order.

    Returns:
        Sums of weight times normalised pixel, without a unit, shape (filter, row, col); NaN for a patch that
        was dropped. Source: `vitviz.analyses.filter_responses`.

    Raises:
        UnsupportedModel: The embedding of a patch is not one linear map of its pixels.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> trace = inspector.trace(vitviz.sample_image("coffee"))
    >>> filter_responses(inspector, trace).shape == (inspector.model.embed_dim, 14, 14)
    True
    """
    inspector.require_own(trace)
    grid, embedding = trace.grid, inspector.parts(trace.grid.pixels).embedding
    channels = inspector.preprocessing.channels
    refused = UnsupportedModel(LocalizedText(NO_RESPONSE, checkpoint=trace.checkpoint))
    if embedding is None or embedding.weight.shape[1] != channels * grid.patch[0] * grid.patch[1]:
        raise refused
    own = embedding.weight.unflatten(1, (*grid.patch, channels))
    pixels = input_from_view(trace.view, inspector.preprocessing).tensor
    rows, cols = grid.pixels
    whole = [one for one in range(grid.patches) if one not in trace.without.patches][:CHECKED]
    made = analyses.filter_responses(own, pixels[:, :rows, :cols]).flatten(1)[:, whole].mT + embedding.bias
    real = trace.patch_embedding[whole].double()
    if (made - real).abs().amax() > TOLERANCES.get(trace.dtype, ROUGH) * real.abs().amax():
        raise refused
    result = analyses.filter_responses(own if filters is None else filters, pixels[:, :rows, :cols])
    if trace.kept is not None:
        result.flatten(1)[:, sorted({*range(grid.patches)} - {*trace.kept})] = float("nan")
    return result


def position_similarity(
    inspector: Inspector, size: tuple[int, int] | None = None
) -> Float[Tensor, "row col row2 col2"]:
    """Return the cosine similarity of the patches' position embeddings (figure 7 centre).

    Args:
        inspector: The model.
        size: Input size (height, width) in pixels; None for the checkpoint's own.

    Returns:
        Similarities from -1 to 1, shape (row, col, row, col).

    Raises:
        VitvizError: The model has no learned table of absolute positions.

    >>> import vitviz
    >>> similarity = position_similarity(vitviz.load("vitviz-tiny"))
    >>> round(similarity[0, 0, 0, 0].item(), 3)
    1.0
    """
    table = inspector.position_table(size)
    if table is None:
        raise VitvizError(
            f"{inspector.checkpoint.name} has no learned absolute position embeddings (its positions:"
            f" {inspector.position_kind()}), so they have no similarity."
        )
    return analyses.position_similarity(table, inspector.grid(size))


def logit_attribution(
    inspector: Inspector, trace: Trace, target: TargetLike, relative: bool = False
) -> Attribution:
    """Decompose one logit into the contributions of every head, MLP and bias (direct logit attribution).

    No pass is run. The contributions sum to the logit; the first attribution of a checkpoint is checked
    against the model's own logits. Source: `vitviz.analyses.logit_account`.

    Args:
        inspector: The model.
        trace: A trace of this model.
        target: A class (its number from 0 or its label), (a, b) for the logit of a minus that of b, or a
            direction: a tensor as long as the classifier's input.
        relative: True to subtract the mean over classes.

    Returns:
        Contributions in logits, with layers and heads from 0: `.heads` (layer, head), `.sources` (layer,
        head, token), `.mlps` (layer,), `.projection_biases` (layer,), `.patches` (row, col), `.start`,
        `.norm_bias` and `.head_bias`. `.total` is their sum, `.gap` the unexplained rest of the logit.
        `.minus(before)` attributes the change from another image's logit, term by term.

    Raises:
        VitvizError: The target does not exist.
        UnsupportedModel: The model has no such decomposition, or its sum is not the logit.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> trace = inspector.trace(vitviz.sample_image("chelsea"))
    >>> account = logit_attribution(inspector, trace, target=trace.top(1)[0][0])
    >>> abs(account.gap) < 1e-4 and account.patches.shape == (trace.grid.rows, trace.grid.cols)
    True
    """
    return analyses.attribution_of(checked_logit_terms(inspector, trace), target, relative)


def logit_lens(
    inspector: Inspector, trace: Trace | TraceBatch, form: str = "now", patches: bool = False,
    target: TargetLike | None = None
) -> Float[Tensor, "*image layer class"] | Float[Tensor, "layer row col"]:  # fmt: skip
    """Return the logits that the tokens of each layer give when read directly (logit lens).

    Row 0 reads the tokens that enter the first block. Patches are a probe if the classifier reads a class
    token (`analyses.lens_kind`).

    Args:
        inspector: The model.
        trace: A trace of this model. For "now" without `patches` also a batch.
        form: "now" applies the final norm anew at each layer; the last row is the model's logits. "share"
            holds the norm at its final values; differences between layers are the terms of
            `logit_attribution`.
        patches: True to read every patch for one `target`.
        target: As for `logit_attribution`; required with `patches`, not allowed without.

    Returns:
        Logits (layer, class), or with `patches` (layer, row, col), with one row more than the model has
        layers.

    Raises:
        VitvizError: The reading has no meaning for this model, or the form or target does not exist.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> trace = inspector.trace(vitviz.sample_image("chelsea"))
    >>> bool((logit_lens(inspector, trace)[-1] - trace.logits).abs().max() < 1e-4)
    True
    """
    check_form(form)
    if patches:
        if target is None:
            raise VitvizError("The logit lens on patches has one target; pass target=, a class or (a, b).")
        return analyses.lens_patches(checked_logit_terms(inspector, trace), target, form)
    if target is not None:
        raise VitvizError(
            "The logit lens without patches has all classes. Choose a column of it, or pass patches=True."
        )
    if form == "share":
        return analyses.lens_shares(checked_logit_terms(inspector, trace))
    expected = inspector.answered(trace).require_logits(UNREAD)
    if isinstance(trace, Trace):
        logits = torch.stack([inspector.read_now(tokens, trace.grid.pixels) for tokens in trace.tokens]).cpu()
        require_same_logits(trace.checkpoint, logits[-1], expected, inspector.dtype)
        return logits
    count = max(1, BLOCK_ELSEWHERE // trace.tokens[0].numel())
    parts = (torch.stack(trace.tokens[one : one + count]) for one in range(0, len(trace.tokens), count))
    return torch.cat([inspector.read_now(one, trace.grid.pixels) for one in parts]).movedim(0, -2)


def lens_kind(inspector: Inspector) -> str:
    """Return the meaning of `logit_lens` on patches: 'reading' if the classifier reads patches, else 'probe'.

    Raises VitvizError for a model whose patches cannot be read alone.
    """
    return analyses.lens_kind(inspector.tail())


def checked_logit_terms(inspector: Inspector, trace: Trace | TraceBatch) -> LogitTerms:
    """Return the `LogitTerms` of a trace or a batch, cached.

    The first of a checkpoint is checked against the model's logits. Raises UnsupportedModel, with the
    difference, if the sum is not the logit.
    """
    trace = inspector.answered(trace)
    readout = inspector.tail(trace.grid.pixels, trace.tokens[0].device)
    made_with, carried = _carried.get(trace, (None, None))
    if carried is not None and made_with() is readout:
        return analyses.LogitTerms(trace, readout, carried)
    ledger = analyses.logit_terms(trace, readout)
    if readout not in _balanced:
        check_balance(analyses.logit_terms(trace[0], readout) if isinstance(trace, TraceBatch) else ledger)
        _balanced.add(readout)
    _carried[trace] = weakref.ref(readout), ledger.carried
    return ledger
