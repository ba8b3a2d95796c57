"""Each part taken away in turn: what the answer loses without it beside its own share, as dots and, for
print, as walls of all heads on one scale.
"""

import math

import numpy as np

from vitviz.figures.chart import BLUE, GREY, ORANGE, Chart, Series, balanced, roomy
from vitviz.figures.paper.plates import Matrix, Scale
from vitviz.record.sentence import Sentence
from vitviz.views.evidence import made
from vitviz.views.printing import either, fixed, joined, signed, writer_name

NO_CORRELATION = "There is no correlation: there are too few, or all are alike."
MARKED = 3  # dots whose distance from the diagonal is drawn


def sum_name(settings) -> Sentence:
    """What the account adds up to: one class's logit, or by how much one's lies above another's."""
    if settings.get("difference") == "on":
        pair = "change of the difference of logits"
        return Sentence(pair) if "-" in settings["target"] else Sentence("change of the logit")
    return Sentence("difference of logits") if "-" in settings["target"] else Sentence("logit")


def share(settings) -> Sentence:
    """The label of a scale of shares of it."""
    return Sentence("Share of the {sum}: against, for", sum=sum_name(settings))


def wall_of(values: np.ndarray, settings, most: float, title: str, label: str) -> Matrix:
    """Numbers by layer and head as cells: layers across, heads down, even about zero."""
    chosen = None
    if "." in settings["chosen"]:
        layer, head = (int(one) for one in settings["chosen"].split("."))
        chosen = (head - 1) * len(values) + layer - 1
    scale = Scale("balance", -most, most, label)
    return Matrix(values.T, scale, Sentence("layer"), Sentence("head"), title, chosen)


def dots(view, subject, settings) -> Chart:
    """A dot a head, or an MLP, of every layer from `layer` on: across its share, up the loss without it."""
    shares, effects = _parts(view, subject, settings)
    heads = settings["part"] == "heads"
    places = np.argwhere(np.isfinite(shares) & np.isfinite(effects))
    places = places[np.argsort(shares[tuple(places.T)], kind="stable")]
    x, y = shares[tuple(places.T)], effects[tuple(places.T)]
    line, ends = alike(x, y)
    far = np.argsort(-np.abs(y - x), kind="stable")[:MARKED]
    apart = (Series(x[[i, i]], np.array([x[i], y[i]]), "", ORANGE, line=True) for i in far)
    layer, *head = places.T + 1
    also = {"layer": layer, "share": [signed(one) for one in x]}
    told = (*(() if heads else (Sentence("Layer {layer}, MLP"),)), Sentence("its own share {share}"))
    said = [Sentence("without it the answer loses {effect}", effect=signed(one)) for one in y]
    of = {"layer": layer, "head": head[0]} if heads else {}
    named = Sentence("one head") if heads else Sentence("one MLP")
    parts = Series(x, y, named, BLUE, dots=True, of=of, said=said, told=told, also=also)
    along, up = Sentence("its own share, in logits"), Sentence("lost without it, in logits")
    title = Sentence("Its own share, and what the answer loses without it")
    like = {"whole": False, "aspect": 0.78, "square": True}
    like["question"] = f"{settings['target']}/{settings['relative']}/{settings['part']}"
    notes = (_notes(subject, settings, shares, effects),)
    return Chart(along, up, ends, ends, title, (line, *apart, parts), notes=notes, **like)


def alike(*values: np.ndarray) -> tuple[Series, tuple[float, float]]:
    """Where effect and share are the same, and from where to where values and zero lie."""
    ends = np.array(roomy(np.concatenate(values), 0.06))
    return Series(ends, ends, Sentence("lost as much as its own share"), GREY, line=True), tuple(ends)


def walls(view, subject, settings) -> tuple[Matrix, ...]:
    """Losses and shares of all heads on one scale; none where MLPs are in view."""
    if settings["part"] != "heads":
        return ()
    shares, effects = _parts(view, subject, settings)
    most = balanced(np.stack([shares, effects]))
    lost = Sentence("What the answer loses without each head, up to {most}", most=either(most))
    own = Sentence("The share of every head, up to {most}", most=either(most))
    return (
        wall_of(effects, settings, most, lost, Sentence("Loss of the logit: against, for")),
        wall_of(shares, settings, most, own, share(settings)),
    )


def _notes(subject, settings, shares: np.ndarray, effects: np.ndarray) -> Sentence:
    """The correlation, once all are known, and where both disagree most."""
    alike = []
    if settings["layer"] == 1:
        found = made.agreement(subject, settings)[0 if settings["part"] == "heads" else 1]
        known = Sentence("Correlation of share and loss: {value}", value=fixed(found, 2))
        alike.append(Sentence(NO_CORRELATION) if math.isnan(found) else known)
    apart = np.abs(effects - shares)
    if not np.isfinite(apart).any():
        return joined(*alike)
    layer, *head = np.unravel_index(int(np.nanargmax(apart)), apart.shape)
    at = (layer, *head)
    name = writer_name("head" if head else "mlp", *(int(one) + 1 for one in at))
    worst = Sentence(
        "{name} is furthest from the line: {share} itself, {effect} lost without it. Later layers read"
        " what it wrote, and react when it is gone; and the mean over other pictures that takes its place"
        " still says something.",
        name=name,
        share=signed(shares[at]),
        effect=signed(effects[at]),
    )
    return joined(*alike, worst)


def _parts(view, subject, settings) -> tuple[np.ndarray, np.ndarray]:
    """Shares and losses: of heads by layer and head, of MLPs by layer; NaN where there is none."""
    heads = settings["part"] == "heads"
    shares = np.asarray(view.item(subject, "direct" if heads else "mlps", settings), float)
    effects = np.full((len(shares), subject.about.heads + 1), np.nan)
    for layer in range(settings["layer"], len(shares) + 1):
        effects[layer - 1] = made.effects(subject, {**settings, "layer": layer})
    return shares, effects[:, :-1] if heads else effects[:, -1]
