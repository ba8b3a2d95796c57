"""A figure for print read back: its texts, and the numbers behind its colours, by matplotlib's own tables."""

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


def about_zero(colours: np.ndarray, most: float) -> np.ndarray:
    """What number from -most to most each colour of the scale about zero stands for: by its lightness in
    OKLab (Ottosson 2020), from light grey at zero to blue against and orange for.
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


def dots(figure) -> np.ndarray:
    """Where the dots of a figure's only chart lie on its axes, (dot, 2): read off the lines that its file
    draws before it writes each number, first those of the y axis, then those of the x axis.
    """
    (chart,) = [one for row in figure.spec.rows for one in row if hasattr(one, "series")]
    svg = replace(figure, spec=replace(figure.spec, rows=((chart,),), notes=())).svg()
    root = ET.fromstring(svg)
    groups = [node for node in root.iter(f"{SVG}g") if re.match("(line2d|text)_", node.get("id") or "")]
    told = ["".join(group.itertext()).strip().replace("−", "-") for group in groups]
    numbers = [(i, float(text)) for i, text in enumerate(told) if re.fullmatch(r"-?[\d.]+", text)]
    # both axes go upwards: the numbers of the second begin where they fall
    turn = next(k for k in range(1, len(numbers)) if numbers[k][1] <= numbers[k - 1][1])

    def scaled(place: int, axis: list[tuple[int, float]]):
        (i, low), (j, high) = axis[0], axis[-1]
        first, last = (float(groups[k - 1].find(f"{SVG}path").get("d").split()[1 + place]) for k in (i, j))
        return lambda value: low + (float(value) - first) / (last - first) * (high - low)

    across, up = scaled(0, numbers[turn:]), scaled(1, numbers[:turn])
    uses = [node for node in root.iter(f"{SVG}use") if "stroke-width: 0.3" in (node.get("style") or "")]
    found = np.array([(across(node.get("x")), up(node.get("y"))) for node in uses])
    return found[:-1]  # the last is the legend's


def panels(figure, kind: type = object) -> list:
    """The panels of a figure, row by row, or those of one kind."""
    return [one for row in figure.spec.rows for one in row if isinstance(one, kind)]
