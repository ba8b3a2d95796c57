"""Plates whose scales and axes stand still: each has one range, which holds what all of them show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from vitviz.figures.paper.plates import Chart, Legend, Panel, Plate, Table


def steady(plates: Sequence[Plate]) -> list[Plate]:
    """The same plates, panel by panel with the widest range of any: colours and places can be compared.

    >>> import numpy as np
    >>> from vitviz.figures.paper.plates import Map, Scale
    >>> made = [Plate(((Map(values=np.eye(2), scale=Scale("viridis", 0, most, "")),),)) for most in (1, 3)]
    >>> [plate.rows[0][0].scale.high for plate in steady(made)]
    [3, 3]
    """
    places = [zip(*rows, strict=True) for rows in zip(*(plate.rows for plate in plates), strict=True)]
    ranges = [[_range(panels) for panels in row] for row in places]
    return [
        replace(
            plate,
            rows=tuple(
                tuple(_within(panel, known) for panel, known in zip(*row, strict=True))
                for row in zip(plate.rows, ranges, strict=True)
            ),
        )
        for plate in plates
    ]


def _range(panels: Sequence[Panel]) -> dict:
    """What is to be replaced in each of the panels that stand in one place of the plates."""
    if isinstance(panels[0], Chart):
        ends = [[getattr(panel, axis) for panel in panels] for axis in ("x", "y")]
        return {
            axis: (min(low for low, _ in found), max(high for _, high in found))
            for axis, found in zip(("x", "y"), ends, strict=True)
        }
    if isinstance(panels[0], Legend | Table):
        return {}
    scales = [panel.scale for panel in panels if panel.scale is not None]
    return {"low": min(one.low for one in scales), "high": max(one.high for one in scales)} if scales else {}


def _within(panel: Panel, known: dict) -> Panel:
    if isinstance(panel, Chart):
        return replace(panel, **known)
    return panel if not known or panel.scale is None else replace(panel, scale=replace(panel.scale, **known))


__all__ = ["steady"]
