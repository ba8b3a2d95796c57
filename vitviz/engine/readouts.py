"""Determine a model's readout from its family and settings, and verify it on random tokens."""

from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float
from timm.models.beit import Beit
from timm.models.deit import VisionTransformerDistilled
from timm.models.eva import Eva
from timm.models.vision_transformer_relpos import VisionTransformerRelPos
from torch import Tensor, nn

from vitviz.engine.defaults import in_float32
from vitviz.engine.formats.huggingface import ClassAndMeanReadout, ClassOnlyReadout
from vitviz.engine.forward.own_model import OwnModel
from vitviz.errors import UnsupportedModel, quoted
from vitviz.traces.grid import Grid
from vitviz.traces.readout import Readout, Summary

_KINDS = {"avg": "average", "max": "max", "avgmax": "average and max", "map": "attention", "prr": "attention"}


def readout_of(model: nn.Module, grid: Grid, name: str) -> Readout:
    """Return the tokens that a model's classifier reads; a model without a classifier follows the same rule.

    Raises UnsupportedModel if that is unknown, or if a model with a classifier pools nothing.
    """
    if isinstance(model, OwnModel):
        return model.own_readout or Readout.by_name("none", grid, "none")
    readout = Readout.by_name(_name(model, grid, name), grid, _norm(model))
    if readout.name == "attention" and _reads_prefix(model):
        return replace(readout, summaries=(Summary("attention", 0, grid.tokens),))
    return readout


def _name(model: nn.Module, grid: Grid, name: str) -> str:
    """Return the name of a model's readout: 'class', 'average', …, or 'none' without pooling.

    Raises UnsupportedModel, with the checkpoint's `name`, if the pooling is unknown.
    """
    if isinstance(model, ClassAndMeanReadout):
        return "class and average"
    if isinstance(model, VisionTransformerDistilled):
        return "class" if isinstance(model, ClassOnlyReadout) else "class and distillation"
    kind = getattr(model, "global_pool", "") or ""
    if not kind:
        if getattr(model, "num_classes", 0):
            raise UnsupportedModel(
                f"The classifier of {name} reads every token separately (its global_pool is empty), so an"
                " image has no single prediction. Choose a model whose tokens are pooled, such as by"
                " global_pool 'token' or 'avg'."
            )
        return "none"
    if isinstance(model, Beit | VisionTransformerRelPos):
        kind = "avg" if kind == "avg" else "token"  # for any other setting these models read the first token
    if kind == "token" and grid.prefix_names[:1] == ("class",):
        return "class"
    if kind not in _KINDS:
        reason = "which vitviz does not know. Choose another model."
        raise UnsupportedModel(f"The classifier of {name} pools its tokens by {quoted(kind)}, {reason}")
    everything = kind not in ("map", "prr") and grid.prefix and _reads_prefix(model)
    return _KINDS[kind] + (" of all" if everything else "")


def _reads_prefix(model: nn.Module) -> bool:
    """Return True if all tokens are pooled, and not the patches alone."""
    if isinstance(model, Eva):
        return model.attn_pool is not None
    return bool(getattr(model, "pool_include_prefix", False))


def _norm(model: nn.Module) -> Literal["before", "after", "both", "none"]:
    """Return whether the final norm stands before or after the pooling, or both or none."""
    norms = (getattr(model, name, None) or nn.Identity() for name in ("norm", "fc_norm"))
    before, after = (not isinstance(norm, nn.Identity) for norm in norms)
    return "both" if before and after else "before" if before else "after" if after else "none"


@in_float32()
def check_readout(model: nn.Module, readout: Readout, grid: Grid, name: str) -> None:
    """Raise UnsupportedModel unless the model reads random tokens as its readout declares.

    Attention pooling is recorded directly and not tested here; a user's module was tested on loading.
    """
    if isinstance(model, OwnModel):
        return
    if not readout.summaries or any(summary.how == "attention" for summary in readout.summaries):
        return
    weights = next(model.parameters())
    random = torch.randn(2, grid.tokens, model.embed_dim, generator=torch.Generator().manual_seed(0))
    tokens = random.to(weights.device, weights.dtype)
    with torch.no_grad():
        expected = getattr(model, "fc_norm", nn.Identity())(readout.y(tokens)).float()
        features = model.forward_head(tokens, pre_logits=True).float()
    tolerance = 1e-4 if weights.dtype == torch.float32 else 0.05
    if (
        features.shape != expected.shape
        or not (features - expected).abs().max() <= tolerance * features.abs().max()
    ):
        raise UnsupportedModel(
            f"The classifier of {name} does not read the {quoted(readout.name)} that its settings state, so"
            " what it reads is unknown. vitviz shows no map rather than a wrong one. Choose a plain Vision"
            " Transformer."
        )


def readout_weights(
    model: nn.Module, readout: Readout, last: Float[Tensor, "batch token width"]
) -> Float[Tensor, "batch token"] | None:
    """Return each token's weight in y for a batch of images; None if fixed, or given by attention pooling."""
    if readout.linear or any(summary.how == "attention" for summary in readout.summaries):
        return None
    with torch.no_grad():
        return readout.shares(model.norm(last))


def count_read_queries(model: nn.Module) -> int | None:
    """Return how many of attention pooling's queries, from the first, reach the output; None for all."""
    return 1 if getattr(getattr(model, "attn_pool", None), "pool", "") == "token" else None
