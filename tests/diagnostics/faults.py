"""Faults planted into a healthy model, for tests and for the tables of docs/check.md.

Each fault is a function of an inspector that returns a faulty copy; `EXPECTED` names the findings that count
as a detection. A fault may also change the images or their labels.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import nn

from vitviz import Inspector
from vitviz.engine.checkpoint import Loaded

Fault = Callable[[Inspector], Inspector]


def with_changes(
    inspector: Inspector, change: Callable[[nn.Module], object] = lambda model: None, **settings
):
    """Return a copy of an inspector with a changed model, preprocessing, labels or head type."""
    placed, model = inspector.placed, copy.deepcopy(inspector.model)
    with torch.no_grad():
        change(model)
    given = {name: settings.pop(name) for name in ("labels", "head_type") if name in settings}
    known = {"labels": placed.labels, "head_type": placed.head_type, **given}
    preprocessing = replace(placed.preprocessing, **settings)
    return Inspector(Loaded(placed.checkpoint, model, preprocessing, **known), "cpu")


def _random(shape, deviation: float) -> torch.Tensor:
    return deviation * torch.randn(shape, generator=torch.Generator().manual_seed(3))


def other_normalisation(inspector: Inspector) -> Inspector:
    half = inspector.preprocessing.mean == (0.5,) * 3
    mean, std = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)) if half else ((0.5,) * 3, (0.5,) * 3)
    return with_changes(inspector, mean=mean, std=std)


def no_normalisation(inspector: Inspector) -> Inspector:
    return with_changes(inspector, mean=(0.0,) * 3, std=(1.0,) * 3)


def reversed_channels(inspector: Inspector) -> Inspector:
    """The model expects BGR and receives RGB."""
    return with_changes(inspector, lambda model: model.patch_embed.proj.weight.copy_(
        model.patch_embed.proj.weight.flip(1)
    ))  # fmt: skip


def values_to_255(inspector: Inspector) -> Inspector:
    own = inspector.preprocessing
    return with_changes(inspector, mean=tuple(m / 255 for m in own.mean), std=tuple(s / 255 for s in own.std))


def values_twice_divided(inspector: Inspector) -> Inspector:
    own = inspector.preprocessing
    return with_changes(inspector, mean=tuple(m * 255 for m in own.mean), std=tuple(s * 255 for s in own.std))


def no_positions(inspector: Inspector) -> Inspector:
    return with_changes(inspector, lambda model: model.pos_embed.zero_())


def random_positions(inspector: Inspector) -> Inspector:
    return with_changes(inspector, lambda model: model.pos_embed.copy_(
        _random(model.pos_embed.shape, model.pos_embed.std())
    ))  # fmt: skip


def _with_position_table(inspector: Inspector, change) -> Inspector:
    grid = inspector.grid()

    def positions(model: nn.Module) -> None:
        table = model.pos_embed[:, grid.prefix :].unflatten(1, (grid.rows, grid.cols))
        model.pos_embed[:, grid.prefix :] = change(table).flatten(1, 2).clone()

    return with_changes(inspector, positions)


def flipped_positions(inspector: Inspector) -> Inspector:
    return _with_position_table(inspector, lambda table: table.flip(1))


def transposed_positions(inspector: Inspector) -> Inspector:
    return _with_position_table(inspector, lambda table: table.transpose(1, 2))


def positions_of_sequence(inspector: Inspector) -> Inspector:
    """Enlarge a table of 10 x 10 patches and a class token as one sequence."""
    grid = inspector.grid()

    def positions(model: nn.Module) -> None:
        first, table = model.pos_embed.mT.split((grid.prefix, grid.patches), dim=2)
        small = nn.functional.interpolate(
            table.unflatten(2, (grid.rows, grid.cols)), (10, 10), mode="bicubic"
        )
        sequence = torch.cat([first, small.flatten(2)], dim=2)
        model.pos_embed.copy_(nn.functional.interpolate(sequence, grid.tokens, mode="linear").mT)

    return with_changes(inspector, positions)


def initial_layer(inspector: Inspector) -> Inspector:
    def initialise(model: nn.Module) -> None:
        for module in model.blocks[len(model.blocks) // 2].modules():
            if isinstance(module, nn.Linear):
                module.weight.copy_(_random(module.weight.shape, 0.02))
                module.bias.zero_()

    return with_changes(inspector, initialise)


def initial_projection(inspector: Inspector) -> Inspector:
    return with_changes(inspector, lambda model: model.blocks[1].mlp.fc1.weight.copy_(
        _random(model.blocks[1].mlp.fc1.weight.shape, 0.02)
    ))  # fmt: skip


def zeroed_head(inspector: Inspector) -> Inspector:
    def zero(model: nn.Module) -> None:
        attention = model.blocks[2].attn
        attention.proj.weight[:, attention.head_dim : 2 * attention.head_dim] = 0

    return with_changes(inspector, zero)


def doubled_head(inspector: Inspector) -> Inspector:
    def double(model: nn.Module) -> None:
        attention = model.blocks[2].attn
        dim, width = attention.head_dim, attention.proj.weight.shape[0]
        for start in (0, width, 2 * width):
            for part in (attention.qkv.weight, attention.qkv.bias):
                part[start + dim : start + 2 * dim] = part[start : start + dim].clone()
        attention.proj.weight[:, dim : 2 * dim] = attention.proj.weight[:, :dim].clone()

    return with_changes(inspector, double)


def _exchange(model: nn.Module, layer: int) -> None:
    joint = model.blocks[layer].attn.qkv
    for part in (joint.weight, joint.bias):
        query, key, value = part.clone().chunk(3)
        part.copy_(torch.cat([key, query, value]))


def exchanged_query_key(inspector: Inspector) -> Inspector:
    return with_changes(inspector, lambda model: [_exchange(model, i) for i in range(len(model.blocks))])


def exchanged_in_one_layer(inspector: Inspector) -> Inspector:
    return with_changes(inspector, lambda model: _exchange(model, 2))


def overflow(inspector: Inspector) -> Inspector:
    """The weights were scaled and stored in float16, whose largest number is 65504."""
    return with_changes(inspector, lambda model: model.blocks[1].mlp.fc2.weight.copy_(
        (1e6 * model.blocks[1].mlp.fc2.weight).half().float()
    ))  # fmt: skip


def foreign_class_token(inspector: Inspector) -> Inspector:
    return with_changes(inspector, lambda model: model.cls_token.copy_(
        _random(model.cls_token.shape, model.cls_token.std())
    ))  # fmt: skip


def wrong_heads(inspector: Inspector) -> Inspector:
    def halve(model: nn.Module) -> None:
        for block in model.blocks:
            block.attn.num_heads *= 2
            block.attn.head_dim //= 2
            block.attn.scale = block.attn.head_dim**-0.5

    return with_changes(inspector, halve)


def shifted_labels(inspector: Inspector) -> Inspector:
    return with_changes(inspector, labels=(*inspector.labels[1:], inspector.labels[0]))


def sorted_labels(inspector: Inspector) -> Inspector:
    return with_changes(inspector, labels=tuple(sorted(inspector.labels, key=str.lower)))


def initial_classifier(inspector: Inspector) -> Inspector:
    return with_changes(
        inspector, lambda model: model.head.weight.copy_(_random(model.head.weight.shape, 0.02))
    )


def stale_classifier(inspector: Inspector) -> Inspector:
    """The classifier of another training expects another order of the features."""
    order = torch.randperm(inspector.model.head.in_features, generator=torch.Generator().manual_seed(0))
    return with_changes(inspector, lambda model: model.head.weight.copy_(model.head.weight[:, order]))


def sigmoid_of_softmax(inspector: Inspector) -> Inspector:
    return with_changes(inspector, head_type="sigmoid")


def softmax_of_sigmoid(inspector: Inspector) -> Inspector:
    """A multi-label head with logits far below 0 for absent classes is interpreted as a softmax."""
    return with_changes(inspector, lambda model: model.head.bias.sub_(8))


def untrained(inspector: Inspector) -> Inspector:
    def initialise(model: nn.Module) -> None:
        torch.manual_seed(0)
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                nn.init.trunc_normal_(module.weight, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.LayerNorm):
                module.reset_parameters()
        nn.init.trunc_normal_(model.pos_embed, std=0.02)

    return with_changes(inspector, initialise)


def qkv_grouped_by_head(inspector: Inspector) -> Inspector:
    """Rows in the order (head, part, width) are read in the order (part, head, width)."""

    def regroup(model: nn.Module) -> None:
        for block in model.blocks:
            for part in (block.attn.qkv.weight, block.attn.qkv.bias):
                rows = part.clone().unflatten(0, (3, block.attn.num_heads, -1))
                part.copy_(rows.transpose(0, 1).flatten(0, 2))

    return with_changes(inspector, regroup)


def exchanged_mlp_halves(inspector: Inspector) -> Inspector:
    """Two shards of each MLP's first layer were joined in the wrong order."""

    def exchange(model: nn.Module) -> None:
        for layer in (block.mlp.fc1 for block in model.blocks):
            for part in (layer.weight, layer.bias):
                part.copy_(torch.cat(part.clone().chunk(2)[::-1]))

    return with_changes(inspector, exchange)


