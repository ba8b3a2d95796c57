"""A table for print: texts in columns between three lines, as small as it needs to be to fit."""

from __future__ import annotations

from vitviz.figures.paper.pen import Pen
from vitviz.figures.paper.plates import Table
from vitviz.figures.paper.rooms import RULE, Room

APART = 4.5  # mm between columns
SAMPLE, BEHIND = 4.6, 1.4  # mm of a line before a name, and from there to the name


def draw_table(pen: Pen, panel: Table, room: Room, x: float, y: float) -> None:
    """The table with its upper line at y."""
    letters, line = pen.letters, pen.letters.line()
    rows = [[pen.say(text) for text in row] for row in (panel.columns, *panel.rows)]
    before = SAMPLE + BEHIND if panel.series else 0.0
    wide = [max(map(letters.width, column)) for column in zip(*rows, strict=True)]
    wide[panel.names] += before
    shrunk = min(1.0, room.width / (sum(wide) + APART * (len(wide) - 1)))
    lefts = [x + shrunk * (sum(wide[:i]) + APART * i) for i in range(len(wide))]
    end = lefts[-1] + shrunk * wide[-1]
    for at in (0.0, line + RULE, len(rows) * line + 2 * RULE):
        pen.line([x, end], [y + at] * 2, width=0.15)
    for number, row in enumerate(rows):
        at = y + (number + 0.5) * line + (1.5 if number else 0.5) * RULE
        for i, text in enumerate(row):
            if i == panel.names:
                left = lefts[i] + shrunk * before
                pen.text(left, at, text, letters.size * shrunk)
            else:
                pen.text(lefts[i] + shrunk * wide[i], at, text, letters.size * shrunk, "right")
    for number, one in enumerate(panel.series):
        at, left = y + (number + 1.5) * line + 1.5 * RULE, lefts[panel.names]
        pen.line([left, left + shrunk * SAMPLE], [at, at], one.colour, one.thick, one.dash)


__all__ = ["draw_table"]
