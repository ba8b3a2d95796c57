"""Checks of the classifier: its labels, its type, whether it belongs to the features, and the labels' order.

    contrast = mean_i (max_c z_ic - mean_c z_ic) / sd_c z_ic,   z: logits of image i and class c

Logits of unrelated rows and features are nearly normal over classes, and the largest of them is about 3
deviations above the mean. In a trained model the predicted class stands out. The contrast does not show
whether the class is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import reduce

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor

from vitviz.diagnostics.finding import Finding, verdict
from vitviz.diagnostics.subject import CheckSubject, wordnet_classes
from vitviz.engine.formats.timm_config import wordnet_names
from vitviz.surveys.labels import Labels
from vitviz.traces.head_type import scores_of
from vitviz.traces.localized_text import LocalizedText

CONTRAST = 0.3  # deviations above the contrast of unrelated logits
SPARSE = 0.03  # mean sigmoid of a softmax head's logits
YES = 0.25  # share of the classes that a sigmoid head affirms for a mean image
BIASED = 6  # deviations of the classes' biases; vitviz-tiny 2.9, DeiT-Tiny 3.0
UNLIKELY, CHANCE = 1e-2, 1e-3  # probability of as few hits as were found: note, serious


def outputs(subject: CheckSubject) -> Iterator[Finding]:
    """Compare the number of outputs with the number of labels."""
    count, labels = subject.own_outputs.shape[-1], len(subject.inspector.labels)
    rule = "labels_missing" if labels else "labels_missing all"
    yield verdict(rule, abs(count - labels), 0, count=count, labels=labels)


def head_type(subject: CheckSubject) -> Iterator[Finding]:
    """Compare the logits with what their type produces: a softmax ignores their level, a sigmoid does not."""
    kind, logits = subject.inspector.head_type, subject.own_outputs
    count = logits.shape[-1]
    if count < 10:
        return
    if kind == "sigmoid":
        yes = (scores_of(logits, kind) > 0.5).double().mean().item()
        yield verdict("head_type sigmoid", yes, YES, share=f"{yes:.1%}")
        return
    total = scores_of(logits, "sigmoid").sum(dim=-1).mean().item() / count
    yield verdict("head_type", total, SPARSE, yes=f"{total * count:.2g}", count=count, share=f"{total:.0%}")


def contrast(logits: Float[Tensor, "image class"]) -> float:
    """Return the largest logit's distance from the mean, in deviations over classes; mean over images."""
    spread = logits.double() - logits.double().mean(dim=1, keepdim=True)
    return (spread.max(dim=1).values / spread.square().mean(dim=1).sqrt()).mean().item()


def unrelated_contrast(classes: int) -> float:
    """Return the `contrast` of random logits, which are independent and normally distributed.

    >>> round(unrelated_contrast(1000), 1)
    3.3
    """
    return contrast(torch.randn(2000, classes, generator=torch.Generator().manual_seed(0)))


def belongs(subject: CheckSubject) -> Iterator[Finding]:
    """Find a classifier that does not belong to the features, unless a serious finding explains it."""
    logits = subject.own_outputs.flatten(0, 1)
    if logits.shape[1] < 10 or subject.inspector.classes is not None or subject.causes:
        return
    yield verdict("weak_classifier", contrast(logits), unrelated_contrast(logits.shape[1]) + CONTRAST)


def class_bias(subject: CheckSubject) -> Iterator[Finding]:
    """Find a class that the classifier's bias favours."""
    bias = getattr(getattr(subject.model, "head", None), "bias", None)
    if bias is None or len(bias) < 10 or not (spread := bias.double().std().item()):
        return
    largest = (bias.double() - bias.double().mean()).abs().max().item() / spread
    yield verdict("class_bias", largest, BIASED)


