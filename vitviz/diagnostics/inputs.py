"""Checks by alternatives: do the predictions tell the images apart better if one setting is changed?

    I = H(mean_i p_i) - mean_i H(p_i),   p_i: mean prediction for image i and its mirror image

I is the mutual information of image and prediction in nats, from 0 to ln(number of images). No labels are
needed. It falls if predictions become uncertain, if they are the same for every image, and if they change
when an image is mirrored. The gain of an alternative is its I minus the I of the present setting. I is a mean
over images of the relative entropy to the mean prediction, so a gain has a standard error over images. A few
images favour some alternative of many by chance: a gain is serious only if a paired t test over images,
corrected for the number of alternatives, rejects that the present setting is as good. A gain below shows
nothing, because some wrong settings (a mirrored position table; BGR for a model that hardly uses colour)
change I little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from math import isfinite, log

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.analyses.faithfulness.curves import t_quantile
from vitviz.diagnostics.finding import Finding, layers_named, verdict_of
from vitviz.diagnostics.subject import CheckSubject
from vitviz.engine.adapters.assumptions import NORMALISATIONS
from vitviz.engine.formats.inference import likely_heads
from vitviz.engine.formats.overrides import Overrides, possible_poolings
from vitviz.errors import VitvizError
from vitviz.traces.head_type import HeadType, scores_of
from vitviz.traces.localized_text import LocalizedText

GAIN = 0.05  # nats
LEVEL = 0.05  # of the t test of a gain over images, divided by the number of alternatives
MANY = 0.08  # nats, the best of an alternative for every layer
UNINFORMED = 0.05  # of ln(number of images)

Alternatives = Mapping[str, Callable[[], Tensor]]  # outputs with one setting changed, by the change's name


def divergences(logits: Float[Tensor, "view image class"], head_type: HeadType) -> Float[Tensor, " image"]:
    """Return the relative entropy of every image's prediction to the mean prediction, in nats."""
    shares = scores_of(logits, head_type).mean(dim=0)

    def divergence(p: Tensor) -> Tensor:
        return (torch.xlogy(p, p) - torch.xlogy(p, p.mean(dim=0))).sum(dim=-1)

    return divergence(shares) + (divergence(1 - shares) if head_type == "sigmoid" else 0)


def information(logits: Float[Tensor, "view image class"], head_type: HeadType) -> float:
    """Return the mutual information of image and prediction, in nats.

    >>> round(information(100 * torch.eye(4)[None], "softmax"), 3)  # ln 4
    1.386
    """
    return divergences(logits, head_type).mean().item()


def _gains(subject: CheckSubject, alternatives: Alternatives) -> dict[str, tuple[float, float]]:
    """Return the gain of every alternative and the gain's standard error over images, by name."""
    kind, gains = subject.inspector.head_type, {}
    present, root = divergences(subject.own_outputs, kind), len(subject.images) ** 0.5
    for name, outputs in alternatives.items():
        with suppress(VitvizError):  # an alternative that this model does not have
            difference = divergences(outputs(), kind) - present
            gains[name] = difference.mean().item(), difference.std().item() / root
    return {name: gain for name, gain in gains.items() if isfinite(gain[0])}


def _best(
    subject: CheckSubject, name: str, alternatives: Alternatives, what: str, advice: str, view: str = "",
    limit: float = GAIN, verdict: bool = True,
) -> Iterator[Finding]:  # fmt: skip
    """Judge the best alternative: serious if its gain is significant, else a note (with `verdict`)."""
    if not (gains := _gains(subject, alternatives)):
        return
    best = max(gains, key=gains.get)
    gain, error = gains[best]
    significant = gain > error * t_quantile(LEVEL / len(gains), len(subject.images) - 1)
    source = LocalizedText(
        "measured; t test over images, 5 % level, corrected for {count} alternatives", count=len(gains)
    )
    yield verdict_of(
        name, "input", gain, limit,
        "{setting}: the predictions carry {gain} nats more with {best}."
        if significant else "{setting}: the predictions carry {gain} nats more with {best}, which is not"
        " significant on these images.",
        "{setting}: no alternative is better ({count} tried); the best is {best}.",
        advice if significant else "Check the model with more images.", view,
        severity="number" if not verdict else "serious" if significant else "note", source=source,
        setting=what, best=best, gain=f"{gain:.2f}", count=len(gains),
    )  # fmt: skip


