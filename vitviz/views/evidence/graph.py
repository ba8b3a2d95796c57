"""Largest paths to the output as a graph.

Layers run across, from the input to the output. Rows are the embedding, positions, heads, MLPs and biases.
The width of an edge is the summed contribution of the listed paths along it.
"""

import math
from collections import defaultdict

import numpy as np

from vitviz.charts.chart import BLUE, GREY, ORANGE, Chart, Series
from vitviz.traces.localized_text import LocalizedText
from vitviz.views import lazy
from vitviz.views.evidence import compute
from vitviz.views.printing import fixed, signed, writer_name, writer_numbers
from vitviz.views.shared import ensure_recorded
from vitviz.views.subject import Settings, ViewContext

MOST = 60  # most paths that can be requested
THICK = (0.25, 1.9)  # widths of the smallest and the largest edge, mm
ALONG = np.linspace(0.0, 1.0, 9)  # points along an edge that respond to the pointer
OPENED, WORK = 3000, 8e9  # most chains of heads to open; most chains x attention weights
SUMS = (
    "These {count} paths add {shown}, all others {rest} (total {total}). Large paths of opposite"
    " sign can cancel."
)
PROVEN = "They are proven to be the largest: no other path exceeds {bound}."
FOUND = (
    "They are the largest found before the search stopped at {opened} chains of heads. No unlisted path"
    " exceeds {bound}."
)
LARGEST = "The {count} largest paths to the output"
LARGEST_FOUND = "The {count} largest paths found to the output"
HELD = "Paths are not traced through MLPs; attention and norms are frozen."