def initial_norms(inspector: Inspector) -> Inspector:
    def initialise(model: nn.Module) -> None:
        for module in model.modules():
            if isinstance(module, nn.LayerNorm):
                module.reset_parameters()

    return with_changes(inspector, initialise)


def transposed_filters(inspector: Inspector) -> Inspector:
    return with_changes(inspector, lambda model: model.patch_embed.proj.weight.copy_(
        model.patch_embed.proj.weight.transpose(2, 3).clone()
    ))  # fmt: skip


def reversed_layers(inspector: Inspector) -> Inspector:
    def reverse(model: nn.Module) -> None:
        model.blocks = nn.Sequential(*list(model.blocks)[::-1])

    return with_changes(inspector, reverse)


def four_bits(inspector: Inspector) -> Inspector:
    def quantise(model: nn.Module) -> None:
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d):
                step = module.weight.abs().max() / 7
                module.weight.copy_((module.weight / step).round() * step)

    return with_changes(inspector, quantise)


def average_pooling(inspector: Inspector) -> Inspector:
    return with_changes(inspector, lambda model: setattr(model, "global_pool", "avg"))


def active_dropout(inspector: Inspector) -> Inspector:
    def activate(model: nn.Module) -> None:
        for block in model.blocks:
            block.mlp.drop1.p = 0.1

    faulty = with_changes(inspector, activate)
    faulty.model.train()  # an inspector sets eval mode when it is made
    return faulty


