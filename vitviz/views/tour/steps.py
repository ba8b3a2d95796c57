"""Texts of the guided tour, for the current model: steps with sums that can be checked by hand."""

from dataclasses import replace
from functools import partial

from vitviz.traces.grid import Grid
from vitviz.views.base import paragraphs
from vitviz.views.tour import diagram
from vitviz.views.tour.facts import Facts, Step


def tour_steps(facts: Facts) -> list[Step]:
    """Return the thirteen steps for one model."""
    start = (_picture, _patches, _flatten, _embedding)
    middle = (_prefix_tokens, _positions, _attention, _layers, _readout, _probabilities)
    last = (_sum_by_hand, _head_ablated, _one_path)
    made = [make(facts) for make in (*start, *middle, *last)]
    return [replace(step, values={**facts.values, **step.values}) for step in made]


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
    changes += [{"head_type": one, "classes": count} for one in ("sigmoid", "value") for count in (1, 2)]
    changes += [{"classes": 0}, {"mlp": None}]
    models = [replace(plain, **change) for change in changes]
    found = [step for facts in models for step in tour_steps(facts)]
    said = {text for step in found for text in (step.title, *step.said, step.attempt, *step.shapes)}
    return sorted(said.union(*map(diagram.diagram_texts, models)))


def _picture(f: Facts) -> Step:
    """Return step 1: the image scaled, cropped and normalised to the model's input."""
    height, width = f.grid.pixels
    *said, attempt = paragraphs("""
        The image is scaled and cropped to {height} × {width} pixels, each with a red, a green and a blue
        value.

        Each value becomes a small number around zero: the channel’s mean is subtracted and the result divided
        by the channel’s standard deviation.

        Point at a pixel of the model’s input, and compute one of its three values by hand.
    """)
    # narrow space: the meaning of a comma differs between languages
    values = {"width": width, "count": f"{height * width * 3:,}".replace(",", "\u202f")}
    formulas = (f"x ∈ ℝ^{{H×W×C}} = ℝ^{{{height}×{width}×3}}",)
    shapes = ("Input: {height} × {width} × 3 = {count} numbers",)
    title = "The image, as the model receives it"
    return Step("picture", title, tuple(said), attempt, formulas, shapes, values)


def _patches(f: Facts) -> Step:
    """Return step 2: the image cut into patches, or the positions of a convolutional stem."""
    said = paragraphs("""
        The image is cut into {rows} × {cols} = {patches} patches of {tall} × {wide} pixels.

        From here on, each patch is like one word of a sentence, read row by row. The model never receives the
        whole image again.
    """)
    if f.stem:
        said = paragraphs("""
            A convolutional stem first turns the image into features, at {rows} × {cols} = {patches} positions
            that are {tall} × {wide} pixels apart.

            Each position is like one word of a sentence, read row by row. Unlike a patch of the paper’s plain
            model, it also depends on pixels beyond its edges.
        """)
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
        said = paragraphs("""
            Not applicable to this model as it stands in the paper, because its patches are cut from the
            features of a convolutional stem and not from pixels.

            The table shows the {tall} · {wide} · 3 = {numbers} numbers of the pixels at one position, as a
            plain model would flatten them.
        """)
        return Step("flatten", title, said, attempt)
    said = paragraphs("""
        The pixels of a patch are listed one after the other, with red, green and blue of each: {tall} ·
        {wide} · 3 = {numbers} numbers.

        No value is lost and nothing is learned yet, but the row no longer shows which pixels were neighbours:
        the model has to learn that.
    """)
    formulas = (
        f"x_{{p}}^{{i}} ∈ ℝ^{{P²·C}} = ℝ^{{{f.numbers}}}",
        f"x_{{p}} ∈ ℝ^{{N×(P²·C)}} = ℝ^{{{f.grid.patches}×{f.numbers}}}",
    )
    return Step("flatten", title, said, attempt, formulas, ("Patches: {patches} × {numbers}",))


def _embedding(f: Facts) -> Step:
    """Return step 4: the matrix E that maps each patch, or stem feature, to a vector."""
    if f.stem:
        *said, attempt = paragraphs("""
            One learned matrix E, the same for every position, maps the stem’s features there to a vector of D
            = {width} numbers.

            No filter over pixels can be shown, because the input of E is the output of convolutions.

            Pick two positions that look alike, and compare their vectors.
        """)
        shapes = ("Embedding: {patches} × {width}",)
        return Step("embedding", "The linear embedding", tuple(said), attempt, shapes=shapes)
    *said, attempt = paragraphs("""
        One learned matrix E, the same for every patch, maps the {numbers} numbers of a patch to a vector of D
        = {width} numbers.

        Each of these numbers is a dot product: it measures how well the patch matches one filter.

        Click a number of the vector to see its filter and the sum that gives the number.
    """)
    formulas = (f"x_{{p}}^{{i}}·E,  E ∈ ℝ^{{(P²·C)×D}} = ℝ^{{{f.numbers}×{f.width}}}",)
    shapes = ("{patches} × {numbers}  ·  {numbers} × {width}  =  {patches} × {width}",)
    return Step("embedding", "The linear embedding", tuple(said), attempt, formulas, shapes)


