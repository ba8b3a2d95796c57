"""Image sets: surveys in batches and turns, of one checkpoint, two, or a training history."""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from vitviz import surveys
from vitviz.charts.encode import encode_image
from vitviz.engine.images.opening import open_image
from vitviz.errors import ImageError, Unknown, WrongSetting
from vitviz.export.over_a_set import TrainingHistory
from vitviz.server.security import uploads
from vitviz.server.services.cache import Cache, Keys
from vitviz.server.services.checkpoints import CheckpointStore
from vitviz.server.services.runs import RunStore
from vitviz.server.services.work import BATCH, WorkQueue
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.runs import Run

TRIED = 100  # approximate cost of testing maps on one image, in passes over all patches
MOST = 1_000  # images of a set
SEEN = 24  # images shown on the page, with their predictions
SIDE = 56  # px, their size on the page
NONE = "Choose images first. The paper averages over 128."
MANY = (
    "You chose {count} images, but this page accepts at most {most}. Choose fewer, or use "
    "Python, which has no limit."
)


class ImageSets:
    """Image sets and their surveys."""

    def __init__(self, keys: Keys, runs: RunStore, checkpoints: CheckpointStore, work: WorkQueue):
        self._keys, self._runs, self._checkpoints, self._work = keys, runs, checkpoints, work
        self._surveys: Cache[Any] = Cache(2_000, lambda survey: 1)
        self._films: Cache[Any] = Cache(2_000, lambda film: 1)  # by survey key
        self._given: Cache[tuple[str, ...]] = Cache(200_000, lambda paths: 1 + len(paths))
        self._answers: Cache[dict[int, list]] = Cache(2_000, lambda answers: 1)

    def give(self, paths: Sequence[str]) -> str:
        """Return the key of a set of uploads or sample crops. Raises WrongSetting or NotUploaded."""
        require_at_most(MOST, len(paths))
        for path in paths:
            uploads.resolve_upload(path)
        key = self._keys.of(b"set", *(str(path).encode(errors="surrogatepass") for path in paths))
        self._given.get(key, lambda: tuple(paths))
        return key

    def count(self, set_key: str) -> int:
        """Return the number of images in a set, given by its key; 0 for an unknown set."""
        paths = self._given.peek(set_key)
        return 0 if paths is None else len(paths) or len(self.pictures(set_key))

    def own(self, set_key: str) -> bool:
        """Return True if a set has a visitor's own images, False if it has the samples."""
        return bool(self._given.peek(set_key))

    def pictures(self, set_key: str) -> list:
        """Return a set's images for a survey. Raises Unknown for an unknown set."""
        paths = self._given.peek(set_key)
        if paths is None:
            raise Unknown(NONE)
        return [uploads.resolve_upload(path) for path in paths] or surveys.sample_crops()

    def thumbnails(self, set_key: str) -> bytes:
        """Return a strip of a set's first images, squares of SIDE (JPEG); blank for an invalid image."""
        pictures = self.pictures(set_key)[:SEEN]
        strip = np.full((SIDE, SIDE * len(pictures), 3), 127, np.uint8)
        for place, picture in enumerate(pictures):
            with suppress(ImageError):
                small = _thumbnail(uploads.read_upload(picture) if self.own(set_key) else picture)
                strip[:, SIDE * place : SIDE * (place + 1)] = small
        return encode_image(strip, ".jpg")

    def answers(self, set_key: str, key: str) -> list[list | None]:
        """Return [prediction, score, head type] per visible image; [] for none, None if not yet computed."""
        known = self._answers.peek(_predictions_cache_key(set_key, self._runs.run(key))) or {}
        return [known.get(place) for place in range(min(SEEN, self.count(set_key)))]

    def answering(self, set_key: str, key: str) -> Iterator[None]:
        """Compute and store predictions of a set's visible images; yield after every batch."""
        run = self._runs.run(key)
        for survey in self._survey_in_batches(run, self.pictures(set_key)[:SEEN], "similarity"):
            self._store_predictions(set_key, run, survey)
            yield

    def _store_predictions(self, set_key: str, run: Run, survey: Any) -> None:
        """Store the predictions in a survey for the first SEEN images of a set.

        An unreadable image or one without a prediction gets [].
        """
        known = self._answers.get(_predictions_cache_key(set_key, run), dict)
        known.update({one.index: [] for one in survey.skipped if one.index < SEEN})
        for place, answer, score in survey.answers:
            if place < SEEN:
                known[place] = []
                if answer is not None:
                    known[place] = [survey.label_of(answer), round(score, 4), survey.head_type]

    def survey(self, key: str | None):
        """Return a survey; None if it was evicted or never existed."""
        return self._surveys.peek(self._runs.both(key)[0]) if key else None

    def film(self, key: str) -> Mapping[int, Any]:
        """Return the surveys of a survey's set by training step, as far as computed; {} if there are none."""
        return self._films.peek(key) or {}

    def surveying(
        self, key: str, paths: Sequence[str], paired: bool = False, second: str | None = None,
        protocol: str = "", set_key: str = "",
    ) -> Iterator[tuple[str, Any]]:  # fmt: skip
        """Yield (key, survey) as a survey of an image set grows, with the checkpoint and input size of `key`.

        By default the survey measures attention distance; for a `paired` view, everything that checkpoints
        are compared by. With `second`, the key of a run, the second checkpoint is surveyed too and the
        yielded key is a pair's. A paired view's set then also passes through every snapshot of the first
        checkpoint's training. With a `protocol` (how patches are removed), the survey tests maps instead,
        image by image. The predictions are stored for `set_key`, if given. Raises Unknown for an unknown key.
        """
        surveys, film = (), {}
        runs = [self._runs.run(one) for one in (key, second) if one]
        asked = "all" if paired else ""
        growing = (self._survey_in_batches(run, paths, asked, protocol) for run in runs)
        for surveys in zip(*growing, strict=False):
            if set_key:
                self._store_predictions(set_key, runs[0], surveys[0])
            yield self._store(surveys, film), surveys[0]
        for step, name in self.steps_of(runs[0]).items() if surveys and paired else ():
            asked = "similarity" if film else "all"
            *_, film[step] = self._survey_in_batches(self._snapshot_run(runs[0], name), paths, asked)
            yield self._store(surveys, film), surveys[0]

    def sampled(self, run: Run, measure: str = "all") -> Any:
        """Return the sample crops' survey for a run's checkpoint and size: all measures, or `measure`."""
        key = self._keys.of(b"sampled", repr((measure, run.checkpoint, run.weights, run.size)).encode())

        def make() -> Any:
            *_, survey = self._survey_in_batches(run, surveys.sample_crops(), measure)
            return survey

        return self._surveys.within(self._work.hold_place, key, make)

    def film_of(self, run: Run) -> Mapping[int, Any]:
        """Return the sample crops' surveys by training step, each computed on first access."""
        steps = self.steps_of(run)
        return TrainingHistory(steps, lambda name, asked: self.sampled(self._snapshot_run(run, name), asked))

    def steps_of(self, run: Run) -> dict[int, str]:
        """Return the names of the checkpoint's training snapshots by step, without loading them."""
        frames = self._checkpoints.film(run.checkpoint).get("frames", ())
        return {frame["step"]: frame["name"] for frame in frames if frame["step"] is not None}

    def _snapshot_run(self, run: Run, name: str) -> Run:
        """Return the run of the same image with the snapshot `name`, which is loaded if necessary."""
        return self._runs.of(run.picture, name, run.size)

    def _store(self, surveys: Sequence[Any], film: Mapping[int, Any]) -> str:
        """Store one survey, or two as a pair, and return the key; `film` is the first's training history."""
        keys = [self._keys.of(b"survey", secrets.token_bytes(16)) for _ in surveys]
        for key, survey in zip(keys, surveys, strict=True):
            self._surveys.get(key, lambda survey=survey: survey)
        self._films.get(keys[0], lambda: dict(film))
        return keys[0] if len(keys) == 1 else self._runs.pair(*keys)

    def _survey_in_batches(
        self, run: Run, pictures: Sequence, measure: str, protocol: str = ""
    ) -> Iterator[Any]:
        """Yield the growing survey of images with a run's checkpoint, one batch and turn at a time.

        `measure`: a measure, "all", or "" for the usual ones; a `protocol` tests maps by image.
        """
        inspector, batch, survey, measures = self._runs.inspector(run), BATCH, None, {}
        if protocol:  # sets report layers and heads from the distance measure
            batch, measures = 1, {"measures": [_trial(protocol), "distance"]}
        elif measure:
            batch = surveys.batch_size_for(len(pictures))
            measures = {"measures": surveys.LAYERS if measure == "all" else [measure]}
        growing = surveys.surveying(pictures, inspector, **measures, batch=batch, size=run.size)
        with uploads.protect_files(one for one in pictures if isinstance(one, Path)):
            while True:
                begun = survey is not None
                cost = TRIED if protocol else min(batch, len(pictures))
                with self._work.computing(inspector, run.size, cost, begun):  # one turn per batch
                    survey = next(growing, None)
                if survey is None:
                    return
                yield survey


def _thumbnail(picture: Any) -> np.ndarray:
    """Return the central square of an image at SIDE px, without keeping a large image in memory."""
    opened = open_image(picture)
    least, (wide, tall) = min(opened.size), opened.size
    box = (wide - least) / 2, (tall - least) / 2, (wide + least) / 2, (tall + least) / 2
    return np.asarray(opened.resize((SIDE, SIDE), box=box, reducing_gap=3))


def require_at_most(most: int, count: int) -> None:
    """Raise WrongSetting for more images than the page accepts."""
    if count > most:
        raise WrongSetting(LocalizedText(MANY, most=most, count=count))


def _predictions_cache_key(set_key: str, run: Run) -> tuple:
    """Return the cache key of a set's predictions, which do not depend on edits and ablations."""
    return set_key, run.checkpoint, run.weights, run.size


def _trial(protocol: str) -> Any:
    """Return the measure that tests saliency maps with one protocol of patch removal."""
    from vitviz.surveys.measures.trial import FaithfulnessMeasure

    return FaithfulnessMeasure(protocols=(protocol,))
