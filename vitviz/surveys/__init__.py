"""Averages over sets of images: the measures, the image sources and the results.

    vitviz.survey("photos/", inspector, ["distance", "entropy"], out="report/").mean("distance")

This package depends on the engine and the analyses, not on the server. Importing it loads nothing.
"""

from typing import TYPE_CHECKING

from vitviz.traces.public import lazy_exports

__getattr__, __dir__, __all__ = lazy_exports(__name__, __file__)

if TYPE_CHECKING:
    from vitviz.surveys.measure import Measure, MeasuredImage, Quantity
    from vitviz.surveys.measures import LAYERS, MEASURES, batch_size_for, sample_crops
    from vitviz.surveys.moments import Moments
    from vitviz.surveys.result import Survey, cka, heads_in_words
    from vitviz.surveys.run import survey, surveying
