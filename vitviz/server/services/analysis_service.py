"""Server state: images, loaded checkpoints, traces and rendered data, each limited in bytes.

A browser holds only a key, which stands for a run (an image and how it is traced) or a survey. The key is a
salted hash: it cannot be guessed, and equal requests are computed once. Evicted results are recomputed from
their run. Anything that costs a pass waits for a turn and is cancelled when its visitor leaves.
"""

import io
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, TypeVar

import numpy as np

from vitviz.charts.encode import encode_image
from vitviz.errors import Unknown, quoted
from vitviz.export.figure import view_by_slug
from vitviz.server import options
from vitviz.server.options import ServiceSettings
from vitviz.server.services.cache import Cache, Keys, key_contains, value_bytes
from vitviz.server.services.checkpoints import CheckpointStore
from vitviz.server.services.frames import FrameStore, Video, VideoStore
from vitviz.server.services.image_sets import ImageSets
from vitviz.server.services.images import ImageStore
from vitviz.server.services.model_checks import ModelChecks
from vitviz.server.services.runs import GONE, RunStore
from vitviz.server.services.sessions import Sessions
from vitviz.server.services.work import BATCH, WorkQueue
from vitviz.traces import progress
from vitviz.traces.image_edits import NONE
from vitviz.traces.runs import Run
from vitviz.traces.text_classes import plain_name
from vitviz.views import ModelShape, Needs, View, ViewContext
from vitviz.views.availability import refusal
from vitviz.views.base import find_item
from vitviz.views.routes import item_array, parse_settings, settings_for_files

T = TypeVar("T")
PASS = "the pass"  # ticket of a run's own pass; visitors' tickets contain no space


