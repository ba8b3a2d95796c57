"""A chart for print: dots, lines and bars over numbered axes, with a legend below, or one for several."""

from __future__ import annotations

import numpy as np

from vitviz.figures.paper.lettering import number, ticks
from vitviz.figures.paper.pen import DASHES, Pen
from vitviz.figures.paper.plates import Chart, Legend
from vitviz.figures.paper.rooms import GAP, Room, entries, heights, within


def draw_chart(pen: Pen, panel: Chart, room: Room, x: float, y: float) -> None:
    """The chart with its inner area at (x, y)."""
    (first, last), (low, high) = panel.x, panel.y

    def across(value):
        return x + (np.asarray(value, float) - first) / (last - first) * room.width

    def up(value):
        return y + (high - np.asarray(value, float)) / (high - low) * room.height

    _axes(pen, panel, room, x, y, across, up)
    if panel.bars is not None:
        bars = panel.bars
        for at, bottom, top, colour in zip(bars.x, bars.low, bars.high, bars.colours, strict=True):
            left, right = across(at - bars.width / 2), across(at + bars.width / 2)
            upper, lower = sorted((float(up(bottom)), float(up(top))))
            pen.box(float(left), upper, float(right - left), max(0.15, lower - upper), fill=colour)
    for level in panel.levels:
        if not within(panel, level):  # as its name says
            continue
        if level.upright:
            pen.line([float(across(level.value))] * 2, [y, y + room.height], level.colour, 0.35, "dashed")
        else:
            pen.line([x, x + room.width], [float(up(level.value))] * 2, level.colour, 0.35, "dashed")
    for one in panel.series:
        if one.band is not None:
            ends = [up(end).tolist() for end in one.band]
            pen.area(across(one.x).tolist(), *ends, one.colour)
    for one in panel.series:
        points = across(one.x).tolist(), up(one.y).tolist()
        if one.line:
            pen.line(*points, one.colour, one.thick, one.dash)
        if one.dots:
            pen.dots(*points, one.colour, 1.1 if one.line else 1.4)
    draw_legend(pen, panel, room, x, y + room.height + 2 * GAP + 2 * pen.letters.line() + 0.6)


def _axes(pen: Pen, panel: Chart, room: Room, x: float, y: float, across, up) -> None:
    letters, line, below = pen.letters, pen.letters.line(), y + room.height
    for value, said in heights(panel, pen.say).items():
        at = float(up(value))
        pen.line([x, x + room.width], [at, at], pen.ink.faint, 0.12)
        pen.text(x - GAP, at, said, align="right")
    pen.line([x, x + room.width], [below, below], pen.ink.ink, 0.2)
    for at, said in _places(pen, panel, room):
        place = float(across(at))
        pen.line([place, place], [below, below + 0.7], pen.ink.ink, 0.15)
        pen.text(place, below + GAP + line / 2, said, align="center")
    pen.text(x + room.width / 2, below + GAP + 1.5 * line, pen.say(panel.along), align="center")
    up_said = letters.short(pen.say(panel.up), room.height + room.top + 6)
    pen.text(x - room.left + line * 0.7, y + room.height / 2, up_said, align="center", upright=True)


def _places(pen: Pen, panel: Chart, room: Room) -> list[tuple[float, str]]:
    """Where numbers or names stand on the x axis."""
    (first, last), letters = panel.x, pen.letters
    if panel.ticks:
        return [(at, pen.say(said)) for at, said in panel.ticks]
    if not panel.whole:
        return [(value, number(value)) for value in ticks(first, last, 6)]
    whole = range(int(np.ceil(first)), int(np.floor(last)) + 1)
    pitch = room.width / (last - first)
    every = max(1, int(np.ceil((letters.width(str(whole[-1])) + 1.5) / pitch)))
    return [(value, str(value)) for value in whole[::every]]


def draw_legend(pen: Pen, panel: Chart | Legend, room: Room, x: float, top: float) -> None:
    """What lines, dots and colours mean, as far as the room has lines for it."""
    letters, found = pen.letters, entries(panel, pen.say)
    line = letters.line()
    for row, members in enumerate(room.legend):
        left, at = x, top + (row + 0.5) * line
        for i in members:
            name, colour, kind = found[i]
            if "line" in kind or kind in DASHES:
                pen.line([left, left + 4.6], [at, at], colour, 0.35, kind if kind in DASHES else "")
            if "dots" in kind:
                pen.dots([left + 2.3], [at], colour, 1.3)
            if kind == "square":
                pen.box(left + 1.4, at - 0.9, 1.8, 1.8, fill=colour)
            pen.text(left + 6.0, at, letters.short(name, room.width - 6.0))
            left += 6.0 + letters.width(name) + 2.5


__all__ = ["draw_chart", "draw_legend"]
