"""The measures that come with vitviz, by name. A new one: a file here, and its class in this list."""

from __future__ import annotations

from collections.abc import Iterable

from vitviz.errors import VitvizError
from vitviz.surveys.measure import Measure
from vitviz.surveys.measures.accuracy import Accuracy
from vitviz.surveys.measures.distance import Distance
from vitviz.surveys.measures.entropy import Entropy
from vitviz.surveys.measures.ledger import Ledger
from vitviz.surveys.measures.lens import Lens
from vitviz.surveys.measures.prefix_mass import PrefixMass
from vitviz.surveys.measures.similarity import Similarity
from vitviz.surveys.measures.skip import Skip
from vitviz.surveys.measures.trial import TrialMeasure

MEASURES: dict[str, Measure] = {
    one.name: one
    for one in (
        Distance(),
        PrefixMass(),
        Entropy(),
        Skip(),
        Similarity(),
        Ledger(),
        Lens(),
        Accuracy(),
        TrialMeasure(),
    )
}


def chosen(asked: Iterable[str | Measure]) -> tuple[Measure, ...]:
    """The measures meant by names or objects, each once; VitvizError for what is none.

    >>> [one.name for one in chosen(["distance", "entropy"])]
    ['distance', 'entropy']
    """
    asked = [asked] if isinstance(asked, str) else list(asked)
    found: dict[str, Measure] = {}
    for one in asked:
        measure = MEASURES.get(one) if isinstance(one, str) else one
        if not isinstance(measure, Measure):
            raise VitvizError(
                f"There is no measure {one!r}; expected of {', '.join(MEASURES)}, or an object like them."
            )
        if found.setdefault(measure.name, measure) is not measure:
            raise VitvizError(
                f"Two different measures are called {measure.name!r}; give one of them another name."
            )
    if not found:
        raise VitvizError(f"A survey needs at least one measure; expected of {', '.join(MEASURES)}.")
    return tuple(found.values())


__all__ = ["MEASURES", "chosen"]
