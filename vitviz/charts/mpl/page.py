"""Rendering of figures: SVG and PDF with selectable text, PNG, video frames, and inline SVG charts.

A figure always gives the same bytes: no date, no random name, no setting of the machine's own matplotlib.
Text is set in the font that ships with matplotlib, Chinese and Korean in an installed font; without one,
texts stay English. `layout` computes the size of every panel. A figure has an optional line above its panels
and notes below them.
"""

import html
import io
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import matplotlib.style
import numpy as np
from jaxtyping import UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from vitviz.charts.chart import DARK, LIGHT, Chart, tooltip
from vitviz.charts.mpl.drawing import FontMetrics, PageDrawing, families
from vitviz.charts.mpl.layout import TITLE, PanelLayout, layout_of
from vitviz.charts.mpl.panels import draw
from vitviz.charts.mpl.spec import FigureSpec, map_by_position
from vitviz.errors import VitvizError, quoted

EDGE, BESIDE, BELOW = 2.0, 5.0, 4.5  # mm: page margin, gap between panels, gap between rows
HEAD = 1.25 * TITLE  # font size of the line above the panels, points


@dataclass(frozen=True)
class PageLayout:
    """Panel layouts by row, and notes wrapped into lines; `lines` is the number of lines reserved."""

    rows: tuple[tuple[PanelLayout, ...], ...]
    notes: tuple[str, ...]
    lines: int
    line: float  # line spacing, mm
    head: str = ""
    above: float = 0.0  # height of the line above the panels, mm

    @property
    def height(self) -> float:
        """Return the height of the page, mm."""
        rows = sum(max(area.tall for area in row) for row in self.rows) + BELOW * (len(self.rows) - 1)
        return 2 * EDGE + self.above + rows + (self.lines * self.line + 1.5 if self.lines else 0)


def lay_out(
    spec: FigureSpec, width: float, letters: FontMetrics, say: Callable[[str], str], head: str = ""
) -> PageLayout:
    """Lay out a figure on a page of `width` mm; the panels of a row share the width by their weights."""
    rows = []
    for i, row in enumerate(spec.rows):
        weights = spec.weights[i] if spec.weights else (1.0,) * len(row)
        wide = width - 2 * EDGE - BESIDE * (len(row) - 1)
        parts = [wide * one / sum(weights) for one in weights]
        rows.append(tuple(layout_of(*one, letters, say) for one in zip(row, parts, strict=True)))
    notes = tuple(line for note in spec.notes for line in letters.folded(say(note), width - 2 * EDGE))
    above = letters.line(HEAD) + 1.0 if head else 0.0
    return PageLayout(tuple(rows), notes, len(notes), letters.line(), say(head) if head else "", above)


def align_layouts(layouts: Sequence[PageLayout]) -> list[PageLayout]:
    """Return the layouts with every panel at the same position and size in all, as in video frames."""

    def widened(areas: Sequence[PanelLayout]) -> list[PanelLayout]:
        most = {name: max(getattr(area, name) for area in areas) for name in ("top", "bottom")}
        return [replace(area, **most) for area in areas]

    lines, result = max(one.lines for one in layouts), map_by_position([one.rows for one in layouts], widened)
    return [replace(one, lines=lines, rows=rows) for one, rows in zip(layouts, result, strict=True)]


def draw_figure(drawing: PageDrawing, spec: FigureSpec, layout: PageLayout) -> None:
    """Draw the figure on a page of the layout's height."""
    if layout.head:
        drawing.text(EDGE, EDGE + layout.above / 2 - 0.5, layout.head, HEAD)
    y, count = EDGE + layout.above, 0
    for row, areas in zip(spec.rows, layout.rows, strict=True):
        x = EDGE
        for panel, area in zip(row, areas, strict=True):
            count += 1
            draw(drawing, panel, area, x, y, f"panel-{count}")
            x += area.left + area.free + area.right + BESIDE
        y += max(area.tall for area in areas) + BELOW
    top = layout.height - EDGE - layout.lines * layout.line
    for i, note in enumerate(layout.notes):
        drawing.text(EDGE, top + (i + 0.5) * layout.line, note, quiet=True)


FORMATS = ("svg", "pdf", "png")
DPI = (150, 300, 600)
MOST = 60_000_000  # pixels of a PNG
OURS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "vitviz",
    "pdf.fonttype": 42,
    "image.composite_image": False,  # keeps every image separate in the file
    "path.simplify": False,
    "text.hinting": "none",  # keeps glyph widths in pixels equal to those on paper
}
one_at_a_time = threading.Lock()  # matplotlib's settings are global to the process


