"""What a view can be asked for: arrays of numbers, and files."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from vitviz.views.controls import About


@dataclass(frozen=True)
class Item:
    """An array of numbers that a view can be asked for.

    `axes` names its axes, such as "layer head" or "row col": what they are called on the page and in the
    endpoint, and how long those are that the model decides. `depends` names the settings that change it:
    nothing else asks for it anew. `says` tells what the numbers are, with their unit. An item that is not
    `taken` is for drawing alone. Of a `signed` one zero is the middle of the scale: for and against. What is
    `opened` by a setting is asked for only where that has this value.
    """

    name: str
    axes: str
    says: str = ""
    dtype: str = "float32"
    depends: tuple[str, ...] = ()
    taken: bool = True
    signed: bool = False
    opened: tuple[tuple[str, str], ...] = ()

    def checked(self, array: np.ndarray, about: About) -> np.ndarray:
        """The array as it travels; RuntimeError where it is not what was declared: a bug of the view."""
        array = np.ascontiguousarray(array, dtype=self.dtype)
        grid, names = about.grid, self.axes.split()
        known = {
            "layer": about.layers,
            "depth": about.layers + 1,
            "head": about.heads,
            "row": grid.rows,
            "col": grid.cols,
        }
        known |= {"token": grid.tokens, "query": grid.tokens, "key": grid.tokens, "patch": grid.patches}
        sizes = [known.get(name, size) for name, size in zip(names, array.shape, strict=False)]
        if len(names) != array.ndim or sizes != list(array.shape):
            raise RuntimeError(
                f"{self.name} is declared as {self.axes!r} ({sizes}); its shape is {array.shape}."
            )
        return array


def drawn(name: str, axes: str, says: str, *depends: str, **more: Any) -> Item:
    """An item for drawing alone, which is not taken home."""
    return Item(name, axes, says, depends=depends, taken=False, **more)


def as_json(name: str, says: str, *depends: str, **more: Any) -> Item:
    """The same of JSON."""
    return drawn(name, "byte", f"{says}, as JSON", *depends, dtype="uint8", **more)


@dataclass(frozen=True)
class File:
    """A download besides the numbers: its name, which is the route's too, and what the page calls it."""

    name: str
    label: str
    kind: str = "application/octet-stream"
