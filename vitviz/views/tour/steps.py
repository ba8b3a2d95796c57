"""Texts of the guided tour, for the current model: steps with sums that can be checked by hand."""

from dataclasses import replace
from functools import partial
from pathlib import Path

from vitviz.traces.grid import Grid
from vitviz.views.base import paragraphs
from vitviz.views.tour import diagram
from vitviz.views.tour.facts import Facts, Step

_FILE = Path(__file__).with_name("steps.md")
TEXTS = {  # paragraphs by section of steps.md; the last paragraph of most sections is what to try
    head: paragraphs(body.strip())
    for head, body in (part.split("\n", 1) for part in _FILE.read_text(encoding="utf-8").split("## ")[1:])
}


def _keyed(section: str) -> dict[str, str]:
    """Return the paragraphs of a section of the texts, by the key before their colon."""
    return dict(line.split(": ", 1) for line in TEXTS[section])


def tour_steps(facts: Facts) -> list[Step]:
    """Return the thirteen steps for one model."""
    start = (_picture, _patches, _flatten, _embedding)
    middle = (_prefix_tokens, _positions, _attention, _layers, _readout, _probabilities)
    last = (_sum_by_hand, _head_ablated, _one_path)
    steps = [make(facts) for make in (*start, *middle, *last)]
    return [replace(step, values={**facts.values, **step.values}) for step in steps]


def tour_texts() -> list[str]:
    """Return all English texts that a step or the diagram can show for any model, for translation."""
    from vitviz.traces.readout import NAMES  # loads torch, which the page is built without

    grid = Grid(2, 2, (8, 8), ("class",))
    plain = Facts(grid, 4, 1, 1, 4, 16, 10, True, "class", "learned", 5, False, True, False, False)
    prefixes = ((), ("class",), ("class", "distillation"), ("class", "register 1"))
    changes = [
        {"grid": replace(grid, prefix_names=prefix), "pool": pool, "prefix_read": read, "position_rows": rows}
        for prefix in prefixes
        for pool in NAMES
        for read in (False, True)
        for rows in (4, 5)
    ]
    kinds = ("rotary", "relative", "none", "learned + rotary", "learned + relative")
    changes += [{"positions": positions} for positions in kinds]
    changes += [{name: True} for name in ("stem", "layer_scale", "norm_before_blocks")]
    changes += [{name: False} for name in ("plain_blocks", "accounted", "named")]
    changes += [{"score": score, "head_type": score} for score in ("softmax", "sigmoid")]
    changes += [{"head_type": kind, "classes": count} for kind in ("sigmoid", "value") for count in (1, 2)]
    changes += [{"classes": 0}, {"mlp": None}]
    models = [replace(plain, **change) for change in changes]
    result = [step for facts in models for step in tour_steps(facts)]
    texts = {text for step in result for text in (step.title, *step.said, step.attempt, *step.shapes)}
    return sorted(texts.union(*map(diagram.diagram_texts, models)))


def _picture(f: Facts) -> Step:
    """Return step 1: the image scaled, cropped and normalised to the model's input."""
    height, width = f.grid.pixels
    *said, attempt = TEXTS["picture"]
    # narrow space: the meaning of a comma differs between languages
    values = {"width": width, "count": f"{height * width * 3:,}".replace(",", "\u202f")}
    formulas = (f"x ∈ ℝ^{{H×W×C}} = ℝ^{{{height}×{width}×3}}",)
    shapes = ("Input: {height} × {width} × 3 = {count} numbers",)
    title = "The image, as the model receives it"
    return Step("picture", title, tuple(said), attempt, formulas, shapes, values)


def _patches(f: Facts) -> Step:
    """Return step 2: the image cut into patches, or the positions of a convolutional stem."""
    said = TEXTS["patches"]
    if f.stem:
        said = TEXTS["patches of a stem"]
    attempt = "Click a patch with something on it. The following steps use this patch."
    (tall, wide), (height, width) = f.grid.patch, f.grid.pixels
    symbol, area = ("P^{2}", f"{tall}^{{2}}") if tall == wide else ("(P_{h}·P_{w})", f"({tall}·{wide})")
    formula = f"N = H·W / {symbol} = {height}·{width} / {area} = {f.grid.patches}"
    shapes = ("{patches} patches of {tall} × {wide} × 3",)
    return Step("patches", "Cut into patches", said, attempt, (formula,), shapes)


def _flatten(f: Facts) -> Step:
    """Return step 3: the pixel values of each patch as one row of numbers."""
    title = "Each patch becomes a row of numbers"
    attempt = "Pick a plain patch (sky, a wall), then one with an edge, and compare their rows."
    if f.stem:
        said = TEXTS["flatten of a stem"]
        return Step("flatten", title, said, attempt)
    said = TEXTS["flatten"]
    formulas = (
        f"x_{{p}}^{{i}} ∈ ℝ^{{P²·C}} = ℝ^{{{f.numbers}}}",
        f"x_{{p}} ∈ ℝ^{{N×(P²·C)}} = ℝ^{{{f.grid.patches}×{f.numbers}}}",
    )
    return Step("flatten", title, said, attempt, formulas, ("Patches: {patches} × {numbers}",))


