"""Guided tour from the image to the prediction, along figure 1 and equations 1 to 4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vitviz import analyses
from vitviz.analyses.protocol import NOT_RGB
from vitviz.charts.chart import GREY, ORANGE, Chart, Series
from vitviz.traces.localized_text import LocalizedText, not_applicable
from vitviz.views.base import PAPER, View, ViewTexts, as_json, chart_item, drawing_item
from vitviz.views.controls import IntListSetting, IntSetting, token_names
from vitviz.views.parts import ExportDefaults, Scope
from vitviz.views.printing import prefix_name
from vitviz.views.shared import json_bytes
from vitviz.views.subject import Settings, ViewContext
from vitviz.views.tour import diagram
from vitviz.views.tour import numbers as made
from vitviz.views.tour.facts import Facts
from vitviz.views.tour.steps import tour_steps

if TYPE_CHECKING:
    from vitviz.analyses import WorkedRow
    from vitviz.engine.parts import ModelParts
    from vitviz.traces.trace import Trace

TOLD = {
    "answer": made.prediction_json, "sum": made.largest_contributions,
    "without": made.prediction_without_head, "path": made.largest_path
}  # fmt: skip
EXTRA_TEXTS = (NOT_RGB,)  # besides `steps.tour_texts`


class TourView(View):
    title = "Tour"
    scope = Scope(every_patch=True)
    words = ViewTexts.read(__file__, cites=PAPER)
    controls = (
        IntSetting("step", minimum=1, maximum=13, default=1),
        IntSetting("token", maximum="tokens", default="middle", tokens=True),
        IntSetting("layer", minimum=1, maximum="layers", default=1),
        IntSetting("head", minimum=1, maximum="heads", default=1),
        IntListSetting("keys", maximum="tokens", tokens=True),
        IntSetting("number"),  # of a filter of the embedding
        IntSetting("seed", maximum=made.SEEDS),  # of a permutation of the patches; 0 before the first shuffle
    )
    items = (
        drawing_item("embedded", "stage patch width", "E x_p, without and with E_pos"),
        drawing_item("front", "prefix width", "the tokens that stand before the patches"),
        drawing_item("filter", "entry", "a row of E, then its bias", "number"),
        drawing_item("keys", "token dim", "keys of a head", "layer", "head"),
        as_json("worked", "one row of attention", "layer", "head", "token"),
        drawing_item("heads", "head token", "attention of the token in every head", "layer", "token"),
        as_json("answer", "from the last layer to the probabilities"),
        as_json("sum", "the largest shares, the rest and the logit"),
        as_json("without", "the answers without the head of the largest share"),
        as_json("path", "one path followed back from the first answer"),
        as_json("experiment", "answers to shuffled patches", "seed"),
        chart_item(),
    )
    export = ExportDefaults(
        arrays={
            "input_pixels": "pixel_row pixel_col channel",
            **dict.fromkeys(("patch_embedding", "position_embedded"), "patch width"),
            **{"z_0": "token width", "query": "", "token_stream": "depth width", "q": "dim", "k": "key dim"},
            **{"products": "key", "scale": "", "bias": "key", "scores": "key", "subtracted": ""},
            **{"exponentials": "key", "attention_row": "key", "y": "feature", "logits": "class"},
        },
        unprinted=(
            "The tour has no figure for print, because it has many steps; their figures belong to the other"
            " views."
        ),
    )

    def unsupported(self, subject: ViewContext) -> str | None:
        rgb = subject.inspector.preprocessing.channels == 3
        return None if rgb else not_applicable(subject.checkpoint, NOT_RGB)

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """Return the steps, the diagram and facts about the model and prediction, for the script."""
        trace, inspector = subject.trace, subject.inspector
        parts = inspector.parts(trace.grid.pixels)
        facts = facts_of(subject, parts)
        return {
            "mean": list(inspector.preprocessing.mean),
            "std": list(inspector.preprocessing.std),
            "width": facts.width,
            "pool": trace.pool,
            "classes": facts.classes,
            "filters": made.embedding_explained(trace, parts, inspector.preprocessing),
            "zeroable": parts.why_positions is None,
            "positions": facts.positions,
            "stem": parts.stem,
            "top": trace.top(3),
            "steps": [vars(step) for step in tour_steps(facts)],
            "diagram": diagram.model_diagram(facts),
        }

    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return an item by name: embeddings, keys, attention, weights of E or JSON bytes.

        Item "experiment" runs the model again on shuffled patches.
        """
        trace = subject.trace
        if name == "embedded":
            embeddings = trace.patch_embedding, trace.position_embedded
            return np.stack([tokens.numpy() for tokens in embeddings if tokens is not None])
        if name == "front":
            return subject.inspector.parts(trace.grid.pixels).prefix.numpy()
        if name == "filter":
            return made.filter_row(subject, settings["number"])
        if name == "keys":
            return trace.layer(settings["layer"] - 1).k[settings["head"] - 1].numpy()
        if name == "worked":
            return json_bytes(made.worked_row_json(self._row(trace, settings)))
        if name == "heads":
            query = token_names(settings["token"], trace.grid)
            return analyses.attends_to(trace, settings["layer"] - 1, query).numpy()
        if name in TOLD:
            return json_bytes(TOLD[name](subject))
        seed = settings["seed"]
        return json_bytes(
            subject.once_by_passes(f"shuffled {seed}", lambda: made.shuffled_predictions(subject, seed))
        )

    def chart(self, subject: ViewContext, settings: Settings) -> Chart:
        """Chart the token norms in the stream, z_0 to z_L: each prefix token, and the mean of the patches."""
        names, depth = subject.grid.prefix_names, np.arange(len(subject.trace.tokens))
        lengths = np.stack([tokens.norm(dim=-1).double().numpy() for tokens in subject.trace.tokens], axis=1)
        lines = [(prefix_name(name), lengths[i], GREY, "dashed") for i, name in enumerate(names)]
        lines.append((LocalizedText("patches (mean)"), lengths[len(names) :].mean(axis=0), ORANGE, ""))
        series = tuple(
            Series(depth, values, name, colour, True, True, dash=dash, of={"depth": depth}, key=str(name),
                   told=(LocalizedText("{name}"),), also={"name": [name] * len(depth)})
            for name, values, colour, dash in lines
        )  # fmt: skip
        ends = (0.0, float(depth[-1])), (0.0, 1.05 * float(lengths.max()) or 1.0)
        title = LocalizedText("Norm of the tokens in the residual stream, by layer")
        return Chart(LocalizedText("after layer (0: z₀)"), "", *ends, title, series, keyed=True)

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """Return pixels, tokens, one row of attention, y and logits, for export."""
        trace, result = subject.trace, made.prediction_json(subject)
        row = self._row(trace, settings)
        tensors = {name: getattr(row, name) for name in ("q", "k", "products", "bias", "scores")}
        tensors |= {name: getattr(trace, name) for name in ("patch_embedding", "position_embedded", "logits")}
        tensors |= {"z_0": trace.tokens[0], "exponentials": row.powers, "attention_row": row.weights}
        return {
            "input_pixels": trace.view.picture,
            # a prefix token, or a patch from 0
            "query": np.asarray(str(token_names(settings["token"], trace.grid))),
            "token_stream": np.stack([tokens[settings["token"]].numpy() for tokens in trace.tokens]),
            "scale": np.asarray(row.scale),
            "subtracted": np.asarray(row.shift),
            "y": np.asarray(result["y"]),
            **{name: tensor.numpy() for name, tensor in tensors.items() if tensor is not None},
        }

    def _row(self, trace: Trace, settings: Settings) -> WorkedRow:
        """Return all numbers of the attention row of the selected layer, head and query token."""
        layer, head = settings["layer"] - 1, settings["head"] - 1
        return analyses.worked_row(trace, layer, head, token_names(settings["token"], trace.grid))


