"""Places in the sequence as people name them: a prefix token by its name, a patch by its number from 0."""

from typing import Any

from vitviz.errors import WrongSetting
from vitviz.record.grid import Grid


def placed(tokens: int | tuple[int, ...], grid: Grid) -> Any:
    """One place in the sequence, or several, as people name them: a prefix token's name, or a patch from 0.

    >>> placed((0, 106), Grid(14, 14, (16, 16), ("class",)))
    ['class', 105]
    """
    if isinstance(tokens, tuple):
        return [placed(token, grid) for token in tokens]
    return grid.prefix_names[tokens] if tokens < grid.prefix else tokens - grid.prefix


def sequential(text: str, grid: Grid) -> int:
    """The place in the sequence of what `placed` names; WrongSetting for any other text."""
    if text in grid.prefix_names:
        return grid.prefix_names.index(text)
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and int(text) < grid.patches):
        names = " or ".join(f"{name!r}" for name in grid.prefix_names)
        raise WrongSetting(
            f"token={text[:40]!r}; expected {names}{' or ' if names else ''}a patch's number from 0 to"
            f" {grid.patches - 1}."
        )
    return grid.prefix + int(text)
