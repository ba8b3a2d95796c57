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
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite, log

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.analyses.faithfulness.curves import t_quantile
from vitviz.diagnostics.finding import Finding, layers_named, verdict_of
from vitviz.diagnostics.subject import CheckSubject
from vitviz.engine.adapters.assumptions import NORMALISATIONS
from vitviz.engine.formats.inference import likely_heads
from vitviz.engine.formats.overrides import (
    ACTIVATIONS,
    Overrides,
    activation_name,
    possible_block_forms,
    possible_poolings,
)
from vitviz.errors import VitvizError
from vitviz.traces.head_type import HeadType, scores_of
from vitviz.traces.localized_text import LocalizedText

GAIN = 0.05  # nats
LEVEL = 0.05  # of the t test of a gain over images, divided by the number of alternatives
MANY = 0.08  # nats, the best of an alternative for every layer
UNINFORMED = 0.05  # of ln(number of images)
CROPPED = 0.7  # of an image's shorter side; timm's ViTs use 0.875 or more
PADDED = 0.05  # of the input

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


@dataclass(frozen=True)
class Comparison:
    """A check that compares one setting of the model with alternatives, given by `variants`."""

    name: str  # of the finding
    setting: str
    advice: str  # a pattern; {best} is the best alternative
    variants: Callable[[CheckSubject], Alternatives]  # empty if the check does not apply
    view: str = ""
    limit: float = GAIN
    verdict: bool = True  # False: the best alternative is a number without a verdict

    def __call__(self, subject: CheckSubject) -> Iterator[Finding]:
        """Judge the best alternative: serious if its gain is significant, else a note (with `verdict`)."""
        if not (gains := self.gains(subject)):
            return
        best = max(gains, key=gains.get)
        gain, error = gains[best]
        significant = gain > error * t_quantile(LEVEL / len(gains), len(subject.images) - 1)
        source = LocalizedText(
            "measured; paired t test over images, 5 % level, corrected for the number of alternatives:"
            " {count}",
            count=len(gains),
        )
        yield verdict_of(
            self.name, "input", gain, self.limit,
            "{setting}: the predictions carry {gain} nats more with {best}."
            if significant else "{setting}: the predictions carry {gain} nats more with {best}. The gain is"
            " not significant on these images.",
            "{setting}: no alternative is better ({count} tried); the best is {best}.",
            self.advice if significant else "Check the model with more images.", self.view,
            severity="number" if not self.verdict else "serious" if significant else "note", source=source,
            setting=self.setting, best=best, gain=f"{gain:.2f}", count=len(gains),
        )  # fmt: skip

    def gains(self, subject: CheckSubject) -> dict[str, tuple[float, float]]:
        """Return the gain of every alternative and the gain's standard error over images, by name."""
        kind, gains = subject.inspector.head_type, {}
        present, root = divergences(subject.own_outputs, kind), len(subject.images) ** 0.5
        for name, outputs in self.variants(subject).items():
            with suppress(VitvizError):  # an alternative that this model does not have
                difference = divergences(outputs(), kind) - present
                gains[name] = difference.mean().item(), difference.std().item() / root
        return {name: gain for name, gain in gains.items() if isfinite(gain[0])}


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


def crop(subject: CheckSubject) -> Iterator[Finding]:
    """Report how much of the images the model sees, and how much of its input is padding."""
    sides, padding = [], []
    for trace in subject.traces:
        (left, top, right, bottom), (width, height) = trace.view.box, trace.view.upload
        sides.append(max((right - left) / width, (bottom - top) / height))
        seen = (min(right, width) - max(left, 0)) * (min(bottom, height) - max(top, 0))
        padding.append(1 - seen / ((right - left) * (bottom - top)))
    share, padded = sum(sides) / len(sides), sum(padding) / len(padding)
    yield verdict_of(
        "padding", "input", padded, PADDED, "{share} of the input is padding around the image.",
        "{share} of the input is padding around the image.",
        "Crop images, unless the model was trained with padding.", "patches", severity="note",
        source=LocalizedText("timm's ViTs are trained without padding"), share=f"{padded:.0%}",
    )  # fmt: skip
    yield verdict_of(
        "crop", "input", share, CROPPED,
        "The model sees {share} of an image's shorter side; the rest is cut off.",
        "The model sees {share} of an image's shorter side.",
        "Resize images before the crop; objects may be cut off.", "patches", severity="note", below=True,
        source=LocalizedText("timm's models use 0.875 or more"), share=f"{min(share, 1):.0%}",
    )  # fmt: skip


