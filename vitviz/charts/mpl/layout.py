"""Layout of a panel at a given width: margins for title, axes and colour scale, and the inner size."""

from collections.abc import Callable
from dataclasses import dataclass

from vitviz.charts.chart import Chart, ReferenceLine, number, ticks
from vitviz.charts.mpl.drawing import FontMetrics
from vitviz.charts.mpl.spec import Legend, Map, Matrix, Panel, TextTable, Tiles

TITLE = 7.6  # points
GAP = 1.2  # mm between an axis and its numbers, and other small gaps
BAR = 1.9  # mm, height of a colour scale
RULE = 0.5  # mm around the lines of a table
CELL = 9.0  # mm, largest cell of a matrix
STRIP = 46.0  # mm, length of a colour scale where space permits, so that its numbers fit


@dataclass(frozen=True)
class PanelLayout:
    """Margins and inner size of a panel, mm; `title` and `legend` are wrapped into lines."""

    left: float
    right: float
    top: float
    bottom: float
    width: float
    height: float
    free: float  # mm available between the margins; a matrix of few cells does not fill it
    title: tuple[str, ...] = ()
    legend: tuple[tuple[int, ...], ...] = ()

    @property
    def tall(self) -> float:
        """Return the height including the margins, mm."""
        return self.top + self.height + self.bottom


def layout_of(panel: Panel, wide: float, letters: FontMetrics, say: Callable[[str], str]) -> PanelLayout:
    """Return the layout of a panel that is `wide` mm including its margins."""
    line = letters.line()
    title = tuple(letters.folded(say(panel.title), wide, TITLE)) if panel.title else ()
    top = len(title) * letters.line(TITLE) + (GAP if title else 0)
    left, right, bottom, legend = 0.0, 0.0, 0.0, ()
    if isinstance(panel, Chart):
        left = line + GAP + max(letters.width(one) for one in y_tick_labels(panel, say).values()) + GAP
        right, top = 1.6, top + 1.2
        legend = tuple(_wrap_entries(legend_entries(panel, say), wide - left, letters))
        bottom = 2 * line + 2 * GAP + len(legend) * line + (0.6 if legend else 0)
    elif isinstance(panel, Legend):
        legend = tuple(_wrap_entries(legend_entries(panel, say), wide, letters))
        bottom = len(legend) * line
    elif isinstance(panel, TextTable):
        bottom = (1 + len(panel.rows)) * line + 2 * RULE
    elif isinstance(panel, Matrix):
        left = line + GAP + max(map(letters.width, axis_names(panel, 0))) + GAP
        right = 0.3
        bottom = 2 * line + GAP
    elif isinstance(panel, Tiles):
        widest = max((letters.width(say(one)) for one in panel.rows), default=0.0)
        left = (widest + GAP if panel.rows else 0.0) + (line + 0.5 if panel.y_label else 0.0)
        bottom = (line + 0.6 if panel.cols else 0.0) + (line + 0.4 if panel.x_label else 0.0)
    if has_colour_bar(panel):
        bottom += GAP + BAR + 0.5 + 2 * line
    free = width = wide - left - right
    if isinstance(panel, Matrix):
        width = min(free, CELL * panel.values.shape[1])
    height = width * panel_aspect(panel, width, letters)
    return PanelLayout(left, right, top, bottom, width, height, free, title, legend)


def has_colour_bar(panel: Panel) -> bool:
    """Return True if the panel has a colour scale below it."""
    return getattr(panel, "scale", None) is not None and not (isinstance(panel, Tiles) and panel.unscaled)


def axis_names(panel: Matrix, axis: int) -> tuple[str, ...]:
    """Return the names of the rows (axis 0) or columns (axis 1) of a matrix; numbers from 1 without names."""
    return (panel.rows, panel.cols)[axis] or tuple(map(str, range(1, panel.values.shape[axis] + 1)))


def panel_aspect(panel: Panel, width: float, letters: FontMetrics) -> float:
    """Return height / width of the area between a panel's margins; `width` is that area's, in mm."""
    if isinstance(panel, Chart):
        return panel.aspect
    if isinstance(panel, Legend | TextTable):
        return 0.0  # their lines count as margin, which all frames of a video share
    if isinstance(panel, Map):
        if panel.aspect is not None:
            return panel.aspect
        shown = panel.picture if panel.picture is not None else panel.values
        return shown.shape[0] / shown.shape[1]
    if isinstance(panel, Matrix):
        rows, cols = panel.values.shape
        return rows / cols
    pitch, side, down = tile_sizes(panel, width, letters)
    rows = -(-len(panel.pictures) // panel.across)
    return (rows * down - (pitch - side)) / width


def tile_sizes(panel: Tiles, width: float, letters: FontMetrics) -> tuple[float, float, float]:
    """Return the pitch of tiles, the width of a tile and the pitch of rows with captions, in mm."""
    pitch = width / (panel.across - panel.gap)
    side = pitch * (1 - panel.gap)
    caption = letters.line(caption_font_size(panel)) + 0.3 if panel.captions else 0.0
    return pitch, side, side * panel.aspect + (pitch - side) + caption


def caption_font_size(panel: Tiles) -> float:
    """Return the font size of captions in points; smaller for more than 10 tiles per row."""
    return 6.2 if panel.across <= 10 else 5.0


def y_tick_labels(panel: Chart, say: Callable[[str], str]) -> dict[float, str]:
    """Return the y axis's tick labels by value, translated."""
    if panel.y_ticks:
        return {at: say(name) for at, name in panel.y_ticks}
    if panel.percent:
        return {value: f"{number(100 * value)} %" for value in ticks(*panel.y, 5)}
    return {value: number(value) for value in ticks(*panel.y, 5)}


def legend_entries(panel: Chart | Legend, say: Callable[[str], str]) -> list[tuple[str, str, str]]:
    """Return (name, colour, kind) of the legend; of more than 12 series, every fourth and both ends."""
    if isinstance(panel, Legend):
        return [(say(one.name), one.colour, one.dash or "line") for one in panel.series]
    if panel.keyed:
        return []
    named = [one for one in panel.series if one.name]
    many = len(named) > 12
    shown = [one for i, one in enumerate(named) if not many or i in (0, len(named) - 1) or (i + 1) % 4 == 0]
    result = [(say(one.name), one.colour, "line" * one.line + "dots" * one.dots) for one in shown]
    result += [(say(name), colour, "square") for colour, name in panel.named]
    for one in panel.levels:  # a level outside the axis has another name and no line
        name = one.name if line_is_visible(panel, one) else one.beyond or one.name
        result += [(say(name), one.colour, "dashed")] if name else []
    return result


def line_is_visible(panel: Chart, level: ReferenceLine) -> bool:
    """Return True if a reference line lies within the axes of the chart."""
    low, high = panel.x if level.upright else panel.y
    return bool(low <= level.value <= high)


def _wrap_entries(
    entries: list[tuple[str, str, str]], width: float, letters: FontMetrics
) -> list[tuple[int, ...]]:
    """Return the legend entries' indices, by line; a line has at most `width` mm."""
    lines: list[tuple[int, ...]] = []
    used = width
    for i, (name, _, _) in enumerate(entries):
        wide = 6.0 + letters.width(name) + 2.5
        if used + wide > width and (not lines or lines[-1]):
            lines.append(())
            used = 0.0
        lines[-1] += (i,)
        used += wide
    return lines
