"""Decomposition of one attention score before the softmax, by the sources of its query and key."""

from typing import Any

import numpy as np

from vitviz.charts.chart import Matrix, Scale, symmetric_limit, table
from vitviz.charts.mpl.spec import NARROW, WIDE, FigureSpec
from vitviz.errors import UnsupportedModel
from vitviz.traces.localized_text import LocalizedText, message_of
from vitviz.views import lazy
from vitviz.views.controls import position_of_name, token_names
from vitviz.views.printing import (
    fixed,
    join_texts,
    patch_name,
    signed,
    token_name,
    writer_name,
    writer_numbers,
)
from vitviz.views.shared import ensure_recorded
from vitviz.views.subject import Settings, ViewContext

FEW = 48  # most sources shown as separate rows; above, the heads of a layer are grouped
FOUR = (
    "Query × key: content × content {cc}, content × position {cp}, position × content {pc}, position "
    "× position {pp}."
)
SUM = "The contributions sum to {sum}: the score minus that of {other}."
BIAS = "{bias} of the sum is the relative position bias, which has no source."
RAW = "Contributions to the score itself sum to {total} of {score}, with norms held fixed."
ABLATED = "This head is ablated in this pass, so there is no score to explain."
NO_POSITION = "This model adds no position embedding, so content and position cannot be separated."
NOBODY = ("auto", "mean")  # settings without a token: the key of the largest weight, the mean over keys


def score_decomposition(view, subject: ViewContext, settings: Settings):
    """Return an attention score by sources of query and key, and the names of the tokens involved."""
    trace, layer, head = subject.trace, settings["layer"] - 1, settings["head"] - 1
    other = settings["key"]
    if other in NOBODY:
        other = token_names(int(np.nanargmax(view.item(subject, "line", settings))), trace.grid)
    names = [token_names(settings["token"], trace.grid), other]
    names = names if settings["direction"] == "row" else names[::-1]
    names += [] if settings["against"] in NOBODY else [settings["against"]]
    places = [lazy.query.query_place(trace, name) for name in names]
    ensure_recorded(subject)
    result = subject.once(
        f"score {layer} {head} {places}",
        lambda: lazy.circuits.attention_score_attribution(subject.inspector, trace, layer, head, *places),
    )
    return result, names


def score_arrays(view, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
    """Return the attention score by source for export: matrices, sums, tokens and sources."""
    result, names = score_decomposition(view, subject, settings)
    relative = result.relative.sum().item() + result.relative_rest
    return {
        "score": result.matrix.numpy(),
        "score_relative": result.relative.numpy(),
        "score_sums": np.asarray([result.score, result.total, result.rest, relative, result.relative_rest]),
        "score_tokens": np.asarray([str(name) for name in names]),
        "score_writers": np.asarray([".".join(map(str, writer_numbers(w))) for w in result.writers]),
    }


def score_panel(view, subject: ViewContext, settings: Settings) -> dict[str, Any]:
    """Return the matrix and texts of the panel; without a decomposition, only the reason."""
    if settings["head"] - 1 in subject.trace.layers[settings["layer"] - 1].replaced:
        return {"notes": (LocalizedText(ABLATED),)}
    try:
        result, names = score_decomposition(view, subject, settings)
    except UnsupportedModel as error:
        return {"notes": (message_of(error),)}
    keys = [("biases",) if w.kind in ("bias", "constant") else writer_numbers(w) for w in result.writers]
    if len(set(keys)) > FEW:
        keys = [("heads", key[1]) if key[0] == "head" else key for key in keys]
    writers = sorted(set(keys), key=lambda key: (key == ("biases",), keys.index(key)))
    groups = np.asarray([[float(key == group) for key in keys] for group in writers])
    starts = {key[1]: key for key in reversed(writers) if len(key) > 1}  # the first of each layer
    short = {"embedding": LocalizedText("patch"), "positions": LocalizedText("position")}
    short["biases"] = LocalizedText("biases")
    rows = [short.get(key[0]) or (str(key[1]) if starts[key[1]] == key else "") for key in writers]
    numbers = ["" if key[0] in short else row for key, row in zip(writers, rows, strict=True)]
    cols = rows if all(rows) else numbers
    places = [position_of_name(str(name), subject.grid) for name in names]
    prefix = subject.grid.prefix
    query, key, *other = (
        patch_name(place - prefix) if place >= prefix else token_name(subject.grid, place) for place in places
    )
    other = other[0] if other else LocalizedText("the mean over all keys")
    pair = LocalizedText("Query: {token}", token=query), LocalizedText("Key: {token}", token=key)
    slots = zip(("token", "key") if settings["direction"] == "row" else ("key", "token"), pair, strict=True)
    four, relative = result.content_position, result.relative_rest
    above = LocalizedText(NO_POSITION)
    if four is not None:
        parts = map(signed, four.flatten().tolist())
        above = LocalizedText(FOUR, **dict(zip(("cc", "cp", "pc", "pp"), parts, strict=True)))
    notes = [LocalizedText(SUM, sum=signed(result.relative.sum().item() + relative), other=other)]
    notes += [LocalizedText(BIAS, bias=signed(relative))] if subject.trace.layers[0].bias is not None else []
    question = [settings[name] for name in ("layer", "head", "direction")] + places
    return {
        "slots": (*slots, ("against", LocalizedText("Compared with: {token}", token=other))),
        "places": places,
        "above": above,
        "matrix": _matrix(groups @ result.relative.numpy() @ groups.T, writers, (rows, cols), question),
        "heads": [dict(zip(("layer", "head"), writer[1:], strict=False)) for writer in writers],
        "notes": (*notes, LocalizedText(RAW, total=fixed(result.total), score=fixed(result.score))),
    }


def _matrix(values: np.ndarray, writers, names, question) -> Matrix:
    """Return the matrix of contributions by source, on a scale symmetric about zero."""
    limit, writer_names = symmetric_limit(values), [writer_name(*writer) for writer in writers]
    scale = Scale("balance", -limit, limit, LocalizedText("Contribution to the score: negative, positive"))
    title = LocalizedText("Sources of query and key")
    labels = LocalizedText("source of the key"), LocalizedText("source of the query")
    details = (
        LocalizedText("{value}", value=table(values, fixed)),
        LocalizedText("query: {writer}", writer=[[name] for name in writer_names]),
        LocalizedText("key: {writer}", writer=[writer_names]),
    )
    options = {"told": details, "question": str(question)}
    return Matrix(values, scale, *labels, title, rows=tuple(names[0]), cols=tuple(names[1]), **options)


def spec(view, subject: ViewContext, settings: Settings, main) -> FigureSpec:
    """Return the attention map with the matrix of sources beside it."""
    details = score_panel(view, subject, settings)
    if "matrix" not in details:
        return FigureSpec(((main,),), details["notes"], width=NARROW)
    slots = join_texts(*(slot for _, slot in details["slots"]))
    return FigureSpec(((main, details["matrix"]),), (slots, details["above"], *details["notes"]), width=WIDE)