def render(
    spec: FigureSpec, form: str = "svg", width: float | None = None, dpi: int = 300, dark: bool = False,
    say: Callable[[str], str] = str, language: str = "en", title: str = "", about: str = "",
    check: Callable[[], None] = lambda: None,
) -> bytes:  # fmt: skip
    """Render a figure as the bytes of a file.

    A PNG has round(width / 25.4 · dpi) pixels across. Control characters, which XML does not allow, are
    removed from SVG files.

    Args:
        spec: The figure.
        form: "svg", "pdf" or "png".
        width: Width in mm, 40 to 400; None for the figure's own.
        dpi: Resolution, 150, 300 or 600.
        dark: Use the dark colours.
        say: Function that translates a text into `language`.
        language: Language of the texts; they stay English if no font for it is installed.
        title: Title in the file's metadata.
        about: Description in the file's metadata.
        check: Function called before every drawing and writing step; it may raise to cancel.

    Raises:
        VitvizError: For an unknown format, width or resolution, and for a PNG that is too large.
    """
    width = check_format(form, spec.width if width is None else width, dpi)
    letters, say = fonts_for(language, say)
    layout = lay_out(spec, width, letters, say)
    height = layout.height
    if form == "png" and _count(width, height, dpi) > MOST:
        raise VitvizError(
            f"A PNG of {width:g} x {height:.0f} mm at {dpi} dpi has more than {MOST // 1_000_000} million"
            " pixels; ask for a smaller width or fewer dpi, or for SVG or PDF, which need none."
        )
    ink = DARK if dark else LIGHT
    with one_at_a_time, matplotlib.style.context(["default", OURS]):
        unit, size = 25.4, [width, height]
        if form == "png":  # slightly more than whole pixels: matplotlib truncates the size
            unit, size = dpi, [round(side / 25.4 * dpi) + 1e-3 for side in size]
        figure = Figure(figsize=(size[0] / unit, size[1] / unit), dpi=dpi)
        drawing = PageDrawing(figure, width, height, letters, ink, say, dpi / 25.4 if form == "png" else 0)
        draw_figure(drawing, spec, layout)
        for artist in figure.findobj():
            artist.draw = _with_check(artist.draw, check)
        file = io.BytesIO()
        file.write = _with_check(file.write, check)  # writing a PNG of 20 million pixels takes seconds
        details = _metadata(form, title, about)
        figure.savefig(file, format=form, dpi=dpi, facecolor=ink.paper, metadata=details)
    data = file.getvalue()
    return data if form != "svg" else re.sub(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]", b"", data)


def fonts_for(language: str, say: Callable[[str], str]) -> tuple[FontMetrics, Callable[[str], str]]:
    """Return font metrics and translator of a language; those of English if no font is installed."""
    fonts = families(language)
    return (FontMetrics(families("en")), str) if fonts is None else (FontMetrics(fonts), say)


def check_format(form: str, width: float, dpi: int) -> float:
    """Return the width (mm) as float; raise VitvizError for an invalid format, width or resolution."""
    if form not in FORMATS:
        raise VitvizError(f"There is no format {quoted(form)}; expected one of {', '.join(FORMATS)}.")
    if not isinstance(width, int | float) or not 40 <= width <= 400:
        raise VitvizError(f"A width of {quoted(width)} is not valid; expected 40 to 400 mm.")
    if dpi not in DPI:
        raise VitvizError(f"{quoted(dpi)} dpi is not valid; expected one of {', '.join(map(str, DPI))}.")
    return float(width)


def pixel_count(
    spec: FigureSpec, width: float | None, dpi: int, say: Callable[[str], str], language: str
) -> int:
    """Return the number of pixels of a PNG; raise VitvizError for an invalid width or resolution."""
    width = check_format("png", spec.width if width is None else width, dpi)
    return _count(width, lay_out(spec, width, *fonts_for(language, say)).height, dpi)


def _with_check(draw: Callable, check: Callable[[], None]) -> Callable:
    """Return `draw`, preceded by `check()` in every call; an error raised by `check` cancels drawing."""

    def draw_checked(*given, **named):
        check()
        return draw(*given, **named)

    return draw_checked


