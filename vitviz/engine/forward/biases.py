"""Additive attention masks, stored as relative-position tables where possible to save memory."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitviz.traces.grid import Grid
from vitviz.traces.trace import Bias


def biases_of(masks: Sequence[Tensor | None], grid: Grid, device: torch.device) -> list[Bias | None]:
    """Return each attention mask as a `Bias`: as a relative-position table if it is one, else dense.

    A mask that several calls share is converted once. The comparison of all tables is read once, because the
    host waits for it.
    """
    dense = {id(mask): _dense(mask) for mask in masks if mask is not None}
    tables, index = {}, None
    for key, mask in dense.items():
        if mask.shape[0] == 1 and mask.shape[2:] == (grid.tokens, grid.tokens):
            index, first = (one.to(mask.device) for one in _relative_index(grid))
            tables[key] = rearrange(mask[0], "head query key -> head (query key)")[:, first]
    same = [(tables[key][:, index] == dense[key][0]).all() for key in tables]
    relative = dict(zip(tables, torch.stack(same).tolist(), strict=True)) if same else {}
    index = None if index is None else index.to(device)

    def bias(key: int) -> Bias:
        if relative.get(key):
            return Bias(table=tables[key].to(device), index=index)
        return Bias(dense=dense[key].to(device=device, copy=True))

    biases = {key: bias(key) for key in dense}
    return [None if mask is None else biases[id(mask)] for mask in masks]


def _dense(mask: Tensor) -> Float[Tensor, "#image #head #query key"]:
    """Return a mask as an additive float32 mask with four axes; missing leading axes get size 1."""
    mask = to_additive_mask(mask.detach(), torch.float32)
    return mask[(None,) * (4 - mask.ndim)].float()


def to_additive_mask(mask: Tensor, dtype: torch.dtype) -> Tensor:
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
