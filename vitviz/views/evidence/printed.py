"""The evidence for print: the map over the picture; with detail the account, the answer forming, or each part
taken away in turn.
"""

from __future__ import annotations

import json

import numpy as np

from vitviz.figures.paper.plates import BLUE, ORANGE, SEVERAL, Bars, Chart, Mark, Matrix, Plate, Scale, Series
from vitviz.sentence import Sentence
from vitviz.views.evidence import printed_effects
from vitviz.views.printing import NARROW, WIDE, balanced, fixed, joined, over, prefix_name, signed

PALE = {ORANGE: "#e3b78e", BLUE: "#9cc3e2"}  # the same for an MLP


def plate(view, subject, settings, asked) -> Plate:
    """What spoke for and against the class, patch by patch, and what it all adds up to."""
    values = np.asarray(view.item(subject, "map", settings), float)
    most, direct = balanced(values), settings["method"] == "ledger"
    label = (
        Sentence("Share of the logit: against, for")
        if direct
        else Sentence("Relevance of each patch, as the method gives it")
    )
    marks = tuple(Mark(patch, "#111111") for patch in settings["patches"])
    title = joined(_target(view, subject, settings), _what(view, settings))
    main = over(subject, asked, values, Scale("balance", -most, most, label), title, marks)
    notes = tuple(_notes(view, subject, settings))
    if not asked.detail:
        return Plate(((main,),), notes, width=NARROW)
    if settings["show"] == "effects":
        walls = printed_effects.walls(view, subject, settings)
        rows = (main, printed_effects.dots(view, subject, settings)), *([walls] if walls else [])
        return Plate(rows, (*notes, *printed_effects.notes(view, subject, settings)), width=WIDE)
    if settings["show"] == "forming":
        return Plate(((main, _forming(view, subject, settings)),), notes, width=WIDE)
    return Plate(
        ((main, _account(view, subject, settings)), (_wall(view, subject, settings),)), notes, width=WIDE
    )


def _named(view, subject, index: int) -> str:
    labels = json.loads(bytes(view.item(subject, "labels", {})))
    named = len(labels) == subject.trace.logits.numel()
    return labels[index] if named else Sentence("class {number}", number=index)


def _target(view, subject, settings) -> str:
    """The class that is asked about, or one rather than another."""
    asked = settings["target"]
    classes = view.summary(subject)["top"][:1] if asked == "top" else [int(one) for one in asked.split("-")]
    names = [_named(view, subject, one) for one in classes]
    if len(names) == 1:
        return names[0]
    return Sentence("{name} rather than {other}", name=names[0], other=names[1])


def _what(view, settings) -> str:
    if settings["method"] != "ledger":
        options = next(one for one in view.controls if one.name == "method").options
        return dict(options)[settings["method"]]
    if settings["until"] and not settings["chosen"]:
        return Sentence("All heads of layers 1 to {layer}", layer=settings["until"])
    layer, *head = settings["chosen"].split(".") if settings["chosen"] else ("",)
    if head:
        return Sentence("Layer {layer}, head {head}", layer=layer, head=head[0])
    return (
        Sentence("All heads of layer {layer}", layer=layer)
        if layer
        else Sentence("All heads, by the patch they took it from")
    )


def _notes(view, subject, settings) -> list[str]:
    """The balance, and its lines; of another method what it leaves unexplained."""
    start, pooling, norm, head, logit, total = np.asarray(view.item(subject, "lines", settings), float)
    if settings["method"] != "ledger":
        explained, rest = np.asarray(view.item(subject, "explained", settings), float)
        if np.isnan(explained):
            return [Sentence("The sum of this map means nothing: its numbers only order the patches.")]
        said = Sentence("Map, prefix and constants together; {rest} is left unexplained.", rest=fixed(rest))
        return [Sentence("{sum} of {logit}", sum=fixed(explained), logit=fixed(logit)), said]
    patches, *prefix = np.asarray(view.item(subject, "sources", settings), float)
    mlps, biases = (float(np.sum(view.item(subject, name, settings))) for name in ("mlps", "biases"))
    lines = [(Sentence("patches"), patches)]
    lines += [
        (Sentence("the {name} token", name=prefix_name(name)), value)
        for name, value in zip(subject.grid.prefix_names, prefix, strict=True)
    ]
    lines += [
        (Sentence("start"), start),
        (Sentence("MLPs"), mlps),
        (Sentence("biases"), biases + norm + head),
    ]
    lines += [(Sentence("attention pooling"), pooling)] if pooling else []
    parts = [Sentence("{name} {value}", name=name, value=signed(value)) for name, value in lines]
    return [joined(Sentence("{sum} of {logit}", sum=fixed(total), logit=fixed(logit)), *parts)]


