"""Each part taken away in turn, for print: what the answer loses without it beside its own share, as dots and
as walls of all heads on one scale.
"""

from __future__ import annotations

import math

import numpy as np

from vitviz.figures.paper.plates import BLUE, Chart, Matrix, Scale, Series
from vitviz.sentence import Sentence
from vitviz.views.evidence import made
from vitviz.views.printing import balanced, signed

GREY = "#777777"  # of the diagonal


def wall_of(values: np.ndarray, settings, most: float, title: str, label: str) -> Matrix:
    """Numbers by layer and head as cells: layers across, heads down, even about zero."""
    chosen = None
    if "." in settings["chosen"]:
        layer, head = (int(one) for one in settings["chosen"].split("."))
        chosen = (head - 1) * len(values) + layer - 1
    scale = Scale("balance", -most, most, label)
    return Matrix(values.T, scale, Sentence("layer"), Sentence("head"), title, chosen)


def dots(view, subject, settings) -> Chart:
    """A dot a head, or an MLP: across its own share, up what the answer loses without it."""
    shares, effects = _parts(view, subject, settings)
    known = np.isfinite(shares) & np.isfinite(effects)
    x, y = shares[known], effects[known]
    low, high = (pick([0.0, *x, *y]) for pick in (min, max))
    spare = 0.06 * (high - low) or 1.0
    ends = np.array([low - spare, high + spare])
    alike = Series(ends, ends, Sentence("lost as much as its own share"), GREY, line=True)
    named = Sentence("one head") if settings["part"] == "heads" else Sentence("one MLP")
    return Chart(
        Sentence("its own share, in logits"),
        Sentence("lost without it, in logits"),
        tuple(ends),
        tuple(ends),
        Sentence("Its own share, and what the answer loses without it"),
        (alike, Series(x, y, named, BLUE, dots=True)),
        whole=False,
        aspect=0.78,
    )


def walls(view, subject, settings) -> tuple[Matrix, ...]:
    """Losses and shares of all heads on one scale; none where MLPs are in view."""
    if settings["part"] != "heads":
        return ()
    shares, effects = _parts(view, subject, settings)
    most = balanced(np.stack([shares, effects]))
    lost = Sentence("What the answer loses without each head, up to {most}", most=signed(most))
    own = Sentence("The share of every head, up to {most}", most=signed(most))
    return (
        wall_of(effects, settings, most, lost, Sentence("Loss of the logit: against, for")),
        wall_of(shares, settings, most, own, Sentence("Share of the logit: against, for")),
    )


def notes(view, subject, settings) -> list[str]:
    """The correlation, and where both disagree most."""
    shares, effects = _parts(view, subject, settings)
    found = made.agreement(subject, settings)[0 if settings["part"] == "heads" else 1]
    alike = (
        Sentence("There is no correlation: there are too few, or all are alike.")
        if math.isnan(found)
        else Sentence("Correlation of share and loss: {value}", value=f"{found:.2f}".replace("-", "−"))
    )
    apart = np.abs(effects - shares)
    if not np.isfinite(apart).any():
        return [alike]
    layer, *head = np.unravel_index(int(np.nanargmax(apart)), apart.shape)
    name = (
        Sentence("Layer {layer}, head {head}", layer=layer + 1, head=head[0] + 1)
        if head
        else Sentence("Layer {layer}, MLP", layer=layer + 1)
    )
    at = (layer, *head)
    worst = Sentence(
        "{name} is furthest from the line: {share} itself, {effect} lost without it. Later layers read"
        " what it wrote, and react when it is gone; and the mean over other pictures that takes its place"
        " still says something.",
        name=name,
        share=signed(shares[at]),
        effect=signed(effects[at]),
    )
    return [alike, worst]


def _parts(view, subject, settings) -> tuple[np.ndarray, np.ndarray]:
    """Shares and losses: of heads by layer and head, of MLPs by layer; NaN where there is none."""
    heads = settings["part"] == "heads"
    effects = made.all_effects(subject, settings)
    shares = np.asarray(view.item(subject, "direct" if heads else "mlps", settings), float)
    return shares, (effects.heads if heads else effects.mlps).double().numpy()
