"""What exactly is asked of a survey: which pictures, by which weights, in which order; for its report."""

import hashlib
import json
import platform
import random
import sys
from collections.abc import Container, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import vitviz
from vitviz.errors import VitvizError
from vitviz.surveys.items import Described, Item, Source
from vitviz.surveys.labels import Classes
from vitviz.surveys.rows import Measuring

PART = 128  # pictures that a killed process loses at most


@dataclass(frozen=True)
class Plan:
    """The pictures in the order in which they are counted."""

    source: Source
    described: Described
    limit: int | None = None
    seed: int | None = None
    part: int = PART

    def __post_init__(self):
        for name, value in (("limit", self.limit), ("part", self.part)):
            if value is not None and value < 1:
                raise VitvizError(f"Given {name}={value!r}; expected how many pictures, 1 or more.")
        if self.seed is not None and self.limit is None:
            raise VitvizError("A seed draws some of the pictures at random; say how many with limit.")

    @property
    def count(self) -> int | None:
        """How many pictures it will be, the unreadable counted; None where the source cannot say."""
        return min(self.described.count, self.limit or self.described.count) or None

    def items(self, done: Container[int] = ()) -> Iterator[tuple[int, Item]]:
        """Those of parts not `done`, each with its place, from 0; drawn ones in the source's order."""
        wanted, place = self._drawn(), 0
        for number, item in enumerate(self.source):
            if self.limit is not None and place >= self.limit:
                return
            if wanted is None or number in wanted:
                if place // self.part not in done:
                    yield place, item
                place += 1

    def _drawn(self) -> set[int] | None:
        if self.seed is None or self.limit is None or self.limit >= self.described.count:
            return None
        return set(random.Random(self.seed).sample(range(self.described.count), self.limit))

    def settings(self, measuring: Measuring, classes: Classes) -> dict[str, Any]:
        """All that the numbers depend on; a survey that goes on has to have the same."""
        inspector = measuring.inspector
        identity = inspector.checkpoint.identity
        meant = dict(classes) if hasattr(classes, "items") else None if classes is None else list(classes)
        told = json.dumps(meant, sort_keys=True).encode()
        return {
            "checkpoint": inspector.checkpoint.name, "checkpoint_sha256": identity.digest if identity else "",
            **({"given_classes_sha256": inspector.classes.digest} if inspector.classes else {}),
            "input_size": list(measuring.size), "dtype": inspector.dtype,
            "measures": [getattr(one, "settings", one.name) for one in measuring.measures],
            "source": self.source.kind, "source_sha256": self.described.digest,
            "pictures_listed": self.described.count, "limit": self.limit, "seed": self.seed,
            "classes_sha256": hashlib.sha256(told).hexdigest() if meant else "",
            "batch": measuring.batch, "part": self.part,
            "vitviz": vitviz.__version__,  # also of a clone that is not installed
        }  # fmt: skip


def version_of(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def surroundings(device: str) -> dict[str, str]:
    """Versions and machine, for the report; a survey may go on in others."""
    packages = {name: version_of(name) for name in ("torch", "timm", "numpy", "pillow")}
    here = {"system": f"{platform.system()} {platform.machine()}", "device": device}
    return {"python": sys.version.split()[0], **packages, **here}
