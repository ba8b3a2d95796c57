"""The words of the guided tour: steps to sums that can be done by hand, said of the model at hand."""

from dataclasses import replace
from functools import partial

from vitviz.traces.grid import Grid
from vitviz.views.base import paragraphs
from vitviz.views.tour import diagram
from vitviz.views.tour.facts import Facts, Step


def steps(facts: Facts) -> list[Step]:
    """The thirteen steps for one model."""
    start = (_picture, _patches, _flatten, _embedding)
    middle = (_class_token, _positions, _attention, _layers, _readout, _probabilities)
    last = (_sum_by_hand, _one_taken_out, _one_path)
    made = [make(facts) for make in (*start, *middle, *last)]
    return [replace(step, values={**facts.values, **step.values}) for step in made]


def texts() -> list[str]:
    """Every English text that a step or the diagram can say of any model: what needs a translation."""
    from vitviz.traces.readout import NAMES  # with torch, which the page is built without

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
    found = [step for facts in models for step in steps(facts)]
    said = {text for step in found for text in (step.title, *step.said, step.attempt, *step.shapes)}
    return sorted(said.union(*map(diagram.texts, models)))


def _picture(f: Facts) -> Step:
    height, width = f.grid.pixels
    *said, attempt = paragraphs("""
        The photograph is scaled and cropped to {height} × {width} pixels, each with a red, a green and a blue
        value.

        Every value becomes a small number around zero: the channel’s mean is subtracted and the rest divided
        by its standard deviation.

        Point at a pixel of the model’s picture, and work out by hand one of the three numbers that the model
        reads there.
    """)
    # a narrow space, as no language reads a comma the same way
    values = {"width": width, "count": f"{height * width * 3:,}".replace(",", "\u202f")}
    formulas = (f"x ∈ ℝ^{{H×W×C}} = ℝ^{{{height}×{width}×3}}",)
    shapes = ("Input: {height} × {width} × 3 = {count} numbers",)
    title = "The picture, as the model gets it"
    return Step("picture", title, tuple(said), attempt, formulas, shapes, values)


def _patches(f: Facts) -> Step:
    said = paragraphs("""
        The picture is cut into {rows} × {cols} = {patches} patches of {tall} × {wide} pixels.

        From here on each patch is one word of a sentence, read row by row; the model never again sees the
        picture as a picture.
    """)
    if f.stem:
        said = paragraphs("""
            A convolutional stem first turns the picture into features, at {rows} × {cols} = {patches} places
            that lie {tall} × {wide} pixels apart.

            Each place is one word of a sentence, read row by row; unlike a patch of the paper’s plain model,
            it has also seen pixels beyond its edges.
        """)
    attempt = "Click a patch with something on it. It comes along through the steps that follow."
    (tall, wide), (height, width) = f.grid.patch, f.grid.pixels
    symbol, area = ("P^{2}", f"{tall}^{{2}}") if tall == wide else ("(P_{h}·P_{w})", f"({tall}·{wide})")
    formula = f"N = H·W / {symbol} = {height}·{width} / {area} = {f.grid.patches}"
    shapes = ("{patches} patches of {tall} × {wide} × 3",)
    return Step("patches", "Cut into patches", said, attempt, (formula,), shapes)


def _flatten(f: Facts) -> Step:
    title = "Each patch becomes a row of numbers"
    attempt = "Pick a plain patch (sky, a wall), then one with an edge, and compare their rows."
    if f.stem:
        said = paragraphs("""
            Not applicable to this model as it stands in the paper, because its patches are cut from the
            features of a convolutional stem and not from pixels.

            Shown are the {tall} · {wide} · 3 = {numbers} numbers of the pixels below one place, as a plain
            model would flatten them.
        """)
        return Step("flatten", title, said, attempt)
    said = paragraphs("""
        The pixels of a patch are written one after the other, red, green and blue of each: {tall} · {wide} ·
        3 = {numbers} numbers.

        Nothing is lost and nothing is learned yet, but above and below, left and right are gone: what belongs
        together, the model has to learn.
    """)
    formulas = (
        f"x_{{p}}^{{i}} ∈ ℝ^{{P²·C}} = ℝ^{{{f.numbers}}}",
        f"x_{{p}} ∈ ℝ^{{N×(P²·C)}} = ℝ^{{{f.grid.patches}×{f.numbers}}}",
    )
    return Step("flatten", title, said, attempt, formulas, ("Patches: {patches} × {numbers}",))


