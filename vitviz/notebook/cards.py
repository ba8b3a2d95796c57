"""How each kind of result looks: one small function a type, found by the type itself.

Layers, heads and patches count from 1 in what is read here, as on the page; in Python they count from 0.
"""

from __future__ import annotations

from functools import singledispatch
from typing import Any

from vitviz.analyses.components import Components
from vitviz.analyses.distance import Distances
from vitviz.analyses.effects import Effects
from vitviz.analyses.evidence import Evidence
from vitviz.analyses.experiment import Experiment
from vitviz.analyses.filters import Filters
from vitviz.analyses.relevance.found import Relevance
from vitviz.analyses.trials.trial import Trial
from vitviz.engine.checkpoint import Checkpoint
from vitviz.engine.inspector import Inspector
from vitviz.figures import svg
from vitviz.grid import Grid
from vitviz.notebook import maps
from vitviz.notebook.cell import Cell
from vitviz.notebook.named import Named
from vitviz.notebook.parts import card, image, number, table
from vitviz.notebook.results import Listed, Picture
from vitviz.notebook.tried import experiment_card, trial_card
from vitviz.runs import Without
from vitviz.surveys.result import Survey
from vitviz.trace import Trace

SHOWN = 12  # rows of long tables


@singledispatch
def html(thing: Any) -> str:
    """A result as one piece of HTML; TypeError for what is no result of vitviz."""
    raise TypeError(f"Given {type(thing).__name__}; expected a result of vitviz, such as a Trace.")


@html.register
def _inspector(inspector: Inspector) -> str:
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
def _checkpoint(checkpoint: Checkpoint) -> str:
    return card(f"Checkpoint: {checkpoint.name}", table((), _facts(checkpoint)))


def _facts(one: Checkpoint) -> list[tuple[str, Any]]:
    size = f"{one.input_size[2]} × {one.input_size[1]} px" if one.input_size else None
    millions = f"{one.parameters / 1e6:.1f} M" if one.parameters else None
    told = (
        ("architecture", one.architecture), ("source", one.source), ("input", size), ("parameters", millions),
        ("trained on", one.trained_on), ("licence", one.licence), ("note", str(one.note)),
    )  # fmt: skip
    return [(name, value) for name, value in told if value]


@html.register
def _listed(listed: Listed) -> str:
    if not listed:
        return card("Nothing is listed.")
    films = not isinstance(listed[0], Checkpoint)
    names = ("name", "step", "val_loss", "top1") if films else ("name", "source", "trained_on", "on_disk")
    rows = [[getattr(one, name) for name in names] for one in listed[: 3 * SHOWN]]
    more = f"The first {len(rows)} of {len(listed)}." if len(rows) < len(listed) else ""
    return card("Film of a training" if films else "Checkpoints", table(names, rows), caption=more)


@html.register
def _grid(grid: Grid) -> str:
    said = f"{grid.rows} rows × {grid.cols} columns of {grid.patch[1]} × {grid.patch[0]} px"
    before = ", ".join(grid.prefix_names) or "no token"
    return card("Patch grid", caption=f"{said}; {before} before them: {grid.tokens} tokens.")


@html.register
def _without(without: Without) -> str:
    return card("Without", caption=without.text() or "Nothing is taken away.")


@html.register
def _trace(trace: Trace) -> str:
    gone = 0 if trace.kept is None else trace.grid.patches - len(trace.kept)
    left_out = f", {gone} {'patch' if gone == 1 else 'patches'} left out" if gone else ""
    facts = f"{trace.length} tokens, {len(trace.layers)} layers of {trace.layers[0].heads} heads{left_out}"
    edit = trace.without.text()
    caption = f"{trace.checkpoint}, {facts}; {trace.milliseconds:.0f} ms in {trace.dtype} on {trace.device}."
    caption += f" Without: {edit}." if edit else ""
    rows = [(label, f"{probability:.1%}") for label, probability in trace.top(5)]
    height, width = trace.view.picture.shape[:2]
    seen = image(trace.view.picture, "the picture as the model got it", 224)
    answers = table(("answer", "probability"), rows) if rows else "<p>No classifier.</p>"
    said = f"Trace of a picture of {width} × {height} px"
    return card(said, f'<div class="vitviz-row">{seen}{answers}</div>', caption=caption)


@html.register
def _named(tensor: Named) -> str:
    return maps.drawn(tensor.plain(), tensor.what)


