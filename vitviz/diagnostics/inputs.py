"""Checks by alternatives: do the predictions tell the images apart better if one setting is changed?

    I = H(mean_i p_i) - mean_i H(p_i),   p_i: mean prediction for image i and its mirror image

I is the mutual information of image and prediction in nats, from 0 to ln(number of images). No labels are
needed. It falls if predictions become uncertain, if they are the same for every image, and if they change
when an image is mirrored. The gain of an alternative is its I minus the I of the present setting. A gain
above the limit is evidence that the present setting is wrong; a gain below shows nothing, because some wrong
settings (a mirrored position table; BGR for a model that hardly uses colour) change I little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import isnan, log

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.diagnostics.finding import Finding, judged
from vitviz.diagnostics.subject import CheckSubject
from vitviz.engine.adapters.assumptions import NORMALISATIONS
from vitviz.engine.formats.inference import likely_heads
from vitviz.engine.formats.overrides import Overrides, pools_of
from vitviz.errors import VitvizError
from vitviz.traces.head_type import HeadType, scores_of

GAIN = 0.05  # nats
MANY = 0.08  # nats, the best of an alternative for every layer
UNINFORMED = 0.05  # of ln(number of images)

Alternatives = Mapping[str, Callable[[], Tensor]]  # outputs with one setting changed, by the change's name


def information(logits: Float[Tensor, "view image class"], head_type: HeadType) -> float:
    """Return the mutual information of image and prediction, in nats.

    >>> round(information(100 * torch.eye(4)[None], "softmax"), 3)  # ln 4
    1.386
    """
    shares = scores_of(logits, head_type).mean(dim=0)

    def entropy(p: Tensor) -> Tensor:
        both = torch.special.entr(p) + (torch.special.entr(1 - p) if head_type == "sigmoid" else 0)
        return both.sum(dim=-1)

    return (entropy(shares.mean(dim=0)) - entropy(shares).mean()).item()


def _gains(subject: CheckSubject, alternatives: Alternatives) -> dict[str, float]:
    """Return the gain of every alternative, by name."""
    kind, gains = subject.inspector.head_type, {}
    present = information(subject.own_outputs, kind)
    for name, outputs in alternatives.items():
        with suppress(VitvizError):  # an alternative that this model does not have
            gains[name] = information(outputs(), kind) - present
    return {name: gain for name, gain in gains.items() if not isnan(gain)}


def _best(
    subject: CheckSubject, name: str, alternatives: Alternatives, what: str, advice: str, view: str = "",
    limit: float | None = GAIN,
) -> Iterator[Finding]:  # fmt: skip
    if not (gains := _gains(subject, alternatives)):
        return
    best = max(gains, key=gains.get)
    if limit is None:  # healthy and faulty models overlap
        sentence = f"{what}: the best alternative is {best}, with {gains[best]:+.2f} nats."
        yield Finding(name, "input", "number", sentence, gains[best], view=view)
        return
    yield judged(
        name, "input", gains[best], limit,
        f"{what}: the predictions carry {gains[best]:.2f} nats more with {best}.",
        f"{what}: none of {len(gains)} alternatives is better; the best is {best}.",
        advice.format(best=best), view,
    )  # fmt: skip


def informed(subject: CheckSubject) -> Iterator[Finding]:
    """Report the information that predictions carry about the images; serious if there is none."""
    carried, most = information(subject.own_outputs, subject.inspector.head_type), log(len(subject.images))
    yield judged(
        "uninformed", "input", carried / most, UNINFORMED,
        "The predictions are the same for all images.",
        f"The predictions carry {carried:.2f} of {most:.2f} nats about which image it is.",
        "Check weights and preprocessing: the model is untrained, damaged, or sees no image.", "patches",
        below=True,
    )  # fmt: skip


def normalisation(subject: CheckSubject) -> Iterator[Finding]:
    """Compare the normalisation with ImageNet's, 0.5, none, other ranges and reversed channels."""
    own = subject.inspector.preprocessing
    statistics = {
        f"the normalisation {name} (mean {usual.mean[0]:.3g}, std {usual.std[0]:.3g})": (
            usual.mean,
            usual.std,
        )
        for name in ("ImageNet", "one half", "none")
        if (usual := NORMALISATIONS[name]).mean != own.mean
    }
    for factor, name in (
        (255.0, "values from 0 to 1 (mean and std 255 times larger)"),
        (1 / 255, "values from 0 to 255 (mean and std 255 times smaller)"),
    ):
        statistics[name] = tuple(tuple(factor * value for value in values) for values in (own.mean, own.std))
    alternatives = {
        name: partial(subject.outputs, preprocessing=replace(own, mean=mean, std=std))
        for name, (mean, std) in statistics.items()
    }
    alternatives["channels in the order BGR"] = partial(subject.outputs, reverse=True)
    advice = "Give the normalisation that the model was trained with: {best}."
    yield from _best(subject, "normalisation", alternatives, "Normalisation", advice, "patches")


