"""What a model's weights alone say: the public functions that take an inspector and hand its weights on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jaxtyping import Float
from torch import Tensor

from vitviz import analyses
from vitviz.errors import VitvizError

if TYPE_CHECKING:
    from vitviz.analyses.filters import Filters
    from vitviz.engine import Inspector


def embedding_filters(inspector: Inspector, count: int = 28) -> Filters:
    """The principal components of the linear embedding's filters (figure 7 left).

    `.pictures` (count, P, P, 3) before display scaling, `.variance` (count,) as shares of the whole. Raises
    VitvizError for a hybrid, whose patches are not cut from pixels.

    >>> import vitviz
    >>> embedding_filters(vitviz.load("vitviz-tiny")).pictures.shape[-1]
    3
    """
    weight = inspector.patch_filters()
    if weight is None:
        raise VitvizError(
            f"{inspector.checkpoint.name} cuts its patches from the features of a stem and not from pixels, so its embedding has no RGB filters; "
            "inspector.stem_filters() has the stem's first convolution."
        )
    return analyses.principal_filters(weight, count)


def position_similarity(inspector: Inspector, size: tuple[int, int] | None = None) -> Float[Tensor, "row col row2 col2"]:
    """Cosine similarity of the position embeddings of the patches (figure 7 centre), interpolated to a size if given.

    Raises VitvizError for a model without a learned table of absolute positions.

    >>> import vitviz
    >>> similarity = position_similarity(vitviz.load("vitviz-tiny"))
    >>> round(similarity[0, 0, 0, 0].item(), 3)
    1.0
    """
    table = inspector.position_table(size)
    if table is None:
        raise VitvizError(
            f"{inspector.checkpoint.name} has no learned absolute position embeddings (its positions: {inspector.position_kind()}), so there is no similarity of them."
        )
    return analyses.position_similarity(table, inspector.grid(size))
