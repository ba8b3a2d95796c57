"""The words of the guided tour: steps to sums that can be done by hand, said of the model at hand."""

from dataclasses import replace

from vitviz.views.base import paragraphs
from vitviz.views.tour import account, diagram, sequence
from vitviz.views.tour import input as tour_input
from vitviz.views.tour.facts import Facts, Step, keyed


def steps(facts: Facts) -> list[Step]:
    """The thirteen steps for one model."""
    start = (tour_input.picture, tour_input.patches, tour_input.flatten, tour_input.embedding)
    middle = (sequence.class_token, sequence.positions, _attention, _layers, _readout, _probabilities)
    last = (account.sum_by_hand, account.one_taken_out, account.one_path)
    made = [make(facts) for make in (*start, *middle, *last)]
    return [replace(step, values={**facts.values, **step.values}) for step in made]


def texts() -> list[str]:
    """Every English text that a step or the diagram can say of any model: what needs a translation."""
    from vitviz.record.readout import NAMES  # with torch, which the page is built without

    plain = Facts(
        (2, 2), (8, 8), ("class",), 4, 1, 1, 4, 16, 10, True, "class", "learned", 5, False, True, False, False
    )
    prefixes = ((), ("class",), ("class", "distillation"), ("class", "register 1"))
    changes = [
        {"prefix": prefix, "pool": pool, "prefix_read": read, "position_rows": rows}
        for prefix in prefixes
        for pool in NAMES
        for read in (False, True)
        for rows in (4, 5)
    ]
    kinds = ("rotary", "relative", "none", "learned + rotary", "learned + relative")
    changes += [{"positions": positions} for positions in kinds]
    changes += [{name: True} for name in ("stem", "layer_scale", "norm_before_blocks")]
    changes += [{name: False} for name in ("plain_blocks", "accounted", "named")]
    changes += [{"score": score} for score in ("softmax", "sigmoid")]
    changes += [{"classes": 0}, {"mlp": None}]
    models = [replace(plain, **change) for change in changes]
    found = [step for facts in models for step in steps(facts)]
    said = {text for step in found for text in (step.title, *step.said, step.attempt, *step.shapes)}
    return sorted(said.union(*map(diagram.texts, models)))


def _attention(f: Facts) -> Step:
    *said, attempt = paragraphs("""
        In each head every token asks with a query q and is found by a key k; how much one takes from another
        is the softmax over their dot products.

        Below, this is worked out for one query, in numbers that can be followed with a pocket calculator.

        Choose a key in the picture of weights and recompute its weight: product × scale, the exponential,
        divided by the sum.
    """)
    if "rotary" in f.positions:
        said.append("q and k are shown after the rotary embedding has turned them.")
    scale = " / √d" if f.root_scale else " · s"  # a few models scale by another number; the table shows it
    score = "q_{i}·k_{j}" + scale + (" + b_{ij}" if "relative" in f.positions else "")
    formula = f"A_{{ij}} = exp( {score} ) / Σ_{{n}} exp( {score.replace('j', 'n')} ),  d = {f.dim}"
    shapes = ("q, k, v: {tokens} × {dim} in each of {heads} heads", "A: {tokens} × {tokens} in each head")
    return Step("attention", "One row of attention, by hand", tuple(said), attempt, (formula,), shapes)


def _layers(f: Facts) -> Step:
    first, second, attempt = paragraphs("""
        {heads} heads do this side by side, each with its own q, k and v (MSA); what they collect is added to
        each token, and an MLP that sees one token at a time adds its share.

        That is one layer; there are {layers}, and the tokens run through them as a stream that is only ever
        added to.

        Move through the layers with the same query: which heads look near, which look far, and where does
        that change?
    """)
    said, formulas = (first, second), ()
    if not f.plain_blocks:
        said = (
            first,
            "That is one layer; there are {layers}, one behind the other.",
            "The blocks of this model are put together differently in detail than in equations 2 and 3.",
        )
    elif f.layer_scale:
        said += ("In this model each share is first multiplied by learned numbers (LayerScale).",)
    if f.plain_blocks:
        formulas = (
            f"(2)  z′_{{l}} = MSA(LN(z_{{l−1}})) + z_{{l−1}},  l = 1 … {f.layers}",
            "(3)  z_{l} = MLP(LN(z′_{l})) + z′_{l}",
        )
    shapes = ("Stream: {tokens} × {width} after every layer", "Heads: {heads} × {dim} = {together}")
    shapes += ("MLP: {width} → {mlp} → {width}",) if f.mlp else ()
    title, values = "Heads, layers, and the stream between them", {"together": f.heads * f.dim}
    return Step("layers", title, said, attempt, formulas, shapes, values)


