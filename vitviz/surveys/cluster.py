"""Survey parts on several processes or machines: Ray Data maps the parts over actors that hold the model.

One actor measures a whole part, batch by batch like a single process. Parts are added in order. The numbers
therefore equal those of one process, up to rounding that depends on the thread count. Ray restarts an actor
that dies and measures its part again; no result of the lost attempt is counted. The actors read the image
paths, so the paths must be the same on all machines. Ray selects the cluster (RAY_ADDRESS, otherwise a local
one). Ray waits forever for a core that other jobs hold. This module therefore waits at most `WAITS` seconds
for a free core; then this process measures alone and warns. Only this module imports Ray, which is optional.
"""

import pickle
import time
import warnings
from collections.abc import Iterator
from itertools import groupby
from typing import Any

from vitviz.errors import VitvizError
from vitviz.surveys.rows import Measurement, SurveyPart
from vitviz.surveys.run import Plan

WAITS = 30.0  # seconds to wait for a free core or GPU


class Worker:
    """Ray actor with one copy of the model, on one CPU core, one GPU, or a part of a GPU."""

    def __init__(self, shared: list[Any]):
        import ray
        import torch

        torch.set_num_threads(1)  # one actor runs per core; further threads would compete
        self._measuring: Measurement = pickle.loads(ray.get(shared[0]))

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """Return a part's number and pickled results, or the VitvizError that ends the survey, as a row."""
        try:
            result = SurveyPart.join(self._measuring.batches(pickle.loads(row["items"])))
        except VitvizError as error:
            result = error
        return {"number": row["number"], "found": pickle.dumps(result)}


def measure_parts(
    plan: Plan, measuring: Measurement, done: set[int], workers: int, gpus: float = 1
) -> Iterator[tuple[int, SurveyPart]]:
    """Yield (number, part) for all parts that are not in `done`, in order of completion.

    `gpus` is the part of a GPU that each worker takes, if the model is on one.

    Raises:
        VitvizError: If Ray is not installed, or for any error that a single process would raise.
    """
    try:
        import ray
        import ray.data
    except ImportError:
        raise VitvizError(
            "Workers are Ray's actors, and Ray is not installed: pip install 'vitviz[cluster]', or leave"
            " workers out; one process needs none."
        ) from None
    parts = groupby(plan.items(done), key=lambda one: one[0] // plan.part)
    rows = [{"number": number, "items": pickle.dumps(list(some))} for number, some in parts]
    if not rows:
        return
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    kind, each = ("GPU", gpus) if measuring.inspector.device.type == "cuda" else ("CPU", 1)
    places = _free(kind, min(workers, len(rows)), each)
    if not places:
        said = f"Within {WAITS:g} s no {kind} of the cluster was free: this process measures alone."
        warnings.warn(said, stacklevel=2)
        for row in rows:
            yield row["number"], SurveyPart.join(measuring.batches(pickle.loads(row["items"])))
        return
    shared = [ray.put(pickle.dumps(measuring))]
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=places)
    parts = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        Worker, compute=pool, fn_constructor_args=(shared,), **{f"num_{kind.lower()}s": each}
    )
    for row in parts.iter_rows():
        result = pickle.loads(row["found"])
        if isinstance(result, VitvizError):
            raise result
        yield int(row["number"]), result


def _free(kind: str, wanted: int, each: float = 1) -> int:
    """Return how many workers, at most `wanted`, can start now if each takes `each` of a resource.

    Waits up to WAITS for the first.
    """
    import ray

    end = time.monotonic() + WAITS
    while True:
        free = int(ray.available_resources().get(kind, 0) / each)
        if free or time.monotonic() > end:
            return min(free, wanted)
        time.sleep(0.2)
