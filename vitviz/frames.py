"""Tables for pandas, which is optional: whoever asks for a frame has it, or is told how to get it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from vitviz.errors import VitvizError


def frame_of(rows: Iterable[Mapping[str, Any]]) -> Any:
    """Rows as a pandas DataFrame; VitvizError where pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise VitvizError(
            "A frame is pandas', which is not installed here: pip install pandas, or use the"
            " numbers themselves."
        ) from error
    return pandas.DataFrame(list(rows))


__all__ = ["frame_of"]
