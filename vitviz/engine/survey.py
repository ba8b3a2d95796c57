"""Attention distance over a set of pictures, as in figure 7 right of the paper, which averages 128 of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from vitviz import analyses
from vitviz.engine.images import open_image
from vitviz.engine.preprocess import Prepared, Preprocessing, prepare
from vitviz.errors import ImageError
from vitviz.grid import Grid
from vitviz.trace import Trace


@dataclass(frozen=True)
class Survey:
    """The mean over the pictures done so far; `skipped` says which could not be read, and why."""

    checkpoint: str
    grid: Grid
    images: int
    distances: Float[Tensor, "layer head"]  # px, rows not renormalised
    renormalised: Float[Tensor, "layer head"]  # px, each row divided by its mass on patches
    prefix_mass: Float[Tensor, "layer head"]
    skipped: tuple[str, ...] = field(default=())


def running(
    checkpoint: str, images: Iterable, batch: int, record: Callable[[list[Prepared]], list[Trace]], preprocessing: Preprocessing
) -> Iterator[Survey]:
    """The running mean after each batch. A picture that cannot be read is skipped and named, the others go on."""
    sums: list[Tensor] | None = None
    done, skipped, waiting = 0, [], []

    def flush() -> Survey:
        nonlocal sums, done
        for trace in record(waiting):
            measured = [analyses.attention_distance(trace), analyses.attention_distance(trace, renormalise=True), analyses.prefix_mass(trace)]
            measured = [value.double().cpu() for value in measured]
            sums = measured if sums is None else [total + value for total, value in zip(sums, measured)]
            done += 1
        waiting.clear()
        return Survey(checkpoint, trace.grid, done, *((total / done).float() for total in sums), tuple(skipped))

    result = None
    for number, image in enumerate(images, start=1):
        try:
            waiting.append(prepare(open_image(image), preprocessing))
        except ImageError as error:
            skipped.append(f"Picture {number}: {error}")
        if len(waiting) == batch:
            result = flush()
            yield result
    if waiting:
        yield flush()
    elif result is None and skipped:
        raise ImageError("None of the pictures could be read. " + skipped[0])