def _normalisations(subject: CheckSubject) -> Alternatives:
    """ImageNet's normalisation, 0.5, none, other ranges, and reversed channels."""
    own = subject.inspector.preprocessing
    if own.channels != 3:
        return {}
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
    reverse = partial(subject.outputs, arrange=lambda values: values.flip(2))
    return {**alternatives, LocalizedText("channels in the order BGR"): reverse}


def _orientations(subject: CheckSubject) -> Alternatives:
    """The image turned by 90, 180 and 270 degrees."""
    height, width = subject.inspector.preprocessing.size
    return {
        LocalizedText("images rotated by {angle} degrees counterclockwise", angle=90 * turns): partial(
            subject.outputs, arrange=lambda values, turns=turns: values.rot90(turns, (-2, -1))
        )
        for turns in ((1, 2, 3) if height == width else (2,))
    }


def _position_orders(subject: CheckSubject) -> Alternatives:
    """The position table mirrored, transposed, rotated, and with its first row last."""
    table, grid = getattr(subject.model, "pos_embed", None), subject.inspector.grid()
    if not isinstance(table, nn.Parameter) or table.ndim != 3:
        return {}
    prefix = table.shape[1] - grid.patches

    def rearranged(change: Callable[[Tensor], Tensor]) -> Tensor:
        cells = change(table[:, prefix:].unflatten(1, (grid.rows, grid.cols))).flatten(1, 2)
        return torch.cat([table[:, :prefix], cells], dim=1)

    tables = {
        LocalizedText("rows in reverse order"): rearranged(lambda cells: cells.flip(1)),
        LocalizedText("rows and columns in reverse order"): rearranged(lambda cells: cells.flip(1, 2)),
    }
    if grid.rows == grid.cols:
        exchanged = rearranged(lambda cells: cells.transpose(1, 2))
        tables[LocalizedText("rows and columns exchanged")] = exchanged
    if prefix == 1:
        tables[LocalizedText("the table's last entry for the class token")] = table.roll(1, dims=1)
    return {name: _replaced(subject, "pos_embed", other) for name, other in tables.items()}


def _replaced(subject: CheckSubject, name: str, value: Tensor) -> Callable[[], Tensor]:
    """Return a function that computes the outputs with another value of one parameter of the model."""
    path, _, own = name.rpartition(".")
    return partial(subject.outputs, lambda model: _assign(model.get_submodule(path), own, value))


def _assign(module: nn.Module, name: str, value: Tensor) -> None:
    """Replace a module's parameter by a new one with this value, in place; it needs no gradient."""
    setattr(module, name, nn.Parameter(value.contiguous(), requires_grad=False))


def _patch_filters(subject: CheckSubject) -> Alternatives:
    """The filters of the patch embedding with their axes in another order."""
    weight = getattr(getattr(getattr(subject.model, "patch_embed", None), "proj", None), "weight", None)
    if not isinstance(weight, nn.Parameter) or weight.ndim != 4:
        return {}
    size = {"c": weight.shape[1], "h": weight.shape[2], "w": weight.shape[3]}
    joint = weight.flatten(1)
    filters = {
        LocalizedText("filters whose rows are in reverse order"): weight.flip(2),
        LocalizedText("filters whose columns are in reverse order"): weight.flip(3),
        LocalizedText("filters stored with the channels last"): rearrange(
            joint, "n (h w c) -> n c h w", **size
        ),
    }
    if size["h"] == size["w"]:
        filters[LocalizedText("filters whose rows and columns are exchanged")] = weight.transpose(2, 3)
    return {name: _replaced(subject, "patch_embed.proj.weight", other) for name, other in filters.items()}


