"""Drawing of the panels of a figure for print: maps, tiles, matrices, charts, legends and tables."""

from collections.abc import Iterator, Sequence

import cv2
import numpy as np
from jaxtyping import UInt8

from vitviz.charts.chart import Chart, number, ticks
from vitviz.charts.mpl import layout
from vitviz.charts.mpl.drawing import DASHES, PageDrawing
from vitviz.charts.mpl.layout import BAR, GAP, RULE, STRIP, TITLE, PanelLayout
from vitviz.charts.mpl.spec import Legend, Map, Matrix, Panel, Scale, TextTable, Tiles, scale_to_rgb
from vitviz.charts.overlay import enlarge_map, overlay

APART = 4.5  # mm between columns
SAMPLE, BEHIND = 4.6, 1.4  # mm: length of a line sample, and gap between sample and name


def draw_table(drawing: PageDrawing, panel: TextTable, area: PanelLayout, x: float, y: float) -> None:
    """Draw a table with its upper line at y."""
    letters, line = drawing.letters, drawing.letters.line()
    rows = [[drawing.say(text) for text in row] for row in (panel.columns, *panel.rows)]
    before = SAMPLE + BEHIND if panel.series else 0.0
    wide = [max(map(letters.width, column)) for column in zip(*rows, strict=True)]
    wide[panel.names] += before
    shrunk = min(1.0, area.width / (sum(wide) + APART * (len(wide) - 1)))
    lefts = [x + shrunk * (sum(wide[:i]) + APART * i) for i in range(len(wide))]
    end = lefts[-1] + shrunk * wide[-1]
    for at in (0.0, line + RULE, len(rows) * line + 2 * RULE):
        drawing.line([x, end], [y + at] * 2, width=0.15)
    for place, row in enumerate(rows):
        at = y + (place + 0.5) * line + (1.5 if place else 0.5) * RULE
        for i, text in enumerate(row):
            if i == panel.names:
                left = lefts[i] + shrunk * before
                drawing.text(left, at, text, letters.size * shrunk)
            else:
                drawing.text(lefts[i] + shrunk * wide[i], at, text, letters.size * shrunk, "right")
    for place, one in enumerate(panel.series):
        at, left = y + (place + 1.5) * line + 1.5 * RULE, lefts[panel.names]
        drawing.line([left, left + shrunk * SAMPLE], [at, at], one.colour, one.thick, one.dash)


def draw_chart(drawing: PageDrawing, panel: Chart, area: PanelLayout, x: float, y: float) -> None:
    """Draw a chart with its inner area at (x, y)."""
    (first, last), (low, high) = panel.x, panel.y

    def across(value):
        return x + (np.asarray(value, float) - first) / (last - first) * area.width

    def up(value):
        return y + (high - np.asarray(value, float)) / (high - low) * area.height

    _draw_axes(drawing, panel, area, x, y, across, up)
    if panel.bars is not None:
        bars = panel.bars
        for at, bottom, top, colour in zip(bars.x, bars.low, bars.high, bars.colours, strict=True):
            left, right = across(at - bars.width / 2), across(at + bars.width / 2)
            upper, lower = sorted((float(up(bottom)), float(up(top))))
            drawing.box(float(left), upper, float(right - left), max(0.15, lower - upper), fill=colour)
    for level in panel.levels:
        if not layout.line_is_visible(panel, level):  # its legend entry is `beyond`
            continue
        ends = [x, x + area.width], [float(up(level.value))] * 2
        if level.upright:
            ends = [float(across(level.value))] * 2, [y, y + area.height]
        drawing.line(*ends, level.colour, 0.35, "dashed")
    for one in panel.series:
        if one.band is not None:
            ends = [up(end).tolist() for end in one.band]
            if one.line:
                drawing.area(across(one.x).tolist(), *ends, one.colour)
            else:
                for at, *reach in zip(across(one.x).tolist(), *ends, strict=True):
                    drawing.line([at, at], reach, one.colour, 0.35)
    dotted = [one for one in panel.series if one.dots]
    for one in panel.series:
        points = across(one.x).tolist(), up(one.y).tolist()
        if one.line:
            drawing.line(*points, one.colour, one.thick, one.dash)
        if one.dots:
            drawing.dots(*points, one.colour, 1.1 if one.line else 1.4, f"dots-{dotted.index(one)}")
    draw_legend(drawing, panel, area, x, y + area.height + 2 * GAP + 2 * drawing.letters.line() + 0.6)


