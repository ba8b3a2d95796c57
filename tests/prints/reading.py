"""A figure for print read back: its texts, and the numbers behind its colours, by matplotlib's own tables."""

from __future__ import annotations

import base64
import io
import xml.etree.ElementTree as ET

import matplotlib
import numpy as np
from PIL import Image

SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


def texts(svg: bytes) -> list[str]:
    """Every text of the figure, as a reader could copy it."""
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text")]


def picture(svg: bytes, name: str) -> np.ndarray:
    """One of the figure's pictures by its name: height x width x channel."""
    (node,) = [one for one in ET.fromstring(svg).iter(f"{SVG}image") if one.get("id") == name]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(node.get(LINK).partition(",")[2]))))


def middles(pixels: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """The pixel in the middle of each of rows x cols cells."""
    height, width = pixels.shape[:2]
    down = ((np.arange(rows) + 0.5) * height / rows).astype(int)
    across = ((np.arange(cols) + 0.5) * width / cols).astype(int)
    return pixels[np.ix_(down, across)]


def values(colours: np.ndarray, low: float, high: float, name: str = "viridis") -> np.ndarray:
    """What number each colour stands for, by the nearest entry of matplotlib's colour map.

    Two pairs of neighbours in viridis are one colour in 8 bits: between them it stands in the middle.
    """
    table = np.rint(255 * matplotlib.colormaps[name](np.arange(256))[:, :3])
    flat = colours[..., :3].reshape(-1, 3).astype(float)
    away = ((flat[:, None] - table) ** 2).sum(axis=-1)
    nearest = (away.argmin(axis=1) + 255 - away[:, ::-1].argmin(axis=1)) / 2
    return (low + nearest / 255 * (high - low)).reshape(colours.shape[:-1])
