"""The answers to one picture without some of its patches, many sets at once.

`dropped` leaves their tokens out after the position embedding, so that the model computes on the rest alone:
with k patches kept a pass costs k / N. Where positions are rotary, blocks are handed a table for all tokens;
there the same is done by masking the keys of what is removed in every block and dropping it before anything
is read: equal up to rounding. Other ways to remove paint over the pixels: `mean` (0 in the model's units),
`blur` (a Gaussian a patch wide) or `black`.

All tokens removed from an average leave nothing to read, so the answer to an empty set is then that to a
picture of the mean colour. This file stands in for an interventions' `Without`; `Removal.answers` is the one
place where it is used.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from einops import rearrange
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from vitviz import stopping
from vitviz.engine.defaults import in_float32
from vitviz.engine.device import exactly
from vitviz.engine.passes import capture, wiring
from vitviz.engine.passes.biases import additive
from vitviz.engine.pictures.preprocess import Preprocessing
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.grid import Grid
from vitviz.sentence import Sentence

PATCHES_AS = ("dropped", "mean", "blur", "black")
AT_ONCE = 10 * 197  # tokens: of 32 pictures what the MLPs make leaves the cache, and each takes half longer


class Removal:
    """One picture; raises VitvizError for an unknown way to remove, UnsupportedModel where tokens cannot be
    dropped.
    """

    def __init__(
        self,
        model: nn.Module,
        pixels: Tensor,
        grid: Grid,
        pool: str,
        patches_as: str,
        preprocessing: Preprocessing,
    ):
        if patches_as not in PATCHES_AS:
            raise VitvizError(f"Given patches_as={patches_as!r}; expected one of {', '.join(PATCHES_AS)}.")
        self._model, self._pixels, self._grid, self._as = model, pixels, grid, patches_as
        self._blocks = capture.transformer_blocks(model)
        self._needs_patches = not pool.startswith("class") or pool == "class and average" or grid.prefix == 0
        if (
            patches_as == "dropped"
            and getattr(getattr(model, "attn_pool", None), "pos_embed", None) is not None
        ):
            raise UnsupportedModel(
                Sentence(
                    "Its attention pooling adds positions of all patches, so none can be dropped; paint"
                    " over them."
                )
            )
        self._masked = getattr(model, "rope", None) is not None
        self._painted = None if patches_as == "dropped" else self._other(preprocessing)

    @in_float32()
    def answers(self, kept: Tensor) -> Tensor:
        """Logits (batch, class) of the picture with the patches `kept` (batch, k) alone, by number from 0."""
        tokens = self._grid.prefix + (
            kept.shape[1] if self._painted is None and not self._masked else self._grid.patches
        )
        found = []
        with (
            torch.no_grad(),
            torch.autocast(self._pixels.device.type, enabled=False),
            exactly(self._pixels.device),
        ):
            for some in kept.to(self._pixels.device).split(max(1, AT_ONCE // max(1, tokens))):
                stopping.check()
                found.append(self._batch(some))
        return torch.cat(found).cpu()

    def _batch(self, kept: Tensor) -> Tensor:
        count = len(kept)
        if self._painted is not None:
            return self._model(self._paint(kept))
        if kept.shape[1] == self._grid.patches:
            return self._model(self._pixels.expand(count, -1, -1, -1))
        if kept.shape[1] == 0 and self._needs_patches:
            return self._model(torch.zeros_like(self._pixels)).expand(count, -1)
        prefix = torch.arange(self._grid.prefix, device=kept.device).expand(count, -1)
        with _without(
            self._model,
            self._blocks,
            torch.cat([prefix, kept + self._grid.prefix], dim=1),
            self._grid,
            self._masked,
        ):
            return self._model(self._pixels.expand(count, -1, -1, -1))

    # ----- painted over

    def _paint(self, kept: Tensor) -> Tensor:
        grid, (height, width) = self._grid, self._grid.patch
        stays = torch.zeros(len(kept), grid.patches, dtype=torch.bool, device=kept.device).scatter_(
            1, kept, True
        )
        cells = rearrange(stays, "batch (row col) -> batch row col", row=grid.rows)
        seen = cells.repeat_interleave(height, dim=1).repeat_interleave(width, dim=2)[:, None]
        rows, cols = grid.pixels
        painted = self._painted.expand(len(kept), -1, -1, -1).clone()
        whole = self._pixels[..., :rows, :cols]
        painted[..., :rows, :cols] = torch.where(seen, whole, painted[..., :rows, :cols])
        return painted

    def _other(self, preprocessing: Preprocessing) -> Tensor:
        if self._as == "mean":
            return torch.zeros_like(self._pixels)
        if self._as == "black":
            mean, std = (
                torch.tensor(values, dtype=torch.float32)[None, :, None, None]  # rounded once, at the end
                for values in (preprocessing.mean, preprocessing.std)
            )
            return (-mean / std).to(self._pixels).expand_as(self._pixels)
        return blurred(self._pixels, max(self._grid.patch))


def blurred(pixels: Tensor, sigma: float) -> Tensor:
    """Through a Gaussian of that deviation in pixels, cut off at two of them; edges are repeated."""
    radius = min(int(2 * sigma), min(pixels.shape[-2:]) - 1)
    offsets = torch.arange(-radius, radius + 1, dtype=pixels.dtype, device=pixels.device)
    kernel = torch.exp(-0.5 * (offsets / sigma) ** 2)
    kernel = (kernel / kernel.sum()).expand(pixels.shape[1], 1, -1)
    padded = F.pad(pixels, (radius,) * 4, mode="replicate")
    across = F.conv2d(padded, kernel[:, :, None], groups=pixels.shape[1])
    return F.conv2d(across, kernel[..., None], groups=pixels.shape[1])


# ----- dropped


class _Removing:
    """One pass: which tokens stay, by picture of the batch, in sequence numbers."""

    def __init__(self, kept: Tensor, grid: Grid, masked: bool, last: int):
        self.kept, self.grid, self.masked, self._last, self.inside = kept, grid, masked, last, False

    def heard(self, moment: str, layer: int, args: tuple, output: Any) -> Any:
        if moment == "input":
            stopping.check()
            self.inside = True
            if layer == 0 and not self.masked:
                return (self._rows(args[0]), *args[1:]), output
        if moment == "output" and layer == self._last:
            self.inside = False
            return self._rows(output) if self.masked else None
        return None

    def _rows(self, tokens: Tensor) -> Tensor:
        return tokens.gather(1, self.kept[..., None].expand(-1, -1, tokens.shape[-1]))

    def mask(self, mask: Tensor | None, queries: Tensor) -> Tensor | None:
        """What a call's mask becomes: rows and columns of those that stay, or with the keys of the others
        shut.
        """
        if self.masked:
            seen = torch.zeros(
                len(self.kept), self.grid.tokens, dtype=torch.bool, device=queries.device
            ).scatter_(1, self.kept, True)
            closed = additive(seen, queries.dtype)[:, None, None]
            return closed if mask is None else additive(mask, queries.dtype) + closed
        if mask is None or mask.shape[-1] != self.grid.tokens:
            return mask
        while mask.ndim < 4:
            mask = mask.unsqueeze(0)
        mask = mask.expand(len(self.kept), -1, self.grid.tokens, -1)
        count, heads = self.kept.shape[1], mask.shape[1]
        mask = mask.gather(2, self.kept[:, None, :, None].expand(-1, heads, -1, mask.shape[-1]))
        return mask.gather(3, self.kept[:, None, None, :].expand(-1, heads, count, -1))


class _Seam(TorchFunctionMode):
    """Gives every attention call of a pass the mask of what stays."""

    def __init__(self, owner: _Removing):
        super().__init__()
        self._owner = owner

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if (
            func is F.scaled_dot_product_attention
            and self._owner.inside
            and wiring.innermost() is self._owner
        ):
            mask = args[3] if len(args) > 3 else kwargs.get("attn_mask")
            mask = self._owner.mask(mask, args[0])
            args, kwargs = (
                (*args[:3], mask, *args[4:]),
                {name: value for name, value in kwargs.items() if name != "attn_mask"},
            )
        return func(*args, **kwargs)


@contextmanager
def _without(
    model: nn.Module, blocks: list[nn.Module], kept: Tensor, grid: Grid, masked: bool
) -> Iterator[None]:
    one = _Removing(kept, grid, masked, len(blocks) - 1)
    with wiring.wired(model, blocks, one, check=False), _Seam(one):
        yield