def _embedding(f: Facts) -> Step:
    if f.stem:
        *said, attempt = paragraphs("""
            One learned matrix E, the same for every place, turns the stem’s features there into a vector of D
            = {width} numbers.

            No filter over pixels can be shown, because E reads features that the convolutions before it have
            made.

            Pick two places that look alike, and compare their vectors.
        """)
        shapes = ("Embedding: {patches} × {width}",)
        return Step("embedding", "The linear embedding", tuple(said), attempt, shapes=shapes)
    *said, attempt = paragraphs("""
        One learned matrix E, the same for every patch, turns the {numbers} numbers of a patch into a vector
        of D = {width} numbers.

        Each of these is a dot product, and says how well the patch fits one filter.

        Click a number of the vector: its filter appears, and the sum that made the number.
    """)
    formulas = (f"x_{{p}}^{{i}}·E,  E ∈ ℝ^{{(P²·C)×D}} = ℝ^{{{f.numbers}×{f.width}}}",)
    shapes = ("{patches} × {numbers}  ·  {numbers} × {width}  =  {patches} × {width}",)
    return Step("embedding", "The linear embedding", tuple(said), attempt, formulas, shapes)


def _keyed(text: str) -> dict[str, str]:
    """Sentences by what stands before their colons, one a paragraph."""
    return dict(one.split(": ", 1) for one in paragraphs(text))


# What a classifier reads by its pool, in a model that has no class token, and in one that has.
_READS_INSTEAD = _keyed("""
    average: Its classifier reads the mean over the patch tokens; the paper tried that too, and found it as
    good (appendix D.3).

    max: Its classifier reads the largest of each number among the patch tokens.

    average and max: Its classifier reads the mean of the patch tokens and the largest of each of their
    numbers, half and half.

    attention: At the end, a layer of its own asks all patches with one learned query instead: attention
    pooling.

    none: This checkpoint has no classifier, and says nothing of what one should read.
""")
_READS_OTHERS = _READS_INSTEAD | _keyed("""
    average: This model’s classifier does not read it, though: it reads the mean over the patch tokens.

    max: This model’s classifier does not read it, though: it reads the largest of each number among the patch
    tokens.

    average and max: This model’s classifier does not read it, though: it reads the mean of the patch tokens
    and the largest of each of their numbers, half and half.

    attention: This model’s classifier does not read it, though: at the end, a layer of its own asks the
    patches with one learned query (attention pooling).
""")
_REGISTERS, _REGISTERS_READ = paragraphs("""
    The {registers} register tokens are learned as well: spare room for the layers, and nobody reads them at
    the end.

    The {registers} register tokens are learned as well: spare room for the layers, and read at the end
    together with the others.
""")


def _class_token(f: Facts) -> Step:
    read_all = f.prefix_read or f.pool.endswith(" of all")
    prefix = f.grid.prefix_names
    others = [name for name in prefix if name.startswith("register")]
    if "class" not in prefix:
        title = "No token for the answer"
        reads = _READS_INSTEAD.get(f.pool, "Its classifier reads all tokens together.")
        said = ("Not applicable to this model, because it has no class token.", reads)
        attempt = "Choose another picture at the left: every row changes, because no token is learned."
    else:
        title = "A token for the answer"
        put, reads, of_all, attempt = paragraphs("""
            One learned vector, the class token, is put in front of the patches; it is the same for every
            picture.

            Knowing nothing of this picture at first, it collects on its way through the layers what the
            classifier will read.

            This model’s classifier does not read it alone, though: it reads all tokens together.

            Choose another picture at the left: the rows in front stay as they are, the others change.
        """)
        said = (put, of_all if read_all else _READS_OTHERS.get(f.pool, reads))
    if others:
        said += (_REGISTERS_READ if read_all else _REGISTERS,)
    if "distillation" in prefix:
        said += ("The distillation token beside it was trained to repeat the answer of a teacher network.",)
    count = "{prefix} + {patches} = {tokens} tokens" if prefix else "{tokens} tokens"
    values = {"prefix": len(prefix), "registers": len(others)}
    return Step(
        "token", title, said, attempt, (f"[ {f.sequence} ]",), (f"{count} of {{width}} numbers",), values
    )


_POSITIONS = _keyed("""
    rotary: in every layer it turns queries and keys by angles that depend on where a patch lies (rotary
    embedding).

    relative: in every layer it adds to each score a learned number for the offset between two patches
    (relative position bias).

    none: it is told nothing about where a patch lies.
""")


