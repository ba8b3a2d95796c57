"""The numbers of the guided tour: what a step shows beside the trace's own tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from vitviz.errors import Unknown, WrongSetting
from vitviz.views.subject import Subject

if TYPE_CHECKING:
    from vitviz.analyses import WorkedRow
    from vitviz.engine.parts import Parts
    from vitviz.record.trace import Trace

SEEDS = 999  # so many orders of the patches can be asked for
SHOWN = 5  # classes worked out


def embedding_explained(trace: Trace, parts: Parts, preprocessing) -> bool:
    """Whether E x_p + bias is what the model made of its first patch, so that a filter can be shown."""
    tall, wide = trace.grid.patch
    if parts.embedding is None or parts.embedding.weight.shape[1] != tall * wide * 3:
        return False
    pixels = trace.view.picture[:tall, :wide].astype(np.float64) / 255
    pixels = (pixels - preprocessing.mean) / preprocessing.std
    made = parts.embedding.weight.numpy() @ pixels.flatten() + parts.embedding.bias.numpy()
    real = trace.patch_embedding[0].numpy()
    return bool(np.abs(made - real).max() <= 1e-3 * max(np.abs(real).max(), 1e-30))


def classes_of(trace: Trace) -> int:
    """How many logits there are; 0 for a model without a classifier."""
    return 0 if trace.logits is None else trace.logits.numel()


def one_filter(subject: Subject, number: int) -> np.ndarray:
    """One row of E, then its bias."""
    embedding = subject.inspector.parts(subject.trace.grid.pixels).embedding
    if embedding is None:
        raise Unknown(
            "This model's patches are not embedded by one matrix over pixels, so it has no filters to show."
        )
    if number >= len(embedding.weight):
        raise WrongSetting(
            f"Given number={number}; expected a whole number from 0 to {len(embedding.weight) - 1}."
        )
    return np.append(embedding.weight[number].numpy(), embedding.bias[number].numpy())


def worked(row: WorkedRow) -> dict[str, Any]:
    """One row of attention, step by step."""
    vectors = ("q", "products", "scores", "powers", "weights", "output")
    plain = {name: getattr(row, name) for name in ("scale", "shift", "total", "replaced")}
    bias = None if row.bias is None else listed(row.bias)
    return {**{name: listed(getattr(row, name)) for name in vectors}, **plain, "bias": bias}


def answer(subject: Subject) -> dict[str, Any]:
    """From the last layer to the probabilities: what is read, y, and the likeliest classes worked out."""
    trace, parts = subject.trace, subject.inspector.parts(subject.trace.grid.pixels)
    y = subject.inspector.readout(trace).numpy().astype(np.float64)
    read = listed(trace.tokens[-1][0]) if trace.pool == "class" else None
    found = {"read": read, "y": listed(y), "classes": classes_of(trace)}
    if trace.logits is None:
        return found
    logits = trace.logits.numpy().astype(np.float64)
    each = trace.classes is not None and trace.classes.score == "sigmoid"
    shift = float(logits.max()) if abs(logits).max() > 30 and not each else 0.0
    powers = np.exp(-logits if each else logits - shift)
    total = 0.0 if each else float(powers.sum())
    shares = trace.probabilities().numpy()
    likeliest = np.argsort(-logits, kind="stable")[:SHOWN]
    head = parts.classifier
    if head is not None and (
        head.weight.shape != (len(logits), len(y))
        or abs(head.weight.numpy() @ y + head.bias.numpy() - logits).max()
        > 1e-3 * max(abs(logits).max(), 1.0)
    ):
        # two heads, or something between y and the head: the logits are shown, not how they are made
        head = None
    rows = []
    for c in likeliest.tolist():
        row = {"name": trace.named(c), "logit": short(logits[c]), "power": short(powers[c])}
        row["probability"] = short(shares[c])
        if head is not None:
            row |= {"weights": listed(head.weight[c]), "bias": short(head.bias[c].item())}
        rows.append(row)
    return {**found, "top": rows, "total": total, "shift": shift, "each": each}


def experiment(subject: Subject, seed: int) -> dict[str, Any]:
    """The answers to the picture and to its shuffled patches, with E_pos and without."""
    if not 1 <= seed <= SEEDS:
        raise WrongSetting(f"Given seed={seed}; expected a whole number from 1 to {SEEDS}.")
    from vitviz.engine.passes.experiments import permutation

    trace, inspector = subject.trace, subject.inspector
    parts = inspector.parts(trace.grid.pixels)
    traces = {"original": trace, "shuffled": inspector.experiment(trace.view, shuffle=seed)}
    if parts.why_positions is None:
        traces["zeroed"] = inspector.experiment(trace.view, positions=False)
        traces["both"] = inspector.experiment(trace.view, shuffle=seed, positions=False)
    ys = {name: inspector.readout(one).numpy().astype(np.float64) for name, one in traces.items()}
    outputs = {
        name: ys[name] if one.logits is None else one.logits.numpy().astype(np.float64)
        for name, one in traces.items()
    }

    def difference(one: str, two: str) -> dict[str, float] | None:
        if one not in outputs or two not in outputs:
            return None
        largest = float(abs(outputs[one] - outputs[two]).max())
        return {"largest": largest, "relative": largest / max(float(abs(outputs[one]).max()), 1e-30)}

    answers = {}
    for name, one in traces.items():
        likeness = short(_cosine(ys["original"], ys[name]))
        answers[name] = {"top": [[label, short(p)] for label, p in one.top(3)], "likeness": likeness}
    order = permutation(trace.grid.patches, seed).tolist()
    apart = {"with": difference("original", "shuffled"), "without": difference("zeroed", "both")}
    return {"order": order, "answers": answers, **apart}


def _cosine(one: np.ndarray, two: np.ndarray) -> float:
    return float(one @ two / max(np.linalg.norm(one) * np.linalg.norm(two), 1e-30))


def short(number: float) -> float:
    return float(f"{number:.9g}")  # more than float32 has


def listed(values) -> list[float]:
    return [short(value) for value in values.tolist()]
