"""HTML cards of results: one function per type, dispatched on the type.

Layers, heads and patches count from 1 in the cards, as on the page; in Python they count from 0.
"""

from collections.abc import Mapping
from functools import singledispatch
from typing import Any

import numpy as np

from vitviz.analyses.components import Components
from vitviz.analyses.distance import Distances
from vitviz.analyses.effects import AblationEffects, EdgeAblationEffects
from vitviz.analyses.faithfulness.evaluation import Faithfulness
from vitviz.analyses.filters import FilterComponents
from vitviz.analyses.logit_account import Attribution
from vitviz.analyses.paths import AttributionPaths
from vitviz.analyses.perturbation import Perturbation
from vitviz.analyses.protocol import KINDS
from vitviz.analyses.saliency.passes import SaliencyMap
from vitviz.analyses.sufficient_edges import SufficientEdges
from vitviz.analyses.upstream import ScoreAttribution, Upstream
from vitviz.analyses.words import HeadsInWords
from vitviz.diagnostics.finding import Report
from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.inspector import Inspector
from vitviz.export.standalone_html import StandaloneView
from vitviz.notebook import maps
from vitviz.notebook.charts import charts_of, edge_name, head_names, writer_name
from vitviz.notebook.maps import card, image, number, table
from vitviz.notebook.results import ImageResult, NamedTensor, RecordList
from vitviz.surveys.result import Survey
from vitviz.traces.classes import Classes
from vitviz.traces.grid import Grid
from vitviz.traces.runs import Ablation
from vitviz.traces.trace import Trace

SHOWN = 12  # maximum number of rows of long tables


@singledispatch
def html(thing: Any) -> str:
    """Return a result of vitviz as self-contained HTML.

    Raises:
        TypeError: If `thing` is not a result of vitviz.
    """
    raise TypeError(
        f"A value of type {type(thing).__name__} cannot be drawn; expected a result, such as a Trace."
    )


html.register(StandaloneView, StandaloneView.frame)


@html.register
def _inspector_card(inspector: Inspector) -> str:
    """Return the card of a model: checkpoint facts, blocks, patch grid, classes, device and dtype."""
    grid, blocks = inspector.grid(), len(inspector.model.blocks)
    rows = [
        *_facts(inspector.checkpoint),
        ("blocks", str(blocks)),
        ("patches", f"{grid.rows} × {grid.cols} of {grid.patch[1]} × {grid.patch[0]} px"),
        ("prefix tokens", ", ".join(grid.prefix_names) or "none"),
        ("classes", str(len(inspector.labels)) if inspector.labels else "none named"),
        ("device, precision", f"{inspector.device}, {inspector.dtype}"),
    ]
    return card(f"Inspector: {inspector.checkpoint.name}", table((), rows))


@html.register
def _checkpoint_card(checkpoint: Checkpoint) -> str:
    """Return the card of a checkpoint: a table of its known facts."""
    return card(f"Checkpoint: {checkpoint.name}", table((), _facts(checkpoint)))


def _facts(one: Checkpoint) -> list[tuple[str, Any]]:
    """Return table rows (name, value) of a checkpoint's known facts, such as its architecture."""
    size = f"{one.input_size[2]} × {one.input_size[1]} px" if one.input_size else None
    millions = f"{one.parameters / 1e6:.1f} M" if one.parameters else None
    details = (
        ("architecture", one.architecture), ("source", one.source), ("input", size), ("parameters", millions),
        ("trained on", one.trained_on), ("licence", one.licence), ("note", str(one.note)),
    )  # fmt: skip
    return [(name, value) for name, value in details if value]


@html.register
def _list_card(listed: RecordList) -> str:
    """Return the card of a list of checkpoints or training snapshots: a table of at most 36 rows."""
    if not listed:
        return card("Nothing is listed.")
    films = not isinstance(listed[0], Checkpoint)
    names = ("name", "step", "val_loss", "top1") if films else ("name", "source", "trained_on", "on_disk")
    rows = [[getattr(row, name) for name in names] for row in listed[: 3 * SHOWN]]
    more = f"The first {len(rows)} of {len(listed)}." if len(rows) < len(listed) else ""
    return card("Film of a training" if films else "Checkpoints", table(names, rows), caption=more)