def largest_paths(subject: ViewContext, settings: Settings):
    """Return the `paths` largest paths of the target's logit, from a search with bounded work."""
    classes, relative, trace = compute.target(subject, settings), settings["relative"] == "yes", subject.trace
    opened = min(OPENED, int(WORK // (subject.about.layers * subject.about.heads * trace.length**2)))
    ensure_recorded(subject)

    def search():
        options = {"opened": opened, "relative": relative}
        return lazy.circuits.attribution_paths(subject.inspector, trace, classes, MOST, **options)

    return subject.once(f"paths {classes} {relative}", search).first(settings["paths"])


def steps(path) -> list[tuple]:
    """Return a path's components from source to output, each (kind, layer, head); numbers from 1."""
    writer = path.writer and writer_numbers(path.writer)
    heads = [("head", layer + 1, head + 1) for layer, head in reversed(path.heads)]
    return [*([writer] if writer else []), *heads, ("answer",)]


def step_name(step: tuple) -> LocalizedText:
    """Return the displayed name of a component of a path: a source, a head or the output."""
    return LocalizedText("the output") if step == ("answer",) else writer_name(*step)


def arrays(subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
    """Return the largest paths for export: components, contributions, sums and upper bound."""
    paths = largest_paths(subject, settings)
    names = [" > ".join(".".join(map(str, step)) for step in steps(path)) for path in paths.paths]
    return {
        "paths": np.asarray(names),
        "path_shares": np.asarray([path.share for path in paths.paths]),
        "path_sums": np.asarray([paths.total, paths.left_out, paths.opened]),
        "path_bound": np.asarray([paths.bound, paths.proven]),
    }


def chart(view, subject: ViewContext, settings: Settings) -> Chart:
    """Return the graph of the requested number of paths."""
    paths, shape = largest_paths(subject, settings), subject.about
    largest = paths.paths
    edges, nodes, trails = defaultdict(float), defaultdict(float), {}
    for path in largest:
        passed = steps(path)
        for start, end in zip(passed, passed[1:], strict=False):
            edges[start, end] += path.share
        for step in passed:
            nodes[step] += path.share
        for count, (layer, head) in enumerate(path.heads, 1):
            trail = "-".join(f"{layer + 1}.{head + 1}" for layer, head in path.heads[:count])
            trails.setdefault(("head", layer + 1, head + 1), trail)
    rows = ["embedding", "positions", *range(1, shape.heads + 1), "mlp", "bias"]

    def place(step: tuple) -> tuple[float, float]:
        kind, *numbers = step
        if kind == "answer":
            return shape.layers + 1.0, -(len(rows) - 1) / 2
        row = numbers[1] if kind == "head" else "bias" if kind == "constant" else kind
        return float(numbers[0] if numbers else 0), -float(rows.index(row))

    largest_share = max(map(abs, edges.values()), default=0.0) or 1.0
    series = [_edge(edge, share / largest_share, share, *map(place, edge)) for edge, share in edges.items()]
    series = [line for _, line in sorted(series, key=lambda pair: pair[0])]  # the widest on top
    for heads in (False, True):
        some = [step for step in nodes if (step in trails) == heads]
        x, y = np.asarray([place(step) for step in some], float).reshape(-1, 2).T
        values = {"show": ["writers"] * len(some), "trail": [trails[step] for step in some]} if heads else {}
        hint = LocalizedText("Click to see its upstream sources") if heads else ""
        also = {"name": [step_name(step) for step in some], "hint": [hint] * len(some)}
        details = (LocalizedText("{name}"), LocalizedText("{hint}"))
        texts = [signed(nodes[step]) for step in some]
        series.append(Series(x, y, "", GREY, dots=True, of=values, said=texts, told=details, also=also))
    last = LocalizedText("MLPs"), LocalizedText("biases")
    names = [LocalizedText("patch"), LocalizedText("position"), *map(str, rows[2:-2]), *last]
    details = {"shown": paths.total - paths.left_out, "rest": paths.left_out, "total": paths.total}
    bound = {"bound": fixed(math.ceil(100 * paths.bound) / 100, 2), "opened": str(paths.opened)}
    sums = LocalizedText(SUMS, count=len(largest), **{name: signed(value) for name, value in details.items()})
    claim = LocalizedText(PROVEN if paths.proven else FOUND, **bound)
    options = {"notes": (sums, claim, LocalizedText(HELD)), "aspect": 0.78}
    options["ticks"] = tuple((float(number), str(number)) for number in range(1, shape.layers + 1))
    options["y_ticks"] = tuple((-float(i), name) for i, name in enumerate(names))
    options["named"] = (ORANGE, LocalizedText("for")), (BLUE, LocalizedText("against"))
    axes = LocalizedText("input, layers, output"), LocalizedText("head")
    ends = (-0.4, shape.layers + 1.4), (0.6 - len(rows), 0.6)
    title = LocalizedText(LARGEST if paths.proven else LARGEST_FOUND, count=len(largest))
    return Chart(*axes, *ends, title, tuple(series), **options)


def _edge(ends: tuple, size: float, share: float, begin, end) -> tuple[float, Series]:
    """Return an edge as (relative width, curve); the curve bows upwards, past the nodes in between."""
    spare = 0.12 / (end[0] - begin[0])  # gap between edge and node
    at = spare + (1 - 2 * spare) * ALONG
    axes = zip(begin, end, (at, at * at * (3 - 2 * at)), strict=True)
    x, y = (start + (end - start) * fraction for start, end, fraction in axes)
    bow = min(0.8, 0.15 * (end[0] - begin[0] - 1))
    names = {name: [step_name(step)] * len(at) for name, step in zip(("writer", "reader"), ends, strict=True)}
    thick = THICK[0] + (THICK[1] - THICK[0]) * abs(size)
    return abs(size), Series(
        x, y + bow * 4 * at * (1 - at), "", ORANGE if share >= 0 else BLUE, line=True, thick=thick,
        said=[signed(share)] * len(at), told=(LocalizedText("from {writer} to {reader}"),), also=names,
        key=" > ".join(".".join(map(str, step)) for step in ends),
    )  # fmt: skip
