"""Two surveys of one set of pictures beside each other: how alike their checkpoints are, depth by depth."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from vitviz import analyses
from vitviz.errors import VitvizError
from vitviz.surveys.result import Survey


def cka(
    survey_a: Survey, survey_b: Survey | None = None, tokens: str = "patches"
) -> Float[Tensor, "depth depth2"]:
    """CKA of every depth of one survey's checkpoint with every depth of the other's; of one alone, with
    itself.

    Depth 0 enters block 1, depth l is the raw output of block l. Both are surveys of the same pictures with
    the same `batch`, measuring "similarity"; the checkpoints may have any widths, depths and patch sizes.
    `tokens`: "class", "patches" (their mean) or "all". From -1 to 1; of depths that have nothing in common
    about 0, or a little below. Not a number where all pictures are the same, as the class token entering
    block 1 is. Batches of fewer than 4 pictures do not count. Raises VitvizError where the surveys are of
    different pictures or did not measure it. Source: Nguyen, Raghu and Kornblith 2021 (arXiv 2010.15327),
    equations 2 and 3; `vitviz.analyses.cka_error` has the standard error of the surveys' `.grams`.

    >>> import vitviz
    >>> pictures = [vitviz.sample_image(sample.name) for sample in vitviz.samples.samples()]
    >>> of = lambda name: vitviz.survey(pictures, vitviz.load(name), ["similarity"])
    >>> cka(of("vitviz-tiny"), of("vitviz-tiny")).shape
    torch.Size([9, 9])
    """
    survey_b = survey_a if survey_b is None else survey_b
    for survey in (survey_a, survey_b):
        if not survey.grams:
            raise VitvizError(
                f"Nothing to compare in the survey of {survey.checkpoint}: expected one that measured"
                ' "similarity", such as vitviz.survey(pictures, inspector, ["similarity"]), on four pictures'
                " or more."
            )
    return analyses.cka(survey_a.grams, survey_b.grams, tokens)


__all__ = ["cka"]