@html.register
def _classes_card(classes: Classes) -> str:
    """Return the card of class vectors: their number, width and score formula, and up to 36 labels."""
    details = f"{len(classes.labels)} unit vectors of {classes.vectors.shape[1]} numbers"
    details += f" for {classes.model}" if classes.model else ""
    caption = f"{details}; a {classes.score} of {number(classes.scale)} × cosine + {number(classes.bias)}."
    rows = enumerate(classes.labels[: 3 * SHOWN])
    return card("Classes", table(("class", "label"), rows), caption=caption)


@html.register
def _grid_card(grid: Grid) -> str:
    """Return the card of a patch grid: rows, columns, patch size in px, prefix tokens, token count."""
    said = f"{grid.rows} rows × {grid.cols} columns of {grid.patch[1]} × {grid.patch[0]} px"
    before = ", ".join(grid.prefix_names) or "no token"
    return card("Patch grid", caption=f"{said}; {before} before them: {grid.tokens} tokens.")


@html.register
def _ablation_card(without: Ablation) -> str:
    """Return the card of an ablation: the ablated parts as text."""
    return card("Without", caption=without.text() or "Nothing is taken away.")


@html.register
def _trace_card(trace: Trace) -> str:
    """Return the card of a trace: the model's input image, its top five outputs and facts of the run."""
    gone = 0 if trace.kept is None else trace.grid.patches - len(trace.kept)
    left_out = f", {gone} {'patch' if gone == 1 else 'patches'} left out" if gone else ""
    facts = f"{trace.length} tokens, {len(trace.layers)} layers of {trace.layers[0].heads} heads{left_out}"
    edit = trace.without.text()
    caption = f"{trace.checkpoint}, {facts}; {trace.milliseconds:.0f} ms in {trace.dtype} on {trace.device}."
    caption += f" Without: {edit}." if edit else ""
    strokes = trace.view.retouched.text()
    caption += f" The image was edited: {strokes}." if strokes else ""
    of_values = trace.head_type == "value"
    rows = [(label, score if of_values else f"{score:.1%}") for label, score in trace.top(5)]
    height, width = trace.view.picture.shape[:2]
    seen = image(trace.view.picture, "the model's input", 224)
    head = ("output" if of_values else "answer", trace.quantity)
    answers = table(head, rows) if rows else "<p>No classifier.</p>"
    said = f"Trace of an image of {width} × {height} px"
    return card(said, f'<div class="vitviz-row">{seen}{answers}</div>', caption=caption)


@html.register
def _tensor_card(tensor: NamedTensor) -> str:
    """Return the card of a named tensor, drawn according to its axes."""
    return maps.tensor_card(tensor.plain(), tensor.what)


@html.register
def _image_card(picture: ImageResult) -> str:
    """Return the card of an image array as a picture; if it is not uint8 RGB, of its repr as text."""
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != "uint8":
        return card("Pixels", f"<pre>{picture!r}</pre>")
    return card("Overlay", image(picture, "the map over its image"))


@html.register
def _filters_card(filters: FilterComponents) -> str:
    """Return the card of the patch embedding's principal components, as images with variance shares."""
    shares = ", ".join(f"{share:.1%}" for share in filters.variance[:5].tolist())
    caption = (
        f"The first {len(filters.pictures)} principal components of the embedding's filters, each scaled to"
        f" [0, 1] alone; shares of the variance begin with {shares} (paper, figure 7 left)."
    )
    return card("Embedding filters", maps.atlas(filters.pictures), caption=caption)


