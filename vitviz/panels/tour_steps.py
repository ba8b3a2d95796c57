"""The words of the guided tour: ten steps along figure 1 and equations 1 to 4, said of the model at hand.

A text is English with names in braces, the key of its translation, and the values that the page fills in. What a model
does not have is said, with the reason, and not skipped: a step is as much about why something is there. Formulas are
plain text in which _{} and ^{} mark indices; the page builds them from elements.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Facts:
    """What the words depend on."""

    grid: tuple[int, int]
    patch: tuple[int, int]
    prefix: tuple[str, ...]
    width: int
    layers: int
    heads: int
    dim: int
    mlp: int | None
    classes: int
    named: bool  # the classes have names
    pool: str
    positions: str  # learned, rotary, relative, joined by " + ", or none
    position_rows: int
    stem: bool
    plain_blocks: bool
    layer_scale: bool
    norm_before_blocks: bool

    @property
    def patches(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def tokens(self) -> int:
        return self.patches + len(self.prefix)

    @property
    def numbers(self) -> int:
        return self.patch[0] * self.patch[1] * 3


@dataclass(frozen=True)
class Step:
    """One stop of the tour."""

    name: str
    title: str
    said: tuple[str, ...]
    attempt: str  # one thing to try
    formulas: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)

    def told(self) -> dict[str, Any]:
        """As JSON for the page; every text goes with the same values."""
        return {"name": self.name, "title": self.title, "said": list(self.said), "attempt": self.attempt, "formulas": list(self.formulas), "shapes": list(self.shapes), "values": self.values}


def steps(facts: Facts) -> list[Step]:
    """The ten steps for one model."""
    makers = (_picture, _patches, _flatten, _embedding, _class_token, _positions, _attention, _layers, _readout, _probabilities)
    return [make(facts) for make in makers]


def _picture(f: Facts) -> Step:
    (rows, cols), (tall, wide) = f.grid, f.patch
    height, width = rows * tall, cols * wide
    return Step(
        "picture",
        "The picture, as the model gets it",
        (
            "The photograph is scaled and cropped to {height} × {width} pixels, each with a red, a green and a blue value.",
            "Every value becomes a small number around zero: the channel’s mean is subtracted and the rest divided by its standard deviation.",
        ),
        "Point at a pixel of the right picture, and work out by hand one of the three numbers that the model reads there.",
        (f"x ∈ ℝ^{{H×W×C}} = ℝ^{{{height}×{width}×3}}",),
        ("Input: {height} × {width} × 3 = {count} numbers",),
        {"height": height, "width": width, "count": _big(height * width * 3)},
    )


def _patches(f: Facts) -> Step:
    said = "The picture is cut into {rows} × {cols} = {patches} patches of {tall} × {wide} pixels."
    then = "From here on each patch is one word of a sentence, read row by row; the model never again sees the picture as a picture."
    if f.stem:
        said = "A convolutional stem first turns the picture into features, at {rows} × {cols} = {patches} places that lie {tall} × {wide} pixels apart."
        then = "Each place is one word of a sentence, read row by row; unlike a patch of the paper’s plain model, it has also seen pixels beyond its edges."
    square = f.patch[0] == f.patch[1]
    formula = f"N = H·W / {'P^{2}' if square else '(P_{h}·P_{w})'} = {f.grid[0] * f.patch[0]}·{f.grid[1] * f.patch[1]} / {f'{f.patch[0]}^{{2}}' if square else f'({f.patch[0]}·{f.patch[1]})'} = {f.patches}"
    return Step(
        "patches",
        "Cut into patches",
        (said, then),
        "Click a patch with something on it. It comes along through the steps that follow.",
        (formula,),
        ("{patches} patches of {tall} × {wide} × 3",),
        {"rows": f.grid[0], "cols": f.grid[1], "patches": f.patches, "tall": f.patch[0], "wide": f.patch[1]},
    )


def _flatten(f: Facts) -> Step:
    said = (
        "The pixels of a patch are written one after the other, red, green and blue of each: {tall} · {wide} · 3 = {numbers} numbers.",
        "Nothing is lost and nothing is learned yet, but above and below, left and right are gone: what belongs together, the model has to learn.",
    )
    if f.stem:
        said = (
            "Not applicable to this model as it stands in the paper, because its patches are cut from the features of a convolutional stem and not from pixels.",
            "Shown are the {tall} · {wide} · 3 = {numbers} numbers of the pixels below one place, as a plain model would flatten them.",
        )
    return Step(
        "flatten",
        "Each patch becomes a row of numbers",
        said,
        "Pick a plain patch (sky, a wall), then one with an edge, and compare their rows.",
        () if f.stem else (f"x_{{p}}^{{i}} ∈ ℝ^{{P²·C}} = ℝ^{{{f.numbers}}}", f"x_{{p}} ∈ ℝ^{{N×(P²·C)}} = ℝ^{{{f.patches}×{f.numbers}}}"),
        () if f.stem else ("Patches: {patches} × {numbers}",),
        {"tall": f.patch[0], "wide": f.patch[1], "numbers": f.numbers, "patches": f.patches},
    )


def _embedding(f: Facts) -> Step:
    said = (
        "One learned matrix E, the same for every patch, turns the {numbers} numbers of a patch into a vector of D = {width} numbers.",
        "Each of these is a dot product, and says how well the patch fits one filter.",
    )
    attempt = "Click a number of the vector: its filter appears, and the sum that made the number."
    if f.stem:
        said = (
            "One learned matrix E, the same for every place, turns the stem’s features there into a vector of D = {width} numbers.",
            "No filter over pixels can be shown, because E reads features that the convolutions before it have made.",
        )
        attempt = "Pick two places that look alike, and compare their vectors."
    return Step(
        "embedding",
        "The linear embedding",
        said,
        attempt,
        () if f.stem else (f"x_{{p}}^{{i}}·E,  E ∈ ℝ^{{(P²·C)×D}} = ℝ^{{{f.numbers}×{f.width}}}",),
        ("Embedding: {patches} × {width}",) if f.stem else ("{patches} × {numbers}  ·  {numbers} × {width}  =  {patches} × {width}",),
        {"numbers": f.numbers, "width": f.width, "patches": f.patches},
    )


def _class_token(f: Facts) -> Step:
    others = [name for name in f.prefix if name.startswith("register")]
    values = {"patches": f.patches, "prefix": len(f.prefix), "tokens": f.tokens, "width": f.width, "registers": len(others)}
    if "class" not in f.prefix:
        reads = "Its classifier reads the mean over the patch tokens; the paper tried that too, and found it as good (appendix D.3)."
        if f.pool == "attention":
            reads = "At the end, a layer of its own asks all patches with one learned query instead: attention pooling."
        said = ("Not applicable to this model, because it has no class token.", reads)
        attempt = "Choose another picture at the left: every row changes, because no token is learned."
    else:
        reads = "Knowing nothing of this picture at first, it collects on its way through the layers what the classifier will read."
        if f.pool != "class":
            reads = "This model’s classifier does not read it, though: it reads the mean over the patch tokens."
        said = ("One learned vector, the class token, is put in front of the patches; it is the same for every picture.", reads)
        attempt = "Choose another picture at the left: the rows in front stay as they are, the others change."
    if others:
        said += ("The {registers} register tokens are learned as well: spare room for the layers, and nobody reads them at the end.",)
    if "distillation" in f.prefix:
        said += ("The distillation token beside it was trained to repeat the answer of a teacher network.",)
    named = "".join(f"x_{{{'class' if name == 'class' else 'dist' if name == 'distillation' else 'reg'}}}; " for name in f.prefix if name != "register 1" and not name.startswith("register")) + ("x_{reg}^{1}; …; " if others else "")
    return Step(
        "token",
        "A token for the answer" if "class" in f.prefix else "No token for the answer",
        said,
        attempt,
        (f"[ {named}x_{{p}}^{{1}}E; x_{{p}}^{{2}}E; …; x_{{p}}^{{N}}E ]",),
        ("{prefix} + {patches} = {tokens} tokens of {width} numbers",) if f.prefix else ("{tokens} tokens of {width} numbers",),
        values,
    )


_POSITIONS = {
    "rotary": "in every layer it turns queries and keys by angles that depend on where a patch lies (rotary embedding).",
    "relative": "in every layer it adds to each score a learned number for the offset between two patches (relative position bias).",
    "none": "it is told nothing about where a patch lies.",
}


def _positions(f: Facts) -> Step:
    values = {"tokens": f.tokens, "patches": f.patches, "width": f.width, "rows": f.position_rows}
    added = "So far a patch’s place in the sequence has no effect at all. E_pos, one learned vector for each place, is added, so that equal patches in different places are no longer equal."
    shapes = ("Position embedding: {rows} × {width}",)
    if f.positions == "learned":
        after = "Without it the layers cannot tell one order of the patches from another: that can be tried below."
        said, attempt = (added, after), "Shuffle the patches, and compare the answers with E_pos and without it."
        if f.norm_before_blocks:
            said += ("In this model a LayerNorm follows before the first block.",)
    elif "learned" in f.positions:
        other = next(kind for kind in _POSITIONS if kind in f.positions)
        said = (added, "That is not all this model knows about places: " + _POSITIONS[other])
        attempt = "Shuffle the patches, and see what becomes of the answer."
    else:
        kind = next(kind for kind in _POSITIONS if kind in f.positions)
        said = ("Adding E_pos is not applicable to this model, because it has no such table: " + _POSITIONS[kind],)
        attempt, shapes = "Shuffle the patches, and see what becomes of the answer.", ()
    start = "z_{0} = [ x_{class}; x_{p}^{1}E; …; x_{p}^{N}E ] + E_{pos}" if "class" in f.prefix else "z_{0} = [ x_{p}^{1}E; …; x_{p}^{N}E ] + E_{pos}"
    formulas = (f"(1)  {start} ∈ ℝ^{{{f.tokens}×{f.width}}}",) if "learned" in f.positions else ()
    return Step("positions", "Where each patch was", said, attempt, formulas, ("z₀: {tokens} × {width}", *shapes), values)


def _attention(f: Facts) -> Step:
    said = (
        "In each head every token asks with a query q and is found by a key k; how much one takes from another is the softmax over their dot products.",
        "Below, this is worked out for one query, in numbers that can be followed with a pocket calculator.",
    )
    if "rotary" in f.positions:
        said += ("q and k are shown after the rotary embedding has turned them.",)
    bias = " + b_{ij}" if "relative" in f.positions else ""
    return Step(
        "attention",
        "One row of attention, by hand",
        said,
        "Choose a key in the right picture and recompute its weight: product × scale, the exponential, divided by the sum.",
        (f"A_{{ij}} = exp( q_{{i}}·k_{{j}} / √d{bias} ) / Σ_{{n}} exp( q_{{i}}·k_{{n}} / √d{bias.replace('j', 'n')} ),  d = {f.dim}",),
        ("q, k, v: {tokens} × {dim} in each of {heads} heads", "A: {tokens} × {tokens} in each head"),
        {"tokens": f.tokens, "dim": f.dim, "heads": f.heads},
    )


def _layers(f: Facts) -> Step:
    said = (
        "{heads} heads do this side by side, each with its own q, k and v (MSA); what they collect is added to each token, and an MLP that sees one token at a time adds its share.",
        "That is one layer; there are {layers}, and the tokens run through them as a stream that is only ever added to.",
    )
    if not f.plain_blocks:
        said += ("The blocks of this model are put together differently in detail than in equations 2 and 3.",)
    elif f.layer_scale:
        said += ("In this model each share is first multiplied by learned numbers (LayerScale).",)
    formulas = (f"(2)  z′_{{l}} = MSA(LN(z_{{l−1}})) + z_{{l−1}},  l = 1 … {f.layers}", f"(3)  z_{{l}} = MLP(LN(z′_{{l}})) + z′_{{l}}")
    shapes = ("Stream: {tokens} × {width} after every layer", "Heads: {heads} × {dim} = {together}")
    return Step(
        "layers",
        "Heads, layers, and the stream between them",
        said,
        "Move through the layers with the same query: which heads look near, which look far, and where does that change?",
        formulas if f.plain_blocks else (),
        (*shapes, "MLP: {width} → {mlp} → {width}") if f.mlp else shapes,
        {"tokens": f.tokens, "width": f.width, "heads": f.heads, "layers": f.layers, "dim": f.dim, "together": f.heads * f.dim, "mlp": f.mlp},
    )


def _readout(f: Facts) -> Step:
    last = {
        "class": "After the last layer only one row is read, that of the class token; a LayerNorm makes it y.",
        "average": "After the last layer the patch tokens are averaged, with a LayerNorm, into one vector y.",
        "attention": "After the last layer a LayerNorm and the attention pooling make one vector y of all patch tokens.",
    }.get(f.pool, "After the last layer the tokens become one vector y.")
    if f.pool == "class" and "distillation" in f.prefix:
        last = "After the last layer and a LayerNorm two rows are read, those of the class token and the distillation token, each by a head of its own; their logits are averaged."
    head = "The head, one more matrix, turns it into {classes} numbers, one for each class: the logits."
    attempt = "Add up the products: with the bias they make the logit of the first answer."
    if not f.classes:
        head, attempt = "This checkpoint has no classifier: y is its description of the picture, for others to use.", "Choose another picture at the left, and see how y changes."
    elif not f.named:
        head = "The head, one more matrix, turns it into {classes} numbers; the checkpoint carries no names for them."
    formula = {"class": f"(4)  y = LN(z_{{{f.layers}}}^{{0}})"}.get(f.pool)
    distilled = "distillation" in f.prefix
    return Step(
        "readout",
        "What the classifier reads",
        (last, head),
        attempt,
        (formula,) if formula and not distilled else (),
        ("y: {width}", "Head: {width} × {classes}") if f.classes and not distilled else ("y: {width}",) if not distilled else ("Two heads: {width} × {classes}",),
        {"width": f.width, "classes": f.classes},
    )


def _probabilities(f: Facts) -> Step:
    values = {"classes": f.classes}
    if not f.classes:
        said = ("Not applicable to this model, because this checkpoint has no classifier and so no probabilities.", "Its vector y is compared with other pictures’ instead, or a classifier is trained on it.")
        return Step("probabilities", "Probabilities", said, "Pick a checkpoint with a classifier, and come back to this step.", values=values)
    said = ("Softmax makes shares of the logits: each one’s exponential, divided by the sum over all {classes}.",)
    said += ("The largest is the model’s answer, and a share of 0.9 is no promise that it is right nine times out of ten.",)
    if not f.named:
        said += ("The checkpoint carries no names for its numbers; some heads make a description for comparison and were never meant for a softmax.",)
    return Step(
        "probabilities",
        "Probabilities",
        said,
        "Recompute the first probability from its logit, and then see how it changes with another picture.",
        ("p_{c} = exp(logit_{c}) / Σ_{n} exp(logit_{n})",),
        ("{classes} logits → {classes} probabilities, which sum to 1",),
        values,
    )


def _big(number: int) -> str:
    return f"{number:,}".replace(",", "\u202f")  # a narrow space, as no language reads a comma the same way
