"""Check by edge ablation: contribution of each source of a head, and the drop in the logit in a real pass.

Contributions hold attention and norms fixed. In the real pass, one source is removed from the input of this
head alone, and everything else responds.
"""

import math

import numpy as np

from vitviz.charts.chart import BLUE, Chart, Series, to_json
from vitviz.errors import UnsupportedModel
from vitviz.traces.localized_text import LocalizedText
from vitviz.views import lazy
from vitviz.views.evidence import compute
from vitviz.views.evidence.charts import NO_CORRELATION, diagonal_and_range
from vitviz.views.printing import fixed, signed, writer_name, writer_numbers
from vitviz.views.shared import WHOLE, json_bytes
from vitviz.views.subject import Settings, ViewContext

BATCH, MOST = 8, 48  # edges per pass; most edges per head
INTO = (("value", "the head’s values"), ("query", "the head’s queries"), ("key", "the head’s keys"))
PARTS_AS = (("mean", "mean over other images"), ("zero", "zero vector"))
WHY = (
    "Contributions freeze attention and norms; the drop is measured in a real pass, in which the"
    " model responds."
)
RUN = "{count} of {of} edges were run, sampled at random with a fixed seed."
ALL = "All {of} edges were run."
CORRELATION = "Correlation of contribution and drop: {value}."
ALONG = "Contributions follow the path in view; the drop includes all paths to the output."
INDIRECT = "With attention frozen, the inputs to queries and keys have no direct contribution."


def sample_edges(subject: ViewContext, settings: Settings) -> tuple[list, int]:
    """Return a seeded sample of the edges into the selected head, and the number of all such edges."""
    if subject.trace.without:
        raise UnsupportedModel(LocalizedText(WHOLE))
    result = compute.upstream_sources(subject, settings)
    # positions are equal in all images: replacing them by their mean changes nothing
    positions = result.positions is not None and settings["parts_as"] == "zero"
    edges = lazy.effects.edges_into(
        result.layer, result.head, subject.about.heads, settings["into"], positions
    )
    return lazy.effects.sample_edges(edges, MOST, 0), len(edges)


def measured_edges(subject: ViewContext, settings: Settings) -> tuple[list, np.ndarray, np.ndarray]:
    """Return the edges ablated so far, their contributions (NaN for queries and keys) and logit drops."""
    some, effects = sample_edges(subject, settings)[0], []
    for first in range(0, min(len(some), BATCH * settings["tried"]), BATCH):
        batch = some[first : first + BATCH]

        def lost(batch=batch):
            return lazy.circuits.edge_losses(subject.inspector, subject.trace, batch, settings["parts_as"])

        edge = batch[0]
        name = f"edges {edge.layer} {edge.head} {edge.into} {settings['parts_as']} {first}"
        effects += compute.target_column(subject, settings, subject.once_by_passes(name, lost)).tolist()
    run, contributions = some[: len(effects)], dict(compute.upstream_sources(subject, settings).lines())
    shares = [contributions[edge.writer] if edge.into == "value" else math.nan for edge in run]
    return run, np.asarray(shares, float), np.asarray(effects, float)


def arrays(subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
    """Return source, contribution and measured logit drop of each edge run so far, for export."""
    run, shares, effects = measured_edges(subject, settings)
    names = [".".join(map(str, writer_numbers(edge.writer))) for edge in run]
    return {"edge_writers": np.asarray(names), "edge_lines": shares, "edge_effects": effects}


def item(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the chart as JSON, with the number of edges run ("done") and to be run ("count")."""
    chart_json = to_json(chart(subject, settings))
    count = len(sample_edges(subject, settings)[0])
    return json_bytes({**chart_json, "done": len(chart_json["series"][-1]["y"]), "count": count})


def chart(subject: ViewContext, settings: Settings) -> Chart:
    """Return the chart with a dot per edge: contribution and effect.

    Sources of queries and keys have no contribution; their dots are placed by the layer of the source.
    """
    (run, shares, effects), valued = measured_edges(subject, settings), settings["into"] == "value"
    names = [writer_numbers(edge.writer) for edge in run]
    x = shares if valued else np.asarray([place[0] if place else 0 for _, *place in names], float)
    line, ends = diagonal_and_range(x, effects) if valued else (None, (-0.4, subject.about.layers + 0.4))
    keys = [".".join(map(str, name)) for name in names]
    bars = [f"heads.{name[1]}" if name[0] == "head" else key for name, key in zip(names, keys, strict=True)]
    also = {"name": [writer_name(*name) for name in names], "share": [signed(share) for share in shares]}
    details = (LocalizedText("{name}"), *([LocalizedText("direct contribution {share}")] if valued else []))
    texts = [LocalizedText("drop when ablated {effect}", effect=signed(effect)) for effect in effects]
    values = {"writer": keys, "lit": bars}
    options = {"dots": True, "of": values, "said": texts, "told": details, "also": also}
    dots = Series(x, effects, LocalizedText("one source"), BLUE, **options)
    x_label = LocalizedText("direct contribution, in logits" if valued else "source layer")
    axes = (
        x_label,
        LocalizedText("drop when ablated, in logits"),
        ends,
        ends if valued else diagonal_and_range(effects)[1],
    )
    question = (str(settings[name]) for name in ("target", "relative", "trail", "into", "parts_as"))
    options = {"whole": not valued, "aspect": 0.78, "square": valued, "question": "/".join(question)}
    series, notes = (line, dots) if valued else (dots,), _notes(subject, settings, shares, effects)
    return Chart(*axes, LocalizedText("Check by edge ablation"), series, notes=notes, **options)


def _notes(
    subject: ViewContext, settings, shares: np.ndarray, effects: np.ndarray
) -> tuple[LocalizedText, ...]:
    """Return the notes on the ablated edges and the correlation; () until all sampled edges are ablated."""
    from_numpy = lazy.torch.from_numpy
    some, count = sample_edges(subject, settings)
    if len(effects) < len(some):
        return ()
    ran = LocalizedText(ALL if len(some) == count else RUN, count=len(some), of=count)
    if settings["into"] != "value":
        return ran, LocalizedText(INDIRECT)
    value = lazy.effects.pearson(from_numpy(effects), from_numpy(shares))
    alike = LocalizedText(CORRELATION, value=fixed(value, 2))
    alike = LocalizedText(NO_CORRELATION) if math.isnan(value) else alike
    notes = [LocalizedText(ALONG)] if len(compute.trail(subject, settings)) > 1 else []
    return LocalizedText(WHY), alike, ran, *notes
