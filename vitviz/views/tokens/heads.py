"""What heads have in common, as matrices: how many tokens each looks at, how alike those of a block are, and
beside the norms which of them are sinks.
"""

import numpy as np

from vitviz.figures.chart import Matrix, Scale, number, table
from vitviz.record.sentence import Sentence
from vitviz.views.printing import token_name

HEAD, BLOCK = Sentence("head"), Sentence("block")


def matrices(view, subject, settings) -> tuple[Matrix, ...]:
    """Those of what is shown; none of similarity and components."""
    if settings["show"] == "heads":
        return _widths(view, subject, settings), _pairs(view, subject, settings)
    return (_sinks(view, subject, settings),) if settings["show"] == "norms" else ()


def _widths(view, subject, settings) -> Matrix:
    looked, tokens = settings["measure"] == "looked", subject.grid.tokens
    nats, own = (np.asarray(view.item(subject, f"{one}entropy", settings)).T for one in ("", "prefix_"))
    if looked:
        text, low, high = Sentence("Tokens that each head looks at"), 1.0, float(tokens)
        label = Sentence("Tokens looked at, of {count}", count=tokens)
    else:
        text, low = Sentence("Entropy of each head’s attention, patches as queries"), 0.0
        high = float(np.log(tokens))
        label = Sentence("Entropy in nats; even attention has {most}", most=number(high))
    counted = {"count": table(np.exp(nats), number), "value": table(nats, number)}
    told = [_named(nats), Sentence("{count} tokens looked at, entropy {value} nats", **counted)]
    for token, one in enumerate(own[:2]):
        like = {"token": token_name(subject.grid, token), "value": table(one, number)}
        told.append(Sentence("{token} as the query: {value} nats", **like))
    scale, column = Scale("viridis", low, high, label), max(settings["depth"], 1) - 1
    return Matrix(np.exp(nats) if looked else nats, scale, BLOCK, HEAD, text, told=tuple(told), column=column)


def _pairs(view, subject, settings) -> Matrix:
    block, heads = max(settings["depth"], 1), range(1, subject.about.heads + 1)
    alike = np.asarray(view.item(subject, settings["alike"], settings), float)
    if settings["alike"] == "cosine":
        title = Sentence("Likeness of the heads of block {block}: cosine of their attention", block=block)
        scale = Scale("viridis", 0.0, 1.0, Sentence("Cosine"))
        said = Sentence("cosine {value}", value=table(alike, lambda one: f"{one:.3f}"))
    else:
        title = Sentence("Difference of the heads of block {block}: Jensen-Shannon divergence", block=block)
        most = float(np.log(2))
        scale = Scale("magma", 0.0, most, Sentence("Nats, at most {most}", most=number(most)))
        said = Sentence("{value} nats apart", value=table(alike, number))
    both = Sentence("Heads {one} and {other}", one=[[one] for one in heads], other=[heads])
    return Matrix(alike, scale, HEAD, HEAD, title, told=(both, said))


def _sinks(view, subject, settings) -> Matrix:
    shares, tokens = np.asarray(view.item(subject, "sinks", settings), float).transpose(2, 1, 0)
    share = table(100 * shares, lambda one: f"{number(one)} %")
    at = table(tokens, lambda one: token_name(subject.grid, int(one)))
    even = Sentence("an even share is {even}", even=f"{number(100 / subject.grid.tokens)} %")
    told = (_named(shares), Sentence("{share} arrives at {token}", share=share, token=at), even)
    label = Sentence("Largest share of attention at one token")
    scale, column = Scale("viridis", 0.0, float(shares.max()) or 1.0, label), settings["depth"] - 1
    return Matrix(shares, scale, BLOCK, HEAD, told=told, column=column)


def _named(values: np.ndarray) -> Sentence:
    """What each cell of a matrix (head, layer) is called."""
    heads, layers = (range(1, count + 1) for count in values.shape)
    return Sentence("Layer {layer}, head {head}", layer=[layers], head=[[one] for one in heads])
