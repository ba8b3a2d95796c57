"""Checks by alternatives: do the predictions tell the images apart better if one setting is changed?

    I = H(mean_i p_i) - mean_i H(p_i),   p_i: mean prediction for image i and its mirror image

I is the mutual information of image and prediction in nats, from 0 to ln(number of images). No labels are
needed. It falls if predictions become uncertain, if they are the same for every image, and if they change
when an image is mirrored. The gain of an alternative is its I minus the I of the present setting. I is a mean
over images of the relative entropy to the mean prediction, so a gain has a standard error over images. A few
images favour some alternative of many by chance: a gain is serious only if a paired t test over images,
corrected for the number of alternatives, rejects that the present setting is as good, and if the alternative
then reaches a quarter of ln(number of images): a damaged model gains from any change. A gain below shows
nothing, because some wrong settings (a mirrored position table; BGR for a model that hardly uses colour)
change I little.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial, reduce
from math import isfinite, log
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.analyses.faithfulness.curves import t_quantile
from vitviz.diagnostics.finding import RULES, Finding, layers_named, verdict
from vitviz.diagnostics.subject import CheckSubject
from vitviz.engine.adapters.assumptions import NORMALISATIONS
from vitviz.engine.formats import overrides
from vitviz.engine.formats.inference import likely_heads
from vitviz.engine.forward.own_model import OwnModel
from vitviz.errors import VitvizError
from vitviz.traces.head_type import HeadType, scores_of
from vitviz.traces.localized_text import LocalizedText

GAIN = 0.05  # nats
LEVEL = 0.05  # of the t test of a gain over images, divided by the number of alternatives
MANY = 0.08  # nats, the best of an alternative for every layer
UNINFORMED, WEAK = 0.05, 0.25  # of ln(number of images)
CROPPED = 0.7  # of an image's shorter side; timm's ViTs use 0.875 or more
PADDED = 0.05  # of the input

Alternatives = Mapping[str, Callable[[], Tensor]]  # outputs with one setting changed, by the change's name


def divergences(logits: Float[Tensor, "view image class"], head_type: HeadType) -> Float[Tensor, " image"]:
    """Return each image's relative entropy from its prediction (mean over views) to the mean one, in nats."""
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

    name: str  # of the finding and of its rule, which names the setting
    variants: Callable[[CheckSubject], Alternatives]  # empty if the check does not apply
    limit: float = GAIN
    verdict: bool = True  # False: the best alternative is a number without a verdict
    parts: bool = False  # True: the alternatives change the model's parts, not only its input

    def __call__(self, subject: CheckSubject) -> Iterator[Finding]:
        """Judge the best alternative: serious if its gain is significant, else a note (with `verdict`)."""
        if self.parts and isinstance(subject.model, OwnModel):  # whose parts are not known
            return
        if not (gains := self.gains(subject)):
            return
        best = max(gains, key=gains.get)
        gain, error = gains[best]
        significant = gain > error * t_quantile(LEVEL / len(gains), len(subject.images) - 1)
        reached = gain + information(subject.own_outputs, subject.inspector.head_type)
        restored = reached > WEAK * log(len(subject.images))
        source = LocalizedText("measured; paired t test over images, 5 % level, corrected for the number of"
                               " alternatives: {count}", count=len(gains))  # fmt: skip
        rule = RULES[self.name]
        yield verdict(
            "alternative" if significant else "alternative insignificant", gain, self.limit, name=self.name,
            severity="number" if not self.verdict else None if restored else "note", source=source,
            view=rule.get("view", ""), advice=rule.get("advice", "") if significant and restored else "",
            setting=LocalizedText(rule["setting"]), best=best, gain=f"{gain:.2f}", count=len(gains),
        )  # fmt: skip

    def gains(self, subject: CheckSubject) -> dict[str, tuple[float, float]]:
        """Return by alternative its mean gain in `divergences` (nats) and the standard error over images."""
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
    values = {"carried": f"{carried:.2f}", "most": f"{most:.2f}"}
    weak = UNINFORMED < carried / most < WEAK
    rule, limit = ("uninformed weak", WEAK) if weak else ("uninformed", UNINFORMED)
    yield verdict(rule, carried / most, limit, **values)


