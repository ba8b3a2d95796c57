"""Logit lens: the classifier applied to the tokens of any layer.

Two readings of x^l, the tokens that enter block l + 1 (l = L: the last output), which must not be confused:

    now     W norm(x^l) + b     the norm recomputed: the classifier's output if the model ended here
    share   W held(x^l) + b     the deviations held at their last values: adds up over layers to the logits

"share" includes all constants (the norm's and the head's bias, attention pooling's own terms) in every layer,
so the difference between two layers is the sum of the contributions in between: the terms of the logit
attribution. Sources: Vilas et al. 2023 (arXiv 2310.18969), every token with the norm recomputed;
nostalgebraist 2020, the logit lens.

If the classifier reads the class token, the prediction of a patch is a probe: no training loss was applied to
it. The lens does not show what later layers would make of a token, and tokens of early layers are far from
those that the head was trained on.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.depth import tokens_at
from vitviz.analyses.logit_account import directions
from vitviz.analyses.logit_attribution import LogitTerms, pooled
from vitviz.analyses.readout_stage import ReadoutStage
from vitviz.analyses.target import TargetLike, features, resolve_target
from vitviz.errors import VitvizError, quoted
from vitviz.traces.trace import Trace

FORMS = ("now", "share")
UNREAD = "there is no answer to read at any depth"


def lens_shares(ledger: LogitTerms) -> Float[Tensor, "layer class"]:
    """Return every class's logit accumulated up to each layer: (L + 1, class); the last row is the logits.

    Raises VitvizError for a model without a classifier. Source: see the module.

    >>> from vitviz.analyses.example import example_account
    >>> from vitviz.analyses.logit_attribution import logit_terms
    >>> trace, readout = example_account(seed=1)
    >>> torch.allclose(lens_shares(logit_terms(trace, readout))[-1], trace.logits)
    True
    """
    trace, readout = ledger.trace, ledger.readout
    head = _head_of(trace, readout).with_length_held(features(trace, readout))
    pooling, result = readout.pooling, []
    for tokens in trace.tokens:
        read = trace.written.weights.mT @ tokens[pooling.readers]
        read = pooled(trace, readout, read if pooling.norm is None else pooling.norm.normalise(read))
        held = read if pooling.fc_norm is None else pooling.fc_norm.normalise(read, ledger.carried.deviation)
        result.append(held)
    return head(torch.stack(result))


def lens_patches(ledger: LogitTerms, target: TargetLike, form: str = "now") -> Float[Tensor, "layer row col"]:
    """Return the logit of one target for every patch and layer: (L + 1, row, col).

    Each patch is read as the classifier reads its tokens.

    Args:
        ledger: class-independent terms from `logit_terms`.
        target: class number from 0, label, (a, b) for a rather than b, or a direction.
        form: "now" or "share". "share" holds each patch's own last deviation, or the average's if the norm
            follows an average.

    Returns:
        (layer, row, col), in logits; NaN for dropped patches.

    Raises:
        VitvizError: the target or the form does not exist, or a single patch cannot be read.

    >>> from vitviz.analyses.example import example_account
    >>> from vitviz.analyses.logit_attribution import logit_terms
    >>> from vitviz.traces.grid import Grid
    >>> trace, readout = example_account(Grid(2, 3, (4, 4)), seed=1, pool="average")
    >>> answers = lens_patches(logit_terms(trace, readout), target=0)
    >>> answers.shape, torch.allclose(answers[-1].mean(), trace.logits[0])  # a mean over patches
    (torch.Size([3, 2, 3]), True)
    """
    check_form(form)
    trace, readout = ledger.trace, ledger.readout
    check_patches(readout)
    asked, pooling = resolve_target(trace, readout, target), readout.pooling
    direction = asked.direction.sum(dim=0)  # both heads of a distilled model, half each
    patches = torch.stack(trace.tokens)
    if form == "now":
        read = _normed(readout, patches)
        answers = read @ direction + asked.bias
        if asked.length is not None:  # by each patch's own length
            anew = asked.length / readout.head.length(read.unsqueeze(-2)).squeeze(-1)
            answers = (answers - asked.added) * anew + asked.added
    else:
        basis, norm_bias, _ = directions(ledger, asked.direction)
        held = patches @ basis.sum(dim=0)
        if pooling.norm is not None:
            held = held / pooling.norm.deviation(patches[-1])
        answers = held + norm_bias + asked.bias
    return trace.on_grid(answers)


def lens_probabilities(ledger: LogitTerms, depth: int) -> Float[Tensor, "class row col"]:
    """Return the probability of every class for every patch of one layer: (class, row, col).

    `depth` 0 is the input of block 1, L the last output. The form is "now". Dropped patches are NaN. For a
    head of values, these are the values. Raises VitvizError if a single patch cannot be read and IndexError
    for an unknown layer.

    >>> from vitviz.analyses.example import example_account
    >>> from vitviz.analyses.logit_attribution import logit_terms
    >>> found = lens_probabilities(logit_terms(*example_account(seed=1)), 2)
    >>> torch.allclose(found.sum(dim=0), torch.ones(2, 3, dtype=found.dtype))
    True
    """
    trace, readout = ledger.trace, ledger.readout
    check_patches(readout)
    head, tokens = _head_of(trace, readout), tokens_at(trace, depth)
    # distilled: half of both heads
    read = _normed(readout, tokens).unsqueeze(-2).expand(-1, len(head.weights), -1)
    return trace.on_grid(trace.scores(head(read)).mT)


def _normed(readout: ReadoutStage, tokens: Float[Tensor, "*lead width"]) -> Float[Tensor, "*lead width"]:
    """Return each token as the head would receive it, with all norms recomputed."""
    for norm in (readout.pooling.norm, readout.pooling.fc_norm):
        tokens = tokens if norm is None else norm(tokens)
    return tokens


def lens_kind(readout: ReadoutStage) -> str:
    """Return 'reading' if the classifier reads patches, 'probe' if it never does.

    Raises VitvizError if a single patch cannot be read.

    >>> from vitviz.analyses.example import example_account
    >>> lens_kind(example_account(seed=1)[1])
    'probe'
    """
    check_patches(readout)
    return "reading" if readout.pooling.kind == "average" else "probe"


def check_form(form: str) -> None:
    """Raise VitvizError for an unknown form."""
    if form not in FORMS:
        expected = "expected 'now' (the norm afresh) or 'share' (held, adds up)"
        raise VitvizError(f"form={quoted(form)} is not valid; {expected}.")


def check_patches(readout: ReadoutStage) -> None:
    """Raise VitvizError if the classifier cannot read a single patch."""
    reasons = {
        "attention": "its classifier reads attention pooling, which weighs all patches together",
        "class and average": "its classifier reads the class token and the mean of the patches side by side",
    }
    if reason := reasons.get(readout.pooling.kind):
        detail = f"a patch's own answer is not applicable, because {reason}. Read the lens without patches."
        raise VitvizError(f"{readout.checkpoint}: {detail}")


def _head_of(trace: Trace, readout: ReadoutStage):
    """Return the classifier of a readout; raise VitvizError if the model or the trace has none."""
    if readout.head is None or trace.logits is None:
        raise VitvizError(f"{trace.checkpoint} has no classifier, so {UNREAD}.")
    return readout.head