def probability_of_hits(confidences: Sequence[float]) -> Float64[np.ndarray, " count"]:
    """Return the probability of 0, 1, … correct predictions, if each is correct with its confidence.

    >>> probability_of_hits([0.5, 0.5]).tolist()
    [0.25, 0.5, 0.25]
    """
    return reduce(np.convolve, [[1 - confidence, confidence] for confidence in confidences], np.ones(1))


def label_orders(labels: Sequence[str]) -> dict[str, list[int | None]]:
    """Return the class of each output if the outputs are in another order than the labels, by order."""
    orders = {
        LocalizedText("sorted by name"): sorted(range(len(labels)), key=labels.__getitem__),
        LocalizedText("sorted by number as text (0, 1, 10, …)"): sorted(range(len(labels)), key=str),
    }
    classes = wordnet_classes(Labels(len(labels), labels))
    ids = wordnet_names() if len(labels) == len(wordnet_names()) else classes
    if len(ids) == len(labels):
        orders[LocalizedText("sorted by WordNet id, as in ImageNet")] = [classes.get(wnid) for wnid in ids]
    return orders


def sorted_labels(
    labels: Sequence[str], top: Sequence[int], truths: Mapping[int, Container]
) -> Finding | None:
    """Return a finding if the predictions are right with the labels in another order, by more than chance.

    Args:
        top: Predicted class of every image.
        truths: True classes by image.
    """
    hits, right = sum(top[i] in truth for i, truth in truths.items()), {}
    for name, order in label_orders(labels).items():
        right[name] = sum(order[top[i]] in truth and top[i] not in truth for i, truth in truths.items())
    best = max(right, key=right.__getitem__)
    guesses = probability_of_hits([len(truth) / len(labels) for truth in truths.values()])
    as_many = len(right) * guesses[right[best] :].sum().item()
    if right[best] <= hits or as_many >= UNLIKELY:
        return None
    severity = "serious" if as_many < CHANCE else "note"
    counts = {"times": right[best], "hits": hits, "count": len(truths), "order": best}
    return verdict("sorted_labels", as_many, UNLIKELY, severity=severity, **counts)


def labels(subject: CheckSubject) -> Iterator[Finding]:
    """Compare predictions with true classes: find unknown, shifted, sorted and shuffled labels."""
    logits, given = subject.own_outputs[0], subject.inspector.labels
    known = [i for i, checked in enumerate(subject.images) if checked.truth]
    unknown = [str(one.label) for one in subject.images if one.label is not None and not one.truth]
    if unknown:
        counts = {"count": len(unknown), "total": len(subject.images)}
        names = ", ".join(dict.fromkeys(unknown[:3]))
        yield verdict("labels_unused", len(unknown) / len(subject.images), 0.0, names=names, **counts)
    if not known or logits.shape[-1] < 2:
        return
    shares, top = scores_of(logits, subject.inspector.head_type).max(dim=-1)
    truths = {i: subject.images[i].truth for i in known}
    hits = sum(int(top[i]) in truth for i, truth in truths.items())
    as_few = probability_of_hits(shares[known].tolist())[: hits + 1].sum().item()
    shifts = Counter(int(top[i]) - next(iter(truth)) for i, truth in truths.items())
    shift, times = max(((k, n) for k, n in shifts.items() if k), key=lambda pair: pair[1], default=(0, 0))
    if len(known) >= 3 and times > max(1, hits, len(known) / 3):
        counts = {"times": times, "count": len(known), "shift": f"{shift:+d}"}
        yield verdict("shifted_labels", times / len(known), 1 / 3, **counts)
        return
    in_order = sorted_labels(given, top.tolist(), truths) if len(given) == logits.shape[-1] else None
    if in_order is not None:
        yield in_order
        return
    source = LocalizedText("probability, if the model's confidence is right")
    severity = "serious" if as_few < CHANCE else "note"
    yield verdict(
        "shuffled_labels", as_few, UNLIKELY, severity=severity, source=source, hits=hits, count=len(known)
    )