@html.register
def _attribution_card(account: Attribution) -> str:
    """Return the card of a logit attribution: table of all terms, map by patch, and chart by head."""
    rows = [("heads", account.heads.sum().item()), *account.constants.items()]
    rows += [("sum", account.total), ("logit", account.logit)]
    heads = maps.by_layers(account.heads, "logits")
    patches = maps.map_card(account.patches, "logits, heads' shares by source patch", diverging=True)
    caption = (
        f"Every line's share of the logit, {number(account.logit)}; they leave {account.gap:.1e} unexplained."
        " Direct effects only. Below, each head's share by layer."
    )
    body = f'<div class="vitviz-row">{patches}{table(("line", "logits"), rows)}</div>{heads}'
    return card("Evidence: the account of a logit", body, caption=caption)


@html.register
def _ablation_effects_card(effects: AblationEffects) -> str:
    """Return the card of head ablations: a chart by layer of the logit's drop without each head."""
    drawn = maps.by_layers(effects.heads, "logits")
    caption = (
        f"How much of the logit ({number(effects.logit)}) goes when a head is taken away alone;"
        f" by {effects.heads_as}."
    )
    return card("Effects of heads", drawn, caption=f"{caption} {effects.reference}".strip())


@html.register
def _upstream_card(found: Upstream) -> str:
    """Return the card of a head's contributions by source: chart by layer, and the 12 largest."""
    lines = sorted(found.lines(), key=lambda line: -abs(line[1]))[:SHOWN]
    drawn = "".join(map(maps.inline_chart, charts_of(found).values()))
    through = f" through {' and '.join(head_names(*found.via))}" if found.via else ""
    caption = (
        f"Its share of the logit{through}, {number(found.share)}, by who wrote what it reads; all lines leave"
        f" {found.gap:.1e} unexplained. Attention and norms are held. The table has the largest."
    )
    rows = [(writer_name(one), part) for one, part in lines]
    return card(
        f"Writers of {head_names((found.layer, found.head))[0]}", drawn, table(("writer", "logits"), rows),
        caption=caption,
    )  # fmt: skip


@html.register
def _score_card(found: ScoreAttribution) -> str:
    """Return the card of an attention score: its 12 largest terms by sources of query and key."""
    order = found.relative.flatten().abs().argsort(descending=True)[:SHOWN].tolist()
    pairs = [divmod(place, len(found.writers)) for place in order]
    rows = [(*(writer_name(found.writers[n]) for n in pair), found.relative[pair].item()) for pair in pairs]
    split, body = found.content_position, ""
    if split is not None:
        sides = [(name, *part) for name, part in zip(("content", "position"), split.tolist(), strict=True)]
        body = table(("query's \\ key's", "content", "position"), sides)
    caption = (
        f"A score before the softmax, {number(found.score)}; parts leave {found.gap:.1e} unexplained. Those"
        f" shown are less the mean over keys, or another key's: of all, the {len(rows)} largest pairs."
    )
    return card("Account of a score", body, table(("query's", "key's", "score"), rows), caption=caption)


@html.register
def _paths_card(found: AttributionPaths) -> str:
    """Return the card of up to 12 paths with the largest contributions to a logit, from the output back."""
    found = found.first(SHOWN)
    chains = [[*head_names(*path.heads), writer_name(path.writer)] for path in found.paths]
    rows = [(" ← ".join(names), path.share) for names, path in zip(chains, found.paths, strict=True)]
    claim = f"They are the largest found along {found.opened} chains of heads, where the search was ended. No"
    claim = "They are proven to be the largest: no" if found.proven else claim
    caption = (
        f"From the answer back. These paths and all others, which add {number(found.left_out)}, sum to"
        f" {number(found.total)}, the heads' shares of the logit; large paths of opposite sign cancel."
        f" {claim} other path exceeds {number(found.bound)}."
    )
    return card("Paths into a logit", table(("path", "logits"), rows), caption=caption)


