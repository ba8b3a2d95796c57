"""Maps made of attention: rollout and last attention, which know no class, and those with a gradient.

A_l is layer l's attention (after the softmax, by head), G_l = ds/dA_l the gradient of the answer s, both of
the SAME layer: backward hooks run from the last layer to the first, and vit-explain pairs layer l's attention
with layer L + 1 - l's gradient. All start at the row with which the classifier reads the tokens
(`query_weights`), so that averaged, distilled and attention-pooled models are read as they read; and all
carry that row from the last layer to the first, O(N^2) a layer.

None of these adds up to the answer. Those with a gradient add the identity, which has no unit, to something
in units of the logit: multiply the logit and the map changes. What values carry and MLPs do is not in them.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.query import query_weights
from vitviz.analyses.rollout import mean_attention
from vitviz.analyses.rollout import rollout as attention_rollout
from vitviz.analyses.saliency.passes import Passes, SaliencyMap, WeightedAttention
from vitviz.errors import UnsupportedModel
from vitviz.traces.localized_text import LocalizedText, not_applicable

NO_GRADIENT = "no attention has a gradient"


def rollout(passes: Passes) -> SaliencyMap:
    """Attention rollout: M_l = (I + mean_h A_l) / 2, map = row M_L ... M_1.

    Abnar and Zuidema 2020. The same for every class, by construction.
    """
    found = attention_rollout(passes.trace).flatten()
    return SaliencyMap.from_patches("rollout", passes, found, "all layers", signed=False)


def last_attention(passes: Passes) -> SaliencyMap:
    """The last layer's attention, mean over heads: the same for every class, blind to layers before."""
    found = mean_attention(passes.trace)[-1].flatten()
    return SaliencyMap.from_patches("last_attention", passes, found, "the last layer", signed=False)


def gradient_rollout(passes: Passes) -> SaliencyMap:
    """F_l = max(0, mean_h A_l G_l), M_l = (I + F_l) / 2, each row divided by its sum, map = row M_L ... M_1.

    jacobgil/vit-explain's formula, put right: rows (not columns) sum to 1, gradients in the order of the
    layers, nothing kept between pictures, nothing discarded, no division by the maximum. The clamp comes
    after the mean over heads, so that a head's evidence against the class is lost where others outweigh it.
    """
    layers = [one.product.mean(dim=0).clamp(min=0) for one in _layers(passes)]
    row = carried_row(query_weights(passes.trace), layers, normed=True)  # where the half cancels
    return _of_row("gradient_rollout", passes, row)


def chefer(passes: Passes) -> SaliencyMap:
    """C_l = mean_h max(0, A_l G_l), R = (I + C_L) ... (I + C_1), map = row R - row.

    Chefer et al., ICCV 2021 (arXiv 2103.15679), from all layers; attention pooling by its rule for two
    modalities, the pooling's own C as the row. Clamped before the mean: what speaks against is not seen.
    """
    layers = [one.product.clamp(min=0).mean(dim=0) for one in _layers(passes)]
    start, pooling = query_weights(passes.trace), passes.gradients().pooling
    if pooling is None:
        return _of_row("chefer", passes, carried_row(start, layers) - start)
    # of queries that are not read the gradient is 0
    own = pooling.product.clamp(min=0).mean(dim=0).sum(dim=0)
    start = torch.zeros_like(start)
    start[-len(own) :] = own.to(start)
    return _of_row("chefer", passes, carried_row(start, layers))  # the pooling's own C holds no identity


def attention_gradient(passes: Passes) -> SaliencyMap:
    """sum_h sum_i A_hij G_hij in the last layer: how far key j's attention moves the answer.

    Signed; attention in its last use alone. With one linear layer behind it, the sum is what the heads gave.
    """
    values = _layers(passes)[-1].product.sum(dim=(0, 1))[passes.trace.grid.prefix :]
    return SaliencyMap.from_patches("attention_gradient", passes, values, "the last layer")


def attention_grad_cam(passes: Passes) -> SaliencyMap:
    """max(0, mean_h A_h[row] mean_j G_h[row, j]) in the last layer: "GradCAM" in Chefer et al.'s tables.

    Another thing than Grad-CAM on tokens (`grad_cam`). Often all zero, and then said to be.
    """
    last, prefix = _layers(passes)[-1], passes.trace.grid.prefix
    row = query_weights(passes.trace).to(last.attention)
    both = (torch.einsum("i,hij->hj", row, one)[:, prefix:] for one in (last.attention, last.gradient))
    rows, slopes = both
    found = (rows * slopes.mean(dim=-1, keepdim=True)).mean(dim=0).clamp(min=0)
    return SaliencyMap.from_patches("attention_grad_cam", passes, found, "the last layer", signed=False)


# ----- how it is done


def carried_row(
    row: Float[Tensor, " token"], layers: list[Float[Tensor, "query key"]], normed: bool = False
) -> Float[Tensor, " token"]:
    """row M_L ... M_1, M = I + C, rows divided by their sums where `normed`; R itself is never made."""
    for matrix in reversed(layers):
        matrix = matrix.to(row)
        spread = row / (1 + matrix.sum(dim=-1)) if normed else row
        row = spread + spread @ matrix
    return row


def _of_row(method: str, passes: Passes, row: Float[Tensor, " token"]) -> SaliencyMap:
    return SaliencyMap.from_patches(
        method, passes, row[passes.trace.grid.prefix :], "all layers", signed=False
    )


def _layers(passes: Passes) -> tuple[WeightedAttention, ...]:
    attentions = passes.gradients().attentions
    if not attentions:
        raise UnsupportedModel(not_applicable(passes.trace.checkpoint, LocalizedText(NO_GRADIENT)))
    return attentions
