"""Sufficient edges, step by step: the prediction's margin with only some edges kept."""

import numpy as np

from vitviz.charts.chart import BLUE, GREY, ORANGE, Chart, ReferenceLine, Series, range_with_margin
from vitviz.errors import UnsupportedModel
from vitviz.traces.localized_text import LocalizedText
from vitviz.views import lazy
from vitviz.views.evidence import compute
from vitviz.views.printing import fixed, signed
from vitviz.views.shared import WHOLE
from vitviz.views.subject import Settings, ViewContext

STEPS, DRAWS = 11, 3  # numbers of edges that are tried; random orders
PRESERVE = (
    "The {count} largest edges ({share} %) preserve the prediction. This is the smallest of the"
    " {tried} numbers tried that does; every number tried from {stable} edges ({part} %) upwards"
    " also does."
)
AHEAD = "margin over the next class, in logits"
OTHER = "below this line, the yes/no prediction flips"
ONE_AHEAD = "margin over even odds, in logits"
CHANCE = "Random subsets first preserve the prediction at {chance} of the edges (one value per random order)."
UNTRIED = "The margin need not grow with the number of edges, so sizes that were not tried may differ."
NONE = "Another class is ahead with all edges kept, so there is no prediction to preserve."
RANDOM = "in {count} random orders"


def ranked_edges(subject: ViewContext, settings: Settings):
    """Return all edges and their contributions to the target, the largest first."""
    if subject.trace.without:
        raise UnsupportedModel(LocalizedText(WHOLE))
    lazy.circuits.require_prediction(subject.trace)
    classes = compute.target(subject, settings)
    return subject.once_by_passes(
        f"ranked {classes}", lambda: lazy.circuits.ranked_edges(subject.inspector, subject.trace, classes)
    )


def kept_edge_margins(subject: ViewContext, settings: Settings) -> tuple[np.ndarray, np.ndarray]:
    """Return the tried numbers of kept edges, (count), and the margins in logits, (order, count).

    The first order is by largest contribution, the others are random.
    """
    edges, _ = ranked_edges(subject, settings)
    classes = compute.target(subject, settings)
    counts = lazy.sufficient_edges.kept_counts(len(edges))[: settings["tried"]]
    orders = sum(lazy.sufficient_edges.edge_orders(len(edges), DRAWS, 0).values(), [])

    def column(count: int) -> list[float]:
        subsets = [[edges[i] for i in row[:count]] for row in orders]
        return lazy.circuits.kept_edge_margins(subject.inspector, subject.trace, classes, subsets)

    result = [subject.once_by_passes(f"kept {classes} {n}", lambda n=n: column(n)) for n in counts]
    return np.asarray(counts), np.asarray(result).T


def arrays(subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
    """Return the numbers of edges kept, the margins and each edge's contribution, for export."""
    counts, result = kept_edge_margins(subject, settings)
    return {
        "edges_kept": counts,
        "margins": result,
        "edge_shares": ranked_edges(subject, settings)[1].numpy(),
    }


def chart(view, subject: ViewContext, settings: Settings) -> Chart:
    """Return the chart of the margin over the percentage of edges kept."""
    counts, result = kept_edge_margins(subject, settings)
    edges = len(ranked_edges(subject, settings)[0])
    x = 100 * counts / edges
    also = {"count": [f"{count}" for count in counts], "edges": [f"{edges}"] * len(counts)}
    details = {"told": (LocalizedText("{count} of {edges} edges kept"),), "also": also}

    def line(y: np.ndarray, name: LocalizedText, colour: str, band: tuple | None = None) -> Series:
        return Series(x, y, name, colour, True, True, band, said=list(map(signed, y)), **details)

    by_share = line(result[0], LocalizedText("by largest contribution"), BLUE)
    band, name = (result[1:].min(axis=0), result[1:].max(axis=0)), LocalizedText(RANDOM, count=DRAWS)
    chance = line(result[1:].mean(axis=0), name, GREY, band)
    binary = subject.trace.logits.numel() == 1 and subject.trace.head_type == "sigmoid"  # yes or no
    x_label, y_label = LocalizedText("edges kept, in %"), LocalizedText(ONE_AHEAD if binary else AHEAD)
    title = LocalizedText("Margin with only some edges kept")
    below = LocalizedText(OTHER if binary else "below this line, another class is predicted")
    level = ReferenceLine(0.0, below, colour=ORANGE)
    options = {"whole": False, "aspect": 0.78, "question": f"{settings['target']}/smallest"}
    options["notes"] = _notes(counts, result, edges) if len(counts) == STEPS else ()
    ends = (0.0, 100.0), range_with_margin(result, 0.06)
    return Chart(x_label, y_label, *ends, title, (chance, by_share), levels=(level,), **options)


def _notes(counts: np.ndarray, margins: np.ndarray, edges: int) -> tuple[LocalizedText, ...]:
    """Return the notes on the numbers of edges that preserve the prediction, ranked and in random orders."""
    (smallest, stable), *chance = (
        lazy.sufficient_edges.preserving_sizes(counts.tolist(), row.tolist()) for row in margins
    )
    if stable is None:
        return (LocalizedText(NONE),)

    def percent(size: int) -> str:
        return fixed(100 * size / edges, 0)

    details = {"count": str(smallest), "share": percent(smallest), "tried": str(len(counts))}
    sizes = sorted(edges if size is None else size for size, _ in chance)
    first = " · ".join(f"{percent(size)} %" for size in sizes)
    note = LocalizedText(PRESERVE, **details, stable=str(stable), part=percent(stable))
    return note, LocalizedText(CHANCE, chance=first), LocalizedText(UNTRIED)
