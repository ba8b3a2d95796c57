"""Numbers of the guided tour that are not tensors of the trace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from vitviz import analyses
from vitviz.charts.chart import to_json
from vitviz.errors import Unknown, VitvizError, WrongSetting
from vitviz.traces.localized_text import message_of
from vitviz.views.printing import patch_name, writer_name, writer_numbers
from vitviz.views.shared import ablation_drops, shared_logit_terms, shared_upstream
from vitviz.views.subject import ViewContext

if TYPE_CHECKING:
    from vitviz.analyses import WorkedRow
    from vitviz.engine.parts import ModelParts
    from vitviz.traces.trace import Trace

SEEDS = 999  # number of permutations of the patches that can be requested
SHOWN = 5  # classes whose probabilities are computed step by step
SHARES = 3  # heads whose contributions are separate rows
ANSWERS = 3  # likeliest classes with and without the head


def embedding_explained(trace: Trace, parts: ModelParts, preprocessing) -> bool:
    """Return True if E x_p + bias equals the model's embedding of the first patch (filters can be shown)."""
    tall, wide = trace.grid.patch
    if parts.embedding is None or parts.embedding.weight.shape[1] != tall * wide * 3:
        return False
    pixels = trace.view.picture[:tall, :wide].astype(np.float64) / 255
    pixels = (pixels - preprocessing.mean) / preprocessing.std
    embedding = parts.embedding.weight.numpy() @ pixels.flatten() + parts.embedding.bias.numpy()
    real = trace.patch_embedding[0].numpy()
    return bool(np.abs(embedding - real).max() <= 1e-3 * max(np.abs(real).max(), 1e-30))


def classes_of(trace: Trace) -> int:
    """Return the number of classes (logits); 0 for a model without a classifier."""
    return 0 if trace.logits is None else trace.logits.numel()


def filter_row(subject: ViewContext, number: int) -> np.ndarray:
    """Return row `number` (from 0) of the embedding matrix E, followed by its bias."""
    embedding = subject.inspector.parts(subject.trace.grid.pixels).embedding
    if embedding is None:
        raise Unknown(
            "This model's patches are not embedded by one matrix over pixels, so it has no filters to show."
        )
    if number >= len(embedding.weight):
        raise WrongSetting(
            f"number={number} is not valid; expected a whole number from 0 to {len(embedding.weight) - 1}."
        )
    return np.append(embedding.weight[number].numpy(), embedding.bias[number].numpy())


def worked_row_json(row: WorkedRow) -> dict[str, Any]:
    """Return the computation of one row of attention as JSON, step by step."""
    vectors = ("q", "products", "scores", "powers", "weights", "output")
    plain = {name: getattr(row, name) for name in ("scale", "shift", "total", "replaced")}
    bias = None if row.bias is None else round_list(row.bias)
    return {**{name: round_list(getattr(row, name)) for name in vectors}, **plain, "bias": bias}


def prediction_json(subject: ViewContext) -> dict[str, Any]:
    """Return the tokens read, y, and the computation of the likeliest classes' probabilities."""
    trace, parts = subject.trace, subject.inspector.parts(subject.trace.grid.pixels)
    y = subject.inspector.readout(trace).numpy().astype(np.float64)
    read = round_list(trace.tokens[-1][0]) if trace.pool == "class" else None
    result = {"read": read, "y": round_list(y), "classes": classes_of(trace)}
    if trace.logits is None:
        return result
    logits = trace.logits.numpy().astype(np.float64)
    one_of = trace.head_type == "softmax"
    shift = float(logits.max()) if abs(logits).max() > 30 and one_of else 0.0
    valued = trace.head_type == "value"
    powers = None if valued else np.exp(logits - shift if one_of else -logits)
    total = float(powers.sum()) if one_of else 0.0
    scores = trace.scores().numpy()
    likeliest = np.argsort(-logits, kind="stable")[:SHOWN]
    head = parts.classifier
    if head is not None and (
        head.weight.shape != (len(logits), len(y))
        or abs(head.weight.numpy() @ y + head.bias.numpy() - logits).max()
        > 1e-3 * max(abs(logits).max(), 1.0)
    ):
        # two heads, or a layer between y and the head: show the logits without their computation
        head = None
    rows = []
    for c in likeliest.tolist():
        row = {"name": trace.named(c), "logit": round_short(logits[c])}
        if not valued:
            row |= {"power": round_short(powers[c]), "probability": round_short(scores[c])}
        if head is not None:
            row |= {"weights": round_list(head.weight[c]), "bias": round_short(head.bias[c].item())}
        rows.append(row)
    return {**result, "top": rows, "total": total, "shift": shift, "each": not one_of}


def has_decomposition(subject: ViewContext) -> bool:
    """Return True if the logit of the first prediction has an exact decomposition."""
    if subject.trace.logits is None:
        return False
    try:
        shared_logit_terms(subject)
    except VitvizError:
        return False
    return True


