"""Charts beside the map: waterfall of the attribution, logit lens, component ablation, upstream sources."""

import math

import numpy as np

from vitviz.charts.chart import BLUE, GREY, ORANGE, SEVERAL, Bars, Chart, Series, range_with_margin
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.evidence import compute
from vitviz.views.printing import fixed, join_texts, signed, writer_name
from vitviz.views.shared import class_name

PALE = {ORANGE: "#e3b78e", BLUE: "#9cc3e2"}  # paler variants for MLPs
HELD = (
    "The sources sum to {sum}: patches {embedding}, positions {positions}, heads {heads}, MLPs {mlps},"
    " biases {biases}. The head’s contribution is {share}. Attention and norms are frozen."
)
LEGEND = (
    (ORANGE, LocalizedText("raises (attention)")),
    (BLUE, LocalizedText("lowers (attention)")),
    (PALE[ORANGE], LocalizedText("raises (MLP)")),
    (PALE[BLUE], LocalizedText("lowers (MLP)")),
)
NO_CORRELATION = "No correlation: too few values, or all are equal."
MARKED = 3  # dots whose distance from the diagonal is drawn


def sum_name(subject, settings) -> LocalizedText:
    """Return the name of what contributions sum to: logit, value, a difference of two, or a change."""
    values, pair = subject.trace.head_type == "value", "-" in settings["target"]
    if settings.get("difference") == "on" and pair:
        return LocalizedText(
            "change of the difference of values" if values else "change of the difference of logits"
        )
    if settings.get("difference") == "on":
        return LocalizedText("change of the value" if values else "change of the logit")
    if pair:
        return LocalizedText("difference of values" if values else "difference of logits")
    return LocalizedText("value" if values else "logit")


