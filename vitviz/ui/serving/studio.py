"""What the server remembers: pictures, loaded checkpoints, traces and drawn data, each bounded in bytes.

A browser holds only a key. It stands for a run (a picture, and what it is looked at with) or a survey; it is
a salted hash, so that it cannot be guessed, and the same question computes once. What has been put out of a
cache is made again from its run.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from vitviz.errors import Unknown
from vitviz.figures.encode import encoded
from vitviz.ui.serving.cache import Cache
from vitviz.ui.serving.looks import T
from vitviz.ui.serving.sessions import Sessions
from vitviz.ui.serving.sets import Sets
from vitviz.ui.serving.settings import Settings
from vitviz.views import VIEWS, About, Needs, Subject, View


class Studio(Sets):
    """The memory shared by all visitors; each sees only what its own keys stand for."""

    def __init__(self, settings: Settings):
        super().__init__(settings)
        self._abouts: Cache[About] = Cache(20_000, lambda about: 1)  # outlive what they are about
        self.sessions = Sessions()
        self._views = {view.slug: view for view in VIEWS}

    def view(self, slug: str) -> View:
        """A view by its slug; Unknown for any other."""
        if slug not in self._views:
            raise Unknown(f"There is no view {slug[:60]!r}; there are {', '.join(self._views)}.")
        return self._views[slug]

    def item(self, key: str, slug: str, name: str, given: Mapping[str, str]) -> np.ndarray:
        """An item of a view; VitvizError for what does not exist or fit.

        It is kept under what it depends on and nothing else: an item of the weights alone is the same for all
        pictures. What has been drawn is handed out even if its checkpoint has been put out since, or is gone
        from the disk.
        """
        view = self.view(slug)
        about = self._abouts.peek(key) or self._about(key, view)
        declared, settings = view.declared(name), view.settings(given, about)
        asked = tuple((one, settings[one]) for one in declared.depends)

        def made() -> np.ndarray:
            return declared.checked(view.item(self._fitting(key, view), name, settings), about)

        place = (self.run(key).checkpoint, about.grid) if view.needs is Needs.WEIGHTS else key
        return self._drawn.get((place, slug, name, asked), made)

    def long(self, key: str) -> bool:
        """Whether a pass is still to be made for a run, and takes so long that a visitor should be told."""
        run = self.run(key)
        if self._traces.peek(self.both(key)[0]) is not None:
            return False
        return self.settings.limits.dear(self._looked_with(run).demand(run.size).operations)

    def before(self, key: str) -> Subject:
        """What is known of a run before its pass: the picture as the model gets it, and the weights.

        The same as `subject` where there is a trace, or a survey, or where something is taken away, which the
        picture may show.
        """
        if self.survey(key) is not None:
            return self.subject(key)
        first, second = self.both(key)
        run, traces = self.run(key), [self._traces.peek(one) for one in (first, second) if one]
        if None not in traces or run.without:
            return self.subject(key)
        inspector = self._looked_with(run)
        grid = inspector.grid(run.size)
        weights = (run.checkpoint, run.weights, grid)

        def seen():
            return self._once((first, "seen"), lambda: inspector.view(self.picture(run.picture), run.size))

        return Subject(
            inspector,
            once_of_weights=lambda name, make: self._once((weights, name), make),
            grid=grid,
            seen=seen,
        )

    def _about(self, key: str, view: View) -> About:
        """What the bounds of a view's settings depend on; of weights alone known before the pass."""
        if view.needs is Needs.WEIGHTS:
            return self.before(key).about
        return self._abouts.get(key, lambda: self.subject(key).about)

    def numbers(self, key: str, slug: str, given: Mapping[str, str]) -> bytes:
        """A view's numbers with all settings and the checkpoint's name, as an .npz file."""
        view = self.view(slug)
        subject = self._fitting(key, view)
        settings = view.settings(given, subject.about)
        if view.needs is Needs.SET:  # which takes turns by itself
            arrays = view.numbers(subject, settings)
        else:
            arrays = self._read(subject, lambda: view.numbers(subject, settings))
        told = {f"setting_{name}": str(value) for name, value in view.filed(settings, subject.grid).items()}
        about = {"checkpoint": subject.checkpoint, "view": slug, "dtype": self.settings.dtype, **told}
        about["assumed"] = self.assumed(key)
        if "prefix_tokens" not in arrays:
            arrays = {**arrays, "prefix_tokens": np.asarray(subject.grid.prefix_names, dtype=str)}
        file = io.BytesIO()
        np.savez_compressed(file, **arrays, **{name: np.asarray(value) for name, value in about.items()})
        return file.getvalue()

    def file(self, key: str, slug: str, name: str, given: Mapping[str, str]) -> bytes:
        """One of the further files that a view declares."""
        view = self.view(slug)
        subject = self._fitting(key, view)
        if name not in [file.name for file in view.files]:
            raise Unknown(f"{view.title} has no file {name[:60]!r}.")
        upload = None if subject.trace is None else np.asarray(self.upload(key))
        settings = view.settings(given, subject.about)
        return self._read(subject, lambda: view.file(subject, name, settings, upload))

    def summary(self, key: str, view: View) -> dict[str, Any]:
        """A view's summary, made once."""
        subject = self.before(key) if view.soon else self.subject(key)
        return self._once(
            (key, view.slug, "summary"), lambda: self._read(subject, lambda: view.summary(subject))
        )

    def upload(self, key: str):
        """The upright upload behind a run's key, in RGB."""
        return self.picture(self.run(key).picture)

    def image(self, key: str, which: str) -> bytes:
        """The upload (JPEG) or the model's input (PNG, lossless)."""
        run = self.run(key)
        if which == "input":
            return self._drawn.get((key, which), lambda: encoded(self.before(key).seen.picture, ".png"))
        if which != "upload":
            raise Unknown(f"There is no picture {which[:60]!r}; there are upload and input.")
        return self._drawn.get(
            (run.picture, which), lambda: encoded(np.asarray(self.picture(run.picture)), ".jpg")
        )

    def _read(self, subject: Subject, make: Callable[[], T]) -> T:
        with self.reading(subject):
            return make()

    def _fitting(self, key: str, view: View) -> Subject:
        subject = self.before(key) if view.needs is Needs.WEIGHTS else self.subject(key)
        if subject.survey is not None and not view.averages:
            raise Unknown(f"{view.title} has no average over a set of pictures.")
        if reason := view.refused(subject):
            raise Unknown(reason)
        return subject
