"""Model checks of the page and the endpoint: each check is one request in its own turn, with cached findings.

A check reads the model at its own input size, on a set of images or on the samples. Findings depend on the
weights and the set alone, so visitors share them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from vitviz.diagnostics import check
from vitviz.diagnostics.finding import Finding, Report
from vitviz.diagnostics.subject import LIMIT, CheckSubject, images_of
from vitviz.errors import WrongSetting, quoted, whole_number
from vitviz.server.security import uploads
from vitviz.server.services.cache import Cache
from vitviz.server.services.image_sets import ImageSets
from vitviz.server.services.runs import RunStore
from vitviz.server.services.work import WorkQueue

PASSES = 100  # approximate cost of one check, in passes over one image


@dataclass(frozen=True)
class CheckStep:
    """Findings of one check, and the number of the next: None after the last, or if none can be computed."""

    findings: tuple[Finding, ...]
    images: int
    next: int | None = None
    share: float = 1.0  # of the checks that are done


class ModelChecks:
    """Findings by model, image set and check; the traces that checks read fit into `limit` bytes."""

    def __init__(self, runs: RunStore, sets: ImageSets, work: WorkQueue, limit: int):
        self._runs, self._sets, self._work, self._limit = runs, sets, work, limit
        self._subjects: Cache[CheckSubject] = Cache(limit, _nbytes)
        self._steps: Cache[CheckStep] = Cache(20_000, lambda step: 1)

    def step(self, key: str, set_key: str, number: object, quick: bool = False) -> CheckStep:
        """Return the findings of one check of a run's checkpoint on the image set `set_key`; "" for samples.

        `quick` only selects the next check: one of the cheap ones. Raises Unknown for an unknown key or set,
        WrongSetting for an unknown number, and the errors of `vitviz.check`.
        """
        checks = check.all_checks()
        if (place := whole_number(number, 0, len(checks))) is None:
            raise WrongSetting(f"There is no check {quoted(number)}; expected 0 to {len(checks) - 1}.")
        name = (*self._model(key), set_key, place)
        step = self._steps.within(self._work.hold_place, name, lambda: self._run(key, set_key, place))
        rest = range(place + 1, 0 if check.ends(step.findings) else len(checks))
        following = next((i for i in rest if not quick or checks[i][1] in check.QUICK), None)
        return replace(step, next=following, share=1.0 if following is None else following / len(checks))

    def report(self, key: str, set_key: str) -> Report:
        """Return the findings that have been computed so far."""
        model = self._model(key)
        steps = (self._steps.peek((*model, set_key, place)) for place in range(len(check.all_checks())))
        known = [step for step in steps if step is not None]
        result = tuple(one for step in known for one in step.findings)
        return Report(model[0], max((step.images for step in known), default=0), result)

    def _model(self, key: str) -> tuple[str, str]:
        """Return (checkpoint name, weights digest) of a run, as in the cache keys of findings."""
        run = self._runs.run(key)
        return run.checkpoint, run.weights

    def _run(self, key: str, set_key: str, place: int) -> CheckStep:
        """Run check number `place` on a run's checkpoint in a turn of its own; return its findings.

        `set_key` is an image set, "" the samples. The last check evicts the traces.
        """
        inspector = self._runs.inspector(self._runs.run(key))
        pictures = self._sets.pictures(set_key) if set_key else None
        images = pictures if self._sets.own(set_key) else None
        paths = [image for image in images or () if isinstance(image, Path)]
        with uploads.protect_files(paths), self._work.computing(inspector, None, PASSES):
            model = (*self._model(key), set_key)
            subject = self._subjects.get(model, lambda: self._subject(inspector, images))
            result = tuple(check.results(subject, *check.all_checks()[place]))
            if place == len(check.all_checks()) - 1:
                self._subjects.forget(lambda name, _: name == model)
        return CheckStep(result, len(subject.images))

    def _subject(self, inspector, images: Sequence | None) -> CheckSubject:
        """Return the input of the checks: the model and at most 8 images whose traces fit in memory.

        `images` None means the samples; at least 2 images are allowed even above the limit.
        """
        fitting = max(2, min(LIMIT, self._limit // inspector.demand().nbytes))
        selected = images_of(inspector, images, fitting)[:fitting]
        return CheckSubject(inspector, tuple(selected), "frozen")


def _nbytes(subject: CheckSubject) -> int:
    """Return the estimated bytes of a subject's traces, its size in the cache."""
    return len(subject.images) * subject.inspector.demand().nbytes
