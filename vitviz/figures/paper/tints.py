"""Numbers as the colours of a scale, for a sheet and for who lays out tiles of numbers."""

from __future__ import annotations

import numpy as np
from jaxtyping import UInt8

from vitviz.figures.colormaps import coloured
from vitviz.figures.paper.plates import Scale


def tinted(values: np.ndarray, scale: Scale) -> UInt8[np.ndarray, "*shape 3"]:
    """Numbers as the colours of a scale."""
    if scale.colours == "grey":
        share = (np.asarray(values, float) - scale.low) / ((scale.high - scale.low) or 1.0)
        grey = np.rint(255 * np.clip(share, 0, 1)).astype(np.uint8)
        return np.repeat(grey[..., None], 3, axis=-1)
    return coloured(values, scale.low, scale.high, scale.colours)


__all__ = ["tinted"]
