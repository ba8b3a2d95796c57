"""The words of the tour's steps from the picture to z_0 (paper section 3.1, equation 1)."""

from __future__ import annotations

from vitviz.views.tour.facts import Facts, Step


def picture(f: Facts) -> Step:
    (rows, cols), (tall, wide) = f.grid, f.patch
    height, width = rows * tall, cols * wide
    return Step(
        "picture",
        "The picture, as the model gets it",
        (
            (
                "The photograph is scaled and cropped to {height} × {width} pixels, each with a red, a green"
                " and a blue value."
            ),
            (
                "Every value becomes a small number around zero: the channel’s mean is subtracted and the"
                " rest divided by its standard deviation."
            ),
        ),
        "Point at a pixel of the model’s picture, and work out by hand one of the three numbers that the"
        " model reads there.",
        (f"x ∈ ℝ^{{H×W×C}} = ℝ^{{{height}×{width}×3}}",),
        ("Input: {height} × {width} × 3 = {count} numbers",),
        {"height": height, "width": width, "count": _big(height * width * 3)},
    )


def patches(f: Facts) -> Step:
    said = "The picture is cut into {rows} × {cols} = {patches} patches of {tall} × {wide} pixels."
    then = (
        "From here on each patch is one word of a sentence, read row by row; the model never again sees the"
        " picture as a picture."
    )
    if f.stem:
        said = (
            "A convolutional stem first turns the picture into features, at {rows} × {cols} = {patches}"
            " places that lie {tall} × {wide} pixels apart."
        )
        then = (
            "Each place is one word of a sentence, read row by row; unlike a patch of the paper’s plain"
            " model, it has also seen pixels beyond its edges."
        )
    square = f.patch[0] == f.patch[1]
    formula = (
        f"N = H·W / {'P^{2}' if square else '(P_{h}·P_{w})'} ="
        f" {f.grid[0] * f.patch[0]}·{f.grid[1] * f.patch[1]} /"
        f" {f'{f.patch[0]}^{{2}}' if square else f'({f.patch[0]}·{f.patch[1]})'} = {f.patches}"
    )
    return Step(
        "patches",
        "Cut into patches",
        (said, then),
        "Click a patch with something on it. It comes along through the steps that follow.",
        (formula,),
        ("{patches} patches of {tall} × {wide} × 3",),
        {"rows": f.grid[0], "cols": f.grid[1], "patches": f.patches, "tall": f.patch[0], "wide": f.patch[1]},
    )


def flatten(f: Facts) -> Step:
    said = (
        (
            "The pixels of a patch are written one after the other, red, green and blue of each: {tall} ·"
            " {wide} · 3 = {numbers} numbers."
        ),
        (
            "Nothing is lost and nothing is learned yet, but above and below, left and right are gone: what"
            " belongs together, the model has to learn."
        ),
    )
    if f.stem:
        said = (
            (
                "Not applicable to this model as it stands in the paper, because its patches are cut from the"
                " features of a convolutional stem and not from pixels."
            ),
            (
                "Shown are the {tall} · {wide} · 3 = {numbers} numbers of the pixels below one place, as a"
                " plain model would flatten them."
            ),
        )
    return Step(
        "flatten",
        "Each patch becomes a row of numbers",
        said,
        "Pick a plain patch (sky, a wall), then one with an edge, and compare their rows.",
        (
            ()
            if f.stem
            else (
                f"x_{{p}}^{{i}} ∈ ℝ^{{P²·C}} = ℝ^{{{f.numbers}}}",
                f"x_{{p}} ∈ ℝ^{{N×(P²·C)}} = ℝ^{{{f.patches}×{f.numbers}}}",
            )
        ),
        () if f.stem else ("Patches: {patches} × {numbers}",),
        {"tall": f.patch[0], "wide": f.patch[1], "numbers": f.numbers, "patches": f.patches},
    )


def embedding(f: Facts) -> Step:
    said = (
        (
            "One learned matrix E, the same for every patch, turns the {numbers} numbers of a patch into a"
            " vector of D = {width} numbers."
        ),
        "Each of these is a dot product, and says how well the patch fits one filter.",
    )
    attempt = "Click a number of the vector: its filter appears, and the sum that made the number."
    if f.stem:
        said = (
            (
                "One learned matrix E, the same for every place, turns the stem’s features there into a"
                " vector of D = {width} numbers."
            ),
            (
                "No filter over pixels can be shown, because E reads features that the convolutions before it"
                " have made."
            ),
        )
        attempt = "Pick two places that look alike, and compare their vectors."
    return Step(
        "embedding",
        "The linear embedding",
        said,
        attempt,
        () if f.stem else (f"x_{{p}}^{{i}}·E,  E ∈ ℝ^{{(P²·C)×D}} = ℝ^{{{f.numbers}×{f.width}}}",),
        (
            ("Embedding: {patches} × {width}",)
            if f.stem
            else ("{patches} × {numbers}  ·  {numbers} × {width}  =  {patches} × {width}",)
        ),
        {"numbers": f.numbers, "width": f.width, "patches": f.patches},
    )


