"""Checkpoints of one server: the available ones and the loaded ones, bounded in bytes."""

import io
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from gradio.utils import LRUCache

from vitviz import engine
from vitviz.engine import Checkpoint, Snapshot
from vitviz.engine.hub.snapshots import all_snapshots
from vitviz.engine.studies.text import text_tower, with_sentences
from vitviz.errors import CheckpointError, Unknown, VitvizError, quoted
from vitviz.server import zerogpu
from vitviz.server.options import ServiceSettings
from vitviz.server.security import zips
from vitviz.server.security.scheduler import request_lookups
from vitviz.server.services.cache import Cache, value_bytes
from vitviz.server.services.work import WorkQueue
from vitviz.traces.classes import Classes, tensors_in
from vitviz.traces.text_classes import vectors_of, with_vectors, without_text

KEPT = 50  # sets of text classes or vectors per checkpoint; each takes little memory
MOST, WRITTEN = 1_000, 100_000  # classes per file, and total characters of their labels
NBYTES = 16 * 2**20  # of one array
AWAY = "The vectors of this link are not on this server. Upload their file again."


class CheckpointStore:
    """Available and loaded checkpoints; concurrent requests load a checkpoint once."""

    def __init__(self, settings: ServiceSettings, work: WorkQueue):
        self.settings, self.work = settings, work
        self._inspectors: Cache[Any] = Cache(
            settings.model_cache, lambda one: sum(weight.nbytes for weight in one.model.parameters())
        )
        self.vectors = ClassVectors(settings.picture_cache // 4)
        # checkpoints with text or vector classes, by name; dropped with the checkpoint that they share
        self._asked: WeakKeyDictionary[Any, LRUCache[str, Any]] = WeakKeyDictionary()

    def selectable(self) -> list[Checkpoint]:
        """Return the available checkpoints, those on this server first."""
        result, allowed = engine.checkpoints(self.settings.weights), self.settings.allowed
        return [checkpoint for checkpoint in result if not allowed or checkpoint.name in allowed]

    def choices(self) -> list[tuple[str, str]]:
        """Return the picker's choices: a description and the name of each checkpoint.

        Checkpoints of the hub come last: those on disk first, then by size.
        """

        def place(one: Checkpoint) -> tuple:
            return (1, not one.on_disk, one.parameters or math.inf) if one.source == "hub" else (0,)

        return [(picker_line(one), one.name) for one in sorted(self.selectable(), key=place)]

    def named(self, text: str) -> str:
        """Return the name of the only checkpoint on this server that contains a text; else the text.

        Names of checkpoints on the hub are not completed: an incomplete name may be valid there.
        """
        names = [one.name for one in self.selectable() if one.source != "hub"]
        matches = [name for name in names if text and text.lower() in name.lower()]
        return text if text in names or len(matches) != 1 else matches[0]

    def film(self, checkpoint: str) -> dict[str, Any]:
        """Return a checkpoint's training history as JSON: "at" (its name) and "frames"; {} if it has none."""
        moments = [vars(frame) for frame in self.moments(checkpoint)]
        here = any(frame["name"] == checkpoint for frame in moments)
        return {"at": checkpoint, "frames": moments} if here else {}

    def moments(self, checkpoint: str) -> list[Snapshot]:
        """Return all snapshots of a checkpoint's training in order; [] if there are none."""
        return all_snapshots(self.inspector(checkpoint).checkpoint)

    def inspector(self, name: str, progress: Callable[[int, int], None] | None = None):
        """Return a loaded checkpoint; load it again if its files were replaced.

        Within one request the files are checked once. Raises CheckpointError, UnsupportedModel or HubError.
        """
        if (result := request_lookups().get(name)) is not None:
            return result
        own, *said = without_text(name)
        if said[0] or vectors_of(name):
            result = self._with_classes(name, self.inspector(own, progress), said, progress)
            return request_lookups().setdefault(name, result)
        allowed = self.settings.allowed
        if allowed and re.split("[@?]", name)[0] not in allowed:  # snapshots of allowed ones too
            offer = ", ".join(allowed)
            raise CheckpointError(f"This site offers only {offer}; {quoted(name)} was asked for.")
        given = self.settings
        asked = {"device": given.device, "dtype": given.dtype, "folder": given.weights, "trusted": False}

        def load(again: bool = False):
            with self.work.drawing(0, alone=False):
                result = engine.find_checkpoint(name, given.weights, trusted=False)
            # downloads hold no turn
            here = result.source != "hub" or result.on_disk
            with self.work.drawing(0, alone=False) if here else self.work.turns.turn_released():
                inspector = zerogpu.with_space_gpu(engine.load(name, **asked, progress=progress))
            if again:
                inspector.placed.checkpoint = replace(inspector.checkpoint, replaced=True)
            return inspector

        result = self._inspectors.get(name, load)
        if not engine.files_unchanged(result.checkpoint):
            self._inspectors.forget(lambda _, one: one is result)  # another request may have replaced it
            result = self._inspectors.get(name, lambda: load(again=True))
        request_lookups()[name] = result
        return result

    def _with_classes(self, name: str, inspector, texts: Sequence[Sequence[str]], progress) -> Any:
        """Return a checkpoint with a visitor's vectors, or sentences and templates (`texts`), as classes."""
        kept, given = self._asked.setdefault(inspector, LRUCache(KEPT)), self.vectors.of(name)
        if name not in kept:
            if given:
                asked = inspector.with_classes(given[0])
                asked.placed.checkpoint = replace(asked.checkpoint, name=name)
            else:
                with self.work.turns.turn_released():  # the tower may be downloaded
                    text_tower(inspector, progress)
                with self.work.computing(inspector, None, len(texts[0]) * max(1, len(texts[1]))):
                    asked = with_sentences(inspector, *texts, progress)
            kept[name] = zerogpu.with_space_gpu(asked)
        return kept[name]

    def forget(self, name: str) -> None:
        """Unload a checkpoint after this server has written next to its files."""
        request_lookups().pop(name, None)
        self._inspectors.forget(lambda key, _: key == name)


def picker_line(checkpoint) -> str:
    """Return one line for the picker: name, size, and for the hub also data, licence and availability.

    The picker is narrow; for checkpoints in the weights folder, the facts panel shows the rest.
    """
    hub = checkpoint.source == "hub"
    count = millions(checkpoint.parameters) if checkpoint.parameters else ""  # unknown for a damaged file
    megabytes = f"{4 * (checkpoint.parameters or 0) / 1e6:,.0f}"  # in float32
    size = f"≈ {count} parameters, {megabytes} MB" if count and hub else count
    place = "on disk" if checkpoint.on_disk else "to be downloaded"
    more = (checkpoint.trained_on, checkpoint.licence, place)
    parts = (checkpoint.name, size, *(more if hub else ()))
    return " · ".join(part for part in parts if part)


def millions(count: int) -> str:
    """Format a number of parameters.

    >>> millions(3_672_968), millions(86_567_656), millions(1_234_567_890)
    ('3.67 M', '86.6 M', '1.23 G')
    """
    scale, unit = (1e9, "G") if count >= 999.5e6 else (1e6, "M")
    digits = max(0, 3 - len(str(int(count / scale))))
    return f"{count / scale:.{digits}f} {unit}"


class ClassVectors:
    """Visitors' class vectors, from uploaded files, for models without a text tower.

    Each set is stored under the first letters of its digest, which the checkpoint's name then contains. The
    total is limited in bytes.
    """

    def __init__(self, limit: int):
        self._kept: Cache[tuple[Classes, bytes]] = Cache(limit, value_bytes)

    def name_with(self, checkpoint: str, data: bytes, called: str) -> str:
        """Return the checkpoint's name with a file's classes. Raises VitvizError for none or too many."""
        result = parse_classes(data, called)
        name = with_vectors(checkpoint, result.digest)
        self._kept.get(vectors_of(name), lambda: (result, data))
        return name

    def of(self, name: str) -> tuple[Classes, bytes] | None:
        """Return the classes that a checkpoint's name refers to, with their file; None for a plain name.

        Raises Unknown if they were evicted.
        """
        key = vectors_of(name)
        result = self._kept.peek(key) if key else None
        if key and result is None:
            raise Unknown(AWAY)
        return result


def parse_classes(data: bytes, called: str) -> Classes:
    """Return the classes in the bytes of a .npz or .safetensors file.

    The file is untrusted: of a zip only arrays with known names are inflated, up to a limit. Raises the
    errors of `ClassVectors.name_with`.
    """

    def read():
        if not data.startswith(b"PK"):
            return tensors_in(data)
        wanted = {f"{one.name}.npy": NBYTES for one in fields(Classes)}
        parts = zips.read_files(io.BytesIO(data), wanted).items()
        return {name[:-4]: np.load(io.BytesIO(part), allow_pickle=False) for name, part in parts}

    classes = Classes.from_contents(read, called)
    count, long = len(classes.labels), sum(map(len, classes.labels))
    if count > MOST or long > WRITTEN:
        raise VitvizError(
            f"{called} holds {count} classes of {long} characters; expected up to {MOST} of {WRITTEN} in all."
        )
    return classes
