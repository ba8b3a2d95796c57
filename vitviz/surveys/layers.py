"""What a comparison of checkpoints measures of every layer, and the pictures that it begins with."""

from __future__ import annotations

from vitviz.analyses.cka import LEAST
from vitviz.errors import UnsupportedModel
from vitviz.samples import sample_image, samples
from vitviz.surveys.measure import Measure, Seen
from vitviz.surveys.measures import MEASURES
from vitviz.surveys.measures.skip import Skip

MOST = 8  # pictures that go through the model at once
PARTS = ((0, 0, 1, 1), (0, 0, 2 / 3, 2 / 3), (1 / 3, 0, 1, 2 / 3), (0, 1 / 3, 2 / 3, 1), (1 / 3, 1 / 3, 1, 1))


class SkipWhereKnown(Skip):
    """The same; nothing for a model whose blocks are not understood."""

    def of(self, seen: Seen):
        try:
            return super().of(seen)
        except UnsupportedModel:
            return {}


LAYERS: tuple[Measure, ...] = (
    *(MEASURES[name] for name in ("distance", "prefix_mass", "entropy", "similarity")),
    SkipWhereKnown(),
)


def parts_of_samples() -> list:
    """The sample photographs, each whole and its four overlapping corners.

    Four photographs alone are too few for an unbiased estimate to mean anything.

    >>> len(parts_of_samples())
    20
    """
    found = []
    for sample in samples():
        picture = sample_image(sample.name)
        sides = (*picture.size, *picture.size)
        found += [picture.crop([round(a * b) for a, b in zip(part, sides, strict=True)]) for part in PARTS]
    return found


def in_batches(count: int) -> int:
    """So many pictures at once that as few as can be are left over, too few to be compared: see `LEAST`.

    >>> in_batches(20), in_batches(9), in_batches(3)
    (8, 5, 8)
    """
    return min(range(MOST, LEAST, -1), key=lambda size: count % size if count % size < LEAST else 0)


__all__ = ["LAYERS", "in_batches", "parts_of_samples"]
