"""The model's weights that appear in equations 1 to 4: E, the class token, E_pos, the head.

The caller checks against the trace that E and the head are linear maps. A hybrid's E reads features.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.engine.defaults import in_float32
from vitviz.engine.forward import shuffling, tracing
from vitviz.engine.forward.own_model import require_known
from vitviz.engine.readout_stages import PRE_NORM, scale_of
from vitviz.errors import UnsupportedModel
from vitviz.traces.grid import Grid


@dataclass(frozen=True)
class Linear:
    """x -> weight x + bias."""

    weight: Float[Tensor, "out in"]
    bias: Float[Tensor, " out"]

    @classmethod
    def from_weights(cls, weight: Tensor, bias: Tensor | None) -> Linear:
        """Return a linear map with float32 copies of weight and bias; zeros if the bias is None."""
        zeros = torch.zeros(len(weight))
        return cls(tracing.float32_copy(weight), zeros if bias is None else tracing.float32_copy(bias))


@dataclass(frozen=True)
class ModelParts:
    """Weights by their names in the paper; None for a part that the model lacks or has in another form."""

    embedding: Linear | None  # E: a flattened patch (row, column, channel) -> a vector of D numbers
    prefix: Float[Tensor, "prefix width"]  # x_class and all other prefix tokens, before E_pos
    # E_pos; with a row for each prefix token, or for patches alone
    positions: Float[Tensor, "row width"] | None
    why_positions: str | None  # why the positions cannot be removed; None if they can
    mlp: int | None  # the width of an MLP's hidden layer
    plain_blocks: bool  # norm, attention, add; norm, MLP, add: equations 2 and 3
    layer_scale: bool  # each result is multiplied by learned numbers before it is added
    classes: int  # 0 for a model without a classifier
    classifier: Linear | None  # y -> logits
    stem: bool  # patches are cut from the features of a convolutional stem


@in_float32()
def parts_of(model: nn.Module, channels: int = 3) -> ModelParts:
    """Return the parts of a model that reads so many channels, at its present input size."""
    require_known(model, "the weights of its equations")
    filters = tracing.patch_filters(model, channels)
    flat = None if filters is None else rearrange(filters, "width channel row col -> width (row col channel)")
    head, classes = getattr(model, "head", None), int(getattr(model, "num_classes", 0) or 0)
    linear = classes and isinstance(head, nn.Linear)
    prefix = [tracing.float32_copy(token[0]) for token in tracing.prefix_of(model).values()]
    positions, block = getattr(model, "pos_embed", None), model.blocks[0]
    tabled = isinstance(positions, nn.Parameter) and positions.ndim == 3
    return ModelParts(
        embedding=None if flat is None else Linear.from_weights(flat, model.patch_embed.proj.bias),
        prefix=torch.cat([torch.zeros(0, model.embed_dim), *prefix]),
        positions=tracing.float32_copy(positions[0]) if tabled else None,
        why_positions=shuffling.fixed_positions_reason(model),
        mlp=getattr(getattr(getattr(block, "mlp", None), "fc2", None), "in_features", None),
        plain_blocks=type(block).__name__ in PRE_NORM,
        layer_scale=scale_of(getattr(block, "ls1", getattr(block, "gamma_1", None))) is not None,
        classes=classes,
        classifier=Linear.from_weights(head.weight, head.bias) if linear else None,
        stem=getattr(model.patch_embed, "backbone", None) is not None,
    )  # fmt: skip


def findings_of(model: nn.Module, grid: Grid) -> dict[str, str]:
    """Return the parts of a timm model as sentences, for `Inspector.describe`."""
    return {
        "module": f"{type(model).__name__}, a timm model with this checkpoint's weights",
        "blocks": f"blocks: {len(model.blocks)} x {type(model.blocks[0]).__name__}",
        "patches": f"{grid.rows} x {grid.cols} of {grid.patch}",
        "prefix tokens": ", ".join(grid.prefix_names) or "none",
        "output": f"{getattr(model, 'num_classes', 0)} classes",
    }


@in_float32()
def final_norm(
    model: nn.Module, tokens: Float[Tensor, "token width"], name: str
) -> Float[Tensor, "token width"]:
    """Apply the final norm to each token, as `Inspector.final_norm`; fc_norm for a model that pools first."""
    require_known(model, "its final norm")
    norms = [getattr(model, which, None) for which in ("norm", "fc_norm")]
    norm = next((norm for norm in norms if norm is not None and not isinstance(norm, nn.Identity)), None)
    if norm is None:
        raise UnsupportedModel(f"{name} has no norm after its last block. Use its tokens without a norm.")
    weights = next(model.parameters())
    with torch.no_grad():
        return norm(tokens.to(weights.device, weights.dtype)[None])[0].float().cpu()