def _draw_axes(drawing: PageDrawing, panel: Chart, area: PanelLayout, x: float, y: float, across, up) -> None:
    """Draw a chart's axes: horizontal grid lines, ticks with labels, and both axis labels.

    (x, y) is the plot's upper left in mm; `across` and `up` convert values to mm.
    """
    letters, line, below = drawing.letters, drawing.letters.line(), y + area.height
    for value, said in layout.y_tick_labels(panel, drawing.say).items():
        at = float(up(value))
        drawing.line([x, x + area.width], [at, at], drawing.ink.faint, 0.12)
        drawing.text(x - GAP, at, said, align="right")
    drawing.line([x, x + area.width], [below, below], drawing.ink.ink, 0.2)
    for at, said in _x_ticks(drawing, panel, area):
        place = float(across(at))
        drawing.line([place, place], [below, below + 0.7], drawing.ink.ink, 0.15)
        drawing.text(place, below + GAP + line / 2, said, align="center")
    drawing.text(x + area.width / 2, below + GAP + 1.5 * line, drawing.say(panel.x_label), align="center")
    up_said = letters.short(drawing.say(panel.y_label), area.height + area.top + 6)
    drawing.text(x - area.left + line * 0.7, y + area.height / 2, up_said, align="center", upright=True)


def _x_ticks(drawing: PageDrawing, panel: Chart, area: PanelLayout) -> list[tuple[float, str]]:
    """Return the ticks of the x axis as (value, label) pairs."""
    (first, last), letters = panel.x, drawing.letters
    if panel.ticks:
        return [(at, drawing.say(said)) for at, said in panel.ticks]
    if not panel.whole:
        return [(value, number(value)) for value in ticks(first, last, 6)]
    whole = range(int(np.ceil(first)), int(np.floor(last)) + 1)
    pitch = area.width / (last - first)
    every = max(1, int(np.ceil((letters.width(str(whole[-1])) + 1.5) / pitch)))
    return [(value, str(value)) for value in whole[::every]]


def draw_legend(drawing: PageDrawing, panel: Chart | Legend, area: PanelLayout, x: float, top: float) -> None:
    """Draw the legend entries that the layout has lines for."""
    letters, result = drawing.letters, layout.legend_entries(panel, drawing.say)
    line = letters.line()
    for row, members in enumerate(area.legend):
        left, at = x, top + (row + 0.5) * line
        for i in members:
            name, colour, kind = result[i]
            if "line" in kind or kind in DASHES:
                drawing.line([left, left + 4.6], [at, at], colour, 0.35, kind if kind in DASHES else "")
            if "dots" in kind:
                drawing.dots([left + 2.3], [at], colour, 1.3)
            if kind == "square":
                drawing.box(left + 1.4, at - 0.9, 1.8, 1.8, fill=colour)
            drawing.text(left + 6.0, at, letters.short(name, area.width - 6.0))
            left += 6.0 + letters.width(name) + 2.5


FINE = 600  # minimum width in pixels of a grid of values, enlarged in squares: viewers blur small images
SMOOTH = 24  # pixels per patch of a smooth map


def draw(drawing: PageDrawing, panel: Panel, area: PanelLayout, x: float, y: float, name: str) -> None:
    """Draw a panel at (x, y) with title and colour scale; `name` prefixes the ids of its images."""
    letters = drawing.letters
    for i, line in enumerate(area.title):
        drawing.text(x, y + (i + 0.5) * letters.line(TITLE), line, TITLE)
    left, top = x + area.left, y + area.top
    plain = {Chart: draw_chart, Legend: draw_legend, TextTable: draw_table}
    pictured = {Map: _draw_map, Tiles: _draw_tiles, Matrix: _draw_matrix}
    if type(panel) in plain:
        return plain[type(panel)](drawing, panel, area, left, top)
    pictured[type(panel)](drawing, panel, area, left, top, name)
    if layout.has_colour_bar(panel):
        bar = BAR + 0.5 + 2 * letters.line()
        _scale(drawing, panel.scale, left, y + area.tall - bar, max(area.width, min(STRIP, area.free)))


def _draw_map(drawing: PageDrawing, panel: Map, area: PanelLayout, x: float, y: float, name: str) -> None:
    """Draw a map panel: the image, the values over it and frames around marked cells.

    (x, y) is the upper left corner in mm; `name` is the prefix of the drawn pictures' names.
    """
    picture = panel.picture
    if panel.lit:
        most = panel.scale.high
        picture = overlay(picture, panel.values, panel.box, "paper", smooth=panel.smooth, high=most)
    if picture is not None:
        drawing.picture(picture, x, y, area.width, area.height, photo=True, name=f"{name}-picture")
    left, top, wide, tall = x, y, area.width, area.height
    if panel.box is not None:
        across, down = area.width / panel.picture.shape[1], area.height / panel.picture.shape[0]
        left, top = x + panel.box[0] * across, y + panel.box[1] * down
        wide, tall = (panel.box[2] - panel.box[0]) * across, (panel.box[3] - panel.box[1]) * down
    if panel.values is not None and not panel.lit:
        drawing.picture(map_pixels(panel), left, top, wide, tall, name=f"{name}-values")
    if panel.marks and panel.values is not None:
        rows, cols = panel.values.shape
        w, h = wide / cols, tall / rows
        for mark in panel.marks:
            row, col = divmod(mark.cell, cols)
            drawing.frame(left + col * w, top + row * h, w, h, mark.colour)


