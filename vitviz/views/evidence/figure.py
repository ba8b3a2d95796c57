"""Attribution figure for print: the map over the image, and with detail the panel beside it."""

import numpy as np

from vitviz.analyses.protocol import TITLES
from vitviz.charts.chart import symmetric_limit
from vitviz.charts.mpl.spec import NARROW, WIDE, FigureSpec, Matrix, PatchFrame, Scale
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.evidence import charts, compute, sentences, truth
from vitviz.views.printing import fixed, join_texts, map_over_image, prefix_name, writer_name
from vitviz.views.shared import target_name

REST = "Sum of map, prefix tokens and constants; {rest} remains unexplained."
HELD = "Change per term at the earlier LayerNorm scale; the scale’s own effect is “norm”."


def spec(view, subject, settings, style) -> FigureSpec:
    """Return the map of contributions by patch, with their sum; with detail also the panel and all heads."""
    settings = {**settings, "show": "account"} if settings["difference"] == "on" else settings
    if settings["show"] == "sentences":
        return sentences.spec(subject, settings, style)
    deeper = settings["show"] == "writers"
    values = np.asarray(view.item(subject, "writer_map" if deeper else "map", settings), float)
    limit, direct = symmetric_limit(values), settings["method"] == "ledger"
    label = LocalizedText("Relevance of each patch, in the method’s own units")
    label = _share(subject, settings) if direct else label
    marks = tuple(PatchFrame(patch, "#111111") for patch in settings["patches"])
    caption = _upstream_caption(subject, settings) if deeper else _map_caption(settings)
    title = join_texts(target_name(subject, settings["target"]), caption)
    main = map_over_image(subject, style, values, Scale("balance", -limit, limit, label), title, marks)
    if deeper:
        return _writers(view, subject, settings, main, style)
    notes = tuple(_notes(view, subject, settings))
    if not style.detail:
        return FigureSpec(((main,),), notes, width=NARROW)
    beside, below = view.chart(subject, settings), _walls(view, subject, settings)
    rows = (main, beside), *([below] if below else [])
    return FigureSpec(rows, (*notes, *beside.notes), width=WIDE)


def _upstream_caption(subject, settings) -> str:
    """Return the caption with the head that reads and the source whose contribution is mapped."""
    reader = writer_name("head", *(index + 1 for index in compute.trail(subject, settings)[-1]))
    kind, *place = settings["writer"].split(".")
    writer = writer_name(kind, *place) if kind else LocalizedText("all sources")
    return LocalizedText("{head}: {writer}, by patch", head=reader, writer=writer)


def _writers(view, subject, settings, main, style) -> FigureSpec:
    """Return the upstream sources of a head: the map; with detail also all sources and all earlier heads."""
    heads = np.asarray(view.item(subject, "writer_heads", settings), float)
    chart = view.chart(subject, settings)
    if not style.detail or not np.isfinite(heads).any():
        return FigureSpec(((main,),), chart.notes, width=NARROW)
    limit = symmetric_limit(heads)
    title = LocalizedText("Earlier heads, colour scale {most}", most=f"±{limit:.2f}")
    label = _share(subject, settings)
    wall = _cells(heads, {**settings, "chosen": ""}, limit, title, label)
    charts = (truth.chart(subject, settings),) if settings["beside"] == "truth" else ()
    notes = (*chart.notes, *(note for panel in charts for note in panel.notes))
    return FigureSpec(((main, chart), (*charts, wall)), notes, width=WIDE)


def _map_caption(settings) -> str:
    """Return the caption of the map: the method, or the heads whose contributions are summed."""
    if settings["method"] != "ledger":
        return TITLES[settings["method"]]
    if settings["until"] and not settings["chosen"]:
        return LocalizedText("All heads of layers 1 to {layer}", layer=settings["until"])
    layer, *head = settings["chosen"].split(".")
    if head:
        return writer_name("head", layer, *head)
    return LocalizedText("All heads of layer {layer}" if layer else "All heads, by source patch", layer=layer)


