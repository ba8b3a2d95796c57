"""The truth check of the ledger: the lines must add up to the model's own logits.

In float32 the largest gap of a few classes may be 1e-4 of the largest logit. In a lower precision each sum
and product of the model is rounded, and the account, made in float32 of what was recorded, cannot meet a
rounded logit: there the same model in float32 has to balance, and the gap may be as large as the precision
has been seen to move logits. Checked too is that each layer's heads and biases are what its attention added.
It does not show that a line stands in its right place.
"""

from __future__ import annotations

from vitviz.analyses.evidence import account_of
from vitviz.analyses.ledger import Ledger
from vitviz.errors import UnsupportedModel
from vitviz.sentence import Sentence

AS_IT_IS = (
    "There is no account of {checkpoint}'s answers: its lines add up to the model's own logits only to"
    " {found} of the largest logit, where {allowed} is expected, so something between its heads and its"
    " logits is not understood. vitviz shows no account rather than a wrong one."
)
IN_FLOAT32 = (
    "There is no account of {checkpoint}'s answers: its lines add up to the model's own logits only in"
    " float32 to {found} of the largest logit, where {allowed} is expected, so something between its heads"
    " and its logits is not understood. vitviz shows no account rather than a wrong one."
)
TOLERANCE = 1e-4  # of the largest logit
ROUNDING = 4.0  # times the largest difference that the precision made to any logit of the first picture


def largest_gap(ledger: Ledger) -> tuple[float, float]:
    """The largest gap of a few classes' accounts, and of their layers' attention against what it added; in
    logits.
    """
    logits = ledger.trace.logits
    classes = {int(logits.argmax()), int(logits.argmin()), 0, len(logits) // 2}
    accounts = [account_of(ledger, one) for one in sorted(classes)]
    within = max(
        (one.heads.sum(dim=1) + one.projection_biases - one.attentions).abs().max().item() for one in accounts
    )
    return max((abs(one.gap) for one in accounts), key=lambda gap: (gap != gap, gap)), within


def check_balance(ledger: Ledger) -> None:
    """UnsupportedModel with the figure for a ledger that does not balance; nothing to compare with where
    there are no logits.
    """
    trace = ledger.trace
    if trace.logits is None or ledger.readout.head is None:
        return
    gap, within = largest_gap(ledger)
    largest = trace.logits.abs().max().item()
    allowed, deviation = TOLERANCE * largest, trace.deviation
    if deviation is not None and deviation.logits is not None:
        if deviation.gap is not None and not deviation.gap <= TOLERANCE:
            raise UnsupportedModel(
                Sentence(
                    IN_FLOAT32,
                    checkpoint=trace.checkpoint,
                    found=f"{deviation.gap:.1e}",
                    allowed=f"{TOLERANCE:.0e}",
                )
            )
        allowed = max(allowed, ROUNDING * deviation.logits)
    if not max(gap, within) <= allowed:
        raise UnsupportedModel(
            Sentence(
                AS_IT_IS,
                checkpoint=trace.checkpoint,
                found=f"{max(gap, within) / largest:.1e}",
                allowed=f"{allowed / largest:.0e}",
            )
        )