@html.register
def _picture(picture: Picture) -> str:
    if picture.ndim != 3 or picture.shape[2] != 3 or picture.dtype != "uint8":
        return card("Pixels", f"<pre>{picture!r}</pre>")
    return card("Overlay", image(picture, "the map over its picture"))


@html.register
def _filters(filters: Filters) -> str:
    shares = ", ".join(f"{share:.1%}" for share in filters.variance[:5].tolist())
    caption = (
        f"The first {len(filters.pictures)} principal components of the embedding's filters, each"
        " scaled to [0, 1] alone;"
        f" shares of the variance begin with {shares} (paper, figure 7 left)."
    )
    return card("Embedding filters", maps.atlas(filters.pictures), caption=caption)


@html.register
def _evidence(account: Evidence) -> str:
    lines = [
        ("start", account.start),
        ("heads", account.heads.sum().item()),
        ("projection biases", account.projection_biases.sum().item()),
        ("MLPs", account.mlps.sum().item()),
        ("pooling", None if account.pool is None else account.pool.total),
        ("norm's bias", account.norm_bias),
        ("head's bias", account.head_bias),
        ("sum", account.total),
        ("logit", account.logit),
    ]
    rows = [(name, value) for name, value in lines if value is not None]
    heads = svg.dots_by_layer(account.heads, account.heads * float("nan"), "logits")
    patches = maps.over(account.patches, "logits, heads' shares by source patch", diverging=True)
    caption = (
        f"Every line's share of the logit, {number(account.logit)}; they leave {account.gap:.1e}"
        " unexplained. Direct effects"
        " only. Below, each head's share by layer."
    )
    body = f'<div class="vitviz-row">{patches}{table(("line", "logits"), rows)}</div>{heads}'
    return card("Evidence: the account of a logit", body, caption=caption)


@html.register
def _effects(effects: Effects) -> str:
    drawn = svg.dots_by_layer(effects.heads, effects.heads * float("nan"), "logits")
    caption = (
        f"How much of the logit ({number(effects.logit)}) goes when a head is taken away alone;"
        f" by {effects.heads_as}."
    )
    return card("Effects of heads", drawn, caption=f"{caption} {effects.reference}".strip())


@html.register
def _relevance(found: Relevance) -> str:
    drawn = maps.over(found.map, "raw, before any scaling", diverging=found.signed)
    told = f"It explains {number(found.explained)} of {number(found.answer)}" if found.adds_up else (
        f"Its numbers do not add up to the answer, {number(found.answer)}"
    )  # fmt: skip
    where = f", read at {found.at}" if found.at else ""
    return card(f"Map by {found.method}", drawn, caption=f"A number a patch{where}. {told}.")


@html.register
def _components(found: Components) -> str:
    drawn = [
        maps.over(one, f"component {n}", diverging=True) for n, one in enumerate(maps.first(found.scores), 1)
    ]
    shares = ", ".join(f"{share:.1%}" for share in found.shares.tolist())
    caption = f"Scores of the first picture's patches; shares of the whole variance: {shares}."
    return card(
        "Principal components of tokens", f'<div class="vitviz-row">{"".join(drawn)}</div>', caption=caption
    )


@html.register
def _distances(found: Distances) -> str:
    drawn = svg.dots_by_layer(found.distance, found.distance * float("nan"), "px")
    return card(
        "Attention distance", drawn, caption="Each head's, rows as they are, and the heads' mean as a line."
    )


@html.register
def _survey(survey: Survey) -> str:
    drawn, rows = [], []
    for name, what in survey.quantities.items():
        sums, up = survey.sums[name], what.unit or what.title
        draw = {"layer head": svg.dots_by_layer, "layer": svg.line_by_layer}.get(what.axes)
        if draw:
            drawn += [
                f"<p>{what.title}</p>",
                draw(sums.mean, sums.error, up, 0 if name.startswith("lens.") else 1),
            ]
        elif not what.axes:
            rows.append((what.title, f"{float(sums.mean):.4g} ± {float(sums.error):.2g}", what.unit))
    left_out = f", {survey.left_out} could not be read" if survey.left_out else ""
    caption = f"{survey.checkpoint}: means over {survey.images} pictures{left_out}, ± their standard errors."
    body = "".join(drawn) + (table(("", "mean", "unit"), rows) if rows else "")
    return card("Survey", body, caption=caption)


@html.register
def _cell(cell: Cell) -> str:
    return cell.frame()


html.register(Experiment, experiment_card)
html.register(Trial, trial_card)

__all__ = ["html"]
