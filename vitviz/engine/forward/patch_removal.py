"""Predictions for one image without some of its patches, for many sets of patches at once.

`dropped` removes the tokens after the position embedding, so that the model computes only on the rest: with
k patches kept, a pass costs k / N. With rotary positions, blocks receive a table for all tokens. In this case
the keys of removed tokens are masked in every block, and the tokens are dropped before the readout. The
result is equal up to rounding. Other removals paint over the pixels; see `vitviz.engine.images.patch_fill`.

An average over no tokens is undefined, so the prediction for an empty set is then the one for an image of the
mean colour. Used by faithfulness tests; `engine.ablation` removes a single set of patches (`Ablation`).
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor, nn

from vitviz.engine.defaults import in_float32
from vitviz.engine.device import inference_context
from vitviz.engine.forward import capture
from vitviz.engine.forward.biases import to_additive_mask
from vitviz.engine.images.patch_fill import fill_pixels
from vitviz.engine.images.preprocess import Preprocessing
from vitviz.errors import UnsupportedModel, VitvizError, quoted
from vitviz.traces import cancellation
from vitviz.traces.grid import Grid
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.runs import PATCHES_AS

POOLED = (
    "Its attention pooling adds positions of all patches, so none can be dropped. Paint over them instead."
)
AT_ONCE = 10 * 197  # tokens per batch: at 32 images MLP activations exceed the cache; each takes 50 % longer


@in_float32()
def outputs_of_batches(
    model: Callable[[Tensor], Tensor], batches: Iterable[Tensor]
) -> Float[Tensor, "draw class"]:
    """Return the model's outputs for several batches, concatenated; raise Stopped if cancelled."""
    logits = []
    for some in batches:
        cancellation.check()
        with inference_context(some.device):
            logits.append(model(some))
    return torch.cat(logits).cpu()


class PatchRemoval:
    """Patch removal for one image.

    Raises VitvizError for an unknown `patches_as`, UnsupportedModel if the model cannot drop patches.
    """

    def __init__(
        self, model: nn.Module, pixels: Tensor, grid: Grid, pool: str, patches_as: str,
        preprocessing: Preprocessing,
    ):  # fmt: skip
        if patches_as not in PATCHES_AS:
            raise VitvizError(
                f"patches_as={quoted(patches_as)} is not valid; expected one of {', '.join(PATCHES_AS)}."
            )
        self._model, self._pixels, self._grid = model, pixels, grid
        self._blocks = capture.transformer_blocks(model)
        self._needs_patches = not pool.startswith("class") or pool == "class and average" or grid.prefix == 0
        dropped, pool = patches_as == "dropped", getattr(model, "attn_pool", None)
        if dropped and getattr(pool, "pos_embed", None) is not None:
            raise UnsupportedModel(LocalizedText(POOLED))
        self._masked = getattr(model, "rope", None) is not None
        self._painted = None if dropped else fill_pixels(self._pixels, preprocessing, grid, patches_as)

    def answers(self, kept: Tensor) -> Tensor:
        """Return the logits (batch, class) of the image with only the patches `kept` (batch, k), from 0."""
        dropped = self._painted is None and not self._masked
        tokens = self._grid.prefix + (kept.shape[1] if dropped else self._grid.patches)
        batches = kept.to(self._pixels.device).split(max(1, AT_ONCE // max(1, tokens)))
        return outputs_of_batches(self._batch, batches)

    def _batch(self, kept: Tensor) -> Tensor:
        """Return logits (batch, class) of one pass in which image i keeps only patches `kept[i]`."""
        count = len(kept)
        if self._painted is not None:
            return self._model(self._paint(kept))
        if kept.shape[1] == self._grid.patches:
            return self._model(self._pixels.expand(count, -1, -1, -1))
        if kept.shape[1] == 0 and self._needs_patches:
            return self._model(torch.zeros_like(self._pixels)).expand(count, -1)
        prefix = torch.arange(self._grid.prefix, device=kept.device).expand(count, -1)
        stay = torch.cat([prefix, kept + self._grid.prefix], dim=1)
        listener = _Removing(stay, self._grid, self._masked, len(self._blocks) - 1)
        with capture.listening(self._model, self._blocks, listener):
            return self._model(self._pixels.expand(count, -1, -1, -1))

    def _paint(self, kept: Tensor) -> Tensor:
        """Return the model's input for each row of `kept`, with all other patches painted over."""
        grid, (height, width) = self._grid, self._grid.patch
        cells = rearrange(_among(grid.patches, kept), "batch (row col) -> batch row col", row=grid.rows)
        seen = cells.repeat_interleave(height, dim=1).repeat_interleave(width, dim=2)[:, None]
        rows, cols = grid.pixels
        painted = self._painted.expand(len(kept), -1, -1, -1).clone()
        whole = self._pixels[..., :rows, :cols]
        painted[..., :rows, :cols] = torch.where(seen, whole, painted[..., :rows, :cols])
        return painted


def _among(count: int, kept: Tensor) -> Tensor:
    """Return a boolean mask of the kept indices, (batch, count)."""
    none = torch.zeros(len(kept), count, dtype=torch.bool, device=kept.device)
    return none.scatter_(1, kept, True)


class _Removing:
    """Listener of one pass; `kept` are the remaining positions in the sequence, by image of the batch."""

    def __init__(self, kept: Tensor, grid: Grid, masked: bool, last: int):
        self.kept, self.grid, self.masked, self._last = kept, grid, masked, last

    def on_event(self, moment: str, layer: int, args: tuple, output: Any) -> Any:
        """Drop tokens before the first block or, if keys are masked, after the last block.

        A returned value replaces the hooked tensor; None leaves it.
        """
        if moment == "input" and layer == 0 and not self.masked:
            return (self._rows(args[0]), *args[1:]), output
        return self._rows(output) if moment == "output" and layer == self._last and self.masked else None

    def attend(
        self, layer: int | None, kernel, query, key, value, attn_mask=None, *others, **named
    ) -> Tensor:
        """Run an attention call with its mask limited to kept tokens; unchanged outside blocks."""
        mask = attn_mask if layer is None else self.mask(attn_mask, query)
        return kernel(query, key, value, mask, *others, **named)

    def _rows(self, tokens: Tensor) -> Tensor:
        """Return the kept tokens of each image, (image, kept, width)."""
        return tokens.take_along_dim(self.kept[..., None], 1)

    def mask(self, mask: Tensor | None, queries: Tensor) -> Tensor | None:
        """Return a call's mask reduced to the kept tokens, or (if masking) with all other keys masked."""
        if self.masked:
            closed = to_additive_mask(_among(self.grid.tokens, self.kept), queries.dtype)[:, None, None]
            return closed if mask is None else to_additive_mask(mask, queries.dtype) + closed
        if mask is None or mask.shape[-1] != self.grid.tokens:
            return mask
        mask = mask[(None,) * (4 - mask.ndim)].expand(-1, -1, self.grid.tokens, -1)
        rows, keys = self.kept[:, None, :, None], self.kept[:, None, None, :]
        return mask.take_along_dim(rows, 2).take_along_dim(keys, 3)
