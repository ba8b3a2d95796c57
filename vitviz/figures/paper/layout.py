"""Where everything stands on a sheet: a room for each panel, a line above them all, sentences below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from vitviz.figures.paper.lettering import Letters
from vitviz.figures.paper.panels import draw
from vitviz.figures.paper.pen import Pen
from vitviz.figures.paper.plates import Plate
from vitviz.figures.paper.rooms import TITLE, Room, room_of

EDGE, BESIDE, BELOW = 2.0, 5.0, 4.5  # mm: around the sheet, between panels, between rows
HEAD = 1.25 * TITLE  # points of the line above


@dataclass(frozen=True)
class Layout:
    """Rooms row by row; `notes` are folded into lines, `lines` is for how many of them there is room."""

    rows: tuple[tuple[Room, ...], ...]
    notes: tuple[str, ...]
    lines: int
    line: float  # mm of one
    head: str = ""
    above: float = 0.0  # mm that the line above takes

    @property
    def height(self) -> float:
        """Of the sheet, mm."""
        rows = sum(max(room.tall for room in row) for row in self.rows) + BELOW * (len(self.rows) - 1)
        return 2 * EDGE + self.above + rows + (self.lines * self.line + 1.5 if self.lines else 0)


def laid_out(
    plate: Plate, width: float, letters: Letters, say: Callable[[str], str], head: str = ""
) -> Layout:
    """A plate on a sheet of `width` mm; panels side by side share it by their weights."""
    rows = []
    for i, row in enumerate(plate.rows):
        weights = plate.weights[i] if plate.weights else (1.0,) * len(row)
        wide = width - 2 * EDGE - BESIDE * (len(row) - 1)
        parts = [wide * one / sum(weights) for one in weights]
        rows.append(tuple(room_of(*one, letters, say) for one in zip(row, parts, strict=True)))
    notes = tuple(line for note in plate.notes for line in letters.folded(say(note), width - 2 * EDGE))
    above = letters.line(HEAD) + 1.0 if head else 0.0
    return Layout(tuple(rows), notes, len(notes), letters.line(), say(head) if head else "", above)


def alike(layouts: Sequence[Layout]) -> list[Layout]:
    """The same with every panel in one place over all of them, of one size, as frames of a film need it."""
    places = [zip(*rows, strict=True) for rows in zip(*(one.rows for one in layouts), strict=True)]
    margins = [
        [{name: max(getattr(room, name) for room in rooms) for name in ("top", "bottom")} for rooms in row]
        for row in places
    ]
    lines = max(one.lines for one in layouts)
    return [
        replace(
            one,
            lines=lines,
            rows=tuple(
                tuple(replace(room, **margin) for room, margin in zip(*row, strict=True))
                for row in zip(one.rows, margins, strict=True)
            ),
        )
        for one in layouts
    ]


def painted(pen: Pen, plate: Plate, layout: Layout) -> None:
    """Draws the plate with a pen whose sheet has the layout's height."""
    if layout.head:
        pen.text(EDGE, EDGE + layout.above / 2 - 0.5, layout.head, HEAD)
    y, count = EDGE + layout.above, 0
    for row, rooms in zip(plate.rows, layout.rows, strict=True):
        x = EDGE
        for panel, room in zip(row, rooms, strict=True):
            count += 1
            draw(pen, panel, room, x, y, f"panel-{count}")
            x += room.left + room.free + room.right + BESIDE
        y += max(room.tall for room in rooms) + BELOW
    top = layout.height - EDGE - layout.lines * layout.line
    for i, note in enumerate(layout.notes):
        pen.text(EDGE, top + (i + 0.5) * layout.line, note, quiet=True)
    pen.done()


__all__ = ["Layout", "alike", "laid_out", "painted"]