def crop(subject: CheckSubject) -> Iterator[Finding]:
    """Report how much of the images the model sees, and how much of its input is padding."""
    sides, padding = [], []
    for trace in subject.traces:
        (left, top, right, bottom), (width, height) = trace.view.box, trace.view.upload
        sides.append(max((right - left) / width, (bottom - top) / height))
        seen = (min(right, width) - max(left, 0)) * (min(bottom, height) - max(top, 0))
        padding.append(1 - seen / ((right - left) * (bottom - top)))
    share, padded = sum(sides) / len(sides), sum(padding) / len(padding)
    yield verdict("padding", padded, PADDED, share=f"{padded:.0%}")
    yield verdict("crop", share, CROPPED, share=f"{min(share, 1):.0%}")


def _normalisations(subject: CheckSubject) -> Alternatives:
    """Return the alternatives with ImageNet's normalisation, 0.5, none, other ranges, reversed channels."""
    own = subject.inspector.preprocessing
    if own.channels != 3:
        return {}
    usual = {name: NORMALISATIONS[name] for name in ("ImageNet", "one half", "none")}
    changes = {
        LocalizedText(
            "the normalisation {name} (mean {mean}, std {std})",
            name=name, mean=f"{one.mean[0]:.3g}", std=f"{one.std[0]:.3g}",
        ): (one.mean, one.std)
        for name, one in usual.items() if one.mean != own.mean
    }  # fmt: skip
    for factor, name in (
        (255.0, LocalizedText("values from 0 to 1 (mean and std 255 times larger)")),
        (1 / 255, LocalizedText("values from 0 to 255 (mean and std 255 times smaller)")),
    ):
        changes[name] = tuple(tuple(factor * value for value in values) for values in (own.mean, own.std))
    others = {name: replace(own, mean=mean, std=std) for name, (mean, std) in changes.items()}
    alternatives = {name: partial(subject.outputs, preprocessing=other) for name, other in others.items()}
    reverse = partial(subject.outputs, arrange=lambda values: values.flip(2))
    return {**alternatives, LocalizedText("channels in the order BGR"): reverse}


def _orientations(subject: CheckSubject) -> Alternatives:
    """Return the alternatives with images turned by 90, 180 and 270 degrees; 180 alone if not square."""
    height, width = subject.inspector.preprocessing.size
    result = {}
    for turns in (1, 2, 3) if height == width else (2,):
        name = LocalizedText("images rotated by {angle} degrees counterclockwise", angle=90 * turns)
        result[name] = partial(subject.outputs, arrange=partial(torch.rot90, k=turns, dims=(-2, -1)))
    return result


def _parameter(subject: CheckSubject, path: str, axes: int | None = None) -> nn.Parameter | None:
    """Return the parameter at a path of the model; None if it is missing or has another number of axes."""
    result = reduce(lambda module, name: getattr(module, name, None), path.split("."), subject.model)
    return result if isinstance(result, nn.Parameter) and result.ndim == (axes or result.ndim) else None


def _replaced(subject: CheckSubject, path: str, values: Mapping[str, Tensor]) -> Alternatives:
    """Return the alternatives with other values of one parameter of the model, by name."""
    module, _, own = path.rpartition(".")

    def change(value: Tensor, model: nn.Module) -> None:
        _assign(model.get_submodule(module), own, value)

    return {name: partial(subject.outputs, partial(change, value)) for name, value in values.items()}


def _assign(module: nn.Module, name: str, value: Tensor) -> None:
    """Replace a module's parameter by a new one with this value, in place; it needs no gradient."""
    setattr(module, name, nn.Parameter(value.contiguous(), requires_grad=False))


def _position_orders(subject: CheckSubject) -> Alternatives:
    """Return the alternatives with the position table mirrored, transposed, rotated, or shifted by one."""
    table, grid = _parameter(subject, "pos_embed", 3), subject.inspector.grid()
    if table is None:
        return {}
    prefix = table.shape[1] - grid.patches
    cells = table[:, prefix:].unflatten(1, (grid.rows, grid.cols))
    orders = {
        LocalizedText("rows in reverse order"): cells.flip(1),
        LocalizedText("rows and columns in reverse order"): cells.flip(1, 2),
    }
    if grid.rows == grid.cols:
        orders[LocalizedText("rows and columns exchanged")] = cells.transpose(1, 2)
    tables = {name: torch.cat([table[:, :prefix], one.flatten(1, 2)], dim=1) for name, one in orders.items()}
    if prefix == 1:
        tables[LocalizedText("the table's last entry for the class token")] = table.roll(1, dims=1)
    return _replaced(subject, "pos_embed", tables)


