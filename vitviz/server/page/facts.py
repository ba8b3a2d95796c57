"""Facts beside the image: prediction, cost and ablations."""

from functools import cache
from typing import Any

from vitviz.engine import Checkpoint, Inspector
from vitviz.engine.studies.text import reads_text
from vitviz.server.i18n import mark
from vitviz.server.services.images import ImageStore
from vitviz.traces.localized_text import LocalizedText, text_to_json
from vitviz.traces.runs import Ablation
from vitviz.traces.samples import FEATURED, sample_image, samples
from vitviz.traces.text_classes import vectors_of, without_text
from vitviz.traces.trace import Trace
from vitviz.views import ViewContext

PATCHES = "{rows} × {cols} of {tall} × {wide} px"
SHOWN = {
    mark("cat"): mark("a cat"), mark("espresso"): mark("espresso"),
    mark("astronaut"): mark("an astronaut"), mark("rocket"): mark("a rocket"),
}  # fmt: skip
_REPLACED = mark(
    "The checkpoint’s files changed while the server was running. The page now uses the new weights."
)
_AMONG = mark("Probabilities among these {count} classes only, even if none of them fits.")
_EACH = mark("Each class is scored independently: the {count} probabilities need not sum to 1.")
_OWN_EACH = mark("Each of the {count} classes is scored independently: the probabilities need not sum to 1.")
_YES = mark("This model has one output: the probability of yes. Below 50 % the prediction is no.")
_VALUES = mark("This model predicts {count} values (regression), which have no probabilities.")
_ONLY = mark("This model always predicts one of its {count} classes, even if none fits the image.")
_FAR = mark(
    "Computed in {dtype}. On the first image, attention weights differ from float32 by at most {attention}."
)
_FAR_BOTH = mark(
    "Computed in {dtype}. On the first image, attention weights differ from float32 by at most "
    "{attention}, class probabilities by at most {classes}."
)
_FAR_VALUES = mark(
    "Computed in {dtype}. On the first image, attention weights differ from float32 by at most "
    "{attention}, values by at most {classes}."
)
KNOWN = 50  # most likely classes sent to the page; it shows three, and those that the visitor selects
EARLIER = mark("Previous image")
TOKENS = "{tokens} ({patches} patches, prefix: {prefix})"


def prediction_facts(subject: ViewContext, key: str = "", sample: str | None = None) -> dict[str, Any]:
    """Return top classes, their truth for a `sample`, and facts of the pass; before the pass its `key`."""
    if subject.awaited:
        return {"checkpoint": subject.checkpoint, "awaited": key}
    trace, checkpoint = subject.trace, subject.inspector.checkpoint
    grid, (attention, *_) = trace.grid, trace.layers
    (height, width), (tall, wide) = grid.pixels, grid.patch
    model = subject.inspector.model
    parameters = subject.once_of_weights("parameters", lambda: sum(p.numel() for p in model.parameters()))
    prefix = " + ".join(grid.prefix_names) or "none"
    shapes = {
        mark("Input"): f"{height} × {width} × 3",
        mark("Patches"): LocalizedText(PATCHES, rows=grid.rows, cols=grid.cols, tall=tall, wide=wide),
        mark("Tokens"): LocalizedText(TOKENS, tokens=grid.tokens, patches=grid.patches, prefix=prefix),
        mark("Width"): str(trace.tokens[0].shape[-1]),
        mark("Layers × heads"): f"{len(trace.layers)} × {attention.heads}",
        mark("q, k, v per head"): f"{attention.q.shape[1]} × {attention.q.shape[2]}",
        mark("Parameters"): f"{parameters:,}",
        mark("Computed in"): trace.dtype,
        mark("Trained on"): checkpoint.trained_on,
        mark("Licence"): checkpoint.licence,
    }
    return {
        "checkpoint": checkpoint.name,
        "shipped": checkpoint.source == "shipped",
        "notes": _notes(checkpoint, trace),
        "count": len(trace.labels),
        "top": [[label, float(f"{score:.9g}")] for label, score in trace.top(KNOWN)],
        "head_type": trace.head_type,
        "score": "" if trace.classes is None else trace.classes.score,
        "truth": _truth(trace, sample),
        "device": trace.device,
        "milliseconds": round(trace.milliseconds, 1),
        "first": trace.first_pass,
        "shapes": [[name, text_to_json(text)] for name, text in shapes.items() if text],
    }


