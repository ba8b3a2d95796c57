"""Which readout a model has: by its family and settings, and proven on random tokens."""

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
from vitviz.errors import UnsupportedModel, quoted
from vitviz.traces.grid import Grid
from vitviz.traces.readout import Readout, Summary

_KINDS = {"avg": "average", "max": "max", "avgmax": "average and max", "map": "attention", "prr": "attention"}


def readout_of(model: nn.Module, grid: Grid, name: str) -> Readout:
    """What a model's classifier reads; a model without a classifier follows the same rule.

    Raises UnsupportedModel where that is not known, or nothing is pooled though there is a classifier.
    """
    readout = Readout.by_name(_name(model, grid, name), grid, _norm(model))
    if readout.name == "attention" and _reads_prefix(model):
        return replace(readout, summaries=(Summary("attention", 0, grid.tokens),))
    return readout


def _name(model: nn.Module, grid: Grid, name: str) -> str:
    if isinstance(model, ClassAndMeanReadout):
        return "class and average"
    if isinstance(model, VisionTransformerDistilled):
        return "class" if isinstance(model, ClassOnlyReadout) else "class and distillation"
    kind = getattr(model, "global_pool", "") or ""
    if not kind:
        if getattr(model, "num_classes", 0):
            raise UnsupportedModel(
                f"The classifier of {name} reads every token by itself (its global_pool is empty), so there"
                " is no one answer to a picture. Choose a model whose tokens are pooled, such as by"
                " global_pool 'token' or 'avg'."
            )
        return "none"
    if isinstance(model, Beit | VisionTransformerRelPos):
        kind = "avg" if kind == "avg" else "token"  # whatever else it says, they read the first token
    if kind == "token" and grid.prefix_names[:1] == ("class",):
        return "class"
    if kind not in _KINDS:
        raise UnsupportedModel(
            f"The classifier of {name} pools its tokens by {quoted(kind)}, which vitviz does not know. Choose"
            " another model."
        )
    everything = kind not in ("map", "prr") and grid.prefix and _reads_prefix(model)
    return _KINDS[kind] + (" of all" if everything else "")


def _reads_prefix(model: nn.Module) -> bool:
    """Whether what is pooled are all tokens, and not the patches alone."""
    if isinstance(model, Eva):
        return model.attn_pool is not None
    return bool(getattr(model, "pool_include_prefix", False))


def _norm(model: nn.Module) -> Literal["before", "after", "both", "none"]:
    norms = (getattr(model, name, None) or nn.Identity() for name in ("norm", "fc_norm"))
    before, after = (not isinstance(one, nn.Identity) for one in norms)
    return "both" if before and after else "before" if before else "after" if after else "none"


@in_float32()
def prove(model: nn.Module, readout: Readout, grid: Grid, name: str) -> None:
    """UnsupportedModel unless the model makes of random tokens what its readout says.

    Attention pooling is seen by the recorder itself, and not proven here.
    """
    if not readout.summaries or any(one.how == "attention" for one in readout.summaries):
        return
    weights = next(model.parameters())
    random = torch.randn(2, grid.tokens, model.embed_dim, generator=torch.Generator().manual_seed(0))
    tokens = random.to(weights.device, weights.dtype)
    with torch.no_grad():
        said = getattr(model, "fc_norm", nn.Identity())(readout.y(tokens)).float()
        made = model.forward_head(tokens, pre_logits=True).float()
    tolerance = 1e-4 if weights.dtype == torch.float32 else 0.05
    if made.shape != said.shape or not (made - said).abs().max() <= tolerance * made.abs().max():
        raise UnsupportedModel(
            f"What the classifier of {name} reads cannot be told: it is not the {quoted(readout.name)}"
            " that its"
            " settings say. vitviz shows no map rather than a wrong one. Choose a plain Vision Transformer."
        )


def read(
    model: nn.Module, readout: Readout, last: Float[Tensor, "batch token width"]
) -> Float[Tensor, "batch token"] | None:
    """How much of y each token of a batch's pictures is, by the last output; None: fixed, or attention's."""
    if readout.linear or any(one.how == "attention" for one in readout.summaries):
        return None
    with torch.no_grad():
        return readout.shares(model.norm(last))


def queries_read(model: nn.Module) -> int | None:
    """How many of attention pooling's queries, from the first, its answer is made of; None for all."""
    return 1 if getattr(getattr(model, "attn_pool", None), "pool", "") == "token" else None