# What a classifier reads by its pool, in a model that has no class token, and in one that has.
_READS_INSTEAD = {
    "average": (
        "Its classifier reads the mean over the patch tokens; the paper tried that too, and found it as good"
        " (appendix D.3)."
    ),
    "max": "Its classifier reads the largest of each number among the patch tokens.",
    "average and max": (
        "Its classifier reads the mean of the patch tokens and the largest of each of their numbers, half and"
        " half."
    ),
    "attention": (
        "At the end, a layer of its own asks all patches with one learned query instead: attention pooling."
    ),
    "none": "This checkpoint has no classifier, and says nothing of what one should read.",
}
_READS_OTHERS = {
    "average": "This model’s classifier does not read it, though: it reads the mean over the patch tokens.",
    "max": (
        "This model’s classifier does not read it, though: it reads the largest of each number among the"
        " patch tokens."
    ),
    "average and max": (
        "This model’s classifier does not read it, though: it reads the mean of the patch tokens "
        "and the largest of each of their numbers, half and half."
    ),
    "attention": (
        "This model’s classifier does not read it, though: "
        "at the end, a layer of its own asks the patches with one learned query (attention pooling)."
    ),
    "none": "This checkpoint has no classifier, and says nothing of what one should read.",
}


def class_token(f: Facts) -> Step:
    others = [name for name in f.prefix if name.startswith("register")]
    values = {
        "patches": f.patches,
        "prefix": len(f.prefix),
        "tokens": f.tokens,
        "width": f.width,
        "registers": len(others),
    }
    if "class" not in f.prefix:
        reads = _READS_INSTEAD.get(f.pool, "Its classifier reads all tokens together.")
        said = ("Not applicable to this model, because it has no class token.", reads)
        attempt = "Choose another picture at the left: every row changes, because no token is learned."
    else:
        reads = (
            "Knowing nothing of this picture at first, it collects on its way through the layers what the"
            " classifier will read."
        )
        if f.pool in _READS_OTHERS:
            reads = _READS_OTHERS[f.pool]
        if f.prefix_read or f.pool.endswith(" of all"):
            reads = "This model’s classifier does not read it alone, though: it reads all tokens together."
        said = (
            (
                "One learned vector, the class token, is put in front of the patches; it is the same for"
                " every picture."
            ),
            reads,
        )
        attempt = "Choose another picture at the left: the rows in front stay as they are, the others change."
    if others:
        if f.prefix_read or f.pool.endswith(" of all"):
            said += (
                (
                    "The {registers} register tokens are learned as well: spare room for the layers, and read"
                    " at the end together with the others."
                ),
            )
        else:
            said += (
                (
                    "The {registers} register tokens are learned as well: spare room for the layers, and"
                    " nobody reads them at the end."
                ),
            )
    if "distillation" in f.prefix:
        said += ("The distillation token beside it was trained to repeat the answer of a teacher network.",)
    return Step(
        "token",
        "A token for the answer" if "class" in f.prefix else "No token for the answer",
        said,
        attempt,
        (f"[ {f.sequence} ]",),
        (
            ("{prefix} + {patches} = {tokens} tokens of {width} numbers",)
            if f.prefix
            else ("{tokens} tokens of {width} numbers",)
        ),
        values,
    )


_POSITIONS = {
    "rotary": (
        "in every layer it turns queries and keys by angles that depend on where a patch lies (rotary"
        " embedding)."
    ),
    "relative": (
        "in every layer it adds to each score a learned number for the offset between two patches (relative"
        " position bias)."
    ),
    "none": "it is told nothing about where a patch lies.",
}


def positions(f: Facts) -> Step:
    values = {"tokens": f.tokens, "patches": f.patches, "width": f.width, "rows": f.position_rows}
    added = (
        "So far a patch’s place in the sequence has no effect at all. E_pos, one learned vector for each"
        " place, is added, so that equal patches in different places are no longer equal."
    )
    shapes = ("Position embedding: {rows} × {width}",)
    if f.positions == "learned":
        after = (
            "Without it the layers cannot tell one order of the patches from another: that can be tried"
            " below."
        )
        said, attempt = (
            (added, after),
            "Shuffle the patches, and compare the answers with E_pos and without it.",
        )
        if f.norm_before_blocks:
            said += ("In this model a LayerNorm follows before the first block.",)
    elif "learned" in f.positions:
        other = next(kind for kind in _POSITIONS if kind in f.positions)
        said = (added, "That is not all this model knows about places: " + _POSITIONS[other])
        attempt = "Shuffle the patches, and see what becomes of the answer."
    else:
        kind = next(kind for kind in _POSITIONS if kind in f.positions)
        said = (
            "Adding E_pos is not applicable to this model, because it has no such table: " + _POSITIONS[kind],
        )
        attempt, shapes = "Shuffle the patches, and see what becomes of the answer.", ()
    formula = f"[ {f.sequence} ] + E_{{pos}}"
    if f.position_rows == f.patches != f.tokens:
        formula = f"[ {'; '.join(f.front)}; ( x_{{p}}^{{1}}E; …; x_{{p}}^{{N}}E ) + E_{{pos}} ]"
        said += ("Here E_pos is added to the patches alone.",) if "learned" in f.positions else ()
    formulas = (f"(1)  z_{{0}} = {formula} ∈ ℝ^{{{f.tokens}×{f.width}}}",) if "learned" in f.positions else ()
    return Step(
        "positions",
        "Where each patch was",
        said,
        attempt,
        formulas,
        ("z₀: {tokens} × {width}", *shapes),
        values,
    )


def _big(number: int) -> str:
    return f"{number:,}".replace(",", "\u202f")  # a narrow space, as no language reads a comma the same way
