"""What the command line decides, for whatever serves the page."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import vitviz
from vitviz.ui.serving.limits import Limits

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
    limits: Limits = Limits()
    keeps: bool = False  # whether what is said of a file is written beside it: on one's own machine
    lessons: Path = Path("lessons")  # zips that the page offers; there need be none


def folder_of_lessons(given: Path | None = None) -> Path:
    """Where lessons lie: as given, else lessons/ beside the package (where app.py is), else here."""
    beside = Path(vitviz.__file__).resolve().parents[1] / "lessons"
    return given or (beside if beside.is_dir() else Path("lessons"))
