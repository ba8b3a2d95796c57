"""Token similarity: the cosine between the tokens of one layer.

    c_i = <t_i, t_p> / (|t_i| |t_p|),   centred: t - m in place of t, m the mean patch of the image

Tokens share a large common component, so raw cosines may be near 1 everywhere; without the mean patch they
show how patches differ. For a patch of a second image, m is the mean over the patches of both. In use since
DINO (Caron et al. 2021) and DINOv2 (Oquab et al. 2023). A cosine does not show what the similarity consists
of, nor that the model uses it. Cosines of raw tokens and of tokens after the norm differ.

Similarity of position embeddings: has the model learned that patches lie in a plane?

    S[r, c, r', c'] = cos(E_rc, E_r'c')

over the patches' rows of the position table, prefix rows dropped. Source: Dosovitskiy et al. 2021, figure 7
centre and figure 10. It does not show the lengths of the embeddings, nor whether later layers use them.
Models that rotate queries and keys instead (RoPE) or add a bias to the scores have no such table.
"""

from collections.abc import Sequence

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from vitviz.analyses.depth import FinalNorm, patch_index, patches_at, to_grid, tokens_at
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid
from vitviz.traces.trace import Trace

_NOTHING = 1e-300  # below the norm of any float32 token except zeros, which stay zeros


def token_similarity(
    trace: Trace, layer: int, patch: int | tuple[int, int], centred: bool = False,
    norm: FinalNorm | None = None, of: Trace | None = None,
) -> Float[Tensor, "row col"]:  # fmt: skip
    """Return the cosine of every patch with one patch, as a map.

    Args:
        trace: the trace whose patches are compared.
        layer: 0 is the input of block 1, L the raw output of the last block.
        patch: the reference patch, by its number from 0 or its (row, col).
        centred: subtract the mean patch first.
        norm: an inspector, to apply its final norm; None for raw tokens.
        of: trace of the reference patch, if it belongs to another image.

    Returns:
        (row, col), from -1 to 1. A token of zeros has no direction: its cosine is 0. NaN for dropped patches.

    Raises:
        IndexError: the layer does not exist.
        VitvizError: the patch does not exist, or the widths differ.

    Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> trace = example_trace(seed=1)
    >>> round(token_similarity(trace, layer=2, patch=(0, 2))[0, 2].item(), 6)
    1.0
    """
    there = of or trace
    own, asked = _unit_vectors(trace, there, layer, centred, norm)
    cosines = (own @ asked[patch_index(there, patch)]).clamp(-1, 1)
    return to_grid(trace, cosines.to(trace.tokens[0]))


def patch_cosines(
    trace: Trace, of: Trace, layer: int, centred: bool = False, norm: FinalNorm | None = None
) -> Float[Tensor, "row col row2 col2"]:
    """Return the cosine of every patch with every patch of another image: (row, col, row2, col2).

    Args and Raises are those of `token_similarity`; `of` is the other image's trace, and `centred` subtracts
    the mean over the patches of both. See the module.

    >>> from vitviz.analyses.example import example_trace
    >>> one, other = (example_trace(seed=seed) for seed in (1, 2))
    >>> patch_cosines(one, other, layer=1).shape
    torch.Size([1, 3, 1, 3])
    """
    own, asked = _unit_vectors(trace, of, layer, centred, norm)
    cosines = (own @ asked.mT).clamp(-1, 1).to(trace.tokens[0])
    laid = to_grid(of, rearrange(to_grid(trace, cosines), "row col patch2 -> patch2 row col"))
    return rearrange(laid, "row2 col2 row col -> row col row2 col2")


def _unit_vectors(
    trace: Trace, other: Trace, layer: int, centred: bool, norm: FinalNorm | None
) -> tuple[Float[Tensor, "patch width"], Float[Tensor, "patch2 width"]]:
    """Return each trace's patches as unit vectors; with `centred`, minus their common mean first."""
    own = patches_at(trace, layer, norm).double()
    theirs = own if other is trace else patches_at(other, layer, norm).double()
    if theirs.shape[1] != own.shape[1]:
        raise VitvizError(
            f"A patch of {other.checkpoint} has {theirs.shape[1]} values, and a token of {trace.checkpoint}"
            f" has {own.shape[1]}. Compare two images by the same checkpoint."
        )
    if centred:
        mean = (own if other is trace else torch.cat([own, theirs])).mean(dim=0)
        own, theirs = own - mean, theirs - mean
    return normalize(own, eps=_NOTHING), normalize(theirs, eps=_NOTHING)


def token_cosines(
    trace: Trace, layer: int, centred: bool = False, norm: FinalNorm | None = None,
    rows: Sequence[int] | None = None,
) -> Float[Tensor, "row token"]:  # fmt: skip
    """Return the cosine of every token with every token of a layer: (row, token), prefix first.

    Args:
        trace: the trace.
        layer: 0 is the input of block 1, L the raw output of the last block.
        centred: subtract the mean patch first.
        norm: an inspector, to apply its final norm; None for raw tokens.
        rows: indices of the row tokens among the pass's tokens; None for all.

    Raises:
        IndexError: the layer does not exist.

    Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> token_cosines(example_trace(seed=1), layer=0).diagonal().tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    tokens = tokens_at(trace, layer, norm).double()
    mean = tokens[trace.grid.prefix :].mean(dim=0) if centred else 0
    units = normalize(tokens - mean, eps=_NOTHING)
    asked = units if rows is None else units[list(rows)]
    return (asked @ units.mT).clamp_(-1, 1).to(trace.tokens[0])


def position_similarity(
    table: Float[Tensor, "patch width"], grid: Grid
) -> Float[Tensor, "row col row2 col2"]:
    """Return the cosine of the position embeddings of every two patches: (row, col, row2, col2).

    Args:
        table: one row per patch, (patch, width), without the rows of prefix tokens.
        grid: the patch grid.

    Returns:
        Cosines from -1 to 1; symmetric, 1 on the diagonal. A row of zeros has no direction: its cosine with
            every patch, itself included, is defined as 0 here.

    Raises:
        VitvizError: the table has another number of rows than patches.

    Source: see the module.

    >>> table = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])
    >>> position_similarity(table, Grid(rows=1, cols=3, patch=(8, 8), prefix_names=("class",)))[0, 0].tolist()
    [[1.0, 0.0, -1.0]]
    """
    if len(table) != grid.patches:
        expected = f"expected {grid.patches}, one for each patch of {grid.rows} x {grid.cols}"
        advice = "Drop the rows of prefix tokens, and interpolate the table to the grid's size first."
        raise VitvizError(f"A position table of {len(table)} rows does not fit; {expected}. {advice}")
    units = normalize(table.double(), eps=_NOTHING)
    similarity = (units @ units.mT).clamp_(-1, 1).to(table)
    return rearrange(similarity, "(row col) (row2 col2) -> row col row2 col2", row=grid.rows, row2=grid.rows)