def waterfall_chart(view, subject, settings) -> Chart:
    """Return the waterfall: start, attention and MLP of each layer, remaining biases, and the logit."""
    heads = np.asarray(view.item(subject, "heads", {**settings, "patches": ()}), float).sum(axis=1)
    mlps, biases = (np.asarray(view.item(subject, name, settings), float) for name in ("mlps", "biases"))
    contributions = np.asarray(view.item(subject, "lines", settings), float)
    (start, pooling, norm, head, _, total), scaled = contributions[:6], contributions[6:].sum()
    steps = [start, *np.stack([heads + biases, mlps], axis=1).ravel(), norm + head + pooling]
    constants = [LocalizedText("biases"), *([LocalizedText("norm")] if scaled else [])]
    steps += [scaled] if scaled else []
    after, total_is = np.cumsum(steps), sum_name(subject, settings)
    before = after - steps
    colours = [ORANGE if step >= 0 else BLUE for step in steps]
    last = len(steps) - len(constants)
    colours = [PALE[colour] if i and i % 2 == 0 and i < last else colour for i, colour in enumerate(colours)]
    place = np.arange(len(steps) + 1.0)
    parts = []
    for layer in range(1, len(heads) + 1):
        parts += [LocalizedText("Layer {layer}, attention", layer=layer), writer_name("mlp", layer)]
    texts = {"said": tuple(map(signed, (*steps, total))), "told": (LocalizedText("{part}"),)}
    texts["also"] = {"part": [LocalizedText("start"), *parts, *constants, total_is]}
    bars = Bars(place, np.append(before, 0.0), np.append(after, total), (*colours, GREY), **texts)
    low, high = min(0.0, before.min(), after.min()), max(0.0, before.max(), after.max())
    stride = max(1, len(heads) // 12)
    ticks = tuple((2.0 * i + 1.5, str(i + 1)) for i in range(0, len(heads), stride))
    spare = 0.04 * (high - low) or 1.0
    x_label = LocalizedText("start, layers, biases, {sum}", sum=total_is)
    x_label = LocalizedText("start, layers, biases, norm, {sum}", sum=total_is) if scaled else x_label
    title = LocalizedText("Direct attribution, from the start to the {sum}", sum=total_is)
    ends = (-0.7, place[-1] + 0.7), (low - spare if low < 0 else 0.0, high + spare)
    options = {"bars": bars, "ticks": ticks, "named": LEGEND, "aspect": 0.78}
    options["question"] = f"{settings['target']}/{settings['relative']}/{settings['difference']}"
    return Chart(x_label, LocalizedText("Contribution to the {sum}", sum=total_is), *ends, title, **options)


def upstream_chart(view, subject, settings) -> Chart:
    """Return bars of all sources of the selected head: patch, position, heads and MLP by layer, biases."""
    result, followed = compute.upstream_sources(subject, settings), compute.trail(subject, settings)
    layered = (result.heads, result.mlps, result.biases)
    heads, mlps, biases = (tensor.double().nan_to_num().numpy() for tensor in layered)
    layer, head = (index + 1 for index in followed[-1])
    bars = [(("embedding",), result.embedding)]
    bars += [] if result.positions is None else [(("positions",), result.positions)]
    ends = len(bars)
    for number in range(1, layer):
        bars += [(("heads", number), heads[number - 1].sum()), (("mlp", number), mlps[number - 1])]
    bars.append((("biases",), result.constant + biases.sum()))
    names, values = zip(*bars, strict=True)
    lit = [".".join(map(str, name)) for name in names]
    writer = ["" if name[0] in ("heads", "biases") else key for name, key in zip(names, lit, strict=True)]
    values, place = np.asarray(values, float), np.arange(len(bars), dtype=float)
    colours = [ORANGE if value >= 0 else BLUE for value in values]
    hints = [LocalizedText("Click to see its patches") if name else "" for name in writer]
    low, high = min(0.0, values.min()), max(0.0, values.max()) or 1e-6
    stride = max(1, layer // 12)
    parts = {"embedding": result.embedding, "positions": result.positions or 0.0, "heads": heads.sum()}
    parts |= {"mlps": mlps.sum(), "biases": values[-1]}
    texts = {name: signed(float(value)) for name, value in parts.items()}
    shades = tuple(PALE[c] if name[0] == "mlp" else c for name, c in zip(names, colours, strict=True))
    also = {"name": [writer_name(*name) for name in names], "hint": hints}
    details = {"of": {"writer": writer, "lit": lit}, "said": tuple(map(signed, values)), "also": also}
    details["told"] = (LocalizedText("{name}"), LocalizedText("{hint}"))
    x_label = LocalizedText("patch, position, layers (full colour: heads; pale: MLPs), biases")
    up = LocalizedText("Contribution to the {sum}", sum=sum_name(subject, settings))
    title = LocalizedText("{head}: upstream sources", head=writer_name("head", layer, head))
    ticks = tuple((ends + 2.0 * number + 0.5, str(number + 1)) for number in range(0, layer - 1, stride))
    options = {
        "bars": Bars(place, np.zeros(len(bars)), values, shades, **details),
        "ticks": ticks,
        "named": LEGEND,
    }
    options["question"] = f"{settings['target']}/{settings['relative']}/{followed}"
    options["notes"] = (LocalizedText(HELD, sum=fixed(result.total), share=fixed(result.share), **texts),)
    return Chart(x_label, up, (-0.7, len(bars) - 0.3), (low, high), title, aspect=0.78, **options)


def lens_chart(view, subject, settings) -> Chart:
    """Return the logit lens: the most likely classes if the model stopped at each depth."""
    forming = np.asarray(view.item(subject, "forming", settings), float)
    depth = np.arange(len(forming))
    names = [class_name(subject.trace, index) for index in compute.likeliest(subject)]
    details = {"of": {"depth": depth}, "told": (LocalizedText("{name}"),)}
    series = tuple(
        Series(
            depth, forming[:, i], name, SEVERAL[i], True, True, also={"name": [name] * len(depth)}, **details
        )
        for i, name in enumerate(names)
    )
    x_label, x_range = LocalizedText("layers applied"), (0, len(forming) - 1)
    if subject.trace.head_type == "value":
        title = LocalizedText("Logit lens: value if the model stopped there")
        up = LocalizedText("Value"), x_range, range_with_margin(forming, 0.06)
        return Chart(x_label, *up, title, series, aspect=0.78)
    title = LocalizedText("Logit lens: probability if the model stopped there")
    up = LocalizedText("Probability"), x_range, (0.0, 1.0)
    return Chart(x_label, *up, title, series, percent=True, aspect=0.78)


def effects_chart(view, subject, settings) -> Chart:
    """Return the chart of components from `layer` on: contribution (x) and drop when ablated (y)."""
    shares, effects = contributions_and_drops(view, subject, settings)
    heads = settings["part"] == "heads"
    places = np.argwhere(np.isfinite(shares) & np.isfinite(effects))
    places = places[np.argsort(shares[tuple(places.T)], kind="stable")]
    x, y = shares[tuple(places.T)], effects[tuple(places.T)]
    line, ends = diagonal_and_range(x, y)
    far = np.argsort(-np.abs(y - x), kind="stable")[:MARKED]
    connectors = (Series(x[[i, i]], np.array([x[i], y[i]]), "", ORANGE, line=True) for i in far)
    layer, *head = places.T + 1
    also = {"layer": layer, "share": [signed(value) for value in x]}
    source = () if heads else (LocalizedText("Layer {layer}, MLP"),)
    details = (*source, LocalizedText("direct contribution {share}"))
    texts = [LocalizedText("drop when ablated {effect}", effect=signed(effect)) for effect in y]
    indices = {"layer": layer, "head": head[0]} if heads else {}
    name = LocalizedText("one head" if heads else "one MLP")
    parts = Series(x, y, name, BLUE, dots=True, of=indices, said=texts, told=details, also=also)
    labels = LocalizedText("direct contribution, in logits"), LocalizedText("drop when ablated, in logits")
    title = LocalizedText("Direct contribution and drop when ablated")
    options = {"whole": False, "aspect": 0.78, "square": True}
    options["question"] = f"{settings['target']}/{settings['relative']}/{settings['part']}"
    notes = (_notes(subject, settings, shares, effects),)
    return Chart(*labels, ends, ends, title, (line, *connectors, parts), notes=notes, **options)


def diagonal_and_range(*values: np.ndarray) -> tuple[Series, tuple[float, float]]:
    """Return the diagonal of equal contribution and drop, and the range that covers the values and zero."""
    ends = np.array(range_with_margin(np.concatenate(values), 0.06))
    return Series(ends, ends, LocalizedText("drop equals contribution"), GREY, line=True), tuple(ends)


def _notes(subject, settings, shares: np.ndarray, effects: np.ndarray) -> LocalizedText:
    """Return the note with the correlation (if all layers are shown) and the largest disagreement."""
    alike = []
    if settings["layer"] == 1:
        result = compute.agreement(subject, settings)[0 if settings["part"] == "heads" else 1]
        correlation = LocalizedText("Correlation of contribution and drop: {value}", value=fixed(result, 2))
        alike.append(LocalizedText(NO_CORRELATION) if math.isnan(result) else correlation)
    gaps = np.abs(effects - shares)
    if not np.isfinite(gaps).any():
        return join_texts(*alike)
    at = np.unravel_index(int(np.nanargmax(gaps)), gaps.shape)
    name = writer_name("head" if len(at) > 1 else "mlp", *(int(index) + 1 for index in at))
    worst = LocalizedText(
        "{name} is furthest from the line: contribution {share}, drop {effect}. Later layers depend on"
        " its output and respond when it is ablated; the mean over other images that replaces it also"
        " carries information.",
        name=name,
        share=signed(shares[at]),
        effect=signed(effects[at]),
    )
    return join_texts(*alike, worst)


def contributions_and_drops(view, subject, settings) -> tuple[np.ndarray, np.ndarray]:
    """Return contributions and drops: of heads (layer, head) or of MLPs (layer); NaN if not computed."""
    heads = settings["part"] == "heads"
    shares = np.asarray(view.item(subject, "direct" if heads else "mlps", settings), float)
    effects = np.full((len(shares), subject.about.heads + 1), np.nan)
    for layer in range(settings["layer"], len(shares) + 1):
        effects[layer - 1] = compute.layer_effects(subject, {**settings, "layer": layer})
    return shares, effects[:, :-1] if heads else effects[:, -1]
