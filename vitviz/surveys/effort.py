"""Images per pass, and the time that a survey takes by stage.

The batch size is the caller's, or the largest power of two whose traces fit into half of the free memory.
Where memory runs out nevertheless, the batch is measured again in halves, and later batches have that size.
Statistics of an image do not depend on the images beside it, so no result depends on the size beyond
rounding. Measures that compare the images of a batch (`BatchMeasure`) are the exception: their batches are
not divided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vitviz.engine import Inspector
from vitviz.engine.memory import free_bytes

SMALL, MOST = 8, 512  # images per pass: on a CPU, where more are no faster, and at most on a GPU


def fitting(inspector: Inspector, size: tuple[int, int]) -> int:
    """Return the number of images per pass whose traces fit into half of the free memory, a power of two.

    On a GPU two passes are in memory at once.
    """
    most, passes = (MOST, 2) if inspector.device.type == "cuda" else (SMALL, 1)
    free = free_bytes(inspector.device)
    room = most if free is None else int(0.5 * free / passes / inspector.demand(size).nbytes)
    return 1 << (max(1, min(most, room)).bit_length() - 1)


class BatchSize:
    """Images per pass of one process: `asked`, or `images` at first; halved where memory runs out."""

    def __init__(self, requested: int | None, images: int):
        self.asked, self.images = requested, requested or images

    def halve(self, failed: int) -> None:
        """Reduce the batch size to half of `failed`, the size of a batch that did not fit into memory.

        The batch may be older than an earlier reduction.
        """
        self.images = min(self.images, (failed + 1) // 2)


@dataclass(frozen=True)
class Effort:
    """Seconds of the stages and sizes of the passes; `+` merges two, also of several processes.

    >>> (Effort(2, decode=0.5, batch=4) + Effort(1, decode=0.25, batch=2, failed=4)).decode
    0.75
    """

    images: int = 0
    decode: float = 0.0  # waiting for decoded images, which threads decode ahead
    forward: float = 0.0
    statistics: float = 0.0
    batch: int = 0  # smallest size of batches; 0 if none was measured
    failed: int = 0  # largest batch that did not fit into memory; 0 if all did

    def __add__(self, other: Effort) -> Effort:
        sizes = [one.batch for one in (self, other) if one.batch]
        return Effort(
            self.images + other.images, self.decode + other.decode, self.forward + other.forward,
            self.statistics + other.statistics, min(sizes, default=0), max(self.failed, other.failed),
        )  # fmt: skip

    def facts(self, seconds: float) -> dict[str, Any]:
        """Return images per pass, images per second and seconds by stage, for the report."""
        if not self.images:
            return {}
        stages = {"decode": self.decode, "pass": self.forward, "statistics": self.statistics}
        failed = f"; {self.failed} did not fit into memory" if self.failed else ""
        speed = float(f"{self.images / seconds:.3g}")
        details = ", ".join(f"{name} {value:.3g}" for name, value in stages.items())
        return {"images_per_pass": f"{self.batch}{failed}", "images_per_second": speed, "seconds": details}