def _patch_filters(subject: CheckSubject) -> Alternatives:
    """Return the alternatives with mirrored, transposed or channels-last filters of the patch embedding."""
    weight = _parameter(subject, "patch_embed.proj.weight", 4)
    if weight is None:
        return {}
    channels, rows, cols = weight.shape[1:]
    last = rearrange(weight.flatten(1), "n (h w c) -> n c h w", c=channels, h=rows)
    filters = {
        LocalizedText("filters whose rows are in reverse order"): weight.flip(2),
        LocalizedText("filters whose columns are in reverse order"): weight.flip(3),
        LocalizedText("filters stored with the channels last"): last,
    }
    if rows == cols:
        filters[LocalizedText("filters whose rows and columns are exchanged")] = weight.transpose(2, 3)
    return _replaced(subject, "patch_embed.proj.weight", filters)


def _class_tokens(subject: CheckSubject) -> Alternatives:
    """Return the alternative with a class token of zeros: a foreign class token is worse than none."""
    token = _parameter(subject, "cls_token")
    zeros = {} if token is None else {LocalizedText("zeros in its place"): torch.zeros_like(token)}
    return _replaced(subject, "cls_token", zeros)


def _ordered(*order: int) -> Callable[[Tensor, int], Tensor]:
    """Return a function that puts the three parts of a joint matrix in another order."""
    return lambda joint, heads: torch.cat([joint.chunk(3)[part] for part in order])


def _regrouped(pattern: str) -> Callable[[Tensor, int], Tensor]:
    """Return a function that sorts the rows of a joint matrix, which are in the order `pattern`."""
    pattern = f"{pattern} ... -> (part head dim) ..."
    return lambda joint, heads: rearrange(joint, pattern, part=3, head=heads)


def _scaled(sign: int) -> Callable[[Tensor, int], Tensor]:
    """Return a function that multiplies the queries by (head dimension)^(sign / 2)."""

    def scale(joint: Tensor, heads: int) -> Tensor:
        query, *others = joint.chunk(3)
        return torch.cat([(joint.shape[0] / 3 / heads) ** (sign / 2) * query, *others])

    return scale


def _attention_weights(subject: CheckSubject) -> Alternatives:
    """Return the alternatives with other orders of the QKV matrix, scales, or transposed projections."""
    for attention in (block.attn for block in subject.model.blocks):
        normed = not isinstance(getattr(attention, "q_norm", None), nn.Identity | None)
        if normed or not isinstance(getattr(attention, "qkv", None), nn.Linear):
            return {}

    def change(layers: range, arrange: Callable[[Tensor, int], Tensor], model: nn.Module) -> None:
        for attention in (model.blocks[layer].attn for layer in layers):
            for name, parameter in attention.qkv.named_parameters():
                _assign(attention.qkv, name, arrange(parameter, attention.num_heads))

    def transpose(model: nn.Module) -> None:
        for block in model.blocks:
            _assign(block.attn.proj, "weight", block.attn.proj.weight.T)

    changes = {
        LocalizedText("queries and keys exchanged in all layers"): _ordered(1, 0, 2),
        LocalizedText("keys and values exchanged"): _ordered(0, 2, 1),
        LocalizedText("queries and values exchanged"): _ordered(2, 1, 0),
        LocalizedText("the QKV matrix in the order key, value, query"): _ordered(2, 0, 1),
        LocalizedText("the QKV matrix in the order value, query, key"): _ordered(1, 2, 0),
        LocalizedText("the QKV matrix grouped by head"): _regrouped("(head part dim)"),
        LocalizedText("the QKV matrix with interleaved queries, keys and values"):
            _regrouped("(head dim part)"),
        LocalizedText("attention scores multiplied by the square root of the head dimension"): _scaled(1),
        LocalizedText("attention scores divided by the square root of the head dimension"): _scaled(-1),
    }  # fmt: skip
    layers = range(len(subject.model.blocks))
    variants = {name: partial(change, layers, arrange) for name, arrange in changes.items()}
    for layer in layers:
        name = LocalizedText("queries and keys exchanged in {layers}", layers=layers_named([layer]))
        variants[name] = partial(change, range(layer, layer + 1), _ordered(1, 0, 2))
    variants[LocalizedText("transposed output projections")] = transpose
    return {name: partial(subject.outputs, variant) for name, variant in variants.items()}