def _count(width: float, height: float, dpi: int) -> int:
    """Return the number of pixels of a page of `width` x `height` mm at `dpi` dots per inch."""
    return round(width * height * (dpi / 25.4) ** 2)


def _metadata(form: str, title: str, about: str) -> dict[str, str | None]:
    """Return the file's metadata, without a date."""
    if form == "svg":
        return {"Title": title, "Description": about, "Creator": "vitviz", "Date": None}
    if form == "pdf":
        return {"Title": title, "Subject": about, "Creator": "vitviz", "CreationDate": None}
    return {"Title": title, "Description": about, "Software": "vitviz"}


class FrameRenderer:
    """Sequence of video frames, one per figure, `across` pixels wide, rendered on access.

    `labels` stand above the frames.
    """

    def __init__(
        self, specs: Sequence[FigureSpec], labels: Sequence[str], across: int, dark: bool = False,
        say: Callable[[str], str] = str, language: str = "en",
    ):  # fmt: skip
        self._specs, self._ink, self._width = specs, DARK if dark else LIGHT, specs[0].width
        self._letters, self._say = fonts_for(language, say)
        details = zip(specs, labels, strict=True)
        asked = (self._width, self._letters, self._say)
        self._layouts = align_layouts([lay_out(spec, *asked, label) for spec, label in details])
        self._dpi = across / self._width * 25.4
        tall = self._layouts[0].height / 25.4 * self._dpi
        self.size = (across, 2 * int(np.ceil(tall / 2)))  # H.264 subsamples colour by two: sides must be even

    def __len__(self) -> int:
        return len(self._specs)

    def __getitem__(self, number: int) -> UInt8[np.ndarray, "tall wide 3"]:
        """Render frame `number`, counted from 0."""
        (across, down), dpi = self.size, self._dpi
        with one_at_a_time, matplotlib.style.context(["default", OURS]):
            inches = [(side + 1e-3) / dpi for side in self.size]  # matplotlib truncates the size
            figure = Figure(figsize=inches, dpi=dpi)
            canvas = FigureCanvasAgg(figure)
            height = down / dpi * 25.4
            look = self._letters, self._ink, self._say, dpi / 25.4
            drawing = PageDrawing(figure, self._width, height, *look)
            draw_figure(drawing, self._specs[number], self._layouts[number])
            canvas.draw()
            return np.asarray(canvas.buffer_rgba())[:down, :across, :3].copy()


WIDE = 125.0  # mm; letters then match the size of the surrounding text
GONE = (
    "<metadata>.*?</metadata>", "<title/>", r"(?<=<svg)[^>]*?(?= viewBox)", ' xmlns="[^"]*"',
    r"<style .*?</style>",
)  # fmt: skip
INKS = {
    LIGHT.ink: "currentColor",
    LIGHT.faint: "rgb(128 128 128 / .35)",
    f"fill: {LIGHT.paper}": "fill: none",
    f"stroke: {LIGHT.paper}": "stroke: none",
}


def inline_svg(chart: Chart) -> str:
    """Return a chart as SVG text in the page's own text colour, light or dark.

    Each dot has a title with its values, for tooltips and screen readers. The SVG contains no script and no
    font, and makes no request.
    """
    text = render(FigureSpec(((chart,),), width=WIDE)).decode()
    text = text[text.index("<svg") :]
    for gone in GONE:
        text = re.sub(gone, "", text, count=1, flags=re.S)
    for ours, pages in INKS.items():
        text = text.replace(ours, pages)
    for number, one in enumerate(one for one in chart.series if one.dots):
        dots = [tooltip(chart, one, i) for i, y in enumerate(one.y) if y == y]
        said = [f"{', '.join(names)}: {value}" if names else value for value, *names in dots]
        text = _add_titles(text, f'<g id="dots-{number}">', said)
    label = html.escape(f"{chart.title or chart.y_label}: {chart.x_label}")
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1)


def _add_titles(text: str, begins: str, said: list[str]) -> str:
    """Return SVG text with a title in each mark of the group that starts with `begins`; `said` are titles."""
    start = text.index(begins)
    titles = (f"<title>{html.escape(one)}</title></use>" for one in said)
    text, marks = text[:start], text[start:]
    put = re.compile(r"<use ([^>]*)/>").sub(lambda mark: f"<use {mark[1]}>{next(titles)}", marks, len(said))
    return text + put
