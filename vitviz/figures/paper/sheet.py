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
from vitviz.figures.paper.layout import laid_out, painted
from vitviz.figures.paper.lettering import Letters, families
from vitviz.figures.paper.pen import DARK, LIGHT, Pen
from vitviz.figures.paper.plates import Plate

FORMATS = ("svg", "pdf", "png")
DPI = (150, 300, 600)
MOST = 60_000_000  # pixels of a PNG
OURS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "vitviz",
    "pdf.fonttype": 42,
    "image.composite_image": False,  # every picture stays one of its own in the file
    "path.simplify": False,
    "text.hinting": "none",  # letters as wide in pixels as they are on paper
}
one_at_a_time = threading.Lock()  # matplotlib's settings belong to the whole process


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
    letters, say = spoken(language, say)
    layout = laid_out(plate, width, letters, say)
    height = layout.height
    if form == "png" and width * height * (dpi / 25.4) ** 2 > MOST:
        raise VitvizError(
            f"A PNG of {width:g} x {height:.0f} mm at {dpi} dpi has more than {MOST // 1_000_000} million"
            " pixels; ask for a smaller width or fewer dpi, or for SVG or PDF, which need none."
        )
    ink = DARK if dark else LIGHT
    with one_at_a_time, matplotlib.style.context(["default", OURS]):
        unit, size = (25.4, (width, height)) if form != "png" else (dpi, _pixels(width, height, dpi))
        figure = Figure(figsize=(size[0] / unit, size[1] / unit), dpi=dpi)
        painted(Pen(figure, width, height, letters, ink, say, form == "png"), plate, layout)
        file = io.BytesIO()
        figure.savefig(
            file, format=form, dpi=dpi, facecolor=ink.paper, metadata=_metadata(form, title, about)
        )
    return file.getvalue()


def spoken(language: str, say: Callable[[str], str]) -> tuple[Letters, Callable[[str], str]]:
    """The letters of a language and who says a text in it; English where no font for it is found."""
    fonts = families(language)
    return (Letters(families("en")), str) if fonts is None else (Letters(fonts), say)


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


def _metadata(form: str, title: str, about: str) -> dict[str, str | None]:
    """What the file says of itself: never when it was made."""
    if form == "svg":
        return {"Title": title, "Description": about, "Creator": "vitviz", "Date": None}
    if form == "pdf":
        return {"Title": title, "Subject": about, "Creator": "vitviz", "CreationDate": None}
    return {"Title": title, "Description": about, "Software": "vitviz"}


__all__ = ["DPI", "FORMATS", "OURS", "checked", "drawn", "one_at_a_time", "spoken"]