def _class_tokens(subject: CheckSubject) -> Alternatives:
    """Zeros: a foreign class token is worse than none."""
    token = getattr(subject.model, "cls_token", None)
    if not isinstance(token, nn.Parameter):
        return {}
    zeros = _replaced(subject, "cls_token", torch.zeros_like(token))
    return {LocalizedText("zeros in its place"): zeros}


def _attention_weights(subject: CheckSubject) -> Alternatives:
    """Other orders of the joint matrix of queries, keys and values, other scales, a transposed projection."""
    attentions = [block.attn for block in subject.model.blocks]
    if not all(
        isinstance(getattr(attention, "qkv", None), nn.Linear)
        and isinstance(getattr(attention, "q_norm", None), nn.Identity | None)
        for attention in attentions
    ):
        return {}

    def change(layers: range, arrange: Callable[[Tensor, int], Tensor], model: nn.Module) -> None:
        for layer in layers:
            joint, heads = model.blocks[layer].attn.qkv, model.blocks[layer].attn.num_heads
            for name in ("weight", "bias"):
                if (parameter := getattr(joint, name)) is not None:
                    _assign(joint, name, arrange(parameter, heads))

    def ordered(order: tuple[int, int, int], joint: Tensor, heads: int) -> Tensor:
        return torch.cat([joint.chunk(3)[i] for i in order])

    def regrouped(pattern: str, joint: Tensor, heads: int) -> Tensor:
        return rearrange(joint, f"{pattern} ... -> (part head dim) ...", part=3, head=heads)

    def scaled(sign: int, joint: Tensor, heads: int) -> Tensor:
        factor = (joint.shape[0] / 3 / heads) ** (sign / 2)
        return torch.cat([factor * joint.chunk(3)[0], *joint.chunk(3)[1:]])

    def transposed(model: nn.Module) -> None:
        for block in model.blocks:
            _assign(block.attn.proj, "weight", block.attn.proj.weight.T)

    count = len(attentions)
    whole, swap = range(count), partial(ordered, (1, 0, 2))
    changes = {
        LocalizedText("queries and keys exchanged in all layers"): swap,
        LocalizedText("keys and values exchanged"): partial(ordered, (0, 2, 1)),
        LocalizedText("queries and values exchanged"): partial(ordered, (2, 1, 0)),
        LocalizedText("the QKV matrix in the order key, value, query"): partial(ordered, (2, 0, 1)),
        LocalizedText("the QKV matrix in the order value, query, key"): partial(ordered, (1, 2, 0)),
        LocalizedText("the QKV matrix grouped by head"): partial(regrouped, "(head part dim)"),
        LocalizedText("the QKV matrix with interleaved queries, keys and values"): partial(
            regrouped, "(head dim part)"
        ),
        LocalizedText("attention scores multiplied by the square root of the head dimension"): partial(
            scaled, 1
        ),
        LocalizedText("attention scores divided by the square root of the head dimension"): partial(
            scaled, -1
        ),
    }
    variants = {name: partial(change, whole, arrange) for name, arrange in changes.items()}
    for layer in whole:
        name = LocalizedText("queries and keys exchanged in {layers}", layers=layers_named([layer]))
        variants[name] = partial(change, range(layer, layer + 1), swap)
    variants[LocalizedText("transposed output projections")] = transposed
    return {name: partial(subject.outputs, variant) for name, variant in variants.items()}


def _layer_orders(subject: CheckSubject) -> Alternatives:
    """The layers in reverse order, and restored from the order of their names as text."""
    count = len(subject.model.blocks)
    text = sorted(range(count), key=str)  # 0, 1, 10, 11, 2, …
    orders = {LocalizedText("the layers in reverse order"): range(count)[::-1]}
    if count > 10:
        orders[LocalizedText("the layers sorted by number instead of alphabetically")] = [
            text.index(layer) for layer in range(count)
        ]

    def arrange(order, model: nn.Module) -> None:
        model.blocks = nn.Sequential(*(model.blocks[layer] for layer in order))

    return {name: partial(subject.outputs, partial(arrange, order)) for name, order in orders.items()}