def _layer_orders(subject: CheckSubject) -> Alternatives:
    """Return the alternatives with layers in reverse order, or restored from an alphabetical order."""
    layers = range(len(subject.model.blocks))
    text = sorted(layers, key=str)  # 0, 1, 10, 11, 2, …
    orders = {LocalizedText("the layers in reverse order"): layers[::-1]}
    if len(layers) > 10:
        name = LocalizedText("the layers sorted by number instead of alphabetically")
        orders[name] = list(map(text.index, layers))

    def arrange(order: Sequence[int], model: nn.Module) -> None:
        model.blocks = nn.Sequential(*(model.blocks[layer] for layer in order))

    return {name: partial(subject.outputs, partial(arrange, order)) for name, order in orders.items()}


def _mlp_halves(subject: CheckSubject) -> Alternatives:
    """Return the alternative with the halves of each MLP's first layer (gate and value) exchanged."""
    mlps = [getattr(block, "mlp", None) for block in subject.model.blocks]
    pairs = all(isinstance(getattr(mlp, "fc1_g", None), nn.Linear) for mlp in mlps)
    if not pairs and not all(isinstance(getattr(mlp, "fc1", None), nn.Linear) for mlp in mlps):
        return {}

    def exchange(model: nn.Module) -> None:
        for mlp in (block.mlp for block in model.blocks):
            if pairs:
                mlp.fc1_g, mlp.fc1_x = mlp.fc1_x, mlp.fc1_g
            else:
                for name, parameter in mlp.fc1.named_parameters():
                    _assign(mlp.fc1, name, torch.cat(parameter.chunk(2)[::-1]))

    return {
        LocalizedText("the halves of each MLP's first layer exchanged"): partial(subject.outputs, exchange)
    }


def _norm_placements(subject: CheckSubject) -> Alternatives:
    """Return the alternatives with another placement of the norms, or each block's two norms exchanged."""

    def exchange(model: nn.Module) -> None:
        for block in model.blocks:
            block.norm1, block.norm2 = block.norm2, block.norm1

    placements = _other_settings("block", overrides.possible_block_forms(subject.model)[1:], subject)
    if all(hasattr(block, "norm1") and hasattr(block, "norm2") for block in subject.model.blocks):
        name = LocalizedText("the two norms of every block exchanged")
        placements[name] = partial(subject.outputs, exchange)
    return placements


def _other_settings(name: str, values: Iterable[Any], subject: CheckSubject) -> dict[str, Callable]:
    """Return the alternatives with other values of one of the model's settings, by the change's text."""
    changes = [overrides.Overrides(**{name: value}) for value in values]
    applied = {change.text(): partial(change.applied, name=subject.name) for change in changes}
    return {text: partial(subject.outputs, change) for text, change in applied.items()}


def _head_counts(subject: CheckSubject) -> Alternatives:
    """Return the alternatives with other plausible numbers of heads than the model's own."""
    own = getattr(getattr(subject.model.blocks[0], "attn", None), "num_heads", None)
    usual = likely_heads(subject.model.embed_dim)
    return _other_settings("heads", [count for count in usual if count != own], subject)


def _poolings(subject: CheckSubject) -> Alternatives:
    """Return the alternatives with every other pooling that fits the model's tensors."""
    return _other_settings("pool", overrides.possible_poolings(subject.model)[1:], subject)


def _activations(subject: CheckSubject) -> Alternatives:
    """Return the alternatives with each other activation in the MLPs; {} if the own is unknown."""
    own = overrides.activation_name(getattr(getattr(subject.model.blocks[0], "mlp", None), "act", None))
    others = [name for name in overrides.ACTIVATIONS if own and name != own]
    return _other_settings("activation", others, subject)


COMPARISONS = (
    Comparison("normalisation", _normalisations),
    Comparison("orientation", _orientations),
    Comparison("patch_filters", _patch_filters, parts=True),
    Comparison("position_order", _position_orders, parts=True),
    Comparison("class_token", _class_tokens, parts=True),
    Comparison("attention_weights", _attention_weights, MANY, parts=True),
    Comparison("layer_order", _layer_orders, parts=True),
    Comparison("mlp_halves", _mlp_halves, parts=True),
    Comparison("norms", _norm_placements, parts=True),
    Comparison("pooling", _poolings, parts=True),
    # without a verdict: DeiT-Tiny gains 0.1 nats with QuickGELU and 0.09 with twice its heads
    Comparison("activation", _activations, verdict=False, parts=True),
    Comparison("heads", _head_counts, verdict=False, parts=True),
)