def map_pixels(panel: Map) -> UInt8[np.ndarray, "tall wide 4"]:
    """Return the values as RGBA pixels, in squares or smooth; transparent for NaN."""
    values, known = np.asarray(panel.values, float), np.isfinite(panel.values)
    if panel.pixels is not None:
        colours = np.asarray(panel.pixels, np.uint8)
    elif panel.smooth and known.all():
        rows, cols = values.shape
        values = enlarge_map(values, (rows * SMOOTH, cols * SMOOTH))
        colours, known = scale_to_rgb(values, panel.scale), np.ones(values.shape, bool)
    else:
        colours = scale_to_rgb(np.where(known, values, panel.scale.low), panel.scale)
    alpha = np.where(known, round(255 * panel.opacity), 0).astype(np.uint8)
    pixels = np.dstack([colours, alpha])
    times = max(1, -(-FINE // pixels.shape[1]))
    return np.repeat(np.repeat(pixels, times, axis=0), times, axis=1)


def _draw_tiles(drawing: PageDrawing, panel: Tiles, area: PanelLayout, x: float, y: float, name: str) -> None:
    """Draw a panel of small pictures in rows, with captions, numbers and a frame around the chosen.

    (x, y) is the upper left corner in mm.
    """
    pitch, side, down = layout.tile_sizes(panel, area.width, drawing.letters)
    count, tall = len(panel.pictures), side * panel.aspect
    for row in range(-(-count // panel.across)):
        part = np.asarray(panel.pictures[row * panel.across : (row + 1) * panel.across])
        if part.ndim == 3:  # coloured row by row to save memory
            part = scale_to_rgb(part, panel.scale)
        pixels = _tile_row_pixels(part, panel)
        # gaps are whole pixels, so that a row's pixel width can differ from its width by a fraction
        wide = area.width if len(part) == panel.across else len(part) * pitch - (pitch - side)
        drawing.picture(pixels, x, y + row * down, wide, tall, name=f"{name}-row-{row + 1}")
    size = layout.caption_font_size(panel)
    for i, caption in enumerate(panel.captions):
        middle = x + (i % panel.across) * pitch + side / 2
        at = y + (i // panel.across) * down + tall + 0.3 + drawing.letters.line(size) / 2
        said = drawing.letters.short(drawing.say(caption), pitch * 1.02, size)
        drawing.text(middle, at, said, size, "center")
    _draw_names(drawing, panel, area, x, y)
    if panel.chosen is not None:
        at = (x + (panel.chosen % panel.across) * pitch, y + (panel.chosen // panel.across) * down)
        drawing.box(*at, side, tall, edge=drawing.ink.ink, line=0.5)


def _draw_names(drawing: PageDrawing, panel: Tiles, area: PanelLayout, x: float, y: float) -> None:
    """Draw the names of tiles' columns and rows, as many as fit, and the axis labels."""
    letters = drawing.letters
    pitch, side, down = layout.tile_sizes(panel, area.width, letters)
    line, below = letters.line(), y + area.height + 0.6
    names = [drawing.say(one) for one in panel.cols]
    every = max(1, int(np.ceil((max(map(letters.width, names), default=0) + 1.0) / pitch)))
    for i in range(0, len(names), every):
        drawing.text(x + i * pitch + side / 2, below + line / 2, names[i], align="center")
    names = [drawing.say(one) for one in panel.rows]
    every = max(1, int(np.ceil(line * 0.95 / down)))
    for i in range(0, len(names), every):
        drawing.text(x - GAP, y + i * down + side * panel.aspect / 2, names[i], align="right")
    if panel.x_label:
        at = below + (line if panel.cols else 0) + line / 2
        drawing.text(x + area.width / 2, at, drawing.say(panel.x_label), align="center")
    if panel.y_label:
        left, middle = x - area.left + line * 0.7, y + area.height / 2
        drawing.text(left, middle, drawing.say(panel.y_label), align="center", upright=True)


def _tile_row_pixels(part: np.ndarray, panel: Tiles) -> UInt8[np.ndarray, "tall wide 4"]:
    """Return a row of tiles as RGBA pixels, each enlarged in squares, with transparent gaps."""
    count, high, wide, _ = part.shape
    times = max(1, -(-2 * FINE // (panel.across * wide)))
    if times > 1:
        part = np.repeat(np.repeat(part, times, axis=1), times, axis=2)
    elif panel.across * wide > 4 * FINE:  # many tiles: no more pixels than print can resolve
        size = (max(1, 4 * FINE // panel.across), max(1, round(4 * FINE / panel.across * high / wide)))
        part = np.stack([cv2.resize(one, size, interpolation=cv2.INTER_AREA) for one in part])
    high, wide = part.shape[1:3]
    gap = round(panel.gap / (1 - panel.gap) * wide)
    row = np.zeros((high, count * (wide + gap) - gap, 4), np.uint8)
    for i, one in enumerate(part):
        left = i * (wide + gap)
        row[:, left : left + wide, :3], row[:, left : left + wide, 3] = one, 255
    return row


def _draw_matrix(
    drawing: PageDrawing, panel: Matrix, area: PanelLayout, x: float, y: float, name: str
) -> None:
    """Draw a matrix panel: coloured cells, row and column names, axis labels, chosen cell's frame.

    (x, y) is the upper left corner in mm.
    """
    (rows, cols), letters = panel.values.shape, drawing.letters
    w, h, line = area.width / cols, area.height / rows, letters.line()
    values = panel.values
    if cols > 4 * FINE:  # no more cells than print can resolve: neighbours are averaged
        size = (4 * FINE, 4 * FINE * rows // cols)
        values = cv2.resize(values.astype(np.float32), size, interpolation=cv2.INTER_AREA)
    pixels = map_pixels(Map(values=values, scale=panel.scale))
    drawing.picture(pixels, x, y, area.width, area.height, name=f"{name}-values")
    down, along = (layout.axis_names(panel, axis) for axis in (0, 1))
    for col in _tick_names(along, max(map(letters.width, along)) + 1.2, w, panel.step):
        drawing.text(x + (col + 0.5) * w, y + area.height + GAP / 2 + line / 2, along[col], align="center")
    for row in _tick_names(down, line * 0.95, h, panel.step):
        drawing.text(x - GAP, y + (row + 0.5) * h, down[row], align="right")
    at = y + area.height + GAP / 2 + 1.5 * line
    room = area.width + 2 * min(area.left, area.free - area.width + 1.0)
    said = letters.short(drawing.say(panel.x_label), room)
    drawing.text(x + area.width / 2, at, said, align="center")
    said = letters.short(drawing.say(panel.y_label), area.height + 2 * min(area.top, area.bottom))
    drawing.text(x - area.left + line * 0.7, y + area.height / 2, said, align="center", upright=True)
    if panel.chosen is not None:
        row, col = divmod(panel.chosen, cols)
        drawing.frame(x + col * w, y + row * h, w, h, "#ffffff")


def _tick_names(names: Sequence[str], area: float, pitch: float, interval: int) -> Iterator[int]:
    """Yield every `interval`-th cell (from 0) whose name fits beside the last; unnamed cells are skipped."""
    last = -np.inf
    for cell in range(0, len(names), interval):
        if names[cell] and (cell - last) * pitch >= area:
            yield (last := cell)


def _scale(drawing: PageDrawing, scale: Scale, x: float, y: float, width: float) -> None:
    """Draw a colour scale with both ends and round numbers below it, and its label."""
    letters, line = drawing.letters, drawing.letters.line()
    ramp = scale_to_rgb(np.arange(256.0)[None], Scale(scale.colours, 0, 255, ""))
    drawing.picture(np.dstack([ramp, np.full((1, 256, 1), 255, np.uint8)]), x, y, width, BAR)
    drawing.box(x, y, width, BAR, edge=drawing.ink.quiet, line=0.12)
    span = scale.high - scale.low

    def place(value):
        return x + (value - scale.low) / (span or 1.0) * width

    def tick(value):
        return number(0.0 if abs(value) < 1e-9 * span else value)

    below = y + BAR + 0.5
    ends = [(scale.low, "left"), *([(scale.high, "right")] if span > 0 else [])]
    end = x + letters.width(tick(scale.low)) + 1.5
    last = x + width - letters.width(tick(scale.high)) - 1.5
    for value in ticks(scale.low, scale.high, 4):
        half = letters.width(tick(value)) / 2
        if place(value) - half > end and place(value) + half < last:
            ends.append((value, "center"))
            end = place(value) + half + 1.5
    for value, align in ends:
        drawing.line([place(value)] * 2, [y + BAR, y + BAR + 0.6], drawing.ink.quiet, 0.15)
        drawing.text(place(value), below + line / 2, tick(value), align=align)
    label = drawing.say(scale.label)
    label = label if len(letters.folded(label, width)) == 1 else letters.short(label, width)
    drawing.text(x + width / 2, below + 1.5 * line, label, align="center")
