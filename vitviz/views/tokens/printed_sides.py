"""Beside the map of the tokens' figure for print: the histogram of norms, and what heads share."""

from __future__ import annotations

import numpy as np

from vitviz.figures.paper.plates import BLUE, ORANGE, Bars, Chart, Level, Matrix, Plate, Scale
from vitviz.sentence import Sentence
from vitviz.views.printing import NARROW, WIDE

BINS = 36


def histogram(patches: np.ndarray, limit: float) -> Chart:
    """How many patches have which norm, those above the limit in orange."""
    known = patches[np.isfinite(patches)]
    low, high = float(known.min()), float(known.max())
    spare = 0.03 * (high - low) or 1.0
    counts, edges = np.histogram(known, BINS, (max(0.0, low - spare), high + spare))
    middle = (edges[1:] + edges[:-1]) / 2
    colours = tuple(ORANGE if at > limit else BLUE for at in middle)
    bars = Bars(middle, np.zeros(BINS), counts.astype(float), colours, 0.9 * float(edges[1] - edges[0]))
    name = Sentence("limit: {value}", value=number(limit))
    beyond = Sentence("limit: {value}, beyond this axis", value=number(limit))
    level = Level(limit, name, upright=True, beyond=beyond)
    return Chart(
        Sentence("Norm of the token"),
        Sentence("Patches"),
        (float(edges[0]), float(edges[-1])),
        (0.0, 1.08 * float(counts.max())),
        Sentence("Norms of the patches"),
        bars=bars,
        levels=(level,),
        whole=False,
        aspect=0.75,
    )


def heads(view, subject, settings, asked) -> Plate:
    """How much each head spreads over; with detail how alike the heads of a block are."""
    looked, tokens = settings["measure"] == "looked", subject.grid.tokens
    nats = np.asarray(view.item(subject, "entropy", settings), float).T
    if looked:
        text, low, high = Sentence("Tokens that each head looks at"), 1.0, float(tokens)
        label = Sentence("Tokens looked at, of {count}", count=tokens)
    else:
        text, low, high = Sentence("Entropy of each head’s attention"), 0.0, float(np.log(tokens))
        label = Sentence("Entropy in nats; even attention has {most}", most=number(high))
    values = np.exp(nats) if looked else nats
    main = Matrix(values, Scale("viridis", low, high, label), Sentence("block"), Sentence("head"), text)
    if not asked.detail:
        return Plate(((main,),), width=NARROW)
    block, cosine = max(settings["depth"], 1), settings["alike"] == "cosine"
    alike = np.asarray(view.item(subject, settings["alike"], settings), float)
    if cosine:
        title = Sentence("Likeness of the heads of block {block}: cosine of their attention", block=block)
        scale = Scale("viridis", 0.0, 1.0, Sentence("Cosine"))
    else:
        title = Sentence("Difference of the heads of block {block}: Jensen-Shannon divergence", block=block)
        scale = Scale(
            "magma", 0.0, float(np.log(2)), Sentence("Nats, at most {most}", most=number(np.log(2)))
        )
    return Plate(((main, Matrix(alike, scale, Sentence("head"), Sentence("head"), title)),), width=WIDE)


def number(value: float) -> str:
    """Three digits of it, with a minus sign that is one."""
    return f"{value:.3g}".replace("-", "−")
