"""Which patches the model represents alike: the cosine between the tokens of one depth.

    c_i = <t_i, t_p> / (|t_i| |t_p|),   centred: t - m in place of t, m the mean patch of the picture

Tokens share a large common part, so that raw cosines may lie near 1 everywhere; without the mean patch they
show what sets patches apart. Asked about a patch of a second picture, m is the mean over the patches of both.
In use since DINO (Caron et al. 2021) and DINOv2 (Oquab et al. 2023). It does not show what the likeness
consists of, nor that the model uses it; and cosines of raw and of normed tokens differ.

Similarity of position embeddings: has the model learned that patches lie in a plane?

    S[r, c, r', c'] = cos(E_rc, E_r'c')

over the patches' rows of the position table, prefix rows dropped. Source: Dosovitskiy et al. 2021, figure 7
centre and figure 10. It does not show the lengths of the embeddings, nor whether later layers use them;
models that turn queries and keys instead (RoPE) or bias the scores have no such table.
"""

from collections.abc import Sequence

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import normalize

from vitviz.analyses.depth import FinalNorm, over_grid, patches_at, place, tokens_at
from vitviz.errors import VitvizError
from vitviz.traces.grid import Grid
from vitviz.traces.trace import Trace

_NOTHING = 1e-300  # shorter than any float32's token but that of zeros, which stays so


def token_similarity(
    trace: Trace, layer: int, patch: int | tuple[int, int], centred: bool = False,
    norm: FinalNorm | None = None, of: Trace | None = None,
) -> Float[Tensor, "row col"]:  # fmt: skip
    """The cosine, from -1 to 1, of every patch with one: `patch` by its number from 0, or (row, col).

    `layer` 0 is what enters block 1, L the raw output of the last block; with `norm`, an inspector, through
    its final norm. `centred`: without the mean patch. `of`: the trace whose patch it is, where that is
    another picture's. A token of zeros has no direction: its cosine is 0. Raises IndexError for a layer,
    VitvizError for a patch that does not exist. Source: see the module.

    >>> from vitviz.analyses.example import example_trace
    >>> trace = example_trace(seed=1)
    >>> round(token_similarity(trace, layer=2, patch=(0, 2))[0, 2].item(), 6)
    1.0
    """
    there = of or trace
    own, asked = _directions_of(trace, there, layer, centred, norm)
    cosines = (own @ asked[place(there, patch)]).clamp(-1, 1)
    return over_grid(trace, cosines.to(trace.tokens[0]))


def patch_cosines(
    trace: Trace, of: Trace, layer: int, centred: bool = False, norm: FinalNorm | None = None
) -> Float[Tensor, "row col row2 col2"]:
    """The cosine of every patch with every one of another picture: `token_similarity` for all of them.

    `centred`: less both's mean. Raises IndexError for a layer, VitvizError for another width. See the module.

    >>> from vitviz.analyses.example import example_trace
    >>> one, other = (example_trace(seed=seed) for seed in (1, 2))
    >>> patch_cosines(one, other, layer=1).shape
    torch.Size([1, 3, 1, 3])
    """
    own, asked = _directions_of(trace, of, layer, centred, norm)
    cosines = (own @ asked.mT).clamp(-1, 1).to(trace.tokens[0])
    laid = over_grid(of, rearrange(over_grid(trace, cosines), "row col patch2 -> patch2 row col"))
    return rearrange(laid, "row2 col2 row col -> row col row2 col2")


def _directions_of(
    trace: Trace, there: Trace, layer: int, centred: bool, norm: FinalNorm | None
) -> tuple[Float[Tensor, "patch width"], Float[Tensor, "patch2 width"]]:
    """Of every patch of both, the mean taken out where asked."""
    own = patches_at(trace, layer, norm).double()
    asked = own if there is trace else patches_at(there, layer, norm).double()
    if asked.shape[1] != own.shape[1]:
        raise VitvizError(
            f"Given a patch of {there.checkpoint}, {asked.shape[1]} numbers wide; expected {own.shape[1]}, as"
            f" the tokens of {trace.checkpoint}. Compare two pictures by the same checkpoint."
        )
    if centred:
        mean = (own if there is trace else torch.cat([own, asked])).mean(dim=0)
        own, asked = own - mean, asked - mean
    return normalize(own, eps=_NOTHING), normalize(asked, eps=_NOTHING)


def token_cosines(
    trace: Trace, layer: int, centred: bool = False, norm: FinalNorm | None = None,
    rows: Sequence[int] | None = None,
) -> Float[Tensor, "row token"]:  # fmt: skip
    """The cosine of tokens with each other, prefix first; `centred`: each without the mean patch.

    `rows`: only of these, by place among those there. Raises IndexError for a layer. Source: see the module.

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
    """The cosine of the position embeddings of every two patches, from -1 to 1; symmetric, 1 with itself.

    A row of zeros has no direction: its cosine with every patch, itself included, is defined as 0 here.
    Raises VitvizError for a table of another number of rows than patches. Source: see the module.

    >>> table = torch.tensor([[1.0, 0.0], [0.0, 2.0], [-3.0, 0.0]])
    >>> position_similarity(table, Grid(rows=1, cols=3, patch=(8, 8), prefix_names=("class",)))[0, 0].tolist()
    [[1.0, 0.0, -1.0]]
    """
    if len(table) != grid.patches:
        raise VitvizError(
            f"Given a position table of {len(table)} rows; expected {grid.patches}, one for each patch of"
            f" {grid.rows} x {grid.cols}. Drop the rows of prefix tokens, and interpolate the table to the"
            " grid's size first."
        )
    units = normalize(table.double(), eps=_NOTHING)
    similarity = (units @ units.mT).clamp_(-1, 1).to(table)
    return rearrange(similarity, "(row col) (row2 col2) -> row col row2 col2", row=grid.rows, row2=grid.rows)
