"""The words of the tour's steps from the picture to its patches' vectors (paper section 3.1, equation 1)."""

from vitviz.views.base import paragraphs
from vitviz.views.tour.facts import Facts, Step


def picture(f: Facts) -> Step:
    (rows, cols), (tall, wide) = f.grid, f.patch
    height, width = rows * tall, cols * wide
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
    return Step(
        "picture", "The picture, as the model gets it", tuple(said), attempt, formulas, shapes, values
    )


def patches(f: Facts) -> Step:
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
    (rows, cols), (tall, wide) = f.grid, f.patch
    symbol, area = ("P^{2}", f"{tall}^{{2}}") if tall == wide else ("(P_{h}·P_{w})", f"({tall}·{wide})")
    formula = f"N = H·W / {symbol} = {rows * tall}·{cols * wide} / {area} = {f.patches}"
    shapes = ("{patches} patches of {tall} × {wide} × 3",)
    return Step("patches", "Cut into patches", said, attempt, (formula,), shapes)


def flatten(f: Facts) -> Step:
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
        f"x_{{p}} ∈ ℝ^{{N×(P²·C)}} = ℝ^{{{f.patches}×{f.numbers}}}",
    )
    return Step("flatten", title, said, attempt, formulas, ("Patches: {patches} × {numbers}",))


def embedding(f: Facts) -> Step:
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
