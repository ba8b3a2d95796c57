"""A survey's parts on several processes or machines: Ray Data maps them over actors that hold the model.

A part is measured whole by one actor, batch by batch as one process would, and parts are added in their
order: so the numbers are those of one process, to what another thread count rounds. An actor that dies is
started anew by Ray, and its part measured again; nothing of it was counted. Paths are read by the actors, so
they have to be the same on all machines. Which cluster it is Ray decides (RAY_ADDRESS; else one on this
machine). Ray waits for ever for a core that others hold: here it is asked first what is free, and where that
is nothing this process does the work itself, and says so. It alone knows Ray, which is optional.
"""

from __future__ import annotations

import pickle
import time
import warnings
from collections.abc import Iterator
from itertools import groupby
from typing import TYPE_CHECKING, Any

from vitviz.errors import VitvizError
from vitviz.surveys.rows import Measurement, SurveyPart

if TYPE_CHECKING:
    from vitviz.surveys.run import Plan

WAITS = 30.0  # s until a core, or a GPU, has to be free


class Worker:
    """An actor: one copy of the model, on one processor or one GPU."""

    def __init__(self, shared: list[Any]):
        import ray
        import torch

        torch.set_num_threads(1)  # as many actors as processors; their helpers would wait for each other
        self._measuring: Measurement = pickle.loads(ray.get(shared[0]))

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        """The part of a row, or the mistake of the user that ends the survey."""
        try:
            found = SurveyPart.join(self._measuring.batches(pickle.loads(row["items"])))
        except VitvizError as error:
            found = error
        return {"number": row["number"], "found": pickle.dumps(found)}


def measure_parts(
    plan: Plan, measuring: Measurement, done: set[int], workers: int
) -> Iterator[tuple[int, SurveyPart]]:
    """The parts that are not `done`, each with its number, as they are ready. VitvizError as one process."""
    try:
        import ray
        import ray.data
    except ImportError:
        raise VitvizError(
            "Workers are Ray's actors, and Ray is not installed: pip install 'vitviz[cluster]', or leave"
            " workers out; one process needs none."
        ) from None
    rows = [
        {"number": number, "items": pickle.dumps(list(some))}
        for number, some in groupby(plan.items(done), key=lambda one: one[0] // plan.part)
    ]
    if not rows:
        return
    if not ray.is_initialized():
        ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR")
    ray.data.DataContext.get_current().enable_progress_bars = False
    kind = "GPU" if measuring.inspector.device.type == "cuda" else "CPU"
    places = _free(kind, wanted=min(workers, len(rows)))
    if not places:
        warnings.warn(
            f"Within {WAITS:g} s no {kind} of the cluster was free: this process measures alone.",
            stacklevel=2,
        )
        for row in rows:
            yield row["number"], SurveyPart.join(measuring.batches(pickle.loads(row["items"])))
        return
    shared = [ray.put(pickle.dumps(measuring))]
    pool = ray.data.ActorPoolStrategy(min_size=1, max_size=places)
    parts = ray.data.from_items(rows, override_num_blocks=len(rows)).map(
        Worker, compute=pool, fn_constructor_args=(shared,), **{f"num_{kind.lower()}s": 1}
    )
    for row in parts.iter_rows():
        found = pickle.loads(row["found"])
        if isinstance(found, VitvizError):
            raise found
        yield int(row["number"]), found


def _free(kind: str, wanted: int) -> int:
    """How many workers find a place now, of those wanted; waits until there is one, or WAITS."""
    import ray

    end = time.monotonic() + WAITS
    while True:
        free = int(ray.available_resources().get(kind, 0))
        if free or time.monotonic() > end:
            return min(free, wanted)
        time.sleep(0.2)