@html.register
def _edge_ablation_card(found: EdgeAblationEffects) -> str:
    """Return the card of edge ablations: chart of effect against contribution, the 12 largest effects."""
    names = list(map(edge_name, found.edges))
    shares, effects = found.shares.numpy(), found.effects.numpy()
    drawn = "".join(map(maps.inline_chart, charts_of(found).values()))
    order = np.argsort(-np.abs(np.nan_to_num(effects)))[:SHOWN].tolist()
    rows = [(names[n], effects[n], shares[n]) for n in order]
    caption = (
        f"What the logit loses when an edge is taken out alone ({found.parts_as}), beside its share:"
        f" correlation {number(found.correlation)}; {len(names)} of {found.of} edges."
    )
    return card("Effects of edges", drawn, table(("edge", "effect", "share"), rows), caption=caption)


@html.register
def _sufficient_edges_card(found: SufficientEdges) -> str:
    """Return the card of margins with only some edges kept: a row per number, a column per order."""
    orders = {name: margins.mean(dim=0).tolist() for name, margins in found.margins.items()}
    each = zip(found.counts, *orders.values(), strict=True)
    rows = [(f"{kept} of {len(found.edges)}", *margins) for kept, *margins in each]
    sizes = (found.smallest_preserving, found.preserving_from)
    smallest, stable = ("none" if size is None else f"{size} edges" for size in sizes)
    caption = (
        f"The margin over the next class, in logits, with so many edges kept and all others replaced"
        f" ({found.parts_as}). Of {found.tried} sizes tried by share, the smallest that preserves the"
        f" prediction: {smallest}; the one from which on all do: {stable}. Random orders: means over draws."
    )
    return card("Sufficient edges", table(("edges kept", *orders), rows), caption=caption)


@html.register
def _saliency_card(found: SaliencyMap) -> str:
    """Return the card of a saliency map: its unscaled values, and the explained part of the logit."""
    drawn = maps.map_card(found.map, "raw, before any scaling", diverging=found.signed)
    details = f"Its numbers do not add up to the answer, {number(found.answer)}"
    details = f"It explains {number(found.explained)} of {number(found.answer)}" if found.adds_up else details
    where = f", read at {found.at}" if found.at else ""
    caption = f"A number a patch{where}. {details}. {found.convergence}".rstrip()
    return card(f"Map by {found.method}", drawn, caption=caption)


@html.register
def _components_card(found: Components) -> str:
    """Return the card of patch tokens' principal components: the first image's maps of up to three."""
    each = enumerate(found.scores[0].unbind(dim=-1)[:3], 1)
    drawn = [maps.map_card(one, f"component {n}", diverging=True) for n, one in each]
    shares = ", ".join(f"{share:.1%}" for share in found.shares.tolist())
    caption = f"Scores of the first image's patches; shares of the whole variance: {shares}."
    body = f'<div class="vitviz-row">{"".join(drawn)}</div>'
    return card("Principal components of tokens", body, caption=caption)


@html.register
def _distances_card(found: Distances) -> str:
    """Return the card of attention distances in px: a chart of all heads and their mean by layer."""
    caption = "Each head's, rows as they are, and the heads' mean as a line."
    return card("Attention distance", maps.by_layers(found.distance, "px"), caption=caption)


@html.register
def _survey_card(survey: Survey) -> str:
    """Return the card of a survey: charts by layer, a table of single means, the heads' words if any."""
    drawn, rows = [], []
    for name, what in survey.quantities.items():
        sums = survey.sums[name]
        if what.axes in ("layer head", "layer"):
            first, up = 0 if name.startswith("lens.") else 1, what.unit or what.title
            drawn += [f"<p>{what.title}</p>", maps.by_layers(sums.mean, what.unit, first, sums.error, up)]
        elif not what.axes:
            rows.append((what.title, f"{float(sums.mean):.4g} ± {float(sums.error):.2g}", what.unit))
    left_out = f", {survey.left_out} could not be read" if survey.left_out else ""
    caption = f"{survey.checkpoint}: means over {survey.images} images{left_out}, ± their standard errors."
    body = "".join(drawn) + (table(("", "mean", "unit"), rows) if rows else "")
    body += html(survey.words) if survey.words else ""
    return card("Survey", body, caption=caption)


