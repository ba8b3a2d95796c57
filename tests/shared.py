"""Access to the folder of real weights and data outside the project."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


def shared_file(relative: str) -> Path:
    """Return a file of the shared folder (VITVIZ_SHARED, otherwise ../shared).

    If the file is missing, the test is skipped, or fails if VITVIZ_REQUIRE_ALL is set.
    """
    folder = Path(os.environ.get("VITVIZ_SHARED") or Path(__file__).parents[2] / "shared")
    path = folder / relative
    if not path.exists():
        reason = f"{relative} is not on this machine: set VITVIZ_SHARED to the folder that has it"
        pytest.fail(reason) if os.environ.get("VITVIZ_REQUIRE_ALL") else pytest.skip(reason)
    return path
