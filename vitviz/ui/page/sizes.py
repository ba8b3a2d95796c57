"""The size of the model's input, as the page asks for it: as trained, in the picture's shape, in pixels."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from vitviz.errors import VitvizError
from vitviz.record.sentence import Sentence
from vitviz.ui.words import translated

if TYPE_CHECKING:
    from vitviz.engine import Inspector

NO_SIZE = (
    "{size} is no input size: expected a number of pixels such as 224, or height x width such as 224 x 320."
)
OWN, SHAPE = "own", "shape"
_PIXELS = re.compile(r"\s*(\d{1,5})(?:\s*[x×*,]\s*(\d{1,5}))?\s*(?:px)?\s*", re.IGNORECASE)


def choices(inspector: Inspector, language: str = "en", tokens: int = 10**9) -> list[tuple[str, str]]:
    """What the page offers for a checkpoint, of up to so many tokens; anything else can be typed."""
    (height, width), patch = inspector.preprocessing.size, inspector.grid().patch
    scaled = [
        tuple(max(p, round(side * factor / p) * p) for side, p in zip((height, width), patch, strict=True))
        for factor in (0.5, 1.5, 2)
    ]
    scaled = [size for size in scaled if inspector.demand(size).tokens <= tokens]
    return [
        (translated("As trained", language), OWN),
        (translated("The picture's own shape", language), SHAPE),
        *((f"{h} × {w} px", f"{h}x{w}") for h, w in scaled),
    ]


def pixels(asked: str, inspector: Inspector, upload: tuple[int, int]) -> tuple[int, int] | None:
    """Height and width in px, None for the checkpoint's own; `upload` is width and height. VitvizError for
    what is no size; whether the patch divides it is checked by the inspector.
    """
    if asked in ("", OWN):
        return None
    if asked == SHAPE:
        from vitviz.engine.pictures.preprocess import fitted_size

        grid = inspector.grid()
        return fitted_size(upload, grid.patches, grid.patch)
    found = _PIXELS.fullmatch(asked)
    if not found:
        raise VitvizError(Sentence(NO_SIZE, size=repr(asked[:60])))
    return int(found[1]), int(found[2] or found[1])
