"""The words of the tour's steps from the picture to its patches' vectors (paper section 3.1, equation 1)."""

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
        # a narrow space, as no language reads a comma the same way
        {"width": width, "count": f"{height * width * 3:,}".replace(",", "\u202f")},
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
    formulas = (
        f"x_{{p}}^{{i}} ∈ ℝ^{{P²·C}} = ℝ^{{{f.numbers}}}",
        f"x_{{p}} ∈ ℝ^{{N×(P²·C)}} = ℝ^{{{f.patches}×{f.numbers}}}",
    )
    return Step(
        "flatten",
        "Each patch becomes a row of numbers",
        said,
        "Pick a plain patch (sky, a wall), then one with an edge, and compare their rows.",
        () if f.stem else formulas,
        () if f.stem else ("Patches: {patches} × {numbers}",),
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
    )
