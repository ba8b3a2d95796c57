"""What the server remembers: pictures, loaded checkpoints, traces and drawn data, each bounded in bytes.

A browser holds only a key. It stands for a run (a picture, and what it is looked at with) or a survey; it is
a salted hash, so that it cannot be guessed, and the same question computes once. What has been put out of a
cache is made again from its run.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from vitviz import samples, stopping
from vitviz.errors import CheckpointError, ImageError, Unknown
from vitviz.figures.encode import encoded
from vitviz.runs import Run
from vitviz.ui.serving import uploads, visitor, zerogpu
from vitviz.ui.serving.cache import Cache
from vitviz.ui.serving.limits import Limits
from vitviz.ui.serving.sessions import Sessions
from vitviz.ui.serving.turns import Turns
from vitviz.ui.serving.written import line_of
from vitviz.views import VIEWS, About, Needs, Subject, View

MB = 1_000_000
BATCH = 8  # pictures of a survey that go through the model at once
T = TypeVar("T")
GONE = (
    "The server no longer knows this picture; it may have been started anew. Drop the picture in once more."
)
PUT_AWAY = "The server has put this picture away to make room for others. Drop it in once more."


@dataclass(frozen=True)
class Settings:
    """What the command line decides."""

    checkpoint: str = "vitviz-tiny"
    weights: Path | None = None
    device: str = "auto"
    model_cache: int = 4_000 * MB
    trace_cache: int = 512 * MB
    picture_cache: int = 256 * MB
    allowed: tuple[str, ...] = ()  # on a public Space: the only checkpoints that can be picked
    dtype: str = "float32"
    limits: Limits = Limits()


class Studio:
    """The memory shared by all visitors; each sees only what its own keys stand for."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self._salt = secrets.token_bytes(16)
        self._pictures: Cache[bytes] = Cache(settings.picture_cache, len)
        self._inspectors: Cache[Any] = Cache(settings.model_cache, _bytes_of_model)
        self._traces: Cache[Any] = Cache(settings.trace_cache, lambda trace: trace.nbytes)
        self._drawn: Cache[Any] = Cache(settings.picture_cache, _bytes_of)
        self._runs: Cache[Run] = Cache(20_000, lambda run: 1)
        self._surveys: Cache[Any] = Cache(2_000, lambda survey: 1)
        self._abouts: Cache[About] = Cache(20_000, lambda about: 1)  # outlive what they are about
        self.sessions, self._turns = Sessions(), Turns(settings.limits.passes)
        self._views = {view.slug: view for view in VIEWS}

    def names(self) -> list[str]:
        """The checkpoints that can be picked."""
        from vitviz import engine

        names = [checkpoint.name for checkpoint in engine.checkpoints(self.settings.weights)]
        return [name for name in names if not self.settings.allowed or name in self.settings.allowed]

    def choices(self) -> list[tuple[str, str]]:
        """The same for a picker: a line that describes each, and its name."""
        from vitviz import engine

        allowed = set(self.names())
        found = engine.checkpoints(self.settings.weights)
        return [(line_of(checkpoint), checkpoint.name) for checkpoint in found if checkpoint.name in allowed]

    def film(self, checkpoint: str) -> dict[str, Any]:
        """The training film that a loaded checkpoint belongs to, and which of its frames it is; {} where
        there is none.
        """
        from vitviz.engine.models.film import frames

        found = [vars(frame) for frame in frames(self.inspector(checkpoint).checkpoint)]
        return (
            {"at": checkpoint, "frames": found} if any(frame["name"] == checkpoint for frame in found) else {}
        )

    def keep_picture(self, path: str | os.PathLike) -> str:
        """Remembers an upload and returns its key; ImageError for what is no picture or no upload."""
        from vitviz.engine.pictures.images import open_image

        data = uploads.read(path)
        key = self._key(data)
        if self._pictures.peek(key) is None:
            open_image(io.BytesIO(data))
            self._pictures.get(key, lambda: data)
        return key

    def keep_sample(self, name: str) -> str:
        """The same for a sample picture."""
        key = self._key(b"sample", name.encode())
        self._pictures.get(
            key, lambda: encoded(np.asarray(samples.sample_image(name).convert("RGB")), ".png")
        )
        return key

    def inspector(self, name: str, progress: Callable[[int, int], None] | None = None):
        """The loaded checkpoint; loaded once, and again where its files were replaced since.

        CheckpointError, UnsupportedModel or HubError where that cannot be.
        """
        from vitviz import engine

        allowed = self.settings.allowed
        if allowed and name.partition("@")[0] not in allowed:  # a step of an allowed film is allowed
            raise CheckpointError(f"This site offers only {', '.join(allowed)}; {name!r} was asked for.")
        asked = {
            "device": self.settings.device,
            "dtype": self.settings.dtype,
            "folder": self.settings.weights,
        }

        def load():
            return zerogpu.lent(engine.load(name, **asked, trusted=False, progress=progress))

        def load_again():
            inspector = load()
            inspector.checkpoint = replace(inspector.checkpoint, replaced=True)
            return inspector

        found = self._inspectors.get(name, load)
        if engine.unchanged(found.checkpoint):
            return found
        self._inspectors.drop(name, found)
        return self._inspectors.get(name, load_again)

    def look(
        self, picture: str, checkpoint: str, size: tuple[int, int] | None = None, progress=None, **changes
    ) -> str:
        """Traces a picture with a checkpoint and returns the key under which everything about it is to be
        had.

        `changes` are further fields of the run, such as `without`.
        """
        inspector = self.inspector(checkpoint, progress)
        self.settings.limits.require(inspector, size)
        run = Run(picture, checkpoint, size, weights=_weights_of(inspector), **changes)
        key = self._key(repr(run).encode())
        self._runs.get(key, lambda: run)
        self.subject(key)
        return key

    def run(self, key: str) -> Run:
        """What a key stands for; Unknown for an unknown key."""
        run = self._runs.peek(key)
        if run is None:
            raise Unknown(GONE)
        return run

    def scene(self, key: str) -> str:
        """What stays the same when only the checkpoint changes: a name of the picture and the size, or of the
        set.
        """
        if self.survey(key) is not None:
            return key
        run = self.run(key)
        return self._key(run.picture.encode(), repr(run.size).encode())

    def subject(self, key: str) -> Subject:
        """What the views look at for a key: a run's trace, made again if it was put out, or a survey.

        The model is loaded only where a view asks for it: a trace that is still there outlives its
        checkpoint.
        """
        survey = self.survey(key)
        if survey is not None:
            return Subject(lambda: self.inspector(survey.checkpoint), survey=survey)
        run = self.run(key)
        with stopping.when(_gone):
            trace = self._traces.get(key, lambda: self._traced(run))
        weights = (run.checkpoint, run.weights, trace.grid)
        return Subject(
            lambda: self._looked_with(run),
            trace,
            once=lambda name, make: self._once((key, name), make),
            once_of_weights=lambda name, make: self._once((weights, name), make),
        )

    @contextmanager
    def computing(
        self, inspector, size: tuple[int, int] | None, pictures: int = 1, patient: bool = False
    ) -> Iterator[None]:
        """Around a pass: waits for a turn, then ends with its visitor or its time; Stopped or TooMuch say why
        it did.

        A full line refuses whoever is not `patient`. Not to be held while a cache is asked for what somebody
        else may be making.
        """
        dear = self.settings.limits.dear(pictures * inspector.demand(size).operations)
        with self._turn(dear, patient):
            yield

    @contextmanager
    def reading(self, subject: Subject) -> Iterator[None]:
        """The same around what reads a trace's attention: what is cheap waits for no turn, or hovering would."""
        trace = subject.trace
        operations = (
            0 if trace is None else len(trace.layers) * trace.grid.tokens**2 * trace.tokens[0].shape[-1]
        )
        if self.settings.limits.dear(2 * operations):
            with self._turn(True, False):
                yield
        else:
            with stopping.when(_gone):
                yield

    @contextmanager
    def _turn(self, dear: bool, patient: bool) -> Iterator[None]:
        clock = self.settings.limits.clock
        with stopping.when(_gone), self._turns.turn(dear, visitor.name(), patient), stopping.when(clock()):
            yield

    def picture(self, key: str):
        """The upright upload in RGB."""
        from vitviz.engine.pictures.images import open_image

        data = self._pictures.peek(key)
        if data is None:
            raise ImageError(PUT_AWAY)
        return open_image(io.BytesIO(data))

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
        view, about = self.view(slug), self._abouts.get(key, lambda: self.subject(key).about)
        declared, settings = view.declared(name), view.settings(given, about)
        asked = tuple((one, settings[one]) for one in declared.depends)
        make = lambda: declared.checked(view.item(self._fitting(key, view), name, settings), about)  # noqa: E731
        place = (self.run(key).checkpoint, about.grid) if view.needs is Needs.WEIGHTS else key
        return self._drawn.get((place, slug, name, asked), make)

    def numbers(self, key: str, slug: str, given: Mapping[str, str]) -> bytes:
        """A view's numbers with all settings and the checkpoint's name, as an .npz file."""
        view = self.view(slug)
        subject = self._fitting(key, view)
        settings = view.settings(given, subject.about)
        arrays = self._read(subject, lambda: view.numbers(subject, settings))
        told = {f"setting_{name}": str(value) for name, value in settings.items()}
        about = {"checkpoint": subject.checkpoint, "view": slug, "dtype": self.settings.dtype, **told}
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
        return view.file(subject, name, view.settings(given, subject.about), upload)

    def summary(self, key: str, view: View) -> dict[str, Any]:
        """A view's summary, made once."""
        subject = self.subject(key)
        make = lambda: self._read(subject, lambda: view.summary(subject))  # noqa: E731
        return self._once((key, view.slug, "summary"), make)

    def surveying(self, key: str, paths: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """The running mean of the attention distance over a set of pictures, each with the key it is kept
        under.

        By the checkpoint and at the input size that `key` stands for; Unknown for an unknown key.
        """
        from vitviz.surveys import surveying

        run = self.run(key)
        inspector = self._looked_with(run)
        surveys, survey = surveying(paths, inspector, batch=BATCH, size=run.size), None
        while True:
            begun = survey is not None
            with self.computing(inspector, run.size, min(BATCH, len(paths)), begun):  # a turn for every batch
                survey = next(surveys, None)
            if survey is None:
                return
            key = self._key(b"survey", secrets.token_bytes(16))
            yield key, self._surveys.get(key, lambda: survey)  # noqa: B023, made at once

    def survey(self, key: str | None):
        """A survey that was made; None where it has been put out, or was none."""
        return self._surveys.peek(key) if key else None

    def upload(self, key: str):
        """The upright upload behind a run's key, in RGB."""
        return self.picture(self.run(key).picture)

    def image(self, key: str, which: str) -> bytes:
        """The upload (JPEG) or the model's input (PNG, lossless)."""
        run = self.run(key)
        if which == "input":
            return self._drawn.get(
                (key, which), lambda: encoded(self.subject(key).trace.view.picture, ".png")
            )
        if which != "upload":
            raise Unknown(f"There is no picture {which[:60]!r}; there are upload and input.")
        return self._drawn.get(
            (run.picture, which), lambda: encoded(np.asarray(self.picture(run.picture)), ".jpg")
        )

    def _traced(self, run: Run):
        inspector, picture = self._looked_with(run), self.picture(run.picture)
        with self.computing(inspector, run.size):
            return inspector.trace(picture, run.size, **({"without": run.without} if run.without else {}))

    def _looked_with(self, run: Run):
        """The inspector of a run; CheckpointError where its name stands for other weights by now."""
        inspector = self.inspector(run.checkpoint)
        if _weights_of(inspector) != run.weights:
            raise CheckpointError(
                f"The weights of {run.checkpoint} have been replaced on the server since this picture was"
                " looked at. Look at it again."
            )
        return inspector

    def _read(self, subject: Subject, make: Callable[[], T]) -> T:
        with self.reading(subject):
            return make()

    def _fitting(self, key: str, view: View) -> Subject:
        subject = self.subject(key)
        if subject.survey is not None and not view.averages:
            raise Unknown(f"{view.title} has no average over a set of pictures.")
        if reason := view.refused(subject):
            raise Unknown(reason)
        return subject

    def _once(self, key, make):
        return self._drawn.get(("once", key), lambda: _Kept(make())).value

    def _key(self, *parts: bytes) -> str:
        digest = hashlib.blake2b(key=self._salt, digest_size=20)
        for part in parts:
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()


def _weights_of(inspector) -> str:
    identity = inspector.checkpoint.identity
    return identity.digest if identity else ""


def _gone() -> bool:
    visitor.require_visitor()
    return False


class _Kept:
    """Any value in a cache that counts bytes."""

    def __init__(self, value):
        self.value, self.nbytes = value, _bytes_of(value)


def _bytes_of(value: Any) -> int:
    """What a value holds, at least a thousand bytes: of tensors and arrays their size, of records those of
    their fields.
    """
    if isinstance(value, bytes):
        return len(value)
    size = getattr(value, "nbytes", None)
    if isinstance(size, int):
        return size
    parts = (
        value
        if isinstance(value, tuple | list)
        else vars(value).values()
        if hasattr(value, "__dict__")
        else ()
    )
    return 1_000 + sum(
        _bytes_of(part) for part in parts if not isinstance(part, str | int | float | bool | None)
    )


def _bytes_of_model(inspector) -> int:
    return sum(p.numel() * p.element_size() for p in inspector.model.parameters())