def _keyed(text: str) -> dict[str, str]:
    """Return sentences, one per paragraph, by the key before the colon."""
    return dict(one.split(": ", 1) for one in paragraphs(text))


# Input of the classifier by pooling, for models without a class token and for models with one.
_READS_INSTEAD = _keyed("""
    average: Its classifier reads the mean over the patch tokens; the paper tried this too and found it
    equally good (appendix D.3).

    max: Its classifier reads the largest of each number among the patch tokens.

    average and max: Its classifier reads the average of two vectors: the mean of the patch tokens and the
    largest of each of their numbers.

    attention: Instead, a final layer attends to all patches with one learned query: attention pooling.

    none: This checkpoint has no classifier and does not define which tokens a classifier would read.
""")
_READS_OTHERS = _READS_INSTEAD | _keyed("""
    average: This model’s classifier does not read it, though: it reads the mean over the patch tokens.

    max: This model’s classifier does not read it, though: it reads the largest of each number among the patch
    tokens.

    average and max: This model’s classifier does not read it, though: it reads the average of two vectors,
    the mean of the patch tokens and the largest of each of their numbers.

    attention: This model’s classifier does not read it, though: a final layer attends to the patches with one
    learned query (attention pooling).
""")
_REGISTERS, _REGISTERS_READ = paragraphs("""
    The {registers} register tokens are learned as well. Layers use them as extra memory, and the classifier
    ignores them.

    The {registers} register tokens are learned as well. Layers use them as extra memory, and the classifier
    reads them together with the other tokens.
""")


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
        put, reads, of_all, attempt = paragraphs("""
            One learned vector, the class token, is put in front of the patches.

            The class token starts the same for every image and gathers what the classifier will read.

            This model’s classifier does not read it alone, though: it reads all tokens together.

            Choose another image on the left: the learned rows in front stay the same, the others change.
        """)
        said = (put, of_all if read_all else _READS_OTHERS.get(f.pool, reads))
    if others:
        said += (_REGISTERS_READ if read_all else _REGISTERS,)
    if "distillation" in prefix:
        said += (
            (
                "The distillation token beside it was trained to reproduce the prediction of a teacher "
                "network."
            ),
        )
    count = "{prefix} + {patches} = {tokens} tokens" if prefix else "{tokens} tokens"
    values = {"prefix": len(prefix), "registers": len(others)}
    return Step(
        "token", title, said, attempt, (f"[ {f.sequence} ]",), (f"{count} of {{width}} numbers",), values
    )


_POSITIONS = _keyed("""
    rotary: in every layer it rotates queries and keys by angles that depend on the position of a patch
    (rotary embedding).

    relative: in every layer it adds to each score a learned number for the offset between two patches
    (relative position bias).

    none: it has no information about the position of a patch.
""")


def _positions(f: Facts) -> Step:
    """Return step 6: the position embedding E_pos, or the model's other position encoding."""
    added, after, compare, attempt = paragraphs("""
        So far a patch’s position in the sequence has no effect at all. E_pos, one learned vector per
        position, is added, so equal patches at different positions are no longer equal.

        Without E_pos the layers cannot distinguish one order of the patches from another: try it below.

        Shuffle the patches, and compare the predictions with and without E_pos.

        Shuffle the patches, and see how the prediction changes.
    """)
    shapes, formulas = ("Position embedding: {rows} × {width}",), ()
    if f.positions == "learned":
        said, attempt = (added, after), compare
        if f.norm_before_blocks:
            said += ("In this model a LayerNorm follows before the first block.",)
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
    *said, attempt = paragraphs("""
        In each head, every token has a query q and a key k. The weight of one token on another is the softmax
        over the dot products of query and keys.

        Below, this is worked out for one query. A pocket calculator is enough to check the numbers.

        Choose a key in the map of weights and recompute its weight: product × scale, the exponential, divided
        by the sum.
    """)
    if "rotary" in f.positions:
        said.append("q and k are shown after the rotary embedding has turned them.")
    scale = " / √d" if f.root_scale else " · s"  # a few models scale by another number; the table shows it
    score = "q_{i}·k_{j}" + scale + (" + b_{ij}" if "relative" in f.positions else "")
    formula = f"A_{{ij}} = exp( {score} ) / Σ_{{n}} exp( {score.replace('j', 'n')} ),  d = {f.dim}"
    shapes = ("q, k, v: {tokens} × {dim} in each of {heads} heads", "A: {tokens} × {tokens} in each head")
    return Step("attention", "One row of attention, by hand", tuple(said), attempt, (formula,), shapes)


