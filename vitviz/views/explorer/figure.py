"""Attention figure for print: a token's attention in one head, and with detail in all heads and layers."""

import numpy as np

from vitviz.charts.mpl.spec import NARROW, WIDE, FigureSpec, Map, PatchFrame, Scale, Tiles
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.explorer import score
from vitviz.views.printing import (
    PINS,
    difference_scale,
    fixed,
    grid_aspect,
    join_texts,
    map_over_image,
    prefix_name,
    token_name,
)


def spec(view, subject, settings, style) -> FigureSpec:
    """Return the current map, the maps of pinned tokens below, and with detail the grid of all heads."""
    tokens = [settings["token"], *settings["pins"]]
    lines = _lines(view, subject, settings)
    main = _map(view, subject, settings, style, tokens[0], lines[0], "#ffffff")
    if settings["beside"] == "score":
        return score.spec(view, subject, settings, main)
    rows, weights = [(main,)], [(1.0,)]
    if style.detail:
        rows, weights = [(main, _wall(view, subject, settings))], [(1.0, 1.15)]
    if len(tokens) > 1:
        pinned = zip(tokens[1:], lines[1:], PINS * 4, strict=False)
        rows.append(tuple(_map(view, subject, settings, style, *pin) for pin in pinned))
        weights.append((1.0,) * len(rows[-1]))
    notes = tuple(_attention_caption(subject, settings, lines[0])) if len(tokens) == 1 else ()
    wide = style.detail or len(tokens) > 2
    return FigureSpec(tuple(rows), notes, tuple(weights), WIDE if wide else NARROW)


def _lines(view, subject, settings) -> np.ndarray:
    """Return weights (query, token) of a head, the mean of heads, or the rollout (NaN for prefix tokens)."""
    numbers = view.numbers(subject, settings)
    if settings["show"] == "rollout":
        result = numbers["rollout"].reshape(len(numbers["rollout"]), -1)
        return np.pad(result, [(0, 0), (subject.grid.prefix, 0)], constant_values=np.nan)
    heads = np.asarray(numbers["attention"], float)  # query head token
    return heads.mean(axis=1) if settings["show"] == "mean" else heads[:, settings["head"] - 1]


def _map(view, subject, settings, style, token: int, line: np.ndarray, colour: str) -> Map:
    """Return a map of one token's attention over the image, the token's patch framed.

    `line` has a weight per token, prefix first; `colour` is the frame's.
    """
    grid = subject.grid
    values = line[grid.prefix :].reshape(grid.rows, grid.cols)
    rollout = settings["show"] == "rollout"
    shared = settings["scale"] == "shared" and not rollout
    limit = float(view.item(subject, "wallmax", settings).max() if shared else np.nanmax(values, initial=0.0))
    label = LocalizedText("Share of attention over all layers" if rollout else "Attention weight")
    reach = np.array([-limit, limit]) if shared else values
    scale = difference_scale(settings, reach, Scale("viridis", 0.0, limit or 1.0, label))
    marks = (PatchFrame(token - grid.prefix, colour),) if token >= grid.prefix else ()
    asks = settings["direction"] == "column" and not rollout
    name = token_name(grid, token)
    map_title = LocalizedText("attention to: {token}" if asks else "attention from: {token}", token=name)
    title = join_texts(_caption(settings), map_title)
    return map_over_image(subject, style, values, scale, title, marks)


def _caption(settings) -> str:
    """Return the caption of a map: layer and head, layer and mean of heads, or rollout."""
    if settings["show"] == "rollout":
        return LocalizedText("Rollout")
    if settings["show"] == "mean":
        return LocalizedText("Layer {layer}, mean of heads", layer=settings["layer"])
    return LocalizedText("Layer {layer}, head {head}", layer=settings["layer"], head=settings["head"])


def _attention_caption(subject, settings, line: np.ndarray) -> list[str]:
    """Return notes on one token's weights `line`: their sum on patches, and each prefix token's."""
    grid = subject.grid
    share = float(np.nansum(line[grid.prefix :]))  # dropped patches are NaN
    if settings["difference"] == "on":
        return [LocalizedText("Change summed over all patches: {share}.", share=fixed(share))]
    if settings["show"] == "rollout" or settings["direction"] == "row":
        text = LocalizedText("On patches: {share}.", share=fixed(share))
    else:
        text = LocalizedText("Sum of the weights from all patches: {share}.", share=f"{share:.3g}")
    if settings["show"] == "rollout" or not 0 < grid.prefix <= 2:
        return [text]
    details = [
        LocalizedText("{name}: {value}", name=prefix_name(name), value=fixed(float(line[i]), 4))
        for i, name in enumerate(grid.prefix_names)
    ]
    return [text, join_texts(*details)]


def _wall(view, subject, settings) -> Tiles:
    """Return the grid of layers and heads: every map of the token, with the mean of the heads below."""
    grid = subject.grid
    wall = np.asarray(view.item(subject, "wall", settings), float) / 255.0
    wall = 2 * wall - 1 if settings["difference"] == "on" else wall
    maxima = np.asarray(view.item(subject, "wallmax", settings), float)
    layers, heads = maxima.shape
    shared = settings["scale"] == "shared"
    mean = (wall * maxima[..., None]).mean(axis=1)
    mean /= (maxima.max() or 1.0) if shared else np.maximum(np.abs(mean).max(axis=-1, keepdims=True), 1e-30)
    values = wall * maxima[..., None] / (maxima.max() or 1.0) if shared else wall
    order, names = np.tile(np.arange(heads), (layers, 1)), [str(i + 1) for i in range(heads)]
    if settings["order"] == "distance":
        order = np.argsort(view.item(subject, "distances", settings), axis=1, kind="stable")
        names = [LocalizedText("near"), *[""] * (heads - 2), *[LocalizedText("far")] * (heads > 1)]
    values = np.concatenate([np.take_along_axis(values, order[..., None], axis=1), mean[:, None]], axis=1)
    high = float(maxima.max()) if shared else 1.0
    note = LocalizedText("Weight relative to each map’s maximum")
    label = LocalizedText("Attention weight, one scale for all") if shared else note
    scale = difference_scale(settings, np.array([-high, high]), Scale("viridis", 0.0, high, label))
    tiles = (high * values.swapaxes(0, 1)).reshape(-1, grid.rows, grid.cols)
    chosen, layer = None, settings["layer"] - 1
    if settings["show"] != "rollout":
        place = list(order[layer]).index(settings["head"] - 1) if settings["show"] == "head" else heads
        chosen = int(place) * layers + layer
    title = join_texts(LocalizedText("All layers and heads"), token_name(grid, settings["token"]))
    cols = tuple(str(i + 1) for i in range(layers))
    labels = cols, (*names, LocalizedText("mean")), LocalizedText("layer"), LocalizedText("head")
    return Tiles(tiles, layers, title, (), *labels, aspect=grid_aspect(grid), scale=scale, chosen=chosen)
