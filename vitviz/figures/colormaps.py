"""Colour maps: 256 RGB entries each, perceptually uniform, readable with any colour vision (cividis most of all)."""

from __future__ import annotations

import cv2
import numpy as np
from jaxtyping import Float, UInt8

_CODES = {"viridis": cv2.COLORMAP_VIRIDIS, "magma": cv2.COLORMAP_MAGMA, "inferno": cv2.COLORMAP_INFERNO, "cividis": cv2.COLORMAP_CIVIDIS}


def _table(code: int) -> UInt8[np.ndarray, "256 3"]:
    levels = np.arange(256, dtype=np.uint8)[:, None]
    return np.ascontiguousarray(cv2.applyColorMap(levels, code)[:, 0, ::-1])


TABLES: dict[str, UInt8[np.ndarray, "256 3"]] = {name: _table(code) for name, code in _CODES.items()}


def coloured(values: Float[np.ndarray, "*shape"], low: float, high: float, name: str = "viridis") -> UInt8[np.ndarray, "*shape 3"]:
    """Numbers as colours: `low` and everything below it gets the first entry, `high` and above the last.

    >>> coloured(np.array([0.0, 1.0]), 0.0, 1.0, "viridis").tolist()
    [[68, 1, 84], [253, 231, 37]]
    """
    if name not in TABLES:
        raise ValueError(f"There is no colour map {name!r}; there are {', '.join(TABLES)}.")
    span = high - low
    levels = np.clip((np.asarray(values, dtype=np.float64) - low) / span, 0.0, 1.0) if span > 0 else np.zeros(np.shape(values))
    return TABLES[name][np.rint(levels * 255).astype(np.uint8)]


__all__ = ["TABLES", "coloured"]
