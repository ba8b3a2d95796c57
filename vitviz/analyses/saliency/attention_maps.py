"""Saliency maps from attention: rollout and last attention, equal for every class, and maps with gradients.

A_l is layer l's attention (after the softmax, by head), G_l = ds/dA_l the gradient of the target's score s,
both of the SAME layer: backward hooks run from the last layer to the first, and vit-explain pairs layer l's
attention with layer L + 1 - l's gradient. All maps start at the row with which the classifier reads the
tokens (`query_weights`), so that averaged, distilled and attention-pooled models are read as they read. All
propagate that row from the last layer to the first, O(N^2) per layer.

None of these maps adds up to the score. Those with a gradient add the identity, which has no unit, to a
matrix in units of the logit: scaling the logit changes the map. They do not include what values carry and
what MLPs do.
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
    """Return the attention rollout: map = row M_L ... M_1, M_l = (I + mean_h A_l) / 2.

    Abnar and Zuidema 2020. By construction equal for every class.
    """
    result = attention_rollout(passes.trace).flatten()
    return SaliencyMap.from_patches("rollout", passes, result, "all layers", signed=False)


def last_attention(passes: Passes) -> SaliencyMap:
    """Return the last layer's attention, mean over heads: equal for every class, without earlier layers."""
    result = mean_attention(passes.trace)[-1].flatten()
    return SaliencyMap.from_patches("last_attention", passes, result, "the last layer", signed=False)


def gradient_rollout(passes: Passes) -> SaliencyMap:
    """Return the rollout of attention times gradient: map = row M_L ... M_1, M_l = (I + F_l) / 2.

    F_l = max(0, mean_h A_l G_l), and each row of M_l is divided by its sum. jacobgil/vit-explain's formula,
    corrected: rows (not columns) sum to 1, gradients are in the order of the layers, nothing is kept between
    images, nothing is discarded, no division by the maximum. The clamp follows the mean over heads, so a
    head's negative contribution is lost where others outweigh it.
    """
    layers = [one.product.mean(dim=0).clamp(min=0) for one in _layers(passes)]
    row = multiply_row(query_weights(passes.trace), layers, normed=True)  # in the quotient the half cancels
    return _of_row("gradient_rollout", passes, row)


def chefer(passes: Passes) -> SaliencyMap:
    """Return Chefer et al.'s relevance: map = row R - row, R = (I + C_L) ... (I + C_1).

    C_l = mean_h max(0, A_l G_l). Chefer et al., ICCV 2021 (arXiv 2103.15679), over all layers. Attention
    pooling follows its rule for two modalities, with the pooling's own C as the row. Values are clamped
    before the mean, so negative contributions are invisible.
    """
    layers = [one.product.clamp(min=0).mean(dim=0) for one in _layers(passes)]
    start, pooling = query_weights(passes.trace), passes.gradients().pooling
    if pooling is None:
        return _of_row("chefer", passes, multiply_row(start, layers) - start)
    # the gradient is 0 for queries that are not read
    own = pooling.product.clamp(min=0).mean(dim=0).sum(dim=0)
    start = torch.zeros_like(start)
    start[-len(own) :] = own.to(start)
    return _of_row("chefer", passes, multiply_row(start, layers))  # the pooling's own C includes no identity


def attention_gradient(passes: Passes) -> SaliencyMap:
    """Return attention times gradient of the last layer, summed over heads and queries: sum_hi A_hij G_hij.

    Signed: the effect of attention to key j on the score. Only the last layer's attention. If one linear
    layer follows, the sum is the heads' contribution.
    """
    values = _layers(passes)[-1].product.sum(dim=(0, 1))[passes.trace.grid.prefix :]
    return SaliencyMap.from_patches("attention_gradient", passes, values, "the last layer")


def attention_grad_cam(passes: Passes) -> SaliencyMap:
    """Return "GradCAM" of Chefer et al.'s tables: max(0, mean_h A_h[row] mean_j G_h[row, j]), last layer.

    Different from Grad-CAM on tokens (`grad_cam`). The map is often all zero, which is then reported.
    """
    last, prefix = _layers(passes)[-1], passes.trace.grid.prefix
    row = query_weights(passes.trace).to(last.attention)
    both = (torch.einsum("i,hij->hj", row, one)[:, prefix:] for one in (last.attention, last.gradient))
    rows, slopes = both
    result = (rows * slopes.mean(dim=-1, keepdim=True)).mean(dim=0).clamp(min=0)
    return SaliencyMap.from_patches("attention_grad_cam", passes, result, "the last layer", signed=False)


# implementation


def multiply_row(
    row: Float[Tensor, " token"], layers: list[Float[Tensor, "query key"]], normed: bool = False
) -> Float[Tensor, " token"]:
    """Return row M_L ... M_1, M = I + C, C from `layers`; if `normed`, M's rows are divided by their sums."""
    for matrix in reversed(layers):
        matrix = matrix.to(row)
        spread = row / (1 + matrix.sum(dim=-1)) if normed else row
        row = spread + spread @ matrix
    return row


def _of_row(method: str, passes: Passes, row: Float[Tensor, " token"]) -> SaliencyMap:
    """Return one value per token as a saliency map of the patches; prefix tokens are left out."""
    patches = row[passes.trace.grid.prefix :]
    return SaliencyMap.from_patches(method, passes, patches, "all layers", signed=False)


def _layers(passes: Passes) -> tuple[WeightedAttention, ...]:
    """Return each layer's attention with its gradient; raise UnsupportedModel if there is none."""
    attentions = passes.gradients().attentions
    if not attentions:
        raise UnsupportedModel(not_applicable(passes.trace.checkpoint, LocalizedText(NO_GRADIENT)))
    return attentions
