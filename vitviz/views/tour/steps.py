"""The words of the guided tour: twelve steps along figure 1 and equations 1 to 4 to a sum that can be done by
hand, said of the model at hand.
"""

from dataclasses import replace

from vitviz.views.tour import account, diagram, sequence
from vitviz.views.tour import input as tour_input
from vitviz.views.tour.facts import Facts, Step


def steps(facts: Facts) -> list[Step]:
    """The twelve steps for one model."""
    start = (tour_input.picture, tour_input.patches, tour_input.flatten, tour_input.embedding)
    middle = (sequence.class_token, sequence.positions, _attention, _layers, _readout, _probabilities)
    made = [make(facts) for make in (*start, *middle, account.sum_by_hand, account.one_taken_out)]
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
    said = (
        (
            "In each head every token asks with a query q and is found by a key k; how much one takes from"
            " another is the softmax over their dot products."
        ),
        "Below, this is worked out for one query, in numbers that can be followed with a pocket calculator.",
    )
    if "rotary" in f.positions:
        said += ("q and k are shown after the rotary embedding has turned them.",)
    scale = " / √d" if f.root_scale else " · s"  # a few models scale by another number; the table shows it
    bias = " + b_{ij}" if "relative" in f.positions else ""
    return Step(
        "attention",
        "One row of attention, by hand",
        said,
        "Choose a key in the picture of weights and recompute its weight: product × scale, the exponential,"
        " divided by the sum.",
        (
            (
                f"A_{{ij}} = exp( q_{{i}}·k_{{j}}{scale}{bias} ) / Σ_{{n}} exp("
                f" q_{{i}}·k_{{n}}{scale}{bias.replace('j', 'n')} ),  d = {f.dim}"
            ),
        ),
        ("q, k, v: {tokens} × {dim} in each of {heads} heads", "A: {tokens} × {tokens} in each head"),
    )


def _layers(f: Facts) -> Step:
    said = (
        (
            "{heads} heads do this side by side, each with its own q, k and v (MSA); what they collect is"
            " added to each token, and an MLP that sees one token at a time adds its share."
        ),
        (
            "That is one layer; there are {layers}, and the tokens run through them as a stream that is only"
            " ever added to."
        ),
    )
    if not f.plain_blocks:
        said = (said[0], "That is one layer; there are {layers}, one behind the other.")
        said += (
            "The blocks of this model are put together differently in detail than in equations 2 and 3.",
        )
    elif f.layer_scale:
        said += ("In this model each share is first multiplied by learned numbers (LayerScale).",)
    formulas = (
        f"(2)  z′_{{l}} = MSA(LN(z_{{l−1}})) + z_{{l−1}},  l = 1 … {f.layers}",
        "(3)  z_{l} = MLP(LN(z′_{l})) + z′_{l}",
    )
    shapes = ("Stream: {tokens} × {width} after every layer", "Heads: {heads} × {dim} = {together}")
    return Step(
        "layers",
        "Heads, layers, and the stream between them",
        said,
        "Move through the layers with the same query: which heads look near, which look far, and where does"
        " that change?",
        formulas if f.plain_blocks else (),
        (*shapes, "MLP: {width} → {mlp} → {width}") if f.mlp else shapes,
        {"together": f.heads * f.dim},
    )


_LAST = {
    "class": "After the last layer only one row is read, that of the class token; a LayerNorm makes it y.",
    "average": "After the last layer the patch tokens are averaged, with a LayerNorm, into one vector y.",
    "average of all": "After the last layer all tokens are averaged, with a LayerNorm, into one vector y.",
    "max": (
        "After the last layer, with a LayerNorm, each number of y is the largest that any patch token has in"
        " that place."
    ),
    "max of all": (
        "After the last layer, with a LayerNorm, each number of y is the largest that any token has in that"
        " place."
    ),
    "average and max": (
        "After the last layer, with a LayerNorm, y is half the mean of the patch tokens and half the largest"
        " of each of their numbers."
    ),
    "average and max of all": (
        "After the last layer, with a LayerNorm, y is half the mean of all tokens and half the largest of"
        " each of their numbers."
    ),
    "class and average": (
        "After the last layer and a LayerNorm two vectors stand side by side in y: the class token, and the"
        " mean over the patch tokens."
    ),
    "class and distillation": (
        "After the last layer and a LayerNorm two rows are read, those of the class token and the"
        " distillation token, each by a head of its own; their logits are averaged."
    ),
    "attention": (
        "After the last layer a LayerNorm and the attention pooling make one vector y of all patch tokens."
    ),
}


def _readout(f: Facts) -> Step:
    last = _LAST.get(f.pool, "After the last layer the tokens become one vector y.")
    head = "The head, one more matrix, turns it into {classes} numbers, one for each class: the logits."
    attempt = "Add up the products: with the bias they make the logit of the first answer."
    if not f.classes:
        head = "This checkpoint has no classifier: y is its description of the picture, for others to use."
        attempt = "Choose another picture at the left, and see how y changes."
    elif f.score:
        head = (
            "y becomes the picture’s embedding z, which is compared with the vectors of {classes} sentences:"
            " a logit is the cosine of the two, times a scale."
        )
    elif not f.named:
        head = (
            "The head, one more matrix, turns it into {classes} numbers; the checkpoint carries no names for"
            " them."
        )
    formula = {"class": f"(4)  y = LN(z_{{{f.layers}}}^{{0}})"}.get(f.pool)
    distilled = f.pool == "class and distillation"
    whole = f.classes and not f.score
    shapes = ("y: {width}", "Head: {width} × {classes}") if whole else ("y: {width}",)
    return Step(
        "readout",
        "What the classifier reads",
        (last, head),
        attempt,
        (formula,) if formula and not distilled else (),
        ("Two heads: {width} × {classes}",) if distilled else shapes,
        {"width": f.values["read"]},
    )


def _probabilities(f: Facts) -> Step:
    if not f.classes:
        said = (
            (
                "Not applicable to this model, because this checkpoint has no classifier and so no"
                " probabilities."
            ),
            "Its vector y is compared with other pictures’ instead, or a classifier is trained on it.",
        )
        return Step(
            "probabilities",
            "Probabilities",
            said,
            "Pick a checkpoint with a classifier, and come back to this step.",
        )
    if f.score == "sigmoid":
        return Step(
            "probabilities",
            "Probabilities",
            (
                "Each sentence has a sigmoid of its own, so the {classes} probabilities need not add up to"
                " 1.",
                "A picture may fit several sentences, or none: training asked of each pair alone whether it"
                " belongs together.",
            ),
            "Recompute the first probability from its logit, and then see how it changes with another"
            " picture.",
            ("p_{c} = 1 / (1 + exp(−logit_{c}))",),
            ("{classes} logits → {classes} probabilities",),
        )
    said = (
        "Softmax makes shares of the logits: each one’s exponential, divided by the sum over all {classes}.",
        "The largest is the model’s answer, and a share of 0.9 is no promise that it is right nine times"
        " out of ten.",
    )
    if f.score:
        said += ("It is the likeliest of these sentences: others would give other shares.",)
    elif not f.named:
        said += (
            (
                "The checkpoint carries no names for its numbers; some heads make a description for"
                " comparison and were never meant for a softmax."
            ),
        )
    return Step(
        "probabilities",
        "Probabilities",
        said,
        "Recompute the first probability from its logit, and then see how it changes with another picture.",
        ("p_{c} = exp(logit_{c}) / Σ_{n} exp(logit_{n})",),
        ("{classes} logits → {classes} probabilities, which sum to 1",),
    )