def _embedding(f: Facts) -> Step:
    """Return step 4: the matrix E that maps each patch, or stem feature, to a vector."""
    if f.stem:
        *said, attempt = TEXTS["embedding of a stem"]
        shapes = ("Embedding: {patches} × {width}",)
        return Step("embedding", "The linear embedding", tuple(said), attempt, shapes=shapes)
    *said, attempt = TEXTS["embedding"]
    formulas = (f"x_{{p}}^{{i}}·E,  E ∈ ℝ^{{(P²·C)×D}} = ℝ^{{{f.numbers}×{f.width}}}",)
    shapes = ("{patches} × {numbers}  ·  {numbers} × {width}  =  {patches} × {width}",)
    return Step("embedding", "The linear embedding", tuple(said), attempt, formulas, shapes)


# Input of the classifier by pooling, for models without a class token and for models with one.
_READS_INSTEAD = _keyed("read without a class token")
_READS_OTHERS = _READS_INSTEAD | _keyed("read beside the class token")
_REGISTERS, _REGISTERS_READ = _keyed("registers").values()


def _prefix_tokens(f: Facts) -> Step:
    """Return step 5: the prefix tokens, if any, and the tokens that the classifier reads."""
    read_all = f.prefix_read or f.pool.endswith(" of all")
    prefix = f.grid.prefix_names
    others = [name for name in prefix if name.startswith("register")]
    if "class" not in prefix:
        title = "No token for the prediction"
        reads = _READS_INSTEAD.get(f.pool, "Its classifier reads all tokens together.")
        said = ("Not applicable to this model, because it has no class token.", reads)
        attempt = "Choose another image on the left: every row changes, because no token is learned."
    else:
        title = "A token for the prediction"
        put, reads, of_all, attempt = _keyed("class token").values()
        said = (put, of_all if read_all else _READS_OTHERS.get(f.pool, reads))
    if others:
        said += (_REGISTERS_READ if read_all else _REGISTERS,)
    if "distillation" in prefix:
        said += TEXTS["distillation token"]
    count = "{prefix} + {patches} = {tokens} tokens" if prefix else "{tokens} tokens"
    values = {"prefix": len(prefix), "registers": len(others)}
    shapes = (f"{count} of {{width}} numbers",)
    return Step("token", title, said, attempt, (f"[ {f.sequence} ]",), shapes, values)


_POSITIONS = _keyed("other positions")


def _positions(f: Facts) -> Step:
    """Return step 6: the position embedding E_pos, or the model's other position encoding."""
    added, after, compare, attempt = _keyed("positions").values()
    shapes, formulas = ("Position embedding: {rows} × {width}",), ()
    if f.positions == "learned":
        said, attempt = (added, after), compare
        if f.norm_before_blocks:
            said += ("In this model a LayerNorm follows before the first layer.",)
    elif "learned" in f.positions:
        other = next(kind for kind in _POSITIONS if kind in f.positions)
        said = (added, "This model also encodes positions elsewhere: " + _POSITIONS[other])
    else:
        kind = next(kind for kind in _POSITIONS if kind in f.positions)
        none = "Adding E_pos is not applicable to this model, because it has no such table: "
        said, shapes = (none + _POSITIONS[kind],), ()
    if "learned" in f.positions:
        formula = f"[ {f.sequence} ] + E_{{pos}}"
        if f.position_rows == f.grid.patches != f.grid.tokens:
            formula = f"[ {'; '.join(f.front)}; ( x_{{p}}^{{1}}E; …; x_{{p}}^{{N}}E ) + E_{{pos}} ]"
            said += ("Here E_pos is added to the patches alone.",)
        formulas = (f"(1)  z_{{0}} = {formula} ∈ ℝ^{{{f.grid.tokens}×{f.width}}}",)
    shapes = ("z₀: {tokens} × {width}", *shapes)
    values = {"rows": f.position_rows}
    return Step("positions", "The position of each patch", said, attempt, formulas, shapes, values)


def _attention(f: Facts) -> Step:
    """Return step 7: one row of attention computed from q and k."""
    *said, attempt = TEXTS["attention"]
    if "rotary" in f.positions:
        said.append("q and k are shown after the rotary embedding has turned them.")
    scale = " / √d" if f.root_scale else " · s"  # a few models scale by another number; the table shows it
    score = "q_{i}·k_{j}" + scale + (" + b_{ij}" if "relative" in f.positions else "")
    formula = f"A_{{ij}} = exp( {score} ) / Σ_{{n}} exp( {score.replace('j', 'n')} ),  d = {f.dim}"
    shapes = ("q, k, v: {tokens} × {dim} in each of {heads} heads", "A: {tokens} × {tokens} in each head")
    return Step("attention", "One row of attention, by hand", tuple(said), attempt, (formula,), shapes)