@html.register
def _words_card(found: HeadsInWords) -> str:
    """Return the card of heads described in words: the 36 heads with the largest deviation."""
    caption = (
        f"Over {found.pictures} images: at most {found.shares.shape[-1]} words for each head, with their"
        " shares of the variance of what it writes into the embedding; deviation is in cosines, the largest"
        " first. A word is named only if it explains more than random vectors do."
    )
    rows = found.said()[: 3 * SHOWN]
    return card("Heads in words", table(("head", "deviation", "words"), rows), caption=caption)


@html.register
def _faithfulness_card(trial: Faithfulness) -> str:
    """Return the card of a faithfulness test: per map, its gap and areas under the removal curves."""
    head = ("map", "gap", "most relevant first", "least relevant first")
    rows = [(name, gap, *trial.areas(name)) for name, gap in trial.ranking()]
    mean, reach = trial.chance()[0], trial.reach()
    of = "value" if trial.head_type == "value" else "probability"
    caption = (
        f"{trial.checkpoint}, patches removed as {trial.patches_as}: areas under the {of}'s curves, best"
        f" first. Chance's gap is {number(mean)}; in one of 20 trials the best of so many random maps would"
        f" come above {number(mean + reach)}. Other images can rank methods differently."
    )
    notes = {name: saliency.convergence for name, saliency in trial.maps.items() if saliency.convergence}
    return card("Faithfulness", table(head, rows), _notes_html(notes | dict(trial.refused)), caption=caption)


@html.register
def _perturbation_card(found: Perturbation) -> str:
    """Return the card of a perturbation: by step, the mean score and how often the prediction is kept."""
    kind = KINDS[found.kind]
    what, other = (kind.along, "") if found.kind == "drop" else (kind.counts, f", {kind.name}")
    of_values, curves = found.head_type == "value", [found.curve(way) for way in found.ways]
    keeps = () if of_values else found.ways
    kept, rows = [found.curve(way, "kept") for way in keeps], []
    for step, count in enumerate(found.steps):
        means = (_with_error(*curve[step], of_values) for curve in curves)
        rows.append((count, *means, *(f"{one[step][0]:.0%}" for one in kept)))
    head = (what, *found.ways, *(f"{way}: kept" for way in keeps))
    draws = next((len(one[0]) for one in getattr(found, found.scores[0]).values()), 0)
    quantity, plural = ("value", "values") if of_values else ("probability", "probabilities")
    far = found.deviation.classes if found.deviation else None
    rounded = f" Computed in {found.dtype}" if found.dtype != "float32" else ""
    rounded += f", whose {plural} lie up to {far:.2g} from float32's." if rounded and far else ""
    caption = (
        f"{found.checkpoint}: {quantity} of {found.label}, the answer to the whole image{other}: means over"
        f" {draws} draws ± twice their standard errors"
    )
    caption += f".{rounded}" if of_values else f"; kept: in how many the prediction stays.{rounded}"
    return card("Experiment", table(head, rows), _notes_html(found.refused), caption=caption)


def _notes_html(notes: Mapping[str, str]) -> str:
    """Return notes (name to reason) as small HTML paragraphs, escaped; '' without notes."""
    details = ((maps.text(name), maps.text(reason)) for name, reason in notes.items())
    return "".join(f"<p><small>{name}: {reason}</small></p>" for name, reason in details)


def _with_error(mean: float, error: float, of_values: bool) -> str:
    """Return a mean with twice its standard error: a probability in per cent, a value with four digits."""
    return f"{number(mean)} ± {number(2 * error)}" if of_values else f"{mean:.1%} ± {2 * error:.1%}"


@html.register
def _report_card(report: Report) -> str:
    """Return the card of a model check: a table with one row per finding, and the verdict as caption."""
    columns = "severity group sentence number threshold source advice view".split()
    rows = [[row[name] for name in columns] for row in report.rows()]
    head = ("", "check", "finding", "number", "threshold", "threshold from", "what to do", "view")
    return card("Model check", table(head, rows), caption=report.verdict)