def _account(view, subject, settings) -> Chart:
    """A waterfall: the start, each layer's attention and MLP, what is left of the biases, and the logit."""
    heads = np.asarray(view.item(subject, "heads", {**settings, "patches": ()}), float).sum(axis=1)
    mlps, biases = (np.asarray(view.item(subject, name, settings), float) for name in ("mlps", "biases"))
    start, pooling, norm, head, _, total = np.asarray(view.item(subject, "lines", settings), float)
    steps = [start, *np.stack([heads + biases, mlps], axis=1).ravel(), norm + head + pooling]
    after = np.cumsum(steps)
    before = after - steps
    colours = [ORANGE if step >= 0 else BLUE for step in steps]
    colours = [PALE[one] if i and i % 2 == 0 and i < len(steps) - 1 else one for i, one in enumerate(colours)]
    place = np.arange(len(steps) + 1.0)
    bars = Bars(place, np.append(before, 0.0), np.append(after, total), (*colours, "#444444"))
    low, high = min(0.0, before.min(), after.min()), max(0.0, before.max(), after.max())
    every = max(1, len(heads) // 12)
    ticks = [
        (0.0, Sentence("start")),
        *((2.0 * i + 1.5, str(i + 1)) for i in range(0, len(heads), every)),
        (place[-1], Sentence("logit")),
    ]
    ticks = ticks if len(heads) < 8 else [*ticks[:1], *ticks[2:-2], ticks[-1]]
    named = (
        (ORANGE, Sentence("for, by attention")),
        (BLUE, Sentence("against, by attention")),
        (PALE[ORANGE], Sentence("for, by an MLP")),
        (PALE[BLUE], Sentence("against, by an MLP")),
    )
    spare = 0.04 * (high - low) or 1.0
    return Chart(
        Sentence("Layer"),
        Sentence("Share of the logit"),
        (-0.7, place[-1] + 0.7),
        (low - spare if low < 0 else 0.0, high + spare),
        Sentence("The account, from the start to the logit"),
        bars=bars,
        ticks=tuple(ticks),
        named=named,
        aspect=0.78,
    )


def _wall(view, subject, settings) -> Matrix:
    """Every head's share; of chosen patches where some are chosen."""
    heads = np.asarray(view.item(subject, "heads", settings), float)
    most = balanced(heads)
    said = (
        "What the chosen patches gave through every head, up to {most}"
        if settings["patches"]
        else "The share of every head, up to {most}"
    )
    label = Sentence("Share of the logit: against, for")
    return printed_effects.wall_of(heads, settings, most, Sentence(said, most=signed(most)), label)


def _forming(view, subject, settings) -> Chart:
    """The likeliest classes by depth, if the model ended there."""
    forming = np.asarray(view.item(subject, "forming", settings), float)
    depth = np.arange(len(forming))
    names = [_named(view, subject, one) for one in view.summary(subject)["top"]]
    series = tuple(Series(depth, forming[:, i], name, SEVERAL[i], line=True) for i, name in enumerate(names))
    title = Sentence("The answer forming: probability if the model ended there")
    return Chart(
        Sentence("after so many layers"),
        Sentence("Probability"),
        (0, len(forming) - 1),
        (0.0, 1.0),
        title,
        series,
        percent=True,
        aspect=0.78,
    )
