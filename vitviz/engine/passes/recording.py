"""What is seen of one forward pass, as it was on the device and with its batch axis."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from vitviz.engine.passes.branches import Branches
from vitviz.engine.passes.truth import Entered

Change = Callable[[Tensor], "Tensor | None"]  # at a place in a pass: reads a tensor, or gives another


@dataclass
class Call:
    """One attention call, with the batch axis: batch x head x token x dim."""

    q: Tensor
    k: Tensor
    v: Tensor
    mask: Tensor | None
    scale: float
    replaced: tuple[int, ...] = ()  # heads whose output the model did not go on with
    given: Tensor | None = None  # batch x replaced x token x dim: what it went on with instead


@dataclass
class Recording:
    """What one forward pass left behind, still on the device and with its batch axis."""

    calls: list[list[Call]]  # by layer; a plain Vision Transformer makes one a block
    tokens: list[Tensor]  # input of the first block, output of every block
    patch_embedding: Tensor | None = None
    position_embedded: Tensor | None = None
    outside: list[Call] = field(default_factory=list)  # calls after the last block: attention pooling
    # By layer, for the truth check: what followed the call.
    entered: list[Entered | None] = field(default_factory=list)
    branches: Branches | None = None  # what is added to the tokens that are read
