"""Sets of pictures: surveys made batch by batch in turns, for one checkpoint, for two at once, for a film."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from vitviz.errors import Unknown
from vitviz.runs import Run
from vitviz.samples import samples
from vitviz.ui.serving.looks import BATCH, GONE, Looks
from vitviz.views import Subject

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


class Sets(Looks):
    """What is over many pictures."""

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
        runs = [self.run(one) for one in (key, second) if one]
        asked = "all" if paired else f"trial {protocol}" if protocol else ""
        for surveys in zip(*(self._over(run, paths, asked) for run in runs), strict=False):
            yield self._kept(surveys), surveys[0]
        film: dict[int, Any] = {}
        for step, name in self.steps_of(runs[0]).items() if surveys and paired else ():
            *_, film[step] = self._over(self._at(runs[0], name), paths, "similarity")
            yield self._kept(surveys, film), surveys[0]

    def sampled(self, run: Run, asked: str = "all") -> Any:
        """The survey of the pictures that come with vitviz, by a run's checkpoint at its size; made once.

        It measures all that checkpoints are compared by, or the "similarity" alone.
        """
        key = self._key(b"sampled", repr((asked, run.checkpoint, run.weights, run.size)).encode())
        return self._surveys.get(key, lambda: self._of_samples(run, asked))

    def together(self, run: Run) -> dict[str, Callable]:
        """Another picture by the same checkpoint, and this one at every step of its training."""

        def another(name: str) -> Subject:
            picture = self.keep_sample(name) if name in [one.name for one in samples()] else name
            if not self.has_picture(picture):
                raise Unknown(GONE)
            return self.subject(self.look(picture, run.checkpoint, run.size, without=run.without))

        def training() -> list[Subject]:
            moments = self.moments(run.checkpoint)
            steps = moments if run.checkpoint in [one.name for one in moments] else []
            names = [one.name for one in steps]
            return [self.subject(self.look(run.picture, one, run.size, without=run.without)) for one in names]

        return {"another": another, "training": training}

    def film_of(self, run: Run) -> Mapping[int, Any]:
        """The similarity at every step of the checkpoint's training, first step first, each surveyed once it
        is asked for; empty without a film.
        """
        return Film(self.steps_of(run), lambda name: self.sampled(self._at(run, name), "similarity"))

    def steps_of(self, run: Run) -> dict[int, str]:
        """The names of every step of the checkpoint's training, first step first; none of them is loaded."""
        frames = self.film(run.checkpoint).get("frames", ())
        return {one["step"]: one["name"] for one in frames if one["step"] is not None}

    def _at(self, run: Run, name: str) -> Run:
        """The run of the same picture by a step of the training, which is loaded for it."""
        return self.run_of(run.picture, name, run.size)

    def _kept(self, surveys: Sequence[Any], film: Mapping[int, Any] = MappingProxyType({})) -> str:
        """The key of a survey, or of two that stand beside each other; the film belongs to the first."""
        keys = [self._key(b"survey", secrets.token_bytes(16)) for _ in surveys]
        for key, survey in zip(keys, surveys, strict=True):
            self._surveys.get(key, lambda survey=survey: survey)
        self._films.get(keys[0], lambda: dict(film))
        return keys[0] if len(keys) == 1 else self.pair(*keys)

    def _of_samples(self, run: Run, asked: str) -> Any:
        from vitviz.surveys import parts_of_samples

        *_, survey = self._over(run, parts_of_samples(), asked)
        return survey

    def _over(self, run: Run, pictures: Sequence, asked: str) -> Iterator[Any]:
        from vitviz.surveys import LAYERS, in_batches, surveying

        inspector, batch, survey = self._looked_with(run), BATCH, None
        word, _, protocol = asked.partition(" ")
        if word == "trial":
            # a set is asked for layers and heads, which the distance says
            batch, measures = 1, [_trial(protocol), "distance"]
            surveys = surveying(pictures, inspector, measures, batch=batch, size=run.size)
        elif asked:
            batch, measures = in_batches(len(pictures)), LAYERS if asked == "all" else [asked]
            surveys = surveying(pictures, inspector, measures, batch=batch, size=run.size)
        else:
            surveys = surveying(pictures, inspector, batch=batch, size=run.size)
        while True:
            begun = survey is not None
            cost = TRIED if word == "trial" else min(batch, len(pictures))
            with self.computing(inspector, run.size, cost, begun):  # a turn for a batch
                survey = next(surveys, None)
            if survey is None:
                return
            yield survey


def _trial(protocol: str) -> Any:
    from vitviz.surveys.measures.trial import TrialMeasure

    return TrialMeasure(protocols=(protocol,))


__all__ = ["Sets"]