def position_order(subject: CheckSubject) -> Iterator[Finding]:
    """Compare the position table with the same table mirrored, transposed and rotated."""
    table, grid = getattr(subject.model, "pos_embed", None), subject.inspector.grid()
    if not isinstance(table, nn.Parameter) or table.ndim != 3:
        return

    def rearrange(change, model: nn.Module) -> None:
        prefix = table.shape[1] - grid.patches
        cells = change(table[:, prefix:].unflatten(1, (grid.rows, grid.cols))).flatten(1, 2)
        model.pos_embed = nn.Parameter(torch.cat([table[:, :prefix], cells], dim=1), requires_grad=False)

    changes = {
        "rows in reverse order": lambda cells: cells.flip(1),
        "rows and columns in reverse order": lambda cells: cells.flip(1, 2),
    }
    if grid.rows == grid.cols:
        changes["rows and columns exchanged"] = lambda cells: cells.transpose(1, 2)
    variants = {
        name: partial(subject.outputs, partial(rearrange, change)) for name, change in changes.items()
    }
    advice = "Load the position table again; its patches are stored in another order ({best})."
    yield from _best(subject, "position_order", variants, "Position table", advice, "positions")


def class_token(subject: CheckSubject) -> Iterator[Finding]:
    """Compare the class token with zeros: a foreign class token is worse than none."""
    token = getattr(subject.model, "cls_token", None)
    if not isinstance(token, nn.Parameter):
        return

    def clear(model: nn.Module) -> None:
        model.cls_token = nn.Parameter(torch.zeros_like(token), requires_grad=False)

    advice = "Load the class token again; the present one belongs to another model or was not loaded."
    variants = {"zeros in its place": partial(subject.outputs, clear)}
    yield from _best(subject, "class_token", variants, "Class token", advice)


def query_key(subject: CheckSubject) -> Iterator[Finding]:
    """Compare every layer with the same layer whose queries and keys are exchanged."""

    def exchange(layers: range, model: nn.Module) -> None:
        for layer in layers:
            joint = model.blocks[layer].attn.qkv
            for name in ("weight", "bias"):
                if (parameter := getattr(joint, name)) is not None:
                    query, key, value = parameter.chunk(3)
                    setattr(joint, name, nn.Parameter(torch.cat([key, query, value]), requires_grad=False))

    attentions = [block.attn for block in subject.model.blocks]
    if not all(
        isinstance(getattr(attention, "qkv", None), nn.Linear)
        and isinstance(getattr(attention, "q_norm", None), nn.Identity | None)
        for attention in attentions
    ):
        return
    count = len(attentions)
    spans = {"all layers": range(count)}
    spans |= {f"layer {layer + 1}": range(layer, layer + 1) for layer in range(count)}
    variants = {
        f"queries and keys exchanged in {name}": partial(subject.outputs, partial(exchange, layers))
        for name, layers in spans.items()
    }
    advice = "Check the conversion of the attention weights: {best} fits better."
    yield from _best(subject, "query_key", variants, "Query and key", advice, "explorer", MANY)


def settings(subject: CheckSubject) -> Iterator[Finding]:
    """Compare number of heads and pooling with their usual alternatives."""
    model = subject.model
    heads = model.blocks[0].attn.num_heads if hasattr(model.blocks[0], "attn") else None
    changes = [Overrides(heads=count) for count in likely_heads(model.embed_dim) if count != heads]
    changes += [Overrides(pool=pool) for pool in pools_of(model)[1:]]
    variants = {
        change.text(): partial(subject.outputs, partial(change.applied, name=subject.name))
        for change in changes
    }
    yield from _best(subject, "settings", variants, "Number of heads, pooling", "", limit=None)
