"""Representations figure for print: similarity, components or norms over the image, or the heads."""

from dataclasses import replace

import numpy as np

from vitviz.charts.chart import BLUE, ORANGE, Chart, ReferenceLine, finite_range, number, symmetric_limit
from vitviz.charts.mpl.spec import NARROW, WIDE, FigureSpec, Map, PatchFrame, Scale, Tiles, scale_to_rgb
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.base import item_values
from vitviz.views.printing import (
    PINS,
    difference_scale,
    grid_aspect,
    join_texts,
    map_over_image,
    patch_name,
    prefix_name,
)
from vitviz.views.tokens import matrix_panels

LIMIT = "Median {median}, MAD {mad}; above the limit of {limit}: {count} of {all} patches."


def spec(view, subject, settings, style) -> FigureSpec:
    """Return the figure of the selected panel: similarity, components, norms or heads."""
    kinds = {"similarity": _similarity, "components": _components, "norms": _norms, "heads": _heads}
    return kinds[settings["show"]](view, subject, settings, style)


def _similarity(view, subject, settings, style) -> FigureSpec:
    """Return the map of each patch's cosine with the selected token, and maps of the pins.

    With detail also the selected token's map at every depth.
    """
    token, grid = settings["token"], subject.grid
    scale = _cosines(view, subject, settings)
    marks = _outliers(view, subject, settings) if settings["mark"] != "off" else ()
    frames = (PatchFrame(token - grid.prefix),) if token >= grid.prefix else ()
    similar = LocalizedText("Similarity to {token}", token=_token_name(grid, token))
    title = join_texts(similar, _caption(settings))
    values = item_values(view, subject, "similarity", settings)
    main = map_over_image(subject, style, values, scale, title, (*marks, *frames), settings["opacity"])
    rows = [(main,)]
    if style.detail:
        depths = np.asarray(item_values(view, subject, "by_depth", settings), float)
        text = LocalizedText("{token} at every depth", token=_token_name(grid, token))
        rows = [(main, _strip(depths, text, grid, settings, scale))]
    if settings["pins"]:
        pinned = item_values(view, subject, "pinned", settings)[:, grid.prefix :]
        pinned = pinned.reshape(-1, grid.rows, grid.cols)
        pins = ()
        for pin, line, colour in zip(settings["pins"], pinned, PINS * 4, strict=False):
            mark = (PatchFrame(pin - grid.prefix, colour),) if pin >= grid.prefix else ()
            pins += (map_over_image(subject, style, line, scale, _token_name(grid, pin), mark),)
        rows.append(pins)
    return FigureSpec(tuple(rows), width=WIDE if style.detail or len(settings["pins"]) > 2 else NARROW)


def _cosines(view, subject, settings) -> Scale:
    """Return the colour scale of the cosines, as on the page.

    Without the mean patch, it runs from -1 to 1. Otherwise it starts at the smallest cosine of any two
    tokens.
    """
    values = item_values(view, subject, "cosines" if view.summary(subject)["whole"] else "line", settings)
    if settings["difference"] == "on":
        return difference_scale(settings, values, Scale("", 0.0, 1.0, LocalizedText("Cosine")))
    if settings["mean"] == "out":
        return Scale("balance", -1.0, 1.0, LocalizedText("Cosine without the mean patch"))
    low, _ = finite_range(values)
    return Scale("viridis", min(low, 0.99), 1.0, LocalizedText("Cosine"))


def _components(view, subject, settings, style) -> FigureSpec:
    """Return the map of the patches coloured by their principal components at a depth.

    With detail also the colours at every depth and the scores of each component.
    """
    grid, depth = subject.grid, settings["depth"]
    tints = view.item(subject, "tints", settings)
    scores = np.asarray(view.item(subject, "components", settings), float)
    shares = [f"{100 * share:.1f} %" for share in view.item(subject, "shares", settings)[depth]]
    marks = _outliers(view, subject, settings) if settings["mark"] != "off" else ()
    title = join_texts(LocalizedText("Principal components"), _caption(settings))
    main = map_over_image(
        subject, style, scores[..., 0], None, title, marks, settings["opacity"], tints[depth]
    )
    turned = LocalizedText("Red, green, blue: components 1, 2, 3.")
    if settings["tint"] == "steady":
        turned = LocalizedText("Colours: all three components, rotated to match the previous depth.")
    details = dict(zip(("first", "second", "third"), shares, strict=True))
    notes = (LocalizedText("Explained variance: {first}, {second}, {third}.", **details), turned)
    bases = {
        "own": LocalizedText("Every depth, each in its own basis"),
        "all": LocalizedText("Every depth, one basis for all"),
    }
    text = bases.get(settings["basis"], LocalizedText("Every depth, one common basis each"))
    if subject.fitted is not None:
        text = LocalizedText("Every depth, one basis each for the whole video")
        notes += (text,)
    if not style.detail:
        return FigureSpec(((main,),), notes, width=NARROW)
    singles = ()
    for i, share in enumerate(shares):
        limit = symmetric_limit(scores[..., i])
        name = LocalizedText("Component {number}: {share}", number=i + 1, share=share)
        colour_scale = Scale("balance", -limit, limit, LocalizedText("Score"))
        singles += (Map(name, None, scores[..., i], None, colour_scale, aspect=grid_aspect(grid)),)
    return FigureSpec(((main, _strip(tints, text, grid, settings)), singles), notes, width=WIDE)


