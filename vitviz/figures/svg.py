"""Small figures as SVG text for pages that open offline: no script, no font, no request; light and dark by
the page.

Each dot carries its numbers as a <title>, which browsers show under the pointer and readers read out.
"""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

WIDTH, HEIGHT, LEFT, BELOW, ABOVE = 640, 300, 62, 44, 14


def dots_by_layer(mean: np.ndarray, error: np.ndarray, up: str, first: int = 1) -> str:
    """A dot for each head above its layer, and the mean of the heads as a line; `error` is the standard error
    of each.

    >>> dots_by_layer(np.array([[1.0, 2.0]]), np.array([[0.1, np.nan]]), "px").count("<circle")
    2
    """
    mean, error = np.asarray(mean, float), np.asarray(error, float)
    scale, frame = _frame(mean, len(mean), up, first)
    marks = []
    for (layer, head), value in np.ndenumerate(mean):
        x, y = scale(layer, value)
        told = f"layer {layer + first}, head {head + 1}: {_number(value)}{_spread(error[layer, head])} {up}"
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{html.escape(told)}</title></circle>')
    line = " ".join("{:.1f},{:.1f}".format(*scale(layer, row.mean())) for layer, row in enumerate(mean))
    return _svg(f'{frame}<polyline points="{line}"/>{"".join(marks)}', f"{up} of {mean.size} heads by layer")


def line_by_layer(mean: np.ndarray, error: np.ndarray, up: str, first: int = 1) -> str:
    """One number a layer, with bars of one standard error on either side.

    >>> line_by_layer(np.array([1.0, 2.0]), np.array([0.1, 0.1]), "share").count('class="bar"')
    2
    """
    mean, error = np.asarray(mean, float), np.nan_to_num(np.asarray(error, float))
    scale, frame = _frame(np.concatenate([mean - error, mean + error]), len(mean), up, first)
    marks, points = [], []
    for layer, (value, spread) in enumerate(zip(mean, error, strict=True)):
        (x, y), (_, low), (_, high) = (
            scale(layer, value),
            scale(layer, value - spread),
            scale(layer, value + spread),
        )
        points.append(f"{x:.1f},{y:.1f}")
        told = html.escape(f"layer {layer + first}: {_number(value)}{_spread(spread)} {up}")
        marks.append(f'<line class="bar" x1="{x:.1f}" x2="{x:.1f}" y1="{low:.1f}" y2="{high:.1f}"/>')
        marks.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4"><title>{told}</title></circle>')
    return _svg(f'{frame}<polyline points="{" ".join(points)}"/>{"".join(marks)}', f"{up} by layer")


def _frame(values: np.ndarray, layers: int, up: str, first: int):
    """From (layer, value) to a place, and the axes; the scale holds zero, so that heights compare."""
    finite = values[np.isfinite(values)]
    low, high = min(0.0, float(finite.min(initial=0.0))), max(0.0, float(finite.max(initial=0.0)))
    high = high + 0.06 * (high - low) if high > low else low + 1.0
    room, tall = WIDTH - LEFT - 12, HEIGHT - BELOW - ABOVE

    def scale(layer: float, value: float) -> tuple[float, float]:
        part = (value - low) / (high - low) if np.isfinite(value) else 0.0
        return LEFT + room * (layer + 0.5) / layers, ABOVE + tall * (1 - part)

    marks = [_rule(scale(0, at)[1], _number(at)) for at in _ticks(low, high)]
    for layer in range(0, layers, max(1, round(layers / 12))):
        marks.append(
            f'<text x="{scale(layer, low)[0]:.1f}" y="{HEIGHT - BELOW + 18}"'
            f' text-anchor="middle">{layer + first}</text>'
        )
    marks.append(f'<text x="{LEFT + room / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle">layer</text>')
    middle = ABOVE + tall / 2
    turned = f'transform="rotate(-90 14 {middle:.0f})"'
    marks.append(f'<text x="14" y="{middle:.0f}" text-anchor="middle" {turned}>{html.escape(up)}</text>')
    return scale, "".join(marks)


def _rule(y: float, text: str) -> str:
    line = f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 12}" y1="{y:.1f}" y2="{y:.1f}"/>'
    return f'{line}<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'


def _ticks(low: float, high: float) -> Sequence[float]:
    """Some four round numbers between the two."""
    raw = (high - low) / 4
    unit = 10.0 ** np.floor(np.log10(raw))
    step = unit * min((1, 2, 5, 10), key=lambda one: abs(one - raw / unit))
    return [float(at) for at in np.arange(np.ceil(low / step) * step, high + 1e-9 * step, step)]


def _number(value: float) -> str:
    return f"{value + 0.0:.4g}"


def _spread(error: float) -> str:
    return f" ± {error:.2g}" if np.isfinite(error) and error else ""


def _svg(inside: str, said: str) -> str:
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{html.escape(said)}">{inside}</svg>'


__all__ = ["dots_by_layer", "line_by_layer"]