def _norm_placements(subject: CheckSubject) -> Alternatives:
    """The norms after the branches, and both norms of every block exchanged."""

    def exchange(model: nn.Module) -> None:
        for block in model.blocks:
            block.norm1, block.norm2 = block.norm2, block.norm1

    forms = [Overrides(block=form) for form in possible_block_forms(subject.model)[1:]]
    if not all(hasattr(block, "norm1") and hasattr(block, "norm2") for block in subject.model.blocks):
        return _alternatives_of(subject, forms)
    exchanged = LocalizedText("the two norms of every block exchanged")
    return {**_alternatives_of(subject, forms), exchanged: partial(subject.outputs, exchange)}


def _alternatives_of(subject: CheckSubject, changes: list[Overrides]) -> Alternatives:
    """Return the model's outputs under each change of settings, as functions, by the change's text."""
    return {
        change.text(): partial(subject.outputs, partial(change.applied, name=subject.name))
        for change in changes
    }


def _head_counts(subject: CheckSubject) -> Alternatives:
    """Return the alternatives with other plausible numbers of heads than the model's own."""
    attention = getattr(subject.model.blocks[0], "attn", None)
    own, usual = getattr(attention, "num_heads", None), likely_heads(subject.model.embed_dim)
    return _alternatives_of(subject, [Overrides(heads=count) for count in usual if count != own])


def _poolings(subject: CheckSubject) -> Alternatives:
    """Return the alternatives with every other pooling that fits the model's tensors."""
    return _alternatives_of(subject, [Overrides(pool=pool) for pool in possible_poolings(subject.model)[1:]])


def _activations(subject: CheckSubject) -> Alternatives:
    """Return the alternatives with each other activation in the MLPs; {} if the own is unknown."""
    own = activation_name(getattr(getattr(subject.model.blocks[0], "mlp", None), "act", None))
    others = [name for name in ACTIVATIONS if own and name != own]
    return _alternatives_of(subject, [Overrides(activation=name) for name in others])


COMPARISONS = (
    Comparison(
        "normalisation", LocalizedText("Normalisation"),
        "Give the normalisation that the model was trained with: {best}.", _normalisations, "patches",
    ),
    Comparison(
        "orientation", LocalizedText("Orientation"),
        "Check the orientation of the images. Best alternative: {best}.", _orientations, "patches",
    ),
    Comparison(
        "patch_filters", LocalizedText("Patch embedding"),
        "Convert the patch embedding again: the axes of its filters are in another order ({best}).",
        _patch_filters, "filters",
    ),
    Comparison(
        "position_order", LocalizedText("Position table"),
        "Load the position table again; its patches are stored in another order ({best}).",
        _position_orders, "positions",
    ),
    Comparison(
        "class_token", LocalizedText("Class token"),
        "Load the class token again; the present one belongs to another model or was not loaded.",
        _class_tokens,
    ),
    Comparison(
        "attention_weights", LocalizedText("Attention weights"),
        "Convert the attention weights again. Best alternative: {best}.", _attention_weights, "explorer",
        MANY,
    ),
    Comparison(
        "layer_order", LocalizedText("Order of the layers"),
        "Convert the layers again. Best alternative: {best}.", _layer_orders, "explorer",
    ),
    Comparison(
        "norms", LocalizedText("Placement of the norms"),
        "Convert the norm layers again. Best alternative: {best}.", _norm_placements,
    ),
    Comparison("pooling", LocalizedText("Pooling"), "Load the model with {best}.", _poolings),
    # without a verdict: DeiT-Tiny gains 0.1 nats with QuickGELU and 0.09 with twice its heads
    Comparison("activation", LocalizedText("Activation"), "", _activations, verdict=False),
    Comparison("heads", LocalizedText("Number of heads"), "", _head_counts, verdict=False),
)  # fmt: skip