def _norms(view, subject, settings, style) -> FigureSpec:
    """Return the map of the patches' norms at a depth, those above the limit framed.

    With detail also the histogram, the map at every depth and the attention sinks.
    """
    grid, depth = subject.grid, settings["depth"]
    norms = np.asarray(view.item(subject, "norms", settings), float)
    median, mad = np.asarray(view.item(subject, "usual", settings), float)[depth]
    limit, marks = median + settings["k"] * mad, _outliers(view, subject, settings)
    patches = norms[depth, grid.prefix :]
    low, high = finite_range(patches)
    scale = Scale("magma", min(low, median), high, LocalizedText("Norm of the token"))
    title = join_texts(LocalizedText("Norms"), _caption(settings))
    values = patches.reshape(grid.rows, grid.cols)
    main = map_over_image(subject, style, values, scale, title, marks, settings["opacity"])
    details = {"median": number(median), "mad": number(mad), "limit": number(limit)}
    details |= {"count": len(marks), "all": int(np.isfinite(patches).sum())}
    notes = [LocalizedText(LIMIT, **details)]
    if 0 < grid.prefix <= 4:
        details = [(_token_name(grid, i), number(norms[depth, i])) for i in range(grid.prefix)]
        texts = (LocalizedText("{name}: {value}", name=name, value=value) for name, value in details)
        notes.append(join_texts(*texts))
    if not style.detail:
        return FigureSpec(((main,),), tuple(notes), width=NARROW)
    laid = norms[:, grid.prefix :].reshape(-1, grid.rows, grid.cols)
    tiles = np.stack([scale_to_rgb(panel, Scale("magma", *finite_range(panel), "")) for panel in laid])
    strip = _strip(tiles, LocalizedText("Every depth, each on its own scale"), grid, settings)
    chart = _mark_limit(view.chart(subject, settings), limit)
    rows = (main, chart), (strip, *matrix_panels(view, subject, settings))
    return FigureSpec(rows, tuple(notes), width=WIDE)


def _heads(view, subject, settings, style) -> FigureSpec:
    """Return the spread of each head's attention; with detail also the similarity of a layer's heads."""
    panels = matrix_panels(view, subject, settings)
    return FigureSpec((panels,), width=WIDE) if style.detail else FigureSpec((panels[:1],), width=NARROW)


def _mark_limit(chart: Chart, limit: float) -> Chart:
    """Return the histogram of norms with a line at `limit` and the bars above it in orange."""
    args = {"value": number(limit)}
    name = LocalizedText("limit: {value}", **args)
    level = ReferenceLine(limit, name, True, beyond=LocalizedText("limit: {value}, beyond this axis", **args))
    colours = tuple(ORANGE if at > limit else BLUE for at in chart.bars.x)
    bars = replace(chart.bars, colours=colours)
    return replace(chart, bars=bars, levels=(level, *chart.levels))


def _strip(pictures: np.ndarray, title: str, grid, settings, scale: Scale | None = None) -> Tiles:
    """Return a small map per depth with the selected one framed; `scale` is that of the large map."""
    names = tuple(str(depth) for depth in range(len(pictures)))
    across = int(np.ceil(np.sqrt(len(pictures))))
    options = {"gap": 0.1, "aspect": grid_aspect(grid), "scale": scale, "unscaled": True}
    return Tiles(pictures, across, title, names, chosen=settings["depth"], **options)


def _outliers(view, subject, settings) -> tuple[PatchFrame, ...]:
    """Return frames around the patches whose norm exceeds the limit."""
    depth = settings["depth"]
    norms = np.asarray(view.item(subject, "norms", settings), float)[depth, subject.grid.prefix :]
    median, mad = np.asarray(view.item(subject, "usual", settings), float)[depth]
    above = np.flatnonzero(norms > median + settings["k"] * mad)
    return tuple(PatchFrame(int(cell), ORANGE) for cell in above)


def _caption(settings) -> str:
    """Return the caption with the depth, and whether tokens are raw or through the final norm."""
    final = settings["norm"] == "final" and settings["show"] != "norms"
    text = "depth {depth}, through the final norm" if final else "depth {depth}, raw"
    return LocalizedText(text, depth=settings["depth"])


def _token_name(grid, token: int) -> str:
    """Return the displayed name of a token (position from 0, prefix first)."""
    return patch_name(token - grid.prefix) if token >= grid.prefix else prefix_name(grid.prefix_names[token])