def _layers(f: Facts) -> Step:
    """Return step 8: all heads, the MLP and the layers along the residual stream."""
    first, second, attempt = paragraphs("""
        {heads} heads do this in parallel, each with its own q, k and v (MSA). Their outputs are added to each
        token. An MLP, which processes one token at a time, then adds its output.

        That is one of {layers} layers. The tokens pass through all layers as a stream; each layer adds to it.

        Move through the layers with the same query: which heads attend nearby, which far, and where does it
        change?
    """)
    said, formulas = (first, second), ()
    if not f.plain_blocks:
        said = (
            first,
            "That is one of {layers} layers, applied in turn.",
            "The layers of this model differ in detail from equations 2 and 3.",
        )
    elif f.layer_scale:
        said += (("In this model each branch’s output is first multiplied by learned numbers (LayerScale)."),)
    if f.plain_blocks:
        formulas = (
            f"(2)  z′_{{l}} = MSA(LN(z_{{l−1}})) + z_{{l−1}},  l = 1 … {f.layers}",
            "(3)  z_{l} = MLP(LN(z′_{l})) + z′_{l}",
        )
    shapes = ("Stream: {tokens} × {width} after every layer", "Heads: {heads} × {dim} = {together}")
    shapes += ("MLP: {width} → {mlp} → {width}",) if f.mlp else ()
    title, values = "Heads, layers, and the stream between them", {"together": f.heads * f.dim}
    return Step("layers", title, said, attempt, formulas, shapes, values)


_LAST = _keyed("""
    class: After the last layer only one row is read, that of the class token; a LayerNorm makes it y.

    average: After the last layer the patch tokens are averaged, with a LayerNorm, into one vector y.

    average of all: After the last layer all tokens are averaged, with a LayerNorm, into one vector y.

    max: After the last layer, with a LayerNorm, each number of y is the largest that any patch token has in
    that dimension.

    max of all: After the last layer, with a LayerNorm, each number of y is the largest that any token has in
    that dimension.

    average and max: After the last layer, with a LayerNorm, y is half the mean of the patch tokens and half
    the largest of each of their numbers.

    average and max of all: After the last layer, with a LayerNorm, y is half the mean of all tokens and half
    the largest of each of their numbers.

    class and average: After the last layer and a LayerNorm two vectors stand side by side in y: the class
    token, and the mean over the patch tokens.

    class and distillation: After the last layer and a LayerNorm two rows are read, those of the class token
    and the distillation token, each by its own head; the two sets of logits are averaged.

    attention: After the last layer a LayerNorm and the attention pooling make one vector y of all patch
    tokens.
""")


def _readout(f: Facts) -> Step:
    """Return step 9: the vector y after pooling, and its logits if there is a classifier."""
    last = _LAST.get(f.pool, "After the last layer the tokens become one vector y.")
    head, attempt, none, see, embedded, unnamed, valued = paragraphs("""
        The head, one more matrix, maps y to {classes} numbers, one for each class: the logits.

        Add up the products: with the bias they give the logit of the first prediction.

        This checkpoint has no classifier: y represents the image and serves as features for other models.

        Choose another image on the left, and see how y changes.

        y becomes the image’s embedding z, which is compared with the vectors of {classes} sentences: a logit
        is the cosine of the two, times a scale.

        The head, one more matrix, maps y to {classes} numbers; the checkpoint has no names for them.

        The head, one more matrix, maps y to the values that the model predicts: {classes} in number.
    """)
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
        *said, attempt = paragraphs("""
            Not applicable to this model, because this checkpoint has no classifier and so no probabilities.

            Instead, its vector y is compared with those of other images, or a classifier is trained on y.

            Pick a checkpoint with a classifier, and come back to this step.
        """)
        return step(tuple(said), attempt)
    attempt = (
        "Recompute the first probability from its logit, and then see how it changes with another image."
    )
    if f.head_type == "value":
        *said, attempt = paragraphs("""
            This model predicts values, as in a regression. They are shown as they are, without a softmax or a
            sigmoid.

            A value has the unit that training gave it, and no probability. The steps that follow call it a
            logit.

            Choose another image, and see how the value changes.
        """)
        return step(tuple(said), attempt)
    if f.head_type == "sigmoid" and not f.score:
        own, labels, output, single = paragraphs("""
            Each label has its own sigmoid, so the {classes} probabilities need not add up to 1.

            An image may have several labels, or none: in training, each label was judged separately.

            The head has one output, and a sigmoid turns its logit into the probability of a yes.

            A softmax over a single output would be 1 for every image.
        """)
        said = (output, single) if f.classes == 1 else (own, labels)
        formula = "p_{c} = 1 / (1 + exp(−logit_{c}))"
        return step(said, attempt, (formula,), ("{classes} logits → {classes} probabilities",))
    if f.score == "sigmoid":
        said = paragraphs("""
            Each sentence has its own sigmoid, so the {classes} probabilities need not add up to 1.

            An image may fit several sentences, or none: in training, each pair of image and sentence was
            judged separately.
        """)
        formula, shape = "p_{c} = 1 / (1 + exp(−logit_{c}))", "{classes} logits → {classes} probabilities"
        return step(said, attempt, (formula,), (shape,))
    *said, of_sentences, unnamed = paragraphs("""
        Softmax turns logits into probabilities: the exponential of each logit, divided by the sum over all
        {classes}.

        The largest is the model’s prediction. A probability of 0.9 does not mean right nine times in ten.

        It is the likeliest of these sentences; other sentences would give other probabilities.

        The checkpoint has no names for its outputs; the outputs of some heads are features for comparison and
        were never meant for a softmax.
    """)
    if f.score or not f.named:
        said.append(of_sentences if f.score else unnamed)
    formula = "p_{c} = exp(logit_{c}) / Σ_{n} exp(logit_{n})"
    shape = "{classes} logits → {classes} probabilities, which sum to 1"
    return step(tuple(said), attempt, (formula,), (shape,))


