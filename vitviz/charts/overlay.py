"""Overlay of a patch map on its image as an array, identical to the drawing of the page, for notebooks.

There are two forms: a heat map, and the form of the paper (figure 6), where map / max, enlarged smoothly,
is the brightness of the image. The map covers the crop that the model received. The rest of the image fades
to white (heat) or to black (paper).
"""

import cv2
import numpy as np
from jaxtyping import Float, UInt8
from numpy.typing import ArrayLike
from PIL import Image

from vitviz.charts.colormaps import map_to_rgb

# fade outside the crop: (strength from 0 to 1, target grey level)
_FADED = {"heat": (np.float32(0.62), 255.0), "paper": (np.float32(0.85), 0.0)}


def overlay(
    picture: UInt8[np.ndarray, "height width 3"] | Image.Image, map: ArrayLike,
    box: tuple[float, float, float, float] | None = None, form: str = "heat", opacity: float = 0.6,
    colours: str = "viridis", smooth: bool = True, low: float = 0.0, high: float | None = None,
) -> UInt8[np.ndarray, "height width 3"]:  # fmt: skip
    """Draw a patch map over its image.

    Args:
        picture: RGB image of shape (height, width, 3), uint8, or a PIL image.
        map: Values of shape (row, col).
        box: Area of the image that the map covers: left, top, right, bottom in pixels; None for the whole
            image.
        form: "heat" (colours) or "paper" (brightness = map / `high`).
        opacity: Opacity of the heat map, 0 to 1.
        colours: Colour map of the heat map, a key of `vitviz.charts.colormaps.TABLES`.
        smooth: Enlarge by bicubic interpolation instead of in squares.
        low: Value at the lower end of the colours of the heat map.
        high: Value at the upper end; None for the maximum of the map.

    Returns:
        RGB pixels of shape (height, width, 3), uint8.

    Raises:
        ValueError: For an invalid image, form, opacity, colour map or box.

    >>> grey = np.full((4, 4, 3), 200, np.uint8)
    >>> overlay(grey, np.array([[0.0, 1.0]]), form="paper", smooth=False)[0, :, 0].tolist()
    [0, 0, 200, 200]
    """
    picture, map = np.asarray(picture), np.asarray(map)
    if picture.dtype != np.uint8 or picture.ndim != 3 or picture.shape[2] != 3:
        raise ValueError(
            f"An image is height x width x 3 of uint8, but got {picture.shape} of {picture.dtype}."
        )
    if form not in ("heat", "paper"):
        raise ValueError(f"form={form!r} is neither 'heat' nor 'paper'.")
    if not 0.0 <= opacity <= 1.0:
        raise ValueError(f"opacity={opacity!r} does not lie between 0 and 1.")
    height, width = picture.shape[:2]
    left, top, right, bottom = (round(side) for side in box or (0, 0, width, height))
    if not (left < right and top < bottom and left < width and top < height and right > 0 and bottom > 0):
        raise ValueError(f"The box {box} is not inside the image of {width} x {height} pixels.")
    full = enlarge_map(map, (bottom - top, right - left), smooth)
    rows, cols = slice(max(top, 0), min(bottom, height)), slice(max(left, 0), min(right, width))
    full = full[rows.start - top : rows.stop - top, cols.start - left : cols.stop - left]
    most = (float(np.max(map)) if high is None else high) or 1.0
    inside = picture[rows, cols].astype(np.float32)
    if form == "paper":
        inside *= np.clip(full / most, 0.0, 1.0)[..., None]
    else:
        inside += opacity * (map_to_rgb(full, low, most, colours) - inside)
    result = _greyed_copy(picture, form)
    result[rows, cols] = np.rint(inside).astype(np.uint8)
    return result


def fade_outside_crop(
    picture: UInt8[np.ndarray, "height width 3"], box: tuple[float, float, float, float] | None
) -> UInt8[np.ndarray, "height width 3"]:
    """Return the image faded outside `box`, as in the heat map; unchanged if `box` is None.

    >>> fade_outside_crop(np.zeros((1, 2, 3), np.uint8), (0, 0, 1, 1))[0, :, 0].tolist()
    [0, 158]
    """
    if box is None:
        return picture
    left, top, right, bottom = (max(0, round(side)) for side in box)
    result = _greyed_copy(picture, "heat")
    result[top:bottom, left:right] = picture[top:bottom, left:right]
    return result


def _greyed_copy(picture: np.ndarray, form: str) -> np.ndarray:
    """Return an RGB image faded towards white (`form` "heat") or black ("paper"), as background of a map."""
    share, under = _FADED[form]
    return np.rint(picture * (1 - share) + under * share).astype(np.uint8)


def enlarge_map(
    map: Float[np.ndarray, "row col"], size: tuple[int, int], smooth: bool = True
) -> Float[np.ndarray, "height width"]:
    """Enlarge the map to `size` (height, width): bicubic and clipped to its own range, or in squares."""
    values = np.ascontiguousarray(map, dtype=np.float32)
    how = cv2.INTER_CUBIC if smooth else cv2.INTER_NEAREST_EXACT
    return np.clip(cv2.resize(values, (size[1], size[0]), interpolation=how), values.min(), values.max())
