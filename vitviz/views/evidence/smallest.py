"""The smallest part that answers, step by step: the answer's margin with some edges alone."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from vitviz.errors import UnsupportedModel
from vitviz.figures.chart import BLUE, GREY, ORANGE, Chart, Level, Series
from vitviz.record.sentence import Sentence
from vitviz.views.evidence import made
from vitviz.views.printing import fixed, signed
from vitviz.views.shared import WHOLE, recorded
from vitviz.views.subject import Subject

STEPS, DRAWS = 11, 3  # counts of edges that are tried, in turn; random orders
STANDS = (
    "The answer stands from {share} % of the edges on ({count} of {edges}), kept by the largest share; the"
    " random orders keep it from {chance}."
)
FALLS = "The answer does not stand: another class lies above it with all edges kept."


def ranked(subject: Subject, settings: Mapping[str, Any]):
    """All edges and what flows along them, the largest first."""
    from vitviz.engine.asking import circuits

    if subject.trace.without:
        raise UnsupportedModel(Sentence(WHOLE))
    asked = made.target(subject, settings)
    recorded(subject)
    return subject.once_by_passes(
        f"ranked {asked}", lambda: circuits.ranked_edges(subject.inspector, subject.trace, asked)
    )


def margins(subject: Subject, settings: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """How many edges were kept, and the margins of (order, count): by share, then at random."""
    from vitviz.analyses import smallest
    from vitviz.engine.asking import circuits

    edges, _ = ranked(subject, settings)
    asked, counts = made.target(subject, settings), smallest.kept_counts(len(edges))[: settings["tried"]]
    orders = [row for rows in smallest.orders_of(len(edges), DRAWS, 0).values() for row in rows]

    def column(count: int) -> list[float]:
        kept = [[edges[i] for i in row[:count]] for row in orders]
        recorded(subject)
        return circuits.margins_of(subject.inspector, subject.trace, asked, kept)

    found = [subject.once_by_passes(f"kept {asked} {one}", lambda one=one: column(one)) for one in counts]
    return np.asarray(counts), np.asarray(found).T


def arrays(subject: Subject, settings: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """All numbers, as they are taken home."""
    counts, found = margins(subject, settings)
    return {"edges_kept": counts, "margins": found, "edge_shares": ranked(subject, settings)[1].numpy()}


def chart(view, subject: Subject, settings: Mapping[str, Any]) -> Chart:
    """The margin over the share of edges that are kept."""
    counts, found = margins(subject, settings)
    edges = len(ranked(subject, settings)[0])
    x = 100 * counts / edges
    low, high = min(0.0, found.min()), max(0.0, found.max())
    spare = 0.06 * (high - low) or 1.0
    mean = found[1:].mean(axis=0)
    also = {"count": [f"{one}" for one in counts], "edges": [f"{edges}"] * len(counts)}
    told = {"told": (Sentence("{count} of {edges} edges kept"),), "also": also}
    by_share = Series(
        x,
        found[0],
        Sentence("by the largest share"),
        BLUE,
        True,
        True,
        said=[signed(one) for one in found[0]],
        **told,
    )
    chance = Series(
        x, mean, Sentence("at random, {count} orders", count=DRAWS), GREY, True, True,
        (found[1:].min(axis=0), found[1:].max(axis=0)), said=[signed(one) for one in mean], **told,
    )  # fmt: skip
    return Chart(
        Sentence("edges kept, in %"),
        Sentence("ahead of the next class, in logits"),
        (0.0, 100.0),
        (low - spare, high + spare),
        Sentence("What is left of the answer with some edges alone"),
        (chance, by_share),
        levels=(Level(0.0, Sentence("below, another class is the answer"), colour=ORANGE),),
        whole=False,
        aspect=0.78,
        question=f"{settings['target']}/smallest",
        notes=_notes(counts, found, edges) if len(counts) == STEPS else (),
    )


def _notes(counts: np.ndarray, found: np.ndarray, edges: int) -> tuple[Sentence, ...]:
    """From how many edges on the answer stands."""
    first = [int(np.flatnonzero(~(row > 0)).max(initial=-1)) + 1 for row in found]
    if first[0] == len(counts):
        return (Sentence(FALLS),)
    shares = [f"{fixed(100 * counts[one] / edges, 0)} %" for one in sorted(first[1:])]
    own = counts[first[0]]
    chance = " · ".join(shares)
    return (
        Sentence(STANDS, share=fixed(100 * own / edges, 0), count=str(own), edges=str(edges), chance=chance),
    )
