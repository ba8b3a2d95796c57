"""What stands beside the picture: the answer, and what it took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vitviz.ui.language import told

if TYPE_CHECKING:
    from vitviz.engine import Checkpoint
    from vitviz.panels import Subject
    from vitviz.trace import Trace


def stage(trace: Trace) -> dict[str, Any]:
    """The upload, the crop in it, and the size of the model's input."""
    return {"upload": list(trace.view.upload), "box": list(trace.view.box), "input": list(trace.grid.pixels)}


def answer(subject: Subject) -> dict[str, Any]:
    """The five likeliest classes, and the device, time and shapes of the forward pass."""
    trace, checkpoint = subject.trace, subject.inspector.checkpoint
    grid, (attention, *_) = trace.grid, trace.layers
    height, width = grid.pixels
    prefix = " + ".join(grid.prefix_names) or "none"
    shapes = [
        [told("Input"), f"{height} × {width} × 3"],
        [told("Patches"), f"{grid.rows} × {grid.cols} of {grid.patch[0]} × {grid.patch[1]} px"],
        [told("Tokens"), f"{grid.tokens} ({grid.patches} patches, prefix: {prefix})"],
        [told("Width"), str(trace.tokens[0].shape[-1])],
        [told("Layers × heads"), f"{len(trace.layers)} × {attention.heads}"],
        [told("q, k, v per head"), f"{attention.q.shape[1]} × {attention.q.shape[2]}"],
        [told("Parameters"), f"{sum(p.numel() for p in subject.inspector.model.parameters()):,}"],
        [told("Computed in"), trace.dtype],
        [told("Trained on"), checkpoint.trained_on],
        [told("Licence"), checkpoint.licence],
    ]
    return {
        "checkpoint": checkpoint.name,
        "notes": _notes(checkpoint, trace),
        "top": [[label, round(probability, 6)] for label, probability in trace.top(5)],
        "device": trace.device,
        "milliseconds": round(trace.milliseconds, 1),
        "shapes": [[name, text] for name, text in shapes if text],
    }


def _notes(checkpoint: Checkpoint, trace: Trace) -> list[dict[str, Any]]:
    """What a reader of the prediction has to know, as sentences with the values to be filled in."""
    notes = [{"text": checkpoint.note, "values": {}}] if checkpoint.note else []
    if trace.logits is not None and 0 < len(trace.labels) < 1000:
        text = told("It can only answer with one of its {count} classes, even where none of them fits the picture.")
        notes.append({"text": text, "values": {"count": len(trace.labels)}})
    if trace.deviation is not None:
        text = told("Computed in {dtype}: on its first picture no attention weight is farther from float32 than {attention}.")
        if trace.deviation.classes is not None:
            text = told("Computed in {dtype}: on its first picture no attention weight is farther from float32 than {attention}, no class probability than {classes}.")
        distance = {name: f"{value:.2g}" for name, value in vars(trace.deviation).items() if value is not None}
        notes.append({"text": text, "values": {"dtype": trace.dtype, **distance}})
    return notes