def _truth(trace: Trace, sample: str | None) -> dict[str, Any] | None:
    """Return what a sample shows, and if the prediction is wrong, as JSON; None if that is unknown."""
    photo = next((one for one in samples() if one.name == sample), None)
    if photo is None or trace.prediction is None or not len(trace.labels) == trace.logits.numel() > 1:
        return None
    fitting, answer = photo.truth(trace.labels), int(trace.logits.argmax())
    if not fitting and trace.classes is not None:
        return None  # the classes are the visitor's own
    text = mark("The image shows {what}: the prediction is wrong.")
    if not fitting:
        text = mark("The image shows {what}; this model has no class for it.")
    elif answer in fitting:
        text = mark("The image shows {what}: the prediction is correct.")
    right = max(fitting, key=lambda one: trace.logits[one].item(), default=None)
    asked = f"{answer}-{right}" if fitting and answer not in fitting else str(answer)
    return {"said": text_to_json(LocalizedText(text, what=SHOWN[photo.shows])), "target": asked,
            "wrong": answer not in fitting}  # fmt: skip


def sample_row(chosen: str | None, checkpoint: str) -> dict[str, Any]:
    """Return the samples, the featured ones first: name, subject, and if `checkpoint` is wrong on it."""
    row = sorted(samples(), key=lambda one: (*FEATURED, one.name).index(one.name))
    details = [[one.name, one.shows, checkpoint in one.mistaken_by] for one in row]
    return {"samples": details, "featured": len(FEATURED), "chosen": chosen}


def _notes(checkpoint: Checkpoint, trace: Trace) -> list[dict[str, Any]]:
    """Return notes on a prediction (classes, score, precision) as sentences with values, for JSON."""
    notes = [text_to_json(checkpoint.note)] if checkpoint.note else []
    notes += [text_to_json(_REPLACED)] if checkpoint.replaced else []
    outputs = 0 if trace.logits is None else trace.logits.numel()
    text = _ONLY if outputs and 0 < len(trace.labels) < 1000 else ""
    if trace.classes is not None:
        text = _EACH if trace.classes.score == "sigmoid" else _AMONG
    elif outputs and trace.head_type != "softmax":
        text = _VALUES if trace.head_type == "value" else _YES if outputs == 1 else _OWN_EACH
    if text:
        notes.append({"text": text, "values": {"count": outputs}})
    if trace.deviation is not None:
        attention, classes = trace.deviation.attention, trace.deviation.classes
        text, values = _FAR, {"dtype": trace.dtype, "attention": f"{attention:.2g}"}
        if classes is not None:
            text = _FAR_VALUES if trace.head_type == "value" else _FAR_BOTH
            values = {**values, "classes": f"{classes:.2g}"}
        notes.append({"text": text, "values": values})
    return notes


def sentence_field(inspector: Inspector) -> dict[str, Any]:
    """Return the JSON of the field that takes sentences or vectors as classes."""
    name, sentences, templates = without_text(inspector.checkpoint.name)
    reads = reads_text(inspector.checkpoint)
    vectors = len(inspector.labels) if vectors_of(inspector.checkpoint.name) else 0
    takes = reads or vectors > 0 or not inspector.model.num_classes
    said = {"sentences": sentences, "templates": templates, "vectors": vectors}
    return {"of": name, "reads": reads, "takes": takes, **said}


def editor_value(
    state: dict, key: str, subject: ViewContext, answer: dict[str, Any], pictures: ImageStore
) -> dict[str, Any]:
    """Return the image editor's value.

    Contains the image and its edits, the predictions before and after, and the images that a region can be
    pasted onto: name, description, width, height.
    """
    details = {"key": key, "picture": state["picture"], "size": list(subject.seen.upload)}
    answers = {"top": answer.get("top", [])[:3], "before": answer.get("before", []),
               "head_type": answer.get("head_type", "softmax")}  # fmt: skip
    grounds = [[sample.name, SHOWN[sample.shows], *_size(sample.name)] for sample in samples()]
    earlier = state["earlier"]
    if pictures.has(earlier) and not pictures.sample_of(earlier):
        grounds.append([earlier, EARLIER, *pictures.opened(earlier).size])
    return {"strokes": state["strokes"], "grounds": grounds, **details, **answers}


@cache
def _size(sample: str) -> tuple[int, int]:
    """Return a sample's size without storing the sample."""
    return sample_image(sample).size


def ablation_chips(without: Ablation, subject: ViewContext) -> dict[str, Any]:
    """Return the ablation for the page's chips: text and parts; layers, heads from 1, patches from 0."""
    about = subject.about
    return {
        "text": without.text(),
        "heads": [f"{layer + 1}.{head + 1}" for layer, head in without.heads],
        "mlps": [layer + 1 for layer in without.mlps],
        "patches": list(without.patches),
        "heads_as": without.heads_as,
        "patches_as": without.patches_as,
        "count": [about.layers, about.heads, about.grid.patches],
    }