_LAST = keyed("""
    class: After the last layer only one row is read, that of the class token; a LayerNorm makes it y.

    average: After the last layer the patch tokens are averaged, with a LayerNorm, into one vector y.

    average of all: After the last layer all tokens are averaged, with a LayerNorm, into one vector y.

    max: After the last layer, with a LayerNorm, each number of y is the largest that any patch token has in
    that place.

    max of all: After the last layer, with a LayerNorm, each number of y is the largest that any token has in
    that place.

    average and max: After the last layer, with a LayerNorm, y is half the mean of the patch tokens and half
    the largest of each of their numbers.

    average and max of all: After the last layer, with a LayerNorm, y is half the mean of all tokens and half
    the largest of each of their numbers.

    class and average: After the last layer and a LayerNorm two vectors stand side by side in y: the class
    token, and the mean over the patch tokens.

    class and distillation: After the last layer and a LayerNorm two rows are read, those of the class token
    and the distillation token, each by a head of its own; their logits are averaged.

    attention: After the last layer a LayerNorm and the attention pooling make one vector y of all patch
    tokens.
""")


def _readout(f: Facts) -> Step:
    last = _LAST.get(f.pool, "After the last layer the tokens become one vector y.")
    head, attempt, none, see, embedded, unnamed = paragraphs("""
        The head, one more matrix, turns it into {classes} numbers, one for each class: the logits.

        Add up the products: with the bias they make the logit of the first answer.

        This checkpoint has no classifier: y is its description of the picture, for others to use.

        Choose another picture at the left, and see how y changes.

        y becomes the picture’s embedding z, which is compared with the vectors of {classes} sentences: a
        logit is the cosine of the two, times a scale.

        The head, one more matrix, turns it into {classes} numbers; the checkpoint carries no names for them.
    """)
    if not f.classes:
        head, attempt = none, see
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
    def step(said: tuple[str, ...], attempt: str, *more: tuple[str, ...]) -> Step:
        return Step("probabilities", "Probabilities", said, attempt, *more)

    if not f.classes:
        *said, attempt = paragraphs("""
            Not applicable to this model, because this checkpoint has no classifier and so no probabilities.

            Its vector y is compared with other pictures’ instead, or a classifier is trained on it.

            Pick a checkpoint with a classifier, and come back to this step.
        """)
        return step(tuple(said), attempt)
    attempt = (
        "Recompute the first probability from its logit, and then see how it changes with another picture."
    )
    if f.score == "sigmoid":
        said = paragraphs("""
            Each sentence has a sigmoid of its own, so the {classes} probabilities need not add up to 1.

            A picture may fit several sentences, or none: training asked of each pair alone whether it belongs
            together.
        """)
        formula, shape = "p_{c} = 1 / (1 + exp(−logit_{c}))", "{classes} logits → {classes} probabilities"
        return step(said, attempt, (formula,), (shape,))
    *said, of_sentences, unnamed = paragraphs("""
        Softmax makes shares of the logits: each one’s exponential, divided by the sum over all {classes}.

        The largest is the model’s answer, and a share of 0.9 is no promise that it is right nine times out of
        ten.

        It is the likeliest of these sentences: others would give other shares.

        The checkpoint carries no names for its numbers; some heads make a description for comparison and were
        never meant for a softmax.
    """)
    if f.score or not f.named:
        said.append(of_sentences if f.score else unnamed)
    formula = "p_{c} = exp(logit_{c}) / Σ_{n} exp(logit_{n})"
    return step(
        tuple(said), attempt, (formula,), ("{classes} logits → {classes} probabilities, which sum to 1",)
    )
