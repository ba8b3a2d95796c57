"""Tensors that know what they are: the public functions' results, which show themselves in a notebook.

A `Named` is the tensor it was made from, with a title, its axes and its unit beside it. Whatever is computed
with it is a plain tensor again, because nobody knows what that is; so is what it is pickled or copied to.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import UInt8
from torch import Tensor

from vitviz.frames import frame_of
from vitviz.shown import Shown


@dataclass(frozen=True)
class Name:
    """What a tensor's numbers are."""

    title: str
    axes: str  # such as "layer head"
    unit: str = ""
    caption: str = ""
    diverging: bool = False  # numbers for and against: the scale is symmetric about zero
    first: int = 1  # how its first layer is called: 0 where that is what enters the first block
    picture: UInt8[np.ndarray, "height width 3"] | None = None  # that a map lies over
    labels: tuple[str, ...] = ()  # of classes


class Named(Shown, Tensor):
    """A tensor with its name as `.what`; in every other way the tensor that it was made from."""

    what: Name
    __torch_function__ = torch._C._disabled_torch_function_impl  # what is computed with it is a plain tensor

    @classmethod
    def of(cls, tensor: Tensor, name: Name) -> Named:
        """The same numbers in the same memory."""
        found = tensor.as_subclass(cls)
        found.what = name
        return found

    def plain(self) -> Tensor:
        """Without its name."""
        return self.as_subclass(Tensor)

    def frame(self) -> Any:
        """A row a number, with its place on each axis (from 0), as a pandas DataFrame; VitvizError without
        pandas.
        """
        axes = self.what.axes.split()
        places = np.ndenumerate(self.plain().numpy())
        return frame_of(
            {**dict(zip(axes, place, strict=True)), "value": float(value)} for place, value in places
        )

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return repr(self.plain())

    def __reduce_ex__(self, protocol: int) -> Any:
        return self.plain().__reduce_ex__(protocol)

    def __deepcopy__(self, memo: dict) -> Tensor:
        return self.plain().__deepcopy__(memo)


__all__ = ["Name", "Named"]
