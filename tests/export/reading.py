"""Read a print figure back: its texts, and the numbers behind its colours, by matplotlib's own tables."""

from __future__ import annotations

import base64
import io
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import matplotlib
import numpy as np
from PIL import Image

SVG, LINK = "{http://www.w3.org/2000/svg}", "{http://www.w3.org/1999/xlink}href"


def texts(svg: bytes) -> list[str]:
    """Return every text of the figure that a reader can copy."""
    return ["".join(node.itertext()) for node in ET.fromstring(svg).iter(f"{SVG}text")]


def image_of(svg: bytes, name: str) -> np.ndarray:
    """Return the image with this name: height x width x channel."""
    (node,) = [one for one in ET.fromstring(svg).iter(f"{SVG}image") if one.get("id") == name]
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(node.get(LINK).partition(",")[2]))))


def cell_centres(pixels: np.ndarray, rows: int, cols: int) -> np.ndarray:
    """Return the centre pixel of each of rows x cols cells."""
    height, width = pixels.shape[:2]
    down = ((np.arange(rows) + 0.5) * height / rows).astype(int)
    across = ((np.arange(cols) + 0.5) * width / cols).astype(int)
    return pixels[np.ix_(down, across)]


def values_of_colours(colours: np.ndarray, low: float, high: float, name: str = "viridis") -> np.ndarray:
    """Return the number that each colour encodes, by the nearest entry of matplotlib's colour map.

    Two pairs of adjacent viridis entries are equal in 8 bits. Their colours give the mean of both numbers.
    """
    table = np.rint(255 * matplotlib.colormaps[name](np.arange(256))[:, :3])
    flat = colours[..., :3].reshape(-1, 3).astype(float)
    away = ((flat[:, None] - table) ** 2).sum(axis=-1)
    nearest = (away.argmin(axis=1) + 255 - away[:, ::-1].argmin(axis=1)) / 2
    return (low + nearest / 255 * (high - low)).reshape(colours.shape[:-1])


def diverging_values(colours: np.ndarray, most: float) -> np.ndarray:
    """Return the number from -most to most that each colour of the diverging scale encodes.

    The number follows from the lightness in OKLab (Ottosson 2020): light grey at zero, blue below, orange
    above.
    """
    srgb = colours[..., :3].astype(float) / 255
    linear = np.where(srgb > 0.04045, ((srgb + 0.055) / 1.055) ** 2.4, srgb / 12.92)
    to_lms = [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
    roots = np.cbrt(linear @ np.array(to_lms).T)
    light = roots @ [0.2104542553, 0.7936177850, -0.0040720468]
    redness = roots @ [1.9779984951, -2.4285922050, 0.4505937099]
    return np.sign(redness) * (0.955 - light) / (0.955 - 0.46) * most


def dot_positions(figure) -> np.ndarray:
    """Return the axis coordinates of the dots of a figure's only chart, (dot, 2).

    The axes are calibrated on the tick lines, which the file draws before their numbers, first y, then x.
    """
    (chart,) = [one for row in figure.spec.rows for one in row if hasattr(one, "series")]
    svg = replace(figure, spec=replace(figure.spec, rows=((chart,),), notes=())).svg()
    root = ET.fromstring(svg)
    groups = [node for node in root.iter(f"{SVG}g") if re.match("(line2d|text)_", node.get("id") or "")]
    told = ["".join(group.itertext()).strip().replace("−", "-") for group in groups]
    numbers = [(i, float(text)) for i, text in enumerate(told) if re.fullmatch(r"-?[\d.]+", text)]
    # both axes increase, so the second axis begins where the numbers decrease
    turn = next(k for k in range(1, len(numbers)) if numbers[k][1] <= numbers[k - 1][1])

    def scaled(place: int, axis: list[tuple[int, float]]):
        (i, low), (j, high) = axis[0], axis[-1]
        first, last = (float(groups[k - 1].find(f"{SVG}path").get("d").split()[1 + place]) for k in (i, j))
        return lambda value: low + (float(value) - first) / (last - first) * (high - low)

    across, up = scaled(0, numbers[turn:]), scaled(1, numbers[:turn])
    uses = [node for node in root.iter(f"{SVG}use") if "stroke-width: 0.3" in (node.get("style") or "")]
    found = np.array([(across(node.get("x")), up(node.get("y"))) for node in uses])
    return found[:-1]  # the last dot belongs to the legend


def panels(figure, kind: type = object) -> list:
    """Return the panels of a figure, row by row, optionally of one kind only."""
    return [one for row in figure.spec.rows for one in row if isinstance(one, kind)]
