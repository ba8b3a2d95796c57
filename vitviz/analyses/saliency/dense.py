"""Dense maps: the classifier's logits, or the cosine with a sentence, of each patch alone.

A patch's own score, s(patch_i), is the final norm, pooling, projection and head applied to one token, as if
the model had read nothing else. If the classifier was trained to read a class token, the score is a probe,
and for CLIP the last block's attention spoils it: the content of a patch is spread over all patches. The
methods differ in the last block's head outputs at each token, which replace softmax(q k^T / sqrt d) v, and in
whether the block's input and its MLP are added:

    values    v                                          MaskCLIP (Zhou et al. 2022, arXiv 2112.01071)
    both      (softmax(q q^T / sqrt d) + softmax(k k^T / sqrt d)) v      SCLIP (arXiv 2312.01597)
    queries   softmax(q q^T / sqrt d) v                                  ClearCLIP (arXiv 2407.12442)
    near      softmax(k k^T / sqrt d + exp(-distance^2 / 2 5^2)) v       NACLIP (arXiv 2404.08181)

with the distance in patches, between patches alone. The mean over patches is subtracted from each map,
because all patches are about equally far from any sentence, and is reported separately. No map adds up to the
score, because none of these passes produced it.
"""

from functools import partial

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vitviz.analyses.saliency.passes import Passes, SaliencyMap
from vitviz.analyses.target import classes_of, score_of
from vitviz.errors import UnsupportedModel
from vitviz.traces.localized_text import LocalizedText, not_applicable
from vitviz.traces.trace import Attention, Trace

BESIDE = "its classifier reads the class token and the mean of the patches side by side"
POSITIONS = "its attention pooling adds a position to each patch, and a patch alone has none"
WIDE = 5.0  # patches: NACLIP's standard deviation


# head outputs, and whether the attention branch stands alone
SETTINGS = {
    "own_patches": (None, False),  # the unchanged last block, token by token (Vilas et al. 2023's reading)
    "maskclip": ("values", True),  # as in later papers
    "maskclip_kept": ("values", False),  # as in MaskCLIP's own code
    "sclip": ("both", False),  # rows sum to 2 (Wang et al. 2023)
    "clearclip": ("queries", True),  # Lan et al. 2024
    "naclip": ("near", True),  # Hajimiri et al. 2024
}


def _map(method: str, passes: Passes) -> SaliencyMap:
    """Return each patch's own score of the target minus the mean over patches, by a method of `SETTINGS`."""
    scores, target = patch_scores(passes, method), passes.target
    classes = [0] if isinstance(target, Tensor) else classes_of(passes.trace, target)
    result = score_of(scores.flatten(1).mT, classes).unflatten(0, scores.shape[1:])
    mean = result.nanmean().item()
    constants = {"mean over patches": mean}
    return SaliencyMap(method, result - mean, passes.answer, "the last layer", constants=constants)


MAPS = {name: partial(_map, name) for name in SETTINGS}


def patch_scores(passes: Passes, method: str) -> Float[Tensor, "class row col"]:
    """Return every patch's own logits by a method of `SETTINGS`; for a direction, the value along it.

    Raises UnsupportedModel if a single patch cannot be read.
    """
    readout, trace = passes.tail(), passes.trace
    own = readout.attention_pooling
    beside = readout.pooling.kind == "class and average"
    if beside or own is not None and own.positions is not None:
        reason = LocalizedText(BESIDE if beside else POSITIONS)
        raise UnsupportedModel(not_applicable(trace.checkpoint, reason))
    by, alone = SETTINGS[method]
    return trace.on_grid(passes.patches(by and replacement_outputs(trace, by), alone).double().mT)


def replacement_outputs(trace: Trace, by: str) -> Float[Tensor, "head token dim"]:
    """Return the head outputs that replace the last block's, by a rule of the module (`by`)."""
    call = trace.layers[-1]
    if by == "values":
        return call.v
    vectors = {"both": (call.q, call.k), "queries": (call.q,), "near": (call.k,)}[by]
    added = _neighbourhood_bias(trace).to(call.v) if by == "near" else 0
    return torch.stack([_self_similarity_values(call, vectors, added, head) for head in range(call.heads)])


def likeliest_class(cosines: Float[Tensor, "class row col"], least: float = -1.0) -> Int[Tensor, "row col"]:
    """Return each patch's class of largest cosine; -1 if it is below `least` or unknown.

    >>> likeliest_class(torch.tensor([[[0.1, 0.3, 0.0]], [[0.2, 0.1, 0.1]]]), 0.15)
    tensor([[ 1,  0, -1]])
    """
    best = cosines.nan_to_num(nan=-torch.inf).max(dim=0)
    return best.indices.where(best.values >= least, -1)


def _self_similarity_values(
    call: Attention, vectors: tuple[Tensor, ...], added: Tensor | float, head: int
) -> Tensor:
    """Return one head's values weighted by softmax(x x^T scale + added), summed over x of `vectors`."""
    # one head at a time, so that no head x N x N array exists
    ones = (one[head] for one in vectors)
    return sum(torch.softmax(one @ one.mT * call.scale + added, dim=-1) for one in ones) @ call.v[head]


def _neighbourhood_bias(trace: Trace) -> Float[Tensor, "query key"]:
    """Return NACLIP's window: a Gaussian of peak 1 around each patch; 0 for prefix tokens."""
    grid = trace.grid
    row, col = torch.arange(grid.patches) // grid.cols, torch.arange(grid.patches) % grid.cols
    squared = (row[:, None] - row).square() + (col[:, None] - col).square()
    window = torch.zeros(grid.tokens, grid.tokens, dtype=torch.float64)
    window[grid.prefix :, grid.prefix :] = torch.exp(-squared.double() / (2 * WIDE**2))
    return window[trace.places][:, trace.places]
