"""Rollout for print, over the upload at its own resolution; with detail every layer's own attention."""

import numpy as np

from vitviz.figures.chart import ends
from vitviz.figures.overlay import faded
from vitviz.figures.paper.plates import NARROW, WIDE, Map, Mark, Plate, Scale, Tiles, tinted
from vitviz.record.sentence import Sentence
from vitviz.views.printing import fixed, joined, prefix_name, scaled, shape_of, token_name


def plate(view, subject, settings, asked) -> Plate:
    """The map in view: the rollout, or one layer alone."""
    layers = np.asarray(view.found(subject, "layers", settings), float)
    alone = settings["alone"]
    whole = np.asarray(view.found(subject, "map", settings), float)
    values = layers[alone - 1] if alone else whole
    what = Sentence("Layer {layer} alone", layer=alone) if alone else Sentence("Rollout")
    title = joined(what, _query(view, subject, settings["query"]))
    main = _laid(subject, settings, asked, values, title)
    if not asked.detail:
        return Plate(((main,),), (_share(subject, settings, values),), width=NARROW)
    colours = "grey" if settings["overlay"] == "paper" else settings["colormap"]
    scales = [scaled(settings, one, Scale(colours, 0.0, float(one.max()) or 1.0, "")) for one in layers]
    each = np.stack([tinted(*one) for one in zip(layers, scales, strict=True)])
    across = int(np.ceil(np.sqrt(1.6 * len(layers))))
    names = tuple(str(layer + 1) for layer in range(len(layers)))
    said = Sentence("Each layer alone: mean over its heads, every map scaled by itself")
    strip = Tiles(each, across, said, names, gap=0.08, aspect=shape_of(subject.grid))
    return Plate(((main, strip),), (_share(subject, settings, values),), width=WIDE)


def _laid(subject, settings, asked, values: np.ndarray, title: str) -> Map:
    """The map over the upload, the unseen part faded; or the paper's form, map / max as brightness."""
    view = subject.trace.view
    picture = view.picture if asked.upload is None else asked.upload
    box = None if asked.upload is None else view.box
    low, high = ends(values)
    differs, smooth = settings["difference"] == "on", settings["smooth"] == "on"
    paper = settings["overlay"] == "paper" and not differs
    marks = (Mark(settings["query"]),) if isinstance(settings["query"], int) else ()
    aspect = shape_of(subject.grid) if box is None else None
    if paper:
        scale = Scale("grey", 0.0, high or 1.0, Sentence("Brightness: share of attention, per patch"))
        return Map(title, picture, values, None, scale, box, smooth=smooth, aspect=aspect, lit=True)
    low = low if settings["scale"] == "data" and low < high else 0.0
    scale = Scale(settings["colormap"], low, high or 1.0, Sentence("Share of attention, per patch"))
    scale = scaled(settings, values, scale)
    return Map(
        title, faded(picture, box), values, None, scale, box, settings["opacity"], smooth, marks, aspect
    )


def _query(view, subject, query: str | int) -> str:
    """Whose collected attention it is."""
    if isinstance(query, int):
        return token_name(subject.grid, subject.grid.prefix + query)
    if query == "auto":
        return view.summary(subject)["auto"]
    if query == "mean":
        return Sentence("all tokens, on average")
    return Sentence("the {name} token", name=prefix_name(query))


def _share(subject, settings, values: np.ndarray) -> str:
    """How much of it the patches hold."""
    share, names = float(np.nansum(values)), subject.grid.prefix_names
    if settings["difference"] == "on":
        return Sentence("The change of all patches together: {share}.", share=fixed(share))
    if not names:
        return Sentence("The patches hold all of it: {share}.", share=f"{share:.3g}")
    tokens = Sentence("the prefix tokens ({names})", names=", ".join(names))
    tokens = Sentence("the {name} token", name=names[0]) if len(names) == 1 else tokens
    return Sentence(
        "The patches hold {share} of it; the rest is on {tokens}.", share=f"{share:.2f}", tokens=tokens
    )
