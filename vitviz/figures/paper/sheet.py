"""A plate as a file: SVG and PDF with text as text, PNG at a width in mm and a resolution.

The same plate gives the same bytes: no date, no random name, no setting of the machine's own matplotlib. Text
is set in the font that comes with matplotlib, Chinese and Korean in one that is found; without one the
sentences stay English.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Callable

import matplotlib.style
from matplotlib.figure import Figure

from vitviz.errors import VitvizError
from vitviz.figures.paper.lettering import Letters, families
from vitviz.figures.paper.panels import draw
from vitviz.figures.paper.pen import DARK, LIGHT, Pen
from vitviz.figures.paper.plates import Plate
from vitviz.figures.paper.rooms import Room, room_of

FORMATS = ("svg", "pdf", "png")
DPI = (150, 300, 600)
EDGE, BESIDE, BELOW = 2.0, 5.0, 4.5  # mm: around the sheet, between panels, between rows
MOST = 60_000_000  # pixels of a PNG
OURS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "vitviz",
    "pdf.fonttype": 42,
    "image.composite_image": False,  # every picture stays one of its own in the file
    "path.simplify": False,
    "text.hinting": "none",  # letters as wide in pixels as they are on paper
}
_one = threading.Lock()  # matplotlib's settings belong to the whole process


def drawn(
    plate: Plate,
    form: str = "svg",
    width: float | None = None,
    dpi: int = 300,
    dark: bool = False,
    say: Callable[[str], str] = str,
    language: str = "en",
    title: str = "",
    about: str = "",
) -> bytes:
    """The plate as a file of `form`, `width` mm wide; a PNG has round(width / 25.4 · dpi) pixels across.

    `say` gives a text in `language`; where no font for that is found, texts stay English. `title` and `about`
    stand in the file's own description. VitvizError for a form, width or resolution that does not exist.
    """
    width = checked(form, plate.width if width is None else width, dpi)
    fonts = families(language)
    letters, say = (Letters(families("en")), str) if fonts is None else (Letters(fonts), say)
    rows = _rooms(plate, width, letters, say)
    notes = [line for note in plate.notes for line in letters.folded(say(note), width - 2 * EDGE)]
    height = 2 * EDGE + sum(max(room.tall for room in row) for row in rows) + BELOW * (len(rows) - 1)
    height += (len(notes) * letters.line() + 1.5) if notes else 0
    if form == "png" and width * height * (dpi / 25.4) ** 2 > MOST:
        raise VitvizError(
            f"A PNG of {width:g} x {height:.0f} mm at {dpi} dpi has more than {MOST // 1_000_000} million"
            " pixels; ask for a smaller width or fewer dpi, or for SVG or PDF, which need none."
        )
    ink = DARK if dark else LIGHT
    with _one, matplotlib.style.context(["default", OURS]):
        unit, size = (25.4, (width, height)) if form != "png" else (dpi, _pixels(width, height, dpi))
        figure = Figure(figsize=(size[0] / unit, size[1] / unit), dpi=dpi)
        pen = Pen(figure, width, height, letters, ink, say, form == "png")
        _place(pen, plate, rows)
        top = height - EDGE - len(notes) * letters.line()
        for i, note in enumerate(notes):
            pen.text(EDGE, top + (i + 0.5) * letters.line(), note, quiet=True)
        pen.done()
        file = io.BytesIO()
        figure.savefig(
            file, format=form, dpi=dpi, facecolor=ink.paper, metadata=_metadata(form, title, about)
        )
    return file.getvalue()


def checked(form: str, width: float, dpi: int) -> float:
    """The width in mm; VitvizError for a format, width or resolution that there is not."""
    if form not in FORMATS:
        raise VitvizError(f"There is no format {form!r}; expected one of {', '.join(FORMATS)}.")
    if not isinstance(width, int | float) or not 40 <= width <= 400:
        raise VitvizError(f"Given a width of {width!r}; expected 40 to 400 mm.")
    if dpi not in DPI:
        raise VitvizError(f"Given {dpi!r} dpi; expected one of {', '.join(map(str, DPI))}.")
    return float(width)


def _pixels(width: float, height: float, dpi: int) -> tuple[float, float]:
    """Whole pixels, a little more than that: matplotlib cuts what follows the point."""
    return tuple(round(side / 25.4 * dpi) + 1e-3 for side in (width, height))


def _rooms(plate: Plate, width: float, letters: Letters, say: Callable[[str], str]) -> list[list[Room]]:
    """Every panel's room, row by row; panels side by side share the width by their weights."""
    found = []
    for i, row in enumerate(plate.rows):
        weights = plate.weights[i] if plate.weights else (1.0,) * len(row)
        wide = width - 2 * EDGE - BESIDE * (len(row) - 1)
        parts = [wide * one / sum(weights) for one in weights]
        found.append([room_of(panel, part, letters, say) for panel, part in zip(row, parts, strict=True)])
    return found


def _place(pen: Pen, plate: Plate, rows: list[list[Room]]) -> None:
    y, count = EDGE, 0
    for row, rooms in zip(plate.rows, rows, strict=True):
        x = EDGE
        for panel, room in zip(row, rooms, strict=True):
            count += 1
            draw(pen, panel, room, x, y, f"panel-{count}")
            x += room.left + room.free + room.right + BESIDE
        y += max(room.tall for room in rooms) + BELOW


def _metadata(form: str, title: str, about: str) -> dict[str, str | None]:
    """What the file says of itself: never when it was made."""
    if form == "svg":
        return {"Title": title, "Description": about, "Creator": "vitviz", "Date": None}
    if form == "pdf":
        return {"Title": title, "Subject": about, "Creator": "vitviz", "CreationDate": None}
    return {"Title": title, "Description": about, "Software": "vitviz"}


__all__ = ["DPI", "FORMATS", "checked", "drawn"]
