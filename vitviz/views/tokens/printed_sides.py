"""What heads share, for print."""

import numpy as np

from vitviz.figures.chart import number
from vitviz.figures.paper.plates import Matrix, Plate, Scale
from vitviz.record.sentence import Sentence
from vitviz.views.printing import NARROW, WIDE


def heads(view, subject, settings, asked) -> Plate:
    """How much each head spreads over; with detail how alike the heads of a block are."""
    looked, tokens = settings["measure"] == "looked", subject.grid.tokens
    nats = np.asarray(view.item(subject, "entropy", settings), float).T
    if looked:
        text, low, high = Sentence("Tokens that each head looks at"), 1.0, float(tokens)
        label = Sentence("Tokens looked at, of {count}", count=tokens)
    else:
        text, low = Sentence("Entropy of each head’s attention, patches as queries"), 0.0
        high = float(np.log(tokens))
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
