"""Numbers of patches, layers and classes as figures, each with its scale."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Float

from vitviz.analyses.filters import display_scaled
from vitviz.figures import svg
from vitviz.figures.overlay import enlarged
from vitviz.notebook.named import Name
from vitviz.notebook.parts import bounds, card, image, number, scale, squares, table, text

WIDTH = 224  # CSS pixels of a map
STRIP = 72  # of one in a strip


def drawn(tensor: Any, what: Name) -> str:
    """The card of a named tensor: by its axes; as text where a picture of it would mean nothing."""
    values = np.asarray(tensor, dtype=np.float64)
    draw = {
        "layer head": _dots, "row col": _map, "layer row col": _strip, "row col row2 col2": _mosaic,
        "layer token": _matrix, "layer class": _answers, "depth depth2": _square,
    }.get(what.axes)  # fmt: skip
    if draw is None or not values.size:
        return card(what.title, f"<pre>{text(tensor)}</pre>", caption=what.caption)
    return card(what.title, draw(values, what), caption=what.caption)


def over(values: Any, said: str, picture: np.ndarray | None = None, diverging: bool = False) -> str:
    """A map of patches with its colour bar: over its picture where that is known, else in squares."""
    values = np.asarray(values, dtype=np.float64)
    low, high = bounds(values, diverging)
    colours = "balance" if diverging else "viridis"
    pixels = squares(values, low, high, colours)
    if picture is not None and np.isfinite(values).all():
        pixels = _blended(picture, squares(enlarged(values, picture.shape[:2]), low, high, colours))
    drawn = image(pixels, f"map of {values.shape[0]} × {values.shape[1]} patches: {said}", WIDTH)
    return f"<div>{drawn}{scale(low, high, colours, said, WIDTH)}</div>"


def atlas(pictures: Float[np.ndarray, "count row col channel"]) -> str:
    """Small pictures side by side, each stretched alone."""
    shown = np.rint(255 * display_scaled(pictures).numpy()).astype(np.uint8)
    if shown.shape[-1] != 3:
        shown = shown[..., :1].repeat(3, axis=-1)
    across = next((n for n in (7, 8, 6, 5) if len(shown) % n == 0), min(8, len(shown)))
    return image(_tiled(shown, across, gap=2), f"{len(shown)} filters", min(560, 60 * across))


def first(scores: Any) -> Iterator[Any]:
    """The first picture's scores, a component at a time, at most three."""
    return (scores[0, ..., number] for number in range(min(3, scores.shape[-1])))


def safe(texts: Mapping[str, str]) -> list[tuple[str, str]]:
    """Both as HTML."""
    return [(text(name), text(said)) for name, said in texts.items()]


def _dots(values: np.ndarray, what: Name) -> str:
    return svg.dots_by_layer(values, np.full_like(values, np.nan), what.unit, what.first)


def _map(values: np.ndarray, what: Name) -> str:
    return over(values, what.unit, what.picture, what.diverging)


def _strip(values: np.ndarray, what: Name) -> str:
    """A small map a layer, all on one scale."""
    low, high = bounds(values, what.diverging)
    colours = "balance" if what.diverging else "viridis"
    small = [
        f"<span>{image(squares(one, low, high, colours), f'layer {n}', STRIP)}{n}</span>"
        for n, one in enumerate(values, what.first)
    ]
    return f'<div class="vitviz-strip">{"".join(small)}</div>{scale(low, high, colours, what.unit)}'


def _mosaic(values: np.ndarray, what: Name) -> str:
    """Each patch's own map, where the patch stands."""
    rows, cols = values.shape[:2]
    low, high = bounds(values)
    tiles = np.stack(
        [squares(one, low, high, "viridis") for one in values.reshape(rows * cols, *values.shape[2:])]
    )
    whole = image(_tiled(tiles, cols, gap=1), f"{rows} × {cols} maps", 480)
    return f"{whole}{scale(low, high, 'viridis', what.unit)}"


def _matrix(values: np.ndarray, what: Name) -> str:
    """Layers downwards, tokens across."""
    low, high = bounds(values)
    tall = max(1, round(0.4 * values.shape[1] / len(values)))
    pixels = squares(values, low, high, "viridis").repeat(tall, axis=0)
    return f"{image(pixels, f'{what.unit} by layer and token', 560)}{scale(low, high, 'viridis', what.unit)}"


def _square(values: np.ndarray, what: Name) -> str:
    """A square a pair of depths, on a scale from 0 to 1."""
    pixels = image(squares(values, 0.0, 1.0, "viridis"), f"{what.unit} by depth and depth", WIDTH)
    return f"{pixels}{scale(0.0, 1.0, 'viridis', what.unit, WIDTH)}"


def _answers(values: np.ndarray, what: Name) -> str:
    """The likeliest class at every depth, and what the last one's had there."""
    shifted = np.exp(values - values.max(axis=1, keepdims=True))
    likely, last = shifted / shifted.sum(axis=1, keepdims=True), int(values[-1].argmax())

    def name(number):
        return what.labels[number] if number < len(what.labels) else f"class {number}"

    rows = [
        (
            n,
            name(int(row.argmax())),
            f"{row.max():.1%}",
            f"{row[last]:.1%}",
            number(values[n - what.first, last]),
        )
        for n, row in enumerate(likely, what.first)
    ]
    return table(("depth", "likeliest", "probability", f"of {name(last)}", "its logit"), rows)


def _blended(picture: np.ndarray, colours: np.ndarray, opacity: float = 0.6) -> np.ndarray:
    return np.rint(picture + opacity * (colours.astype(np.float32) - picture)).astype(np.uint8)


def _tiled(tiles: np.ndarray, across: int, gap: int) -> np.ndarray:
    """Pictures of one size in rows, with a grey line between them."""
    count, height, width, _ = tiles.shape
    down = -(-count // across)
    whole = np.full((down * (height + gap) - gap, across * (width + gap) - gap, 3), 128, np.uint8)
    for place, tile in enumerate(tiles):
        top, left = (place // across) * (height + gap), (place % across) * (width + gap)
        whole[top : top + height, left : left + width] = tile
    return whole


__all__ = ["atlas", "drawn", "first", "over", "safe"]
