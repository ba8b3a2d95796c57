"""Types of a classifier's outputs z: logits of one softmax, logits of independent sigmoids, or plain values.

    softmax   p_c = exp(z_c) / sum_k exp(z_k)    one of several classes
    sigmoid   p_c = 1 / (1 + exp(-z_c))          several labels, or one output: a yes or no
    value     z_c itself                         regression, which has no probability

The softmax of a single output is 1 for every image, so a head with one output is never read by softmax; only
a single given class is. The rules follow the "image-classification" pipeline of transformers. They do not
show whether a probability is calibrated.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitviz.errors import VitvizError, quoted

HeadType = Literal["softmax", "sigmoid", "value"]
HEAD_TYPES = ("softmax", "sigmoid", "value")
NO_DECISION = "{name} gives values (regression), which have no probability and predict no class"
SCORES = ("kept", "probability", "logit")  # scores of an output; head types support some of them


def scores_of(logits: Float[Tensor, "*row class"], head_type: HeadType) -> Float[Tensor, "*row class"]:
    """Return the scores of logits in float64: probabilities, or the values themselves for "value".

    >>> scores_of(torch.tensor([0.0, 0.0]), "softmax").tolist()
    [0.5, 0.5]
    >>> scores_of(torch.tensor([2.5]), "value").tolist()
    [2.5]
    """
    logits = logits.double()
    if head_type == "value":
        return logits
    return logits.sigmoid() if head_type == "sigmoid" else logits.softmax(dim=-1)


def predictions_of(logits: Float[Tensor, "*row class"], head_type: HeadType) -> Int[Tensor, "*row"]:
    """Return the predicted class of every row: the index of the largest output.

    For a single sigmoid output the prediction is 1 if its probability is at least 1/2, else 0. Raises
    VitvizError for values, which predict no class.

    >>> predictions_of(torch.tensor([[-0.1], [3.0]]), "sigmoid").tolist()
    [0, 1]
    """
    if head_type == "value":
        raise VitvizError(NO_DECISION.format(name="This head") + ".")
    one = logits.shape[-1] == 1 and head_type == "sigmoid"
    return (logits[..., 0] >= 0).long() if one else logits.argmax(dim=-1)


def scores_named(head_type: HeadType) -> tuple[str, ...]:
    """Return the names in `SCORES` that a head type supports.

    "kept" tells whether the prediction is preserved. Values have only "logit", which is the value itself.

    >>> scores_named("value")  # whose logit is the value itself
    ('logit',)
    """
    return SCORES[2:] if head_type == "value" else SCORES


def require_score(score: str | None, head_type: HeadType, name: str) -> str:
    """Return the requested score's name, or the default for None; raise VitvizError if it is unsupported."""
    known = scores_named(head_type)
    if score in known or score is None:
        return score or known[len(known) // 2]
    why = NO_DECISION.format(name=f": {name}") if score in SCORES else ""
    raise VitvizError(f"score={quoted(score)} is not valid{why}; expected {' or '.join(known)}.")


def probabilities_of_predictions(
    logits: Float[Tensor, "*row class"], head_type: HeadType
) -> Float[Tensor, "*row prediction"]:
    """Return the probability of each class that `predictions_of` can predict.

    For a single sigmoid output these are the probabilities of no and yes.

    >>> probabilities_of_predictions(torch.tensor([0.0]), "sigmoid").tolist()
    [0.5, 0.5]
    """
    result = scores_of(logits, head_type)
    one = logits.shape[-1] == 1 and head_type == "sigmoid"
    return torch.cat([1 - result, result], dim=-1) if one else result


def predictions_named(labels: Sequence[str], outputs: int, head_type: HeadType) -> tuple[str, ...]:
    """Return the name of each class that `predictions_of` can predict.

    These are the labels; for a single sigmoid output the names of no and yes.

    >>> predictions_named(["melanoma"], 1, "sigmoid")
    ('not melanoma', 'melanoma')
    """
    if outputs != 1 or head_type != "sigmoid":
        return tuple(labels)
    return (f"not {labels[0]}", labels[0]) if len(labels) == 1 else ("negative", "positive")


def require_head_type(head_type: str, outputs: int, name: str) -> None:
    """Raise VitvizError for a softmax over one output, which would give 100 % for every image."""
    if head_type == "softmax" and outputs == 1:
        raise VitvizError(
            f"head_type='softmax' is not valid for {name}, which has one output: its softmax is 100 % for"
            " every image. Choose 'sigmoid' for the logit of a yes or no, 'value' for a regression."
        )