def _notes(view, subject, settings) -> list[str]:
    """Return the sum with its terms; for a map of another method, the part that remains unexplained."""
    contributions = np.asarray(view.item(subject, "lines", settings), float)
    (start, pooling, norm, head, logit, total), scaled = contributions[:6], contributions[6:].sum()
    if settings["method"] != "ledger":
        explained, unexplained = np.asarray(view.item(subject, "explained", settings), float)
        if np.isnan(explained):
            return [LocalizedText("This map only ranks the patches; its values do not sum to the logit.")]
        unexplained = LocalizedText(REST, rest=fixed(unexplained))
        return [_sum_note(subject, settings, explained, logit), unexplained]
    patches, *prefix = np.asarray(view.item(subject, "sources", settings), float)
    mlps, biases = (float(np.sum(view.item(subject, name, settings))) for name in ("mlps", "biases"))
    contributions = [(LocalizedText("patches"), patches)]
    for name, value in zip(subject.grid.prefix_names, prefix, strict=True):
        contributions.append((LocalizedText("the {name} token", name=prefix_name(name)), value))
    contributions += [(LocalizedText("start"), start), (LocalizedText("MLPs"), mlps)]
    contributions += [(LocalizedText("biases"), biases + norm + head)]
    contributions += [(LocalizedText("attention pooling"), pooling)] if pooling else []
    contributions += [(LocalizedText("norm"), scaled)] if scaled else []
    notes = [LocalizedText(HELD)] if settings["difference"] == "on" else []
    parts = [join_texts(_term(value, i), name, by=" ") for i, (name, value) in enumerate(contributions)]
    total_text = _sum_note(subject, settings, total, logit)
    return [join_texts(total_text, join_texts(*parts, by=" "), by=" = "), *notes]


def _term(value: float, place: int) -> str:
    """Format a term of a sum, with its sign in front; the first (`place` 0) has no plus."""
    sign = ("−" if value < 0 else "") if not place else "− " if value < 0 else "+ "
    return f"{sign}{abs(value):.2f}"


def _sum_note(subject, settings, total: float, logit: float) -> LocalizedText:
    """Return the note that compares the sum of the contributions, `total`, with the logit.

    For classes given as vectors, it also gives the logit as scale × cosine + bias.
    """
    classes, pair = subject.trace.classes, "-" in settings["target"]
    equal = fixed(total) == fixed(logit)
    text = (
        "Contributions sum to {sum}, the {name}"
        if equal
        else "Contributions sum to {sum}; the {name} is {logit}"
    )
    name = charts.sum_name(subject, settings)
    details = LocalizedText(text, sum=fixed(total), logit=fixed(logit), name=name)
    if classes is None or settings["difference"] == "on" or settings["relative"] == "yes":
        return details
    bias = 0.0 if pair else classes.bias  # cancels in the difference of two classes
    cosine = LocalizedText("difference of cosines") if pair else LocalizedText("cosine")
    parts = [f"{classes.scale:.3g} ×", cosine, fixed((logit - bias) / classes.scale, 4)]
    return join_texts(details, join_texts(*parts, *([_term(bias, 1)] if bias else []), by=" "), by=" = ")


def _walls(view, subject, settings) -> tuple[Matrix, ...]:
    """Return the matrices (head, layer) of contributions and drops; () for panels without heads.

    If patches are selected, only their contributions count. Drops of ablated heads share one scale with the
    contributions.
    """
    if settings["show"] == "account":
        losses, shares = (), np.asarray(view.item(subject, "heads", settings), float)
    elif settings["show"] == "effects" and settings["part"] == "heads":
        shares, *losses = charts.contributions_and_drops(view, subject, settings)
    else:
        return ()
    limit = symmetric_limit(np.stack([shares, *losses]))
    lost = LocalizedText("Drop when each head is ablated, colour scale {most}", most=f"±{limit:.2f}")
    chosen = settings["patches"] and not losses
    own = (
        "From the selected patches, colour scale {most}"
        if chosen
        else "Contribution of every head, colour scale {most}"
    )
    drop, own = (
        LocalizedText("Drop in the logit: negative, positive"),
        LocalizedText(own, most=f"±{limit:.2f}"),
    )
    walls = [_cells(loss, settings, limit, lost, drop) for loss in losses]
    return (*walls, _cells(shares, settings, limit, own, _share(subject, settings)))


def _cells(values: np.ndarray, settings, limit: float, title: str, label: str) -> Matrix:
    """Return values (layer, head) as a matrix panel: layers across, heads down, zero in the middle."""
    chosen = None
    if "." in settings["chosen"]:
        layer, head = (int(number) for number in settings["chosen"].split("."))
        chosen = (head - 1) * len(values) + layer - 1
    scale = Scale("balance", -limit, limit, label)
    return Matrix(values.T, scale, LocalizedText("layer"), LocalizedText("head"), title, chosen)


def _share(subject, settings) -> LocalizedText:
    """Return the label of the colour scale: contribution to the logit, value or difference."""
    name = charts.sum_name(subject, settings)
    return LocalizedText("Contribution to the {sum}: negative, positive", sum=name)
