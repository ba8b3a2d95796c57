"""Checks by alternatives: do the predictions tell the images apart better if one setting is changed?

    I = H(mean_i p_i) - mean_i H(p_i),   p_i: mean prediction for image i and its mirror image

I is the mutual information of image and prediction in nats, from 0 to ln(number of images). No labels are
needed. It falls if predictions become uncertain, if they are the same for every image, and if they change
when an image is mirrored. The gain of an alternative is its I minus the I of the present setting. A gain
above the limit is evidence that the present setting is wrong; a gain below shows nothing, because some wrong
settings (a mirrored position table; BGR for a model that hardly uses colour) change I little.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from math import log

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.analyses.protocol import NO_HEAD
from vitviz.diagnostics.finding import Finding, judged
from vitviz.diagnostics.subject import CheckSubject
from vitviz.engine.adapters.assumptions import NORMALISATIONS
from vitviz.engine.formats.inference import likely_heads
from vitviz.engine.formats.overrides import Overrides, pools_of
from vitviz.engine.forward import copies
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.traces.head_type import HeadType, scores_of
from vitviz.traces.localized_text import LocalizedText

GAIN = 0.05  # nats
MANY = 0.08  # nats, the best of an alternative for every layer
UNINFORMED = 0.05  # of ln(number of images)


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


def _gains(subject: CheckSubject, alternatives: Mapping) -> dict[str, float]:
    """Return the gain of every alternative: a function that returns outputs, by name."""
    kind = subject.inspector.head_type
    own, found = information(subject.own_outputs, kind), {}
    for name, outputs in alternatives.items():
        try:
            found[name] = information(outputs(), kind) - own
        except (UnsupportedModel, VitvizError):
            continue  # an alternative that this model does not have
    return {name: gain for name, gain in found.items() if gain == gain}


def _best(
    subject: CheckSubject,
    name: str,
    alternatives: Mapping,
    what: str,
    advice: str,
    view: str = "",
    limit: float | None = GAIN,
) -> Iterator[Finding]:
    if not alternatives or not (gains := _gains(subject, alternatives)):
        return
    best = max(gains, key=gains.get)
    if limit is None:  # healthy and faulty models overlap
        told = f"{what}: the best alternative is {best}, with {gains[best]:+.2f} nats."
        yield Finding(name, "input", "number", told, gains[best], view=view)
        return
    yield judged(
        name, "input", gains[best], limit,
        f"{what}: the predictions carry {gains[best]:.2f} nats more with {best}.",
        f"{what}: none of {len(gains)} alternatives is better; the best is {best}.",
        advice.format(best=best), view,
    )  # fmt: skip


def require_classes(subject: CheckSubject) -> None:
    if not subject.classifies or len(subject.images) < 2:
        raise UnsupportedModel(LocalizedText(NO_HEAD, checkpoint=subject.name))


def informed(subject: CheckSubject) -> Iterator[Finding]:
    """Report the information that predictions carry about the images; serious if there is none."""
    require_classes(subject)
    found, most = information(subject.own_outputs, subject.inspector.head_type), log(len(subject.images))
    yield judged(
        "uninformed", "input", found / most, UNINFORMED,
        "The predictions are the same for all images.",
        f"The predictions carry {found:.2f} of {most:.2f} nats about which image it is.",
        "Check weights and preprocessing: the model is untrained, damaged, or sees no image.", "patches",
        below=True,
    )  # fmt: skip


def normalisation(subject: CheckSubject) -> Iterator[Finding]:
    """Compare the normalisation with ImageNet's, 0.5, none, other ranges and reversed channels."""
    require_classes(subject)
    own = subject.inspector.preprocessing
    scaled = {
        "values from 0 to 1 (mean and std 255 times larger)": 255.0,
        "values from 0 to 255 (mean and std 255 times smaller)": 1 / 255,
    }
    others = {
        f"the normalisation {name} (mean {one.mean[0]:.3g}, std {one.std[0]:.3g})": replace(
            own, mean=one.mean, std=one.std
        )
        for name, one in NORMALISATIONS.items()
        if name in ("ImageNet", "one half", "none") and one.mean != own.mean
    }
    others |= {
        name: replace(
            own, mean=tuple(factor * one for one in own.mean), std=tuple(factor * one for one in own.std)
        )
        for name, factor in scaled.items()
    }
    ways = {
        name: partial(lambda given: subject.outputs(inputs=subject.inputs(given)), one)
        for name, one in others.items()
    }
    ways["channels in the order BGR"] = lambda: subject.outputs(inputs=subject.inputs(reverse=True))
    advice = "Give the normalisation that the model was trained with: {best}."
    yield from _best(subject, "normalisation", ways, "Normalisation", advice, "patches")