def copied_layer(inspector: Inspector) -> Inspector:
    return with_changes(
        inspector, lambda model: model.blocks[3].load_state_dict(model.blocks[2].state_dict())
    )


def tight_crop(inspector: Inspector) -> Inspector:
    return with_changes(inspector, crop_pct=0.4)


# fault -> keys of the findings that name it
EXPECTED: dict[Fault, tuple[str, ...]] = {
    other_normalisation: ("normalisation",),
    no_normalisation: ("normalisation",),
    reversed_channels: ("normalisation",),
    values_to_255: ("normalisation", "uninformed"),
    values_twice_divided: ("normalisation", "uninformed"),
    no_positions: ("no_positions",),
    random_positions: ("random_positions",),
    positions_of_sequence: ("positions_of_other_grid",),
    flipped_positions: ("position_order",),
    transposed_positions: ("position_order",),
    initial_layer: ("initial_weights",),
    initial_projection: ("initial_weights",),
    zeroed_head: ("dead_heads",),
    doubled_head: ("equal_heads",),
    exchanged_query_key: ("attention_weights",),
    exchanged_in_one_layer: ("attention_weights",),
    overflow: ("not_finite", "no_forward_pass"),
    foreign_class_token: ("class_token",),
    wrong_heads: ("heads",),
    shifted_labels: ("shifted_labels", "shuffled_labels"),
    sorted_labels: ("sorted_labels",),
    initial_classifier: ("initial_weights",),
    stale_classifier: ("weak_classifier",),
    sigmoid_of_softmax: ("head_type",),
    softmax_of_sigmoid: ("head_type",),
    untrained: ("untrained",),
    qkv_grouped_by_head: ("attention_weights",),
    exchanged_mlp_halves: ("mlp_halves",),
    initial_norms: ("constant_vectors",),
    transposed_filters: ("patch_filters",),
    reversed_layers: ("layer_order",),
    four_bits: ("quantised",),
    average_pooling: ("pooling",),
    active_dropout: ("not_deterministic",),
    copied_layer: ("equal_weights",),
    tight_crop: ("crop",),
}