def _positions(f: Facts) -> Step:
    added, after, compare, attempt = paragraphs("""
        So far a patch’s place in the sequence has no effect at all. E_pos, one learned vector for each place,
        is added, so that equal patches in different places are no longer equal.

        Without it the layers cannot tell one order of the patches from another: that can be tried below.

        Shuffle the patches, and compare the answers with E_pos and without it.

        Shuffle the patches, and see what becomes of the answer.
    """)
    shapes, formulas = ("Position embedding: {rows} × {width}",), ()
    if f.positions == "learned":
        said, attempt = (added, after), compare
        if f.norm_before_blocks:
            said += ("In this model a LayerNorm follows before the first block.",)
    elif "learned" in f.positions:
        other = next(kind for kind in _POSITIONS if kind in f.positions)
        said = (added, "That is not all this model knows about places: " + _POSITIONS[other])
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
    return Step("positions", "Where each patch was", said, attempt, formulas, shapes, values)


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


_LAST = _keyed("""
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
    head, attempt, none, see, embedded, unnamed, valued = paragraphs("""
        The head, one more matrix, turns it into {classes} numbers, one for each class: the logits.

        Add up the products: with the bias they make the logit of the first answer.

        This checkpoint has no classifier: y is its description of the picture, for others to use.

        Choose another picture at the left, and see how y changes.

        y becomes the picture’s embedding z, which is compared with the vectors of {classes} sentences: a
        logit is the cosine of the two, times a scale.

        The head, one more matrix, turns it into {classes} numbers; the checkpoint carries no names for them.

        The head, one more matrix, turns it into the values that the model predicts: {classes} in number.
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
    step = partial(Step, "probabilities", "Values" if f.head_type == "value" else "Probabilities")
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
            Each label has a sigmoid of its own, so the {classes} probabilities need not add up to 1.

            An image may have several labels, or none: training asked of each label alone whether it fits.

            The head has one output, and a sigmoid turns its logit into the probability of a yes.

            A softmax over a single output would be 1 for every image.
        """)
        said = (output, single) if f.classes == 1 else (own, labels)
        formula = "p_{c} = 1 / (1 + exp(−logit_{c}))"
        return step(said, attempt, (formula,), ("{classes} logits → {classes} probabilities",))
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
    shape = "{classes} logits → {classes} probabilities, which sum to 1"
    return step(tuple(said), attempt, (formula,), (shape,))


def _sum_by_hand(f: Facts) -> Step:
    *told, attempt = paragraphs("""
        The stream is only ever added to, so with the deviation of the last norm held the logit is a sum too:
        every head, every MLP and every bias has its own share of it, for or against.

        Here are the three heads that gave most, everything else together, and the logit they make.

        Add the three shares and the rest with a pocket calculator: they make the model’s own logit.
    """)
    formulas = ("logit_{c} = start + Σ_{l,h} share_{l,h} + Σ_{l} MLP_{l} + biases",)
    shapes = ("{layers} layers × {heads} heads: {together} shares",)
    title = "The logit as a sum of what was written"
    return _where_accounted(Step("sum", title, tuple(told), attempt, formulas, shapes), f)


def _one_taken_out(f: Facts) -> Step:
    *told, attempt = paragraphs("""
        A share is what a head wrote itself. Here the head with the largest share is taken out: its mean over
        other pictures stands in its place, and the model goes on from there.

        Later layers read what it wrote. Without it they write other things too, so the logit loses more than
        the share, or less.

        Take it out in every view, and look at Attribution: which shares are others now?
    """)
    shapes = ("1 of {together} heads replaced",)
    return _where_accounted(Step("without", "One head taken out", tuple(told), attempt, shapes=shapes), f)


def _one_path(f: Facts) -> Step:
    *told, attempt = paragraphs("""
        A head writes what it has read, and what it reads others wrote before. With attention and norms held
        its share is a sum over those writers, and each writer’s part a sum over the tokens that are read.

        Here is the head that gave most, its largest writer, and the patch at which most of that is read.

        Add each share to everything else beside it: they make the number above. Then follow another path.
    """)
    formulas = ("share_{l,h} = Σ_{writer} Σ_{j} part_{j} + biases",)
    shapes = ("Of each writer: {tokens} tokens × {width} numbers",)
    return _where_accounted(Step("path", "One path followed back", tuple(told), attempt, formulas, shapes), f)


def _where_accounted(step: Step, f: Facts) -> Step:
    """The step, or why a model without an account of its answers has no such numbers."""
    if f.classes and f.accounted:
        return step
    no_classifier, another, no_account, elsewhere = paragraphs("""
        Not applicable to this model, because this checkpoint has no classifier and so no logit to account
        for.

        Pick a checkpoint with a classifier, and come back to this step.

        Not applicable to this model, because there is no account of its answers that adds up; Attribution
        says why.

        Pick another checkpoint, and come back to this step.
    """)
    told, attempt = (no_account, elsewhere) if f.classes else (no_classifier, another)
    return Step(step.name, step.title, (told,), attempt)