def _layers(f: Facts) -> Step:
    """Return step 8: all heads, the MLP and the layers along the residual stream."""
    first, second, attempt = _keyed("layers").values()
    said, formulas = (first, second), ()
    if not f.plain_blocks:
        said = (first, *TEXTS["other layers"])
    elif f.layer_scale:
        said += TEXTS["layer scale"]
    if f.plain_blocks:
        formulas = (
            f"(2)  z′_{{l}} = MSA(LN(z_{{l−1}})) + z_{{l−1}},  l = 1 … {f.layers}",
            "(3)  z_{l} = MLP(LN(z′_{l})) + z′_{l}",
        )
    shapes = ("Stream: {tokens} × {width} after every layer", "Heads: {heads} × {dim} = {together}")
    shapes += ("MLP: {width} → {mlp} → {width}",) if f.mlp else ()
    title, values = "Heads, layers, and the stream between them", {"together": f.heads * f.dim}
    return Step("layers", title, said, attempt, formulas, shapes, values)


_LAST = _keyed("readout by pooling")


def _readout(f: Facts) -> Step:
    """Return step 9: the vector y after pooling, and its logits if there is a classifier."""
    last = _LAST.get(f.pool, "After the last layer the tokens become one vector y.")
    head, attempt, none, see, embedded, unnamed, valued = _keyed("readout").values()
    if not f.classes:
        head, attempt = none, see
    elif f.head_type == "value":
        head = valued
    elif f.score:
        head = embedded
    elif not f.named:
        head = unnamed
    formulas = (f"(4)  y = LN(z_{{{f.layers}}}^{{0}})",) if f.pool == "class" else ()
    shapes = ("y: {width}", "Head: {width} × {classes}") if f.classes and not f.score else ("y: {width}",)
    if f.pool == "class and distillation":
        shapes = ("Two heads: {width} × {classes}",)
    values = {"width": f.values["read"]}
    return Step("readout", "What the classifier reads", (last, head), attempt, formulas, shapes, values)


def _probabilities(f: Facts) -> Step:
    """Return step 10: from logits to probabilities (softmax, sigmoid), or to plain values."""
    step = partial(Step, "probabilities", "Values" if f.head_type == "value" else "Probabilities")
    if not f.classes:
        *said, attempt = TEXTS["no probabilities"]
        return step(tuple(said), attempt)
    if f.head_type == "value":
        *said, attempt = TEXTS["values"]
        return step(tuple(said), attempt)
    (attempt,) = TEXTS["probabilities"]
    if (f.score or f.head_type) == "sigmoid":
        reading, labels, output, single = _keyed("sigmoid").values()
        said = TEXTS["sigmoid of sentences"] if f.score else (reading, labels)
        said = (output, single) if f.classes == 1 and not f.score else said
        formula, shape = "p_{c} = 1 / (1 + exp(−logit_{c}))", "{classes} logits → {classes} probabilities"
        return step(said, attempt, (formula,), (shape,))
    *said, of_sentences, unnamed = _keyed("softmax").values()
    if f.score or not f.named:
        said.append(of_sentences if f.score else unnamed)
    formula = "p_{c} = exp(logit_{c}) / Σ_{n} exp(logit_{n})"
    shape = "{classes} logits → {classes} probabilities, which sum to 1"
    return step(tuple(said), attempt, (formula,), (shape,))


def _sum_by_hand(f: Facts) -> Step:
    """Return step 11: the logit as a sum of contributions, or the reason against it."""
    *details, attempt = TEXTS["sum"]
    formulas = ("logit_{c} = start + Σ_{l,h} head_{l,h} + Σ_{l} MLP_{l} + biases",)
    shapes = ("{layers} layers × {heads} heads: {together} contributions",)
    title = "The logit as a sum of contributions"
    return _where_accounted(Step("sum", title, tuple(details), attempt, formulas, shapes), f)


def _head_ablated(f: Facts) -> Step:
    """Return step 12: the change of the logit if the head of largest contribution is ablated.

    If the logit has no exact decomposition, the step gives the reason.
    """
    *details, attempt = TEXTS["head ablated"]
    shapes = ("1 of {together} heads replaced",)
    return _where_accounted(Step("without", "One head ablated", tuple(details), attempt, shapes=shapes), f)


def _one_path(f: Facts) -> Step:
    """Return step 13: the largest contribution traced back to one source and one patch.

    If the logit has no exact decomposition, the step gives the reason.
    """
    *details, attempt = TEXTS["path"]
    formulas = ("head_{l,h} = Σ_{source} Σ_{token} part_{source,token} + biases",)
    shapes = ("Per source: {tokens} tokens × {width} numbers",)
    return _where_accounted(
        Step("path", "One path followed back", tuple(details), attempt, formulas, shapes), f
    )


def _where_accounted(step: Step, f: Facts) -> Step:
    """Return the step; if logits have no exact decomposition, a step that says why instead."""
    if f.classes and f.accounted:
        return step
    no_classifier, another, no_account, elsewhere = _keyed("no account").values()
    details, attempt = (no_account, elsewhere) if f.classes else (no_classifier, another)
    return Step(step.name, step.title, (details,), attempt)
