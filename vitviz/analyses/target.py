"""Target of an attribution: a class, a difference of two classes, or a direction, as a row of the head.

    s = <w, y> + b

For a class, w and b are its row of the head, divided by |z| for a cosine; for a rather than b, the difference
of two rows. `relative` subtracts the mean row over all classes. That changes no probability of a softmax
(adding a number to all logits changes no probability) and is refused for a model's own sigmoids and values,
which are independent of each other. A target does not show how confident the model is: that is the softmax
over all classes, or each given class's own sigmoid.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitviz.analyses.logit_attribution import pooled
from vitviz.analyses.readout_stage import ReadoutStage
from vitviz.errors import VitvizError, quoted, whole_number
from vitviz.traces.trace import Trace, TraceBatch

TargetLike = Any  # int | str | tuple | Tensor; anything else raises an error with an explanation


@dataclass(frozen=True)
class Target:
    """Direction of a target, by slot of the readout, and its value in the trace or in each of a batch."""

    direction: Float[Tensor, "*image slot width"]
    bias: Float[Tensor, "*image"] | float
    logit: Float[Tensor, "*image"]
    length: Float[Tensor, "*image 1"] | None = None  # for given classes: |z|, divides direction and bias
    added: Float[Tensor, "*image"] | float = 0.0  # for given classes: the bias that |z| does not divide


def is_direction(target: TargetLike) -> bool:
    """Return True for a tensor with at least one axis; a tensor without axes is a class index."""
    return isinstance(target, Tensor) and target.ndim > 0


def resolve_target(trace: Trace, readout: ReadoutStage, target: TargetLike, relative: bool = False) -> Target:
    """Return the `Target` of a class index, a label, (a, b) for a rather than b, or a direction (a tensor).

    A direction is a tensor as long as what the classifier reads. Raises VitvizError for an unknown class, a
    label of no or several classes, a direction of another length, or a model without classes.
    """
    if is_direction(target):
        return _target_of_direction(trace, readout, target, relative)
    if readout.head is None or trace.logits is None:
        detail = f"hand in a direction instead: a tensor of {readout.features} numbers"
        raise VitvizError(f"{trace.checkpoint} has no classifier, so no class can be asked about; {detail}.")
    return resolve_class_targets(trace, readout, classes_of(trace, target), relative)


def resolve_class_targets(
    trace: Trace | TraceBatch, readout: ReadoutStage, classes: Sequence[int | Int[Tensor, "*image"]],
    relative: bool = False,
) -> Target:  # fmt: skip
    """Return the `Target` of one class, or of the first of two classes rather than the second.

    A class is a number from 0, or an integer tensor with the class of every image. Raises VitvizError for
    `relative` where a mean of the logits has no meaning.
    """
    if relative and trace.classes is None and trace.head_type != "softmax":
        raise VitvizError(
            f"relative=True is not valid for {trace.checkpoint}, whose outputs are independent (head_type"
            f" {quoted(trace.head_type)}): only a softmax is unchanged when the mean is subtracted. Pass"
            " relative=False."
        )
    head, length = readout.head, None

    def difference(rows: Tensor, pick=lambda rows, number: rows[number], over: int = 0) -> Tensor:
        result = pick(rows, classes[0])
        if len(classes) == 2:
            return result - pick(rows, classes[1])
        return result - rows.mean(dim=over) if relative else result

    def own(logits: Tensor, number: int | Tensor) -> Tensor:
        if isinstance(number, int):
            return logits[..., number]
        return logits.gather(-1, number.unsqueeze(-1)).squeeze(-1)

    direction = torch.stack([difference(weights) for weights in head.weights], dim=-2)
    direction, bias, added = direction * head.factor, difference(head.bias.double()), 0.0
    if head.length is not None:
        length = head.length(features(trace, readout))
        added = difference(head.length.added.double())
        direction, bias = direction / length.unsqueeze(-1), bias / length.squeeze(-1) + added
    logit = difference(trace.logits.double(), own, -1)
    return Target(direction.to(trace.tokens[-1]), bias, logit, length, added)


def classes_of(trace: Trace, target: TargetLike) -> list[int]:
    """Return the class of a target, or both of (a, b); raise VitvizError for any other number of classes."""
    asked = target if isinstance(target, tuple) else (target,)
    if len(asked) not in (1, 2):
        raise VitvizError(
            f"target={quoted(target)} is not valid; expected one class, or (a, b) for a rather than b."
        )
    return [class_index(trace, one) for one in asked]


def score_of(logits: Float[Tensor, "row class"], classes: Sequence[int]) -> Float[Tensor, " row"]:
    """Return by row the logit of a single class, or the first of two classes' logit minus the second's."""
    return logits[:, classes[0]] - (logits[:, classes[1]] if len(classes) == 2 else 0)


def class_index(trace: Trace, name: Any) -> int:
    """Return the index of a class that is given by its index, its label, or one of the names in its label.

    Raises VitvizError if no class or several classes match.
    """
    classes = len(trace.logits)
    if isinstance(name, str):
        wanted = name.strip().casefold()
        labels = [label.casefold() for label in trace.labels]
        whole = [i for i, label in enumerate(labels) if label == wanted]
        result = whole or [i for i, label in enumerate(labels) if wanted in map(str.strip, label.split(","))]
        if len(result) == 1:
            return result[0]
        several = f"several classes have that name: {', '.join(map(str, result))}"
        many = several if result else f"none of its {classes} classes has that name"
        how = f", as {wanted} without quotation marks" if wanted.isdecimal() else ""
        advice = f"Give its number, from 0{how}."
        raise VitvizError(f"{quoted(name)} does not name one class of {trace.checkpoint}: {many}. {advice}")
    if (number := whole_number(name, below=classes)) is not None:
        return number
    detail = f"{trace.checkpoint} has classes 0 to {classes - 1}, or labels"
    raise VitvizError(f"{quoted(name)} is not a class; {detail}.")


def features(trace: Trace | TraceBatch, readout: ReadoutStage) -> Float[Tensor, "*image slot width"]:
    """Return y, the classifier's input, by slot; recomputed from the last block's output."""
    read, norm = pooled(trace, readout), readout.pooling.fc_norm
    return read if norm is None else norm(read)


def _target_of_direction(trace: Trace, readout: ReadoutStage, direction: Tensor, relative: bool) -> Target:
    """Return the target of a direction at the classifier's input; raise for a wrong shape or `relative`."""
    read = features(trace, readout)
    if direction.shape != (readout.features,) or not direction.is_floating_point() or relative:
        what = f"a tensor of shape {tuple(direction.shape)}"
        if relative and direction.shape == (readout.features,):
            what = "relative to no classes"
        expected = f"expected {readout.features} real numbers, with relative=False"
        raise VitvizError(f"A direction cannot be {what}; {expected}.")
    rows = direction.to(read)
    aside = readout.pooling.kind == "class and average"
    rows = rows.view(len(read), -1) if aside else rows.expand(len(read), -1) / len(read)
    return Target(rows, 0.0, (rows.double() * read.double()).sum())