def informed(subject: CheckSubject) -> Iterator[Finding]:
    """Report the information that predictions carry about the images; serious if there is none."""
    carried, most = information(subject.own_outputs, subject.inspector.head_type), log(len(subject.images))
    yield verdict_of(
        "uninformed", "input", carried / most, UNINFORMED,
        "The predictions are the same for all images.",
        "The predictions carry {carried} of {most} nats about which image it is.",
        "Check weights and preprocessing: the model is untrained, damaged, or sees no image.", "patches",
        below=True, carried=f"{carried:.2f}", most=f"{most:.2f}",
    )  # fmt: skip


def normalisation(subject: CheckSubject) -> Iterator[Finding]:
    """Compare the normalisation with ImageNet's, 0.5, none, other ranges and reversed channels."""
    own = subject.inspector.preprocessing
    if own.channels != 3:
        return
    statistics = {
        LocalizedText(
            "the normalisation {name} (mean {mean}, std {std})",
            name=name, mean=f"{usual.mean[0]:.3g}", std=f"{usual.std[0]:.3g}",
        ): (usual.mean, usual.std)
        for name in ("ImageNet", "one half", "none")
        if (usual := NORMALISATIONS[name]).mean != own.mean
    }  # fmt: skip
    for factor, name in (
        (255.0, LocalizedText("values from 0 to 1 (mean and std 255 times larger)")),
        (1 / 255, LocalizedText("values from 0 to 255 (mean and std 255 times smaller)")),
    ):
        statistics[name] = tuple(tuple(factor * value for value in values) for values in (own.mean, own.std))
    alternatives = {
        name: partial(subject.outputs, preprocessing=replace(own, mean=mean, std=std))
        for name, (mean, std) in statistics.items()
    }
    alternatives[LocalizedText("channels in the order BGR")] = partial(subject.outputs, reverse=True)
    advice = "Give the normalisation that the model was trained with: {best}."
    what = LocalizedText("Normalisation")
    yield from _best(subject, "normalisation", alternatives, what, advice, "patches")


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
        LocalizedText("rows in reverse order"): lambda cells: cells.flip(1),
        LocalizedText("rows and columns in reverse order"): lambda cells: cells.flip(1, 2),
    }
    if grid.rows == grid.cols:
        changes[LocalizedText("rows and columns exchanged")] = lambda cells: cells.transpose(1, 2)
    variants = {
        name: partial(subject.outputs, partial(rearrange, change)) for name, change in changes.items()
    }
    advice = "Load the position table again; its patches are stored in another order ({best})."
    what = LocalizedText("Position table")
    yield from _best(subject, "position_order", variants, what, advice, "positions")


def class_token(subject: CheckSubject) -> Iterator[Finding]:
    """Compare the class token with zeros: a foreign class token is worse than none."""
    token = getattr(subject.model, "cls_token", None)
    if not isinstance(token, nn.Parameter):
        return

    def clear(model: nn.Module) -> None:
        model.cls_token = nn.Parameter(torch.zeros_like(token), requires_grad=False)

    advice = "Load the class token again; the present one belongs to another model or was not loaded."
    variants = {LocalizedText("zeros in its place"): partial(subject.outputs, clear)}
    yield from _best(subject, "class_token", variants, LocalizedText("Class token"), advice)


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
    spans = [range(count), *(range(layer, layer + 1) for layer in range(count))]
    variants = {
        LocalizedText(
            "queries and keys exchanged in {layers}",
            layers=layers_named(layers) if len(layers) == 1 else LocalizedText("all layers"),
        ): partial(subject.outputs, partial(exchange, layers))
        for layers in spans
    }
    advice = "Check the conversion of the attention weights: {best} fits better."
    what = LocalizedText("Query and key")
    yield from _best(subject, "query_key", variants, what, advice, "explorer", MANY)


def settings(subject: CheckSubject) -> Iterator[Finding]:
    """Compare number of heads and pooling with their usual alternatives."""
    model = subject.model
    heads = model.blocks[0].attn.num_heads if hasattr(model.blocks[0], "attn") else None
    changes = [Overrides(heads=count) for count in likely_heads(model.embed_dim) if count != heads]
    changes += [Overrides(pool=pool) for pool in possible_poolings(model)[1:]]
    variants = {
        change.text(): partial(subject.outputs, partial(change.applied, name=subject.name))
        for change in changes
    }
    what = LocalizedText("Number of heads, pooling")  # DeiT-Tiny gains 0.09 nats with twice its heads
    yield from _best(subject, "settings", variants, what, "", verdict=False)