def largest_contributions(subject: ViewContext) -> dict[str, Any]:
    """Return the top logit's largest contributions by head (from 1), the rest and the sum, as JSON."""
    trace = subject.trace
    if not has_decomposition(subject):
        return {}
    first = int(trace.logits.argmax())
    account = analyses.attribution_of(shared_logit_terms(subject), first)
    shares, heads = account.heads.flatten(), account.heads.shape[1]
    largest = shares.argsort(descending=True)[:SHARES].tolist()
    terms = [{"layer": i // heads + 1, "head": i % heads + 1, "share": shares[i].item()} for i in largest]
    remainder = account.total - sum(line["share"] for line in terms)
    sums = {"rest": remainder, "total": account.total, "logit": account.logit}
    return {"name": trace.named(first), "lines": terms, **sums}


def prediction_without_head(subject: ViewContext) -> dict[str, Any]:
    """Return predictions with the head of the largest contribution ablated, and the logit's drop, as JSON.

    If something has been removed already, return only the sum: a drop would then measure something else.
    """
    result = largest_contributions(subject)
    if not result or subject.trace.without:
        return result
    head = result["lines"][0]
    logits = subject.trace.logits.double()
    lost = ablation_drops(subject, head["layer"] - 1)[head["head"] - 1].double()
    left, first = logits - lost, int(logits.argmax())
    before, after = (replace(subject.trace, logits=row).top(ANSWERS) for row in (logits, left))
    numbers = {"lost": lost[first].item(), "left": left[first].item()}
    return {**result, "before": before, "after": after, **numbers}


def largest_path(subject: ViewContext) -> dict[str, Any]:
    """Return one path back from the first prediction; {} or only the "reason" if there is none.

    The path has the head of the largest contribution, its largest source, and the patch that passes most of
    that source's contribution. Each line is a part of the line above. `settings` open the path in the
    Attribution view.
    """
    result, trace = largest_contributions(subject), subject.trace
    heads = [
        (line["layer"], line["head"])
        for line in result.get("lines", ())
        if line["head"] - 1 not in trace.layers[line["layer"] - 1].replaced
    ]
    if not heads:
        return {}
    (layer, head), first = heads[0], int(trace.logits.argmax())
    try:
        read = shared_upstream(subject, first, layer - 1, head - 1)
    except VitvizError as error:
        return {"reason": to_json(message_of(error))}
    terms = [line for line in read.lines() if line[0].kind not in ("bias", "constant")]
    writer, part = max(terms, key=lambda line: abs(line[1]))
    patches = read.by_token.of(writer)[subject.grid.prefix :].nan_to_num()
    patch = int((patches * (1 if part >= 0 else -1)).argmax())
    names = writer_name("head", layer, head), writer_name(*writer_numbers(writer)), patch_name(patch)
    shares = zip(names, (read.share, part, patches[patch].item()), strict=True)
    return {
        "name": result["name"],
        "logit": result["total"],
        "lines": [{"name": to_json(name), "share": share} for name, share in shares],
        "patch": patch,
        "settings": {"trail": f"{layer}.{head}", "writer": ".".join(map(str, writer_numbers(writer)))},
    }


def shuffled_predictions(subject: ViewContext, seed: int) -> dict[str, Any]:
    """Return the predictions for the image and for its shuffled patches, with and without E_pos."""
    if not 1 <= seed <= SEEDS:
        raise WrongSetting(f"seed={seed} is not valid; expected a whole number from 1 to {SEEDS}.")
    from vitviz.engine.forward.shuffling import permutation

    trace, inspector = subject.trace, subject.inspector
    parts = inspector.parts(trace.grid.pixels)
    traces = {"original": trace, "shuffled": inspector.experiment(trace.view, shuffle=seed)}
    if parts.why_positions is None:
        traces["zeroed"] = inspector.experiment(trace.view, positions=False)
        traces["both"] = inspector.experiment(trace.view, shuffle=seed, positions=False)
    ys = {name: inspector.readout(trace).numpy().astype(np.float64) for name, trace in traces.items()}
    outputs = {
        name: ys[name] if trace.logits is None else trace.logits.numpy().astype(np.float64)
        for name, trace in traces.items()
    }

    def difference(name: str, other: str) -> dict[str, float] | None:
        if name not in outputs or other not in outputs:
            return None
        largest = float(abs(outputs[name] - outputs[other]).max())
        return {"largest": largest, "relative": largest / max(float(abs(outputs[name]).max()), 1e-30)}

    answers, plain = {}, ys["original"]
    for name, variant in traces.items():
        cosine = plain @ ys[name] / max(np.linalg.norm(plain) * np.linalg.norm(ys[name]), 1e-30)
        answers[name] = {
            "top": [[label, round_short(p)] for label, p in variant.top(3)],
            "likeness": round_short(cosine),
        }
    order = permutation(trace.grid.patches, seed).tolist()
    differences = {"with": difference("original", "shuffled"), "without": difference("zeroed", "both")}
    return {"order": order, "answers": answers, **differences}


def round_short(number: float) -> float:
    """Return a number rounded to nine significant digits, which keeps its JSON short."""
    return float(f"{number:.9g}")  # more than float32 has


def round_list(values) -> list[float]:
    """Return the entries of a vector as a list, each rounded to nine significant digits."""
    return [round_short(value) for value in values.tolist()]
