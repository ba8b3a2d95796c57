"""The words of the tour's steps from the patches' vectors to z_0: class token and positions (equation 1)."""

from vitviz.views.base import paragraphs
from vitviz.views.tour.facts import Facts, Step, keyed

# What a classifier reads by its pool, in a model that has no class token, and in one that has.
_READS_INSTEAD = keyed("""
    average: Its classifier reads the mean over the patch tokens; the paper tried that too, and found it as
    good (appendix D.3).

    max: Its classifier reads the largest of each number among the patch tokens.

    average and max: Its classifier reads the mean of the patch tokens and the largest of each of their
    numbers, half and half.

    attention: At the end, a layer of its own asks all patches with one learned query instead: attention
    pooling.

    none: This checkpoint has no classifier, and says nothing of what one should read.
""")
_READS_OTHERS = keyed("""
    average: This model’s classifier does not read it, though: it reads the mean over the patch tokens.

    max: This model’s classifier does not read it, though: it reads the largest of each number among the patch
    tokens.

    average and max: This model’s classifier does not read it, though: it reads the mean of the patch tokens
    and the largest of each of their numbers, half and half.

    attention: This model’s classifier does not read it, though: at the end, a layer of its own asks the
    patches with one learned query (attention pooling).

    none: This checkpoint has no classifier, and says nothing of what one should read.
""")
_REGISTERS, _REGISTERS_READ = paragraphs("""
    The {registers} register tokens are learned as well: spare room for the layers, and nobody reads them at
    the end.

    The {registers} register tokens are learned as well: spare room for the layers, and read at the end
    together with the others.
""")


def class_token(f: Facts) -> Step:
    read_all = f.prefix_read or f.pool.endswith(" of all")
    others = [name for name in f.prefix if name.startswith("register")]
    if "class" not in f.prefix:
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
    if "distillation" in f.prefix:
        said += ("The distillation token beside it was trained to repeat the answer of a teacher network.",)
    count = "{prefix} + {patches} = {tokens} tokens" if f.prefix else "{tokens} tokens"
    values = {"prefix": len(f.prefix), "registers": len(others)}
    return Step(
        "token", title, said, attempt, (f"[ {f.sequence} ]",), (f"{count} of {{width}} numbers",), values
    )


_POSITIONS = keyed("""
    rotary: in every layer it turns queries and keys by angles that depend on where a patch lies (rotary
    embedding).

    relative: in every layer it adds to each score a learned number for the offset between two patches
    (relative position bias).

    none: it is told nothing about where a patch lies.
""")


def positions(f: Facts) -> Step:
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
        if f.position_rows == f.patches != f.tokens:
            formula = f"[ {'; '.join(f.front)}; ( x_{{p}}^{{1}}E; …; x_{{p}}^{{N}}E ) + E_{{pos}} ]"
            said += ("Here E_pos is added to the patches alone.",)
        formulas = (f"(1)  z_{{0}} = {formula} ∈ ℝ^{{{f.tokens}×{f.width}}}",)
    shapes = ("z₀: {tokens} × {width}", *shapes)
    return Step(
        "positions", "Where each patch was", said, attempt, formulas, shapes, {"rows": f.position_rows}
    )
