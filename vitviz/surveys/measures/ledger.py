"""Which heads and MLPs the model's answer is made of, on average: the ledger of its top class against the
mean class.

The lines of each picture add up to its top logit less the mean over all classes, and so do their averages.
"""

from __future__ import annotations

import numpy as np

from vitviz import analyses, models
from vitviz.errors import VitvizError
from vitviz.surveys.measure import Quantity, Seen


class Ledger:
    name = "ledger"
    says = "each head's and MLP's share of the answer's logit against the mean class, in logits"
    quantities = (
        Quantity("heads", "layer head", "Heads' shares of the answer", "logits"),
        Quantity("mlps", "layer", "MLPs' shares of the answer", "logits"),
        Quantity("rest", "", "What entered the first block, and all biases", "logits"),
        Quantity("answer", "", "The answer's logit less the mean over classes", "logits"),
    )

    def of(self, seen: Seen):
        if seen.trace.logits is None:
            raise VitvizError(
                f"{seen.trace.checkpoint} has no classifier, so there is no answer to account for."
            )
        account = analyses.account_of(
            models.balanced_ledger(seen.inspector, seen.trace), int(seen.trace.logits.argmax()), relative=True
        )
        lines = {"heads": account.heads.cpu().numpy(), "mlps": account.mlps.cpu().numpy()}
        rest = account.total - lines["heads"].sum() - lines["mlps"].sum()
        return {**lines, "rest": np.asarray(rest), "answer": np.asarray(account.logit)}
