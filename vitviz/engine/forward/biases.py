"""Additive attention masks, stored as relative-position tables where possible to save memory."""

from functools import lru_cache

import torch
from einops import rearrange
from torch import Tensor

from vitviz.traces.grid import Grid
from vitviz.traces.trace import Bias


def bias_of(mask: Tensor, image: int, grid: Grid, device: torch.device) -> Bias:
    """Return the mask of one image as a relative-position table if it is one, else as a dense mask."""
    mask = additive(mask, torch.float32)[(None,) * (4 - mask.ndim)]
    dense = mask[image if mask.shape[0] > 1 else 0].to(device=device, dtype=torch.float32)
    if dense.shape[1:] == (grid.tokens, grid.tokens):
        index, first = _relative_index(grid)
        table = rearrange(dense, "head query key -> head (query key)")[:, first.to(device)]
        index = index.to(device)
        if torch.equal(table[:, index], dense):
            return Bias(table=table, index=index)
    return Bias(dense=dense.clone())


def additive(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """Return an additive mask; in a boolean mask, True marks the keys that a query may attend to."""
    if mask.dtype != torch.bool:
        return mask
    return torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, float("-inf"))


@lru_cache(maxsize=8)
def _relative_index(grid: Grid) -> tuple[Tensor, Tensor]:
    """Return the table entry of every (query, key), and a flattened (query, key) index for every entry.

    Patch pairs with equal row and column differences share an entry. A prefix token has one entry as query of
    all patches, one as key of all patches, and one for each prefix token, as in BEiT.
    """
    cells = torch.cartesian_prod(torch.arange(grid.rows), torch.arange(grid.cols))
    row, col = (cells[:, None] - cells).unbind(-1)
    delta = (row + grid.rows - 1) * (2 * grid.cols - 1) + col + grid.cols - 1
    pairs = (2 * grid.rows - 1) * (2 * grid.cols - 1)
    prefix = torch.arange(grid.prefix)
    index = torch.empty(grid.tokens, grid.tokens, dtype=torch.long)
    index[grid.prefix :, grid.prefix :] = delta
    index[: grid.prefix, grid.prefix :] = (pairs + prefix)[:, None]
    index[grid.prefix :, : grid.prefix] = pairs + grid.prefix + prefix
    index[: grid.prefix, : grid.prefix] = pairs + 2 * grid.prefix + prefix[:, None] * grid.prefix + prefix
    first = torch.empty(pairs + 2 * grid.prefix + grid.prefix**2, dtype=torch.long)
    first[index.flatten()] = torch.arange(grid.tokens**2)
    return index, first
