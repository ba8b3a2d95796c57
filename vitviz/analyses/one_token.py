"""The attention of one token, both ways: its row of A^{l,h} is what it attends to, its column is who attends
to it.

A public tool draws columns and calls them rows; the two are different pictures, so each has its own function
and its own name here. Source: Dosovitskiy et al. 2021, appendix A (A_ij is how much query i takes from key
j). Neither shows what passes through the skip connection, nor the size of the values taken.
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from vitviz.analyses.query import Query, query_place
from vitviz.analyses.streaming import blocks
from vitviz.trace import Trace


def attends_to(trace: Trace, layer: int, query: Query) -> Float[Tensor, "head token"]:
    """What one token attends to: its row of every head, summing to 1 over all tokens, prefix tokens first.

    `query`: a prefix token's name, a patch's number from 0, or its (row, col). Raises VitvizError for another
    query, IndexError for a layer that does not exist (they count from 0).

    >>> from vitviz.analyses.example import example_trace
    >>> from vitviz.grid import Grid
    >>> attends_to(example_trace(Grid(1, 3, (4, 4), ("class",))), layer=0, query=(0, 2))[0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    token = query_place(trace, query)
    return trace.on_tokens(trace.layer(layer).weights(slice(token, token + 1))[:, 0])


def attended_by(trace: Trace, layer: int, key: Query) -> Float[Tensor, "head token"]:
    """Who attends to one token: its column of every head; each entry is a share of another row, so it has no
    fixed sum.

    `key`: as `query` of `attends_to`. Raises VitvizError for another key, IndexError for a layer that does
    not exist.

    >>> from vitviz.analyses.example import example_trace
    >>> from vitviz.grid import Grid
    >>> attended_by(example_trace(Grid(1, 3, (4, 4), ("class",))), layer=0, key="class")[0].tolist()
    [0.25, 0.25, 0.25, 0.25]
    """
    token, attention = query_place(trace, key), trace.layer(layer)
    column = attention.q.new_empty(attention.heads, trace.length)
    for block in blocks(attention):
        column[block.heads, block.rows] = block.powers[..., token] / block.sums
    return trace.on_tokens(column)