def _varied(subject: CheckSubject, change) -> Tensor:
    twin = copies.lending(subject.model)
    change(twin)
    return subject.outputs(twin.eval())


def position_order(subject: CheckSubject) -> Iterator[Finding]:
    """Compare the position table with the same table mirrored, transposed and rotated."""
    require_classes(subject)
    table, grid = getattr(subject.model, "pos_embed", None), subject.inspector.grid()
    if not isinstance(table, nn.Parameter) or table.ndim != 3:
        return

    def arranged(change, model: nn.Module) -> None:
        prefix = table.shape[1] - grid.patches
        cells = change(table[:, prefix:].unflatten(1, (grid.rows, grid.cols))).flatten(1, 2)
        model.pos_embed = nn.Parameter(torch.cat([table[:, :prefix], cells], dim=1), requires_grad=False)

    changes = {
        "rows in reverse order": lambda cells: cells.flip(1),
        "rows and columns in reverse order": lambda cells: cells.flip(1, 2),
    }
    if grid.rows == grid.cols:
        changes["rows and columns exchanged"] = lambda cells: cells.transpose(1, 2)
    ways = {name: partial(_varied, subject, partial(arranged, one)) for name, one in changes.items()}
    advice = "Load the position table again; its patches are stored in another order ({best})."
    yield from _best(subject, "position_order", ways, "Position table", advice, "positions")


def class_token(subject: CheckSubject) -> Iterator[Finding]:
    """Compare the class token with zeros: a foreign class token is worse than none."""
    require_classes(subject)
    token = getattr(subject.model, "cls_token", None)
    if not isinstance(token, nn.Parameter):
        return

    def emptied(model: nn.Module) -> None:
        model.cls_token = nn.Parameter(torch.zeros_like(token), requires_grad=False)

    advice = "Load the class token again; the present one belongs to another model or was not loaded."
    ways = {"zeros in its place": partial(_varied, subject, emptied)}
    yield from _best(subject, "class_token", ways, "Class token", advice)


def query_key(subject: CheckSubject) -> Iterator[Finding]:
    """Compare every layer with the same layer whose queries and keys are exchanged."""
    require_classes(subject)

    def exchanged(layers: range, model: nn.Module) -> None:
        for layer in layers:
            joint = model.blocks[layer].attn.qkv
            for name in ("weight", "bias"):
                if (given := getattr(joint, name)) is not None:
                    query, key, value = given.chunk(3)
                    setattr(joint, name, nn.Parameter(torch.cat([key, query, value]), requires_grad=False))

    blocks = subject.model.blocks
    plain = [
        isinstance(getattr(block.attn, "qkv", None), nn.Linear)
        and isinstance(getattr(block.attn, "q_norm", None), nn.Identity | None)
        for block in blocks
    ]
    if not all(plain):
        return
    count = len(blocks)
    ways = {
        "queries and keys exchanged in all layers": partial(
            _varied, subject, partial(exchanged, range(count))
        )
    }
    ways |= {
        f"queries and keys exchanged in layer {layer + 1}": partial(
            _varied, subject, partial(exchanged, range(layer, layer + 1))
        )
        for layer in range(count)
    }
    advice = "Check the conversion of the attention weights: {best} fits better."
    yield from _best(subject, "query_key", ways, "Query and key", advice, "explorer", MANY)


def settings(subject: CheckSubject) -> Iterator[Finding]:
    """Compare number of heads and pooling with their usual alternatives."""
    require_classes(subject)
    model, name = subject.model, subject.name
    own = model.blocks[0].attn.num_heads if hasattr(model.blocks[0], "attn") else None
    given = [("heads", one) for one in likely_heads(model.embed_dim) if one != own]
    given += [("pool", one) for one in pools_of(model)[1:]]
    ways = {
        f"{key}={value}": partial(
            _varied,
            subject,
            partial(lambda change, twin: change.applied(twin, name), Overrides(**{key: value})),
        )
        for key, value in given
    }
    yield from _best(subject, "settings", ways, "Number of heads, pooling", "", limit=None)