class AnalysisService:
    """State shared by all visitors; each visitor sees only the contents of known keys."""

    def __init__(self, settings: ServiceSettings):
        self.settings, self._keys = settings, Keys()
        self.work = WorkQueue(settings.limits)
        self.checkpoints = CheckpointStore(settings, self.work)
        self.pictures = ImageStore(self._keys, settings.picture_cache)
        self.runs = RunStore(self._keys, self.checkpoints, settings.limits)
        self.sets = ImageSets(self._keys, self.runs, self.checkpoints, self.work)
        self.checks = ModelChecks(self.runs, self.sets, self.work, settings.trace_cache)
        self.sessions = Sessions()
        self.frames = FrameStore(self.pictures, self.runs, self.forget)
        self.videos = VideoStore(self._keys, self.work, settings.picture_cache)
        self._traces: Cache[Any] = Cache(settings.trace_cache, lambda trace: trace.nbytes)
        self._drawn: Cache[Any] = Cache(settings.picture_cache, value_bytes)
        self._abouts: Cache[ModelShape] = Cache(20_000, lambda about: 1)  # outlive their traces
        self._counts: Cache[list[int]] = Cache(2_000, lambda count: 1)

    view = staticmethod(view_by_slug)

    def look(self, picture: str, checkpoint: str, size: tuple[int, int] | None = None, **changes) -> str:
        """Trace an image with a checkpoint and return the run's key; `changes` are more fields of the run."""
        key = self.runs.known(picture, checkpoint, size, **changes)
        self.subject(key)
        return key

    def subject(self, key: str) -> ViewContext:
        """Return the view context of a key: of a run's trace (recomputed if evicted) or of a survey.

        The model is loaded only if a view needs it, because a cached trace may outlive its model.
        """
        key, second = self.runs.both(key)
        beside, survey = self.subject(second) if second else None, self.sets.survey(key)
        if survey is not None:
            film, name = self.sets.film(key), survey.checkpoint
            inspector = partial(self.checkpoints.inspector, name)
            return ViewContext(inspector, survey=survey, beside=beside, film=lambda: film)
        run = self.runs.run(key)
        trace = self._traces.within(self.work.hold_place, key, lambda: self._compute_trace(key, run))
        weights = (run.checkpoint, run.weights, trace.grid)
        return ViewContext(
            partial(self.runs.inspector, run), trace,
            once=lambda name, make: self._cached((key, name), make),
            once_of_weights=lambda name, make: self._cached((weights, name), make),
            once_by_passes=lambda name, make: self._by_passes(run, (key, name), make),
            sampled=partial(self.sets.sampled, run), beside=beside, film=partial(self.sets.film_of, run),
            made=lambda name: self._drawn.peek(("once", (key, name))) is not None,
            another=partial(self._other_image, run), training=partial(self._training, run),
            original=self._original(run),
            fitted=self._fitted(run, video) if (video := self.frames.video(run.picture)) else None,
        )  # fmt: skip

    def before(self, key: str) -> ViewContext:
        """Return the view context of a run before its pass: the model's input and the weights.

        Returns `subject` if there is a trace or a survey, or if the run has an ablation, which may change the
        image.
        """
        if self.sets.survey(key) is not None:
            return self.subject(key)
        first, second = self.runs.both(key)
        run, traces = self.runs.run(key), [self._traces.peek(one) for one in (first, second) if one]
        if None not in traces or run.without:
            return self.subject(key)
        inspector = self.runs.inspector(run)
        grid = inspector.grid(run.size)
        weights = (run.checkpoint, run.weights, grid)

        def model_input():
            with self._rendering_turn(run):
                return inspector.view(self.pictures.opened(run.picture, run.strokes), run.size)

        return ViewContext(
            inspector, once_of_weights=lambda name, make: self._cached((weights, name), make), grid=grid,
            seen=lambda: self._cached((first, "seen"), model_input),
        )  # fmt: skip

    def has_long_pass(self, key: str) -> bool:
        """Return True if a run's pass is pending and long enough to tell the visitor."""
        run = self.runs.run(key)
        if self._traces.peek(self.runs.both(key)[0]) is not None:
            return False
        return self.runs.inspector(run).demand(run.size).operations > options.EXPENSIVE

    def progress(self, key: str, ticket: str = PASS) -> tuple[int, int]:
        """Return the progress of a long request, (done, total); by default of a run's own pass, in layers.

        Returns (0, 0) if nothing is running. Raises Unknown for an unknown key.
        """
        self.runs.run(key)
        return tuple(self.progress_counter(key, ticket))

    def progress_counter(self, key: str, ticket: str = PASS) -> list[int]:
        """Return the counter [done, total] of a long request, to be changed in place, by its ticket."""
        return self._counts.get((self.runs.both(key)[0], ticket), lambda: [0, 0])

    def forget(self, keys: set[str]) -> None:
        """Evict all results of some runs."""
        for kept in (self._traces, self._drawn, self._abouts, self._counts):
            kept.forget(lambda key, _: key_contains(key, keys))

    def scene(self, key: str) -> str:
        """Return a key of the image and its input size, the same for all checkpoints; a survey's own key."""
        if self.sets.survey(key) is not None:
            return key
        run = self.runs.run(key)
        return self._keys.of(run.picture.encode(), repr(run.size).encode())

    def item(self, key: str, slug: str, name: str, query: Mapping[str, str]) -> np.ndarray:
        """Return an item of a view. Raises VitvizError for an unknown or invalid item.

        The cache key holds only what the item depends on: an item of the weights alone is shared by all
        images. A cached item is returned even if its checkpoint has been evicted or deleted from disk since.
        """
        view = self.view(slug)
        about = self._abouts.peek(key) or self._shape(key, view)
        settings, place = self._parse_item(view, key, name, query, about)

        def make() -> np.ndarray:
            subject = self._view_context(key, view, find_item(view, name).of_image)
            return self.read(subject, lambda: item_array(view, subject, name, settings))

        # computing the item takes passes beyond the run's own
        passes = view.scope.on_request or view.scope.float32_only or view.needs is Needs.SET
        return self._drawn.within(self.work.hold_place if passes else nullcontext, place, make)

    def available_now(self, key: str, slug: str, name: str, query: Mapping[str, str]) -> np.ndarray | None:
        """Return an item if it is cached; compute nothing and wait for nothing."""
        about = self._abouts.peek(key)
        return about and self._drawn.peek(self._parse_item(self.view(slug), key, name, query, about)[1])

    def _parse_item(
        self, view: View, key: str, name: str, query: Mapping[str, str], about: ModelShape
    ) -> tuple[dict[str, Any], Hashable]:
        """Return an item's parsed settings and the key under which its array is cached."""
        settings = parse_settings(view, query, about)
        item = find_item(view, name)
        asked = tuple((one, settings[one]) for one in item.depends)
        weights = view.needs is Needs.WEIGHTS and not item.of_image
        of = (self.runs.run(key).checkpoint, about.grid) if weights else key
        return settings, (of, view.slug, name, asked)

    def numbers(self, key: str, slug: str, query: Mapping[str, str]) -> bytes:
        """Return a view's numbers with all settings and the checkpoint's name, as an .npz file."""
        view = self.view(slug)
        subject = self._view_context(key, view)
        settings = parse_settings(view, query, subject.about)
        with self.work.hold_place():
            arrays = self.read(subject, lambda: view.numbers(subject, settings))
        settings = settings_for_files(view, settings, subject.grid)
        details = {f"setting_{name}": str(value) for name, value in settings.items()}
        about = {"checkpoint": subject.checkpoint, "view": slug, "dtype": self.settings.dtype, **details}
        about["assumed"] = self.runs.assumed(self.runs.run(key)) if subject.survey is None else ""
        arrays.setdefault("prefix_tokens", np.asarray(subject.grid.prefix_names, dtype=str))
        described, file = {name: np.asarray(value) for name, value in about.items()}, io.BytesIO()
        self.read(subject, lambda: np.savez_compressed(file, **arrays, **described))
        return file.getvalue()

    def file(self, key: str, slug: str, name: str, query: Mapping[str, str]) -> bytes:
        """Return one of the further files that a view declares."""
        view = self.view(slug)
        subject = self._view_context(key, view)
        cell = name == "figure.html"  # the figure as in a notebook's cell
        upload = None if subject.trace is None else self.photograph(key, whole=cell)
        settings = parse_settings(view, query, subject.about)
        with self.work.hold_place():
            if cell:
                from vitviz.export.standalone_html import standalone_view

                return self.read(subject, lambda: standalone_view(view, subject, query, upload).page).encode()
            make = next(file.make for file in view.export.files if file.name == name)
            return self.read(subject, lambda: make(view, subject, settings, upload))

    def summary(self, key: str, view: View) -> dict[str, Any]:
        """Return a view's summary, computed once."""
        subject = self.before(key) if view.scope.needs_no_pass else self.subject(key)
        make = partial(self.read, subject, partial(view.summary, subject))
        return self._cached((key, view.slug, "summary"), make)

    def image(self, key: str, which: str, whole: bool = False) -> bytes:
        """Return an image of a run or set as a file's bytes.

        `which` selects the image: "input" is the model's input (PNG); the others are JPEG: the upload with or
        without edits, or a set's thumbnails. Unless `whole` is True, an upload is no larger than the page
        draws it.

        If a region was pasted onto another image, "original" is that image, "first" the upload, and "other"
        that image if it is no sample.
        """
        if which == "thumbnails":
            with self.work.drawing(0):
                return self._drawn.get((key, which), lambda: self.sets.thumbnails(key))
        run = self.runs.run(key)
        if which == "input":
            return self._drawn.get((key, which), lambda: encode_image(self.before(key).seen.picture, ".png"))
        strokes = run.strokes
        pictures = {"upload": run.picture, "original": self.pictures.ground(run.picture, strokes),
                    "first": run.picture, "other": strokes.own}  # fmt: skip
        if which not in pictures:
            raise Unknown(f"There is no image {quoted(which)}; there are upload, original and input.")
        asked = pictures[which], strokes if which == "upload" else NONE
        pixels = self.pictures.pixels if whole else self.pictures.drawn
        with self._rendering_turn(run):
            return self._drawn.get((*asked, whole), lambda: encode_image(pixels(*asked), ".jpg"))

    def photograph(self, key: str, whole: bool = False) -> Any:
        """Return a run's upright upload with its edits: no larger than it is drawn, or `whole`."""
        run = self.runs.run(key)
        with self._rendering_turn(run):
            return (self.pictures.opened if whole else self.pictures.drawn)(run.picture, run.strokes)

    def _rendering_turn(self, run: Run) -> AbstractContextManager[None]:
        """Return a turn for rendering a run's edits, up to a minute for wide strokes; none without edits."""
        return self.work.drawing(0, alone=False) if run.strokes else nullcontext()

    def _shape(self, key: str, view: View) -> ModelShape:
        """Return the model's shape, which bounds a view's settings; views of the weights need no pass."""
        if view.needs is Needs.WEIGHTS:
            return self.before(key).about
        return self._abouts.get(key, lambda: self.subject(key).about)

    def _view_context(self, key: str, view: View, of_image: bool = False) -> ViewContext:
        """Return the context of a run or survey for a view; for views of weights, that before the pass.

        Raise Unknown if the view is not applicable, or for a survey without averages.
        """
        weights = view.needs is Needs.WEIGHTS and not of_image
        subject = self.before(key) if weights else self.subject(key)
        if subject.survey is not None and not view.scope.averages:
            raise Unknown(f"{view.title} has no average over a set of images.")
        if reason := refusal(view, subject):
            raise Unknown(reason)
        return subject

    def read(self, subject: ViewContext, make: Callable[[], T]) -> T:
        """Compute from a subject's trace in a reading turn."""
        with self.work.reading(subject):
            return make()

    def _other_image(self, run: Run, name: str) -> ViewContext:
        """Return the context of another image, by sample name or image key, under a run's checkpoint."""
        picture = self.pictures.called(name)
        if not self.pictures.has(picture):
            raise Unknown(GONE)
        return self.subject(self.look(picture, run.checkpoint, run.size, without=run.without))

    def _fitted(self, run: Run, video: str) -> Callable[[str, Callable[[Iterator[ViewContext]], T]], T]:
        """Return a function that fits, once per run and name, a basis common to sampled frames of a video."""

        def frames(of: Video) -> Iterator[ViewContext]:
            for *_, data in of.sampled:
                with self.frames.passing(data) as picture:
                    yield self.subject(self.look(picture, run.checkpoint, run.size, without=run.without))

        def fit_once(name: str, fit: Callable[[Iterator[ViewContext]], T]) -> T:
            of, how = self.videos.of(video), (run.checkpoint, run.size, run.without.text(), name)
            return of.fitted.get(how, lambda: fit(frames(of)))

        return fit_once

    def _training(self, run: Run) -> list[ViewContext]:
        """Return the contexts of a run's image at every snapshot of the checkpoint's training, in order."""
        frames = self.checkpoints.film(run.checkpoint).get("frames", ())
        changes = {"without": run.without, "strokes": run.strokes}
        return [self.subject(self.look(run.picture, frame["name"], run.size, **changes)) for frame in frames]

    def _original(self, run: Run) -> Callable[[], ViewContext] | None:
        """Return a function for the context of the unedited, unablated image; None if this is the run's."""
        if not (run.strokes or run.without):
            return None
        picture = self.pictures.ground(run.picture, run.strokes)
        return lambda: self.subject(self.look(picture, run.checkpoint, run.size))

    def _compute_trace(self, key: str, run: Run):
        """Compute the trace of a run in a turn, counting progress under `key`; `subject` caches it."""
        inspector = self.runs.inspector(run)
        if inspector.classes is not None:  # text classes do not affect the pass
            changes = {"without": run.without, "strokes": run.strokes}
            seen = self.look(run.picture, plain_name(run.checkpoint), run.size, **changes)
            return inspector.answered(self.subject(seen).trace)
        count = self.progress_counter(key)

        def tell(done: int, of: int) -> None:
            count[:] = done, of

        try:
            with self.work.computing(inspector, run.size), progress.to(tell):
                picture = self.pictures.opened(run.picture, run.strokes)
                return inspector.trace(picture, run.size, run.without or None)
        finally:
            tell(0, 0)

    def _by_passes(self, run: Run, key, make):
        """Return `make()`, cached under `key`; if missing, compute it within a turn for a batch of passes.

        The turn is taken before the cache is queried, since the thread that computes an entry must hold one.
        A cached entry needs no turn.
        """
        return self._cached(key, make, lambda: self.work.computing(self.runs.inspector(run), run.size, BATCH))

    def _cached(self, key, make, turn=nullcontext):
        """Return the result of `make()`, which may be None, cached under `key`.

        If it is missing, it is computed within the context that `turn()` returns.
        """
        # wrapped in a tuple, because the value may be None or have no size
        return self._drawn.within(turn, ("once", key), lambda: (make(),))[0]
