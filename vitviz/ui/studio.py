"""What the server remembers: pictures, loaded checkpoints, traces and drawn data, each bounded in bytes.

A browser holds only a key. The key is a salted hash of picture, checkpoint and size: it cannot be guessed, the same
request computes once, and whatever has been put out of the cache is made again from its recipe.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from vitviz import samples
from vitviz.errors import CheckpointError, ImageError
from vitviz.panels import PANELS, Panel, Subject
from vitviz.ui import zerogpu
from vitviz.ui.cache import Cache
from vitviz.ui.sessions import Sessions
from vitviz.ui.written import described, encoded, line_of

MB = 1_000_000


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


@dataclass(frozen=True)
class Recipe:
    """What a key stands for."""

    picture: str  # the picture's own key
    checkpoint: str
    size: tuple[int, int] | None = None


class Studio:
    """The memory shared by all visitors; each sees only what its own keys stand for."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self._salt = secrets.token_bytes(16)
        self._pictures: Cache[bytes] = Cache(settings.picture_cache, len)
        self._inspectors: Cache[Any] = Cache(settings.model_cache, lambda inspector: sum(p.numel() * p.element_size() for p in inspector.model.parameters()))
        self._traces: Cache[Any] = Cache(settings.trace_cache, lambda trace: trace.nbytes)
        self._drawn: Cache[Any] = Cache(settings.picture_cache, lambda drawn: len(drawn) if isinstance(drawn, bytes) else drawn.nbytes)
        self._recipes: Cache[Recipe] = Cache(20_000, lambda recipe: 1)
        self._surveys: Cache[Any] = Cache(2_000, lambda survey: 1)
        self.sessions = Sessions()
        self._panels = {panel.slug: panel for panel in PANELS}

    def names(self) -> list[str]:
        """The checkpoints that can be picked."""
        from vitviz import engine

        names = [checkpoint.name for checkpoint in engine.checkpoints(self.settings.weights)]
        return [name for name in names if not self.settings.allowed or name in self.settings.allowed]

    def choices(self) -> list[tuple[str, str]]:
        """The same for a picker: (name, family, size, data, licence, whether it is on disk) in a line, and the name."""
        from vitviz import engine

        allowed = set(self.names())
        return [(line_of(checkpoint), checkpoint.name) for checkpoint in engine.checkpoints(self.settings.weights) if checkpoint.name in allowed]

    def film(self, checkpoint: str) -> dict[str, Any]:
        """The training film that a loaded checkpoint belongs to, and which of its frames it is; {} where there is none."""
        from vitviz.engine.loading.film import frames

        found = [vars(frame) for frame in frames(self.inspector(checkpoint).checkpoint)]
        return {"at": checkpoint, "frames": found} if any(frame["name"] == checkpoint for frame in found) else {}

    def keep_picture(self, path: str | os.PathLike) -> str:
        """Remembers an upload and returns its key; ImageError for what is no picture."""
        from vitviz.engine.images import open_image

        data = Path(path).read_bytes()
        key = self._key(data)
        if self._pictures.peek(key) is None:
            open_image(io.BytesIO(data))
            self._pictures.get(key, lambda: data)
        return key

    def keep_sample(self, name: str) -> str:
        """The same for a sample picture."""
        key = self._key(b"sample", name.encode())
        self._pictures.get(key, lambda: encoded(np.asarray(samples.sample_image(name).convert("RGB")), ".png"))
        return key

    def inspector(self, name: str, progress: Callable[[int, int], None] | None = None):
        """The loaded checkpoint; loaded once. CheckpointError, UnsupportedModel or HubError where that cannot be."""
        from vitviz import engine

        if self.settings.allowed and name.partition("@")[0] not in self.settings.allowed:  # a step of an allowed film is allowed
            raise CheckpointError(f"This site offers only {', '.join(self.settings.allowed)}; {name!r} was asked for.")
        asked = {"device": self.settings.device, "dtype": self.settings.dtype, "folder": self.settings.weights}
        return self._inspectors.get(name, lambda: zerogpu.lent(engine.load(name, **asked, trusted=False, progress=progress)))

    def look(self, picture: str, checkpoint: str, size: tuple[int, int] | None = None, progress=None) -> str:
        """Traces a picture with a checkpoint and returns the key under which everything about it is to be had."""
        self.inspector(checkpoint, progress)
        recipe = Recipe(picture, checkpoint, size)
        key = self._key(picture.encode(), checkpoint.encode(), repr(size).encode())
        self._recipes.get(key, lambda: recipe)
        self.subject(key)
        return key

    def subject(self, key: str) -> Subject:
        """What a key stands for, made again if it was put out; KeyError for an unknown key."""
        recipe = self._recipes.peek(key)
        if recipe is None:
            raise KeyError(key)
        inspector = self.inspector(recipe.checkpoint)
        return Subject(inspector, self._traces.get(key, lambda: inspector.trace(self.picture(recipe.picture), recipe.size)))

    def picture(self, key: str):
        """The upright upload in RGB."""
        from vitviz.engine.images import open_image

        data = self._pictures.peek(key)
        if data is None:
            raise ImageError("The server has put this picture away to make room for others. Drop it in once more.")
        return open_image(io.BytesIO(data))

    def panel(self, slug: str) -> Panel:
        """A view by its slug; KeyError for an unknown one."""
        return self._panels[slug]

    def value(self, key: str, panel: Panel) -> dict[str, Any]:
        """The small state of a panel's figure in the page."""
        subject = self.subject(key)
        trace = subject.trace
        grid = trace.grid
        message = panel.unsupported(subject) or ""
        return {
            "key": key,
            "panel": panel.slug,
            "checkpoint": trace.checkpoint,
            "grid": {"rows": grid.rows, "cols": grid.cols, "patch": list(grid.patch), "prefix": list(grid.prefix_names)},
            "layers": len(trace.layers),
            "heads": trace.layers[0].heads,
            "controls": [described(control) for control in panel.controls],
            "summary": {} if message else self._once((key, panel.slug, "summary"), lambda: panel.summary(subject)),
            "message": message,
        }

    def item(self, key: str, slug: str, name: str, given: Mapping[str, str]) -> np.ndarray:
        """A bulk array of a figure. KeyError, ValueError or VitvizError for what does not exist or fit."""
        panel = self.panel(slug)
        settings = panel.settings(given)
        # What has been drawn is handed out even if its checkpoint has been put out since, or is gone from the disk.
        return self._drawn.get((key, slug, name, repr(settings)), lambda: np.ascontiguousarray(panel.item(self.subject(key), name, settings)))

    def numbers(self, key: str, slug: str, given: Mapping[str, str]) -> bytes:
        """A panel's numbers with all settings and the checkpoint's name, as an .npz file."""
        panel, settings = self.panel(slug), self.panel(slug).settings(given)
        survey = self.survey(key) if panel.drawn_by == "chart" else None
        if survey is None:
            subject = self.subject(key)
            checkpoint, arrays = subject.inspector.checkpoint.name, panel.numbers(subject, settings)
        else:
            checkpoint, arrays = survey.checkpoint, panel.averaged(survey, settings)
        about = {"checkpoint": checkpoint, "view": slug, "dtype": self.settings.dtype, **{f"setting_{name}": str(value) for name, value in settings.items()}}
        file = io.BytesIO()
        np.savez_compressed(file, **arrays, **{name: np.asarray(value) for name, value in about.items()})
        return file.getvalue()

    def surveying(self, key: str, paths: Sequence[str]) -> Iterator[tuple[str, Any]]:
        """The running mean of the attention distance over a set of pictures, each with the key it is kept under.

        By the checkpoint and at the input size that `key` stands for; KeyError for an unknown key.
        """
        recipe = self._recipes.peek(key)
        if recipe is None:
            raise KeyError(key)
        for survey in self.inspector(recipe.checkpoint).surveying(paths, size=recipe.size):
            key = self._key(b"survey", secrets.token_bytes(16))
            yield key, self._surveys.get(key, lambda: survey)  # noqa: B023, made at once

    def survey(self, key: str | None):
        """A survey that was made; None where it has been put out."""
        return self._surveys.peek(key) if key else None

    def upload(self, key: str):
        """The upright upload behind a key, in RGB; KeyError for an unknown key."""
        recipe = self._recipes.peek(key)
        if recipe is None:
            raise KeyError(key)
        return self.picture(recipe.picture)

    def image(self, key: str, which: str) -> bytes:
        """The upload (JPEG) or the model's input (PNG, lossless)."""
        recipe = self._recipes.peek(key)
        if recipe is None or which not in ("upload", "input"):
            raise KeyError(which)
        if which == "input":
            return self._drawn.get((key, which), lambda: encoded(self.subject(key).trace.view.picture, ".png"))
        return self._drawn.get((recipe.picture, which), lambda: encoded(np.asarray(self.picture(recipe.picture)), ".jpg"))

    def _once(self, key, make):
        return self._drawn.get(key, lambda: _Small(make())).value

    def _key(self, *parts: bytes) -> str:
        digest = hashlib.blake2b(key=self._salt, digest_size=20)
        for part in parts:
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()


class _Small:
    """A JSON value in a cache that counts bytes."""

    nbytes = 1_000

    def __init__(self, value):
        self.value = value
