"""Attention distance over a set of pictures, as in figure 7 right of the paper, which averages 128 of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from os import PathLike

from jaxtyping import Float
from PIL import Image
from torch import Tensor

from vitviz import analyses
from vitviz.analyses.distance import DistanceAverage
from vitviz.engine.images import open_image
from vitviz.engine.preprocess import Prepared, Preprocessing, prepare
from vitviz.errors import ImageError, VitvizError
from vitviz.trace import Trace


@dataclass(frozen=True)
class Survey:
    """The mean over the pictures done so far; `skipped` says which could not be read, and why."""

    checkpoint: str
    average: DistanceAverage
    skipped: tuple[str, ...] = ()

    @property
    def images(self) -> int:
        """How many pictures the mean is over."""
        return self.average.images

    @property
    def distances(self) -> Float[Tensor, "layer head"]:
        """Attention distance in pixels, rows not renormalised, as in the paper."""
        return self.average.mean.distance


def running(
    checkpoint: str, images: Iterable, batch: int, record: Callable[[list[Prepared]], list[Trace]], preprocessing: Preprocessing
) -> Iterator[Survey]:
    """The running mean after each batch. A picture that cannot be read is skipped and named, the others go on."""
    if isinstance(images, str | PathLike | Image.Image):
        raise VitvizError(f"Given {str(images)[:80]!r} for a set of pictures; expected several, such as [picture] or sorted(Path(folder).glob('*.jpg')).")
    if batch < 1:
        raise VitvizError(f"Given batch={batch!r}; expected how many pictures go through the model at once, 1 or more.")
    average: DistanceAverage | None = None
    skipped: list[str] = []
    waiting: list[Prepared] = []

    def flush() -> Survey:
        nonlocal average
        for trace in record(waiting):
            one = DistanceAverage.of(trace.grid, analyses.distances(trace))
            average = one if average is None else average + one
        waiting.clear()
        return Survey(checkpoint, average, tuple(skipped))

    result = None
    for number, image in enumerate(images, start=1):
        try:
            waiting.append(prepare(open_image(image), preprocessing))
        except ImageError as error:
            skipped.append(f"Picture {number}: {error}")
        if len(waiting) >= batch:
            result = flush()
            yield result
    if waiting:
        yield flush()
    elif result is not None and len(result.skipped) < len(skipped):  # the last pictures were unreadable
        yield replace(result, skipped=tuple(skipped))
    elif result is None and skipped:
        raise ImageError("None of the pictures could be read. " + skipped[0])
