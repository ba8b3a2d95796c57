"""Sets of pictures: surveys made batch by batch in turns, for one checkpoint, for two at once, for a film."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from vitviz.record.runs import Run
from vitviz.ui.memory.cache import Cache, Keys
from vitviz.ui.memory.checkpoints import Checkpoints
from vitviz.ui.memory.runs import Runs
from vitviz.ui.memory.work import BATCH, Work

TRIED = 100  # passes over all patches that maps on trial on one picture cost, about


class Film(Mapping[int, Any]):
    """What is made of each step of a training, when it is asked for."""

    def __init__(self, steps: Mapping[int, str], make: Callable[[str], Any]):
        self._steps, self._make = steps, make

    def __getitem__(self, step: int) -> Any:
        return self._make(self._steps[step])

    def __iter__(self) -> Iterator[int]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)


class Sets:
    """What is over many pictures."""

    def __init__(self, keys: Keys, runs: Runs, checkpoints: Checkpoints, work: Work):
        self._keys, self._runs, self._checkpoints, self._work = keys, runs, checkpoints, work
        self._surveys: Cache[Any] = Cache(2_000, lambda survey: 1)
        self._films: Cache[Any] = Cache(2_000, lambda film: 1)  # of surveys, by their keys

    def survey(self, key: str | None):
        """A survey that was made; None where it has been put out, or was none."""
        return self._surveys.peek(self._runs.both(key)[0]) if key else None

    def film(self, key: str) -> Mapping[int, Any]:
        """What a survey's set was at every step of the training, as far as it was looked at."""
        return self._films.peek(key) or {}

    def surveying(
        self,
        key: str,
        paths: Sequence[str],
        paired: bool = False,
        second: str | None = None,
        protocol: str = "",
    ) -> Iterator[tuple[str, Any]]:
        """The running survey of a set of pictures, each with the key it is kept under: how far heads look,
        and for a `paired` view all that checkpoints are compared by.

        By the checkpoint and at the input size that `key` stands for; with `second`, the key of a run, by
        that one's too, so that the key is a pair's. A paired view's set is then looked at by every step of
        the first one's training. With a `protocol`, the way in which patches are removed, maps are tried
        instead, picture by picture. Unknown for an unknown key.
        """
        surveys: tuple = ()
        runs = [self._runs.run(one) for one in (key, second) if one]
        asked = "all" if paired else f"trial {protocol}" if protocol else ""
        for surveys in zip(*(self._over(run, paths, asked) for run in runs), strict=False):
            yield self._kept(surveys), surveys[0]
        film: dict[int, Any] = {}
        for step, name in self.steps_of(runs[0]).items() if surveys and paired else ():
            *_, film[step] = self._over(self._at(runs[0], name), paths, "similarity")
            yield self._kept(surveys, film), surveys[0]

    def sampled(self, run: Run, asked: str = "all") -> Any:
        """The survey of the sample pictures by a run's checkpoint at its size: of all, or what is `asked`."""
        key = self._keys.of(b"sampled", repr((asked, run.checkpoint, run.weights, run.size)).encode())
        found = self._surveys.peek(key)
        if found is not None:
            return found
        with self._work.placed():
            return self._surveys.get(key, lambda: self._of_samples(run, asked))

    def film_of(self, run: Run) -> Mapping[int, Any]:
        """The similarity at every step of the checkpoint's training, first step first, each surveyed once it
        is asked for; empty without a film.
        """
        return Film(self.steps_of(run), lambda name: self.sampled(self._at(run, name), "similarity"))

    def steps_of(self, run: Run) -> dict[int, str]:
        """The names of every step of the checkpoint's training, first step first; none of them is loaded."""
        frames = self._checkpoints.film(run.checkpoint).get("frames", ())
        return {one["step"]: one["name"] for one in frames if one["step"] is not None}

    def _at(self, run: Run, name: str) -> Run:
        """The run of the same picture by a step of the training, which is loaded for it."""
        return self._runs.of(run.picture, name, run.size)

    def _kept(self, surveys: Sequence[Any], film: Mapping[int, Any] = MappingProxyType({})) -> str:
        """The key of a survey, or of two that stand beside each other; the film belongs to the first."""
        keys = [self._keys.of(b"survey", secrets.token_bytes(16)) for _ in surveys]
        for key, survey in zip(keys, surveys, strict=True):
            self._surveys.get(key, lambda survey=survey: survey)
        self._films.get(keys[0], lambda: dict(film))
        return keys[0] if len(keys) == 1 else self._runs.pair(*keys)

    def _of_samples(self, run: Run, asked: str) -> Any:
        from vitviz.surveys import parts_of_samples

        *_, survey = self._over(run, parts_of_samples(), asked)
        return survey

    def _over(self, run: Run, pictures: Sequence, asked: str) -> Iterator[Any]:
        from vitviz.surveys import LAYERS, in_batches, surveying

        inspector, batch, survey, measures = self._runs.inspector(run), BATCH, None, {}
        word, _, protocol = asked.partition(" ")
        if word == "trial":  # a set is asked for layers and heads, which the distance says
            batch, measures = 1, {"measures": [_trial(protocol), "distance"]}
        elif asked:
            batch, measures = in_batches(len(pictures)), {"measures": LAYERS if asked == "all" else [asked]}
        surveys = surveying(pictures, inspector, **measures, batch=batch, size=run.size)
        while True:
            begun = survey is not None
            cost = TRIED if word == "trial" else min(batch, len(pictures))
            with self._work.computing(inspector, run.size, cost, begun):  # a turn for a batch
                survey = next(surveys, None)
            if survey is None:
                return
            yield survey


def _trial(protocol: str) -> Any:
    from vitviz.surveys.measures.trial import TrialMeasure

    return TrialMeasure(protocols=(protocol,))