def facts_of(subject: ViewContext, parts: ModelParts) -> Facts:
    """Return the facts that the texts of the tour depend on."""
    trace = subject.trace
    grid, attention = trace.grid, trace.layers[0]
    before = trace.patch_embedding if trace.position_embedded is None else trace.position_embedded
    scale = max(before.abs().max().item(), 1e-30)
    moved = (trace.on_tokens(trace.tokens[0].mT).mT[grid.prefix :] - before).abs().nan_to_num().max().item()
    return Facts(
        grid=grid,
        width=trace.tokens[0].shape[1],
        layers=len(trace.layers),
        heads=attention.heads,
        dim=attention.q.shape[2],
        classes=made.classes_of(trace),
        named=0 < made.classes_of(trace) == len(trace.labels),
        pool=trace.pool,
        positions=subject.inspector.position_kind(),
        position_rows=0 if parts.positions is None else len(parts.positions),
        **{name: getattr(parts, name) for name in ("mlp", "stem", "plain_blocks", "layer_scale")},
        norm_before_blocks=moved > 1e-4 * scale,
        prefix_read=trace.readout is not None
        and any(summary.start == 0 and summary.stop > 1 for summary in trace.readout.summaries),
        accounted=made.has_decomposition(subject),
        score="" if trace.classes is None else trace.classes.score,
        head_type=trace.head_type,
        root_scale=abs(attention.scale * attention.q.shape[2] ** 0.5 - 1) < 1e-4,
    )
