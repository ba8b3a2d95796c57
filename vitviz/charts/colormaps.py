"""Colour maps of 256 RGB entries, perceptually uniform and readable with any colour vision (cividis best).

The page, Plotly and Matplotlib use this table.
"""

import cv2
import numpy as np
from jaxtyping import Float, UInt8

# zero, blue and orange in OKLab; the second map is for dark pages
_BALANCE = [[0.955, 0.0, 0.0], [0.46, -0.035, -0.145], [0.46, 0.105, 0.09]]
_BALANCE_DARK = [[0.22, 0.0, 0.0], [0.76, -0.045, -0.1], [0.76, 0.075, 0.105]]


def _diverging_map(zero_blue_orange: list[list[float]]) -> UInt8[np.ndarray, "256 3"]:
    """Return a diverging map: blue for negative, grey for zero, orange for positive.

    Lightness changes equally on both sides, so that equal magnitudes have equal visual weight. Blue and
    orange are distinguishable with any colour vision. The colours are straight lines in OKLab (Ottosson
    2020).
    """
    share = np.abs(np.linspace(-1, 1, 256))[:, None]
    zero, blue, orange = np.array(zero_blue_orange)
    lab = zero + share * (np.where(np.arange(256)[:, None] < 128, blue, orange) - zero)
    roots = lab @ np.array([
        [1, 1, 1],
        [0.3963377774, -0.1055613458, -0.0894841775],
        [0.2158037573, -0.0638541728, -1.2914855480],
    ])  # fmt: skip
    mixed = np.array([
        [4.0767416621, -1.2684380046, -0.0041960863],
        [-3.3077115913, 2.6097574011, -0.7034186147],
        [0.2309699292, -0.3413193965, 1.7076147010],
    ])  # fmt: skip
    linear = np.clip(roots**3 @ mixed, 0, 1)
    curved = np.where(linear > 0.0031308, 1.055 * linear ** (1 / 2.4) - 0.055, 12.92 * linear)
    return np.rint(255 * curved).astype(np.uint8)


_LEVELS = np.arange(256, dtype=np.uint8)[:, None]
TABLES: dict[str, UInt8[np.ndarray, "256 3"]] = {
    name: np.ascontiguousarray(
        cv2.applyColorMap(_LEVELS, getattr(cv2, f"COLORMAP_{name.upper()}"))[:, 0, ::-1]
    )
    for name in ("viridis", "magma", "inferno", "cividis")
} | {
    "balance": _diverging_map(_BALANCE),
    "balance_dark": _diverging_map(_BALANCE_DARK),
    "grey": _LEVELS.repeat(3, axis=1),
}


def colorscale(name: str) -> list[tuple[float, str]]:
    """Return a colour map as a Plotly colour scale.

    >>> colorscale("viridis")[0], colorscale("viridis")[255]
    ((0.0, 'rgb(68,1,84)'), (1.0, 'rgb(253,231,37)'))
    """
    colours = TABLES[name].tolist()
    return [(level / 255, f"rgb({red},{green},{blue})") for level, (red, green, blue) in enumerate(colours)]


def map_to_rgb(
    values: Float[np.ndarray, "*shape"], low: float, high: float, name: str = "viridis"
) -> UInt8[np.ndarray, "*shape 3"]:
    """Map numbers to RGB: values up to `low` get the first entry, values from `high` the last.

    >>> map_to_rgb(np.array([0.0, 1.0]), 0.0, 1.0, "viridis").tolist()
    [[68, 1, 84], [253, 231, 37]]
    """
    if name not in TABLES:
        raise ValueError(f"There is no colour map {name!r}; there are {', '.join(TABLES)}.")
    span = high - low
    values = np.asarray(values, dtype=np.float64)
    levels = np.clip((values - low) / span, 0.0, 1.0) if span > 0 else np.zeros(values.shape)
    # NaN gets the first entry; the caller hides these cells
    return TABLES[name][np.rint(np.nan_to_num(levels) * 255).astype(np.uint8)]
