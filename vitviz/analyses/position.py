"""Similarity of position embeddings: has the model learned that patches lie in a plane?

    S[r, c, r', c'] = cos(E_rc, E_r'c')

over the patches' rows of the position table, prefix rows dropped. Source: Dosovitskiy et al. 2021, figure 7
centre and figure 10. It does not show the lengths of the embeddings, nor whether later layers use them;
models that turn queries and keys instead (RoPE) or bias the scores have no such table.
"""

from __future__ import annotations

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitviz.errors import VitvizError
from vitviz.grid import Grid


def position_similarity(
    table: Float[Tensor, "patch width"], grid: Grid
) -> Float[Tensor, "row col row2 col2"]:
    """The cosine of the position embeddings of every two patches, from -1 to 1; symmetric, 1 with itself.

    A row of zeros has no direction: its cosine with every patch, itself included, is defined as 0 here.
    Raises VitvizError where the table has another number of rows than the grid has patches. Source: see the
    module.

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
    exact = table.double()
    norms = exact.norm(dim=1, keepdim=True)
    directions = torch.where(norms > 0, exact / torch.where(norms > 0, norms, 1), 0.0)
    similarity = (directions @ directions.mT).clamp_(-1, 1).to(table)
    return rearrange(similarity, "(row col) (row2 col2) -> row col row2 col2", row=grid.rows, row2=grid.rows)