def _sum_by_hand(f: Facts) -> Step:
    """Return step 11: the logit as a sum of contributions, or the reason against it."""
    *told, attempt = paragraphs("""
        Layers only add to the stream. With the standard deviation of the last norm held fixed, the logit is
        therefore a sum too: every head, MLP and bias raises or lowers it.

        The table lists the three largest contributions of heads, the sum of everything else, and the
        resulting logit.

        Add the three contributions and the rest with a pocket calculator: the sum is the model’s own logit.
    """)
    formulas = ("logit_{c} = start + Σ_{l,h} share_{l,h} + Σ_{l} MLP_{l} + biases",)
    shapes = ("{layers} layers × {heads} heads: {together} contributions",)
    title = "The logit as a sum of contributions"
    return _where_accounted(Step("sum", title, tuple(told), attempt, formulas, shapes), f)


def _head_ablated(f: Facts) -> Step:
    """Return step 12: the change of the logit if the head of largest contribution is ablated.

    If the logit has no exact decomposition, the step gives the reason.
    """
    *told, attempt = paragraphs("""
        A contribution is only what a head wrote directly. Here the head with the largest contribution is
        ablated: its output is replaced by its mean over other images, and the later layers are computed
        again.

        Later layers depend on this head’s output. Without the head their outputs change too, so the logit
        drops by more or less than the contribution.

        Ablate this head in every view, and look at Attribution: which contributions have changed?
    """)
    shapes = ("1 of {together} heads replaced",)
    return _where_accounted(Step("without", "One head ablated", tuple(told), attempt, shapes=shapes), f)


def _one_path(f: Facts) -> Step:
    """Return step 13: the largest contribution traced back to one source and one patch.

    If the logit has no exact decomposition, the step gives the reason.
    """
    *told, attempt = paragraphs("""
        A head’s output depends on what earlier layers wrote. With attention and norms held fixed, the head’s
        contribution is a sum over these earlier sources, and each source’s part is a sum over the tokens that
        the head attends to.

        The table shows the head with the largest contribution, the largest source of its input, and the patch
        from which most of that is read.

        Add each contribution to everything else beside it: the sum is the number above. Then follow another
        path.
    """)
    formulas = ("share_{l,h} = Σ_{writer} Σ_{j} part_{j} + biases",)
    shapes = ("Per source: {tokens} tokens × {width} numbers",)
    return _where_accounted(Step("path", "One path followed back", tuple(told), attempt, formulas, shapes), f)


def _where_accounted(step: Step, f: Facts) -> Step:
    """Return the step, or the reason why the model has no exact decomposition of its logits."""
    if f.classes and f.accounted:
        return step
    no_classifier, another, no_account, elsewhere = paragraphs("""
        Not applicable to this model, because this checkpoint has no classifier and so no logit to decompose.

        Pick a checkpoint with a classifier, and come back to this step.

        Not applicable to this model, because its logits cannot be decomposed exactly; Attribution says why.

        Pick another checkpoint, and come back to this step.
    """)
    told, attempt = (no_account, elsewhere) if f.classes else (no_classifier, another)
    return Step(step.name, step.title, (told,), attempt)
