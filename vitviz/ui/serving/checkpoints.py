"""The checkpoints of one server: which can be picked, and those that are loaded, bounded in bytes."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from vitviz.errors import CheckpointError
from vitviz.ui.serving import zerogpu
from vitviz.ui.serving.cache import Cache
from vitviz.ui.serving.settings import Settings
from vitviz.ui.serving.written import line_of

if TYPE_CHECKING:
    from vitviz.engine import Frame


class Checkpoints:
    """What is offered and what is loaded; a checkpoint is loaded once, however many ask for it."""

    def __init__(self, settings: Settings):
        self.settings = settings
        self._inspectors: Cache[Any] = Cache(settings.model_cache, _bytes_of_model)

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
        found = [vars(frame) for frame in self.moments(checkpoint)]
        return (
            {"at": checkpoint, "frames": found} if any(frame["name"] == checkpoint for frame in found) else {}
        )

    def moments(self, checkpoint: str) -> list[Frame]:
        """The moments of that training, first step first; [] where none was kept."""
        from vitviz.engine.models.film import frames

        return frames(self.inspector(checkpoint).checkpoint)

    def inspector(self, name: str, progress: Callable[[int, int], None] | None = None):
        """The loaded checkpoint; loaded once, and again where its files were replaced since.

        CheckpointError, UnsupportedModel or HubError where that cannot be.
        """
        from vitviz import engine

        allowed = self.settings.allowed
        if allowed and re.split("[@?]", name)[0] not in allowed:  # a step of an allowed film is allowed
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

    def forget(self, name: str) -> None:
        """Lets go of a loaded checkpoint beside whose files this site itself has written."""
        found = self._inspectors.peek(name)
        if found is not None:
            self._inspectors.drop(name, found)


def _bytes_of_model(inspector) -> int:
    return sum(p.numel() * p.element_size() for p in inspector.model.parameters())
