"""A user's module that has no verified timm twin, as the engine sees it.

`OwnModel` gives the module's parts the names that the engine reads: blocks, grid, width. The readout is not
known; whatever needs it calls `require_known` first.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from torch import Tensor, nn

from vitviz.errors import UnsupportedModel, VitvizError, quoted
from vitviz.traces.grid import Grid
from vitviz.traces.localized_text import not_applicable
from vitviz.traces.readout import Readout

UNKNOWN = "only the attention and the tokens of this module are known, not {part}"


class OwnModel(nn.Module):
    """A user's module with what was found in it.

    `in_place` is True for a module that cannot be copied: it then stays where it is, in its own precision.
    """

    def __init__(self, module: nn.Module, blocks: Sequence[nn.Module], output: str | int | None, own: bool):
        super().__init__()
        self.module, self.blocks, self.output, self.in_place = module, nn.ModuleList(blocks), output, own
        self.blocks_given = False  # True: by the user, who may leave out others
        self.overlapping = False  # True: a token reads pixels of several patches, and its own are the middle
        self.order: Tensor | None = None  # the sequence's tokens in the grid's order; None: as they are
        self.embedding: nn.Module | None = None
        self.own_grid: Grid | None = None
        self.own_readout: Readout | None = None  # None: not known, or no output
        self.tolerance = 1e-4  # of the truth check; larger if it computes in 16 bits
        self.random = False  # True: a pass draws random numbers
        self.repeated = ""  # path of a part with parts that runs several times
        self.assumption = ""  # a warning; "" if nothing is assumed
        self.embed_dim = self.num_classes = 0
        self.findings: dict[str, str] = {}
        self.name = type(module).__name__

    @property
    def patch_embed(self) -> SimpleNamespace:
        """The patch embedding under timm's names: grid, patch and input size, and the module."""
        grid = self.own_grid
        return SimpleNamespace(
            grid_size=(grid.rows, grid.cols), patch_size=grid.patch, img_size=grid.pixels,
            proj=self.embedding, backbone=None,
        )  # fmt: skip

    def forward(self, pixels: Tensor) -> Tensor:
        """Return the class scores of one batch, as `class_scores_of` finds them in the module's output."""
        return class_scores_of(self.module(pixels), self.output, type(self.module).__name__)

    def _apply(self, fn, recurse=True):
        """Move or convert all tensors by `fn` and return the model; no effect if `in_place`."""
        return self if self.in_place else super()._apply(fn, recurse)

    def train(self, mode: bool = True) -> OwnModel:
        """Set training or evaluation mode and return the model; no effect if `in_place`."""
        return self if self.in_place else super().train(mode)

    def __deepcopy__(self, memo):
        if self.in_place:
            raise UnsupportedModel(
                f"{type(self.module).__name__} cannot be copied, so it is inspected on its own device only."
            )
        twin = self.__class__.__new__(self.__class__)
        memo[id(self)] = twin
        twin.__dict__.update({name: copy.deepcopy(value, memo) for name, value in vars(self).items()})
        return twin


def require_known(model: nn.Module, part: str) -> None:
    """Raise UnsupportedModel for a user's own module, of which `part` is not known; accept other models."""
    if isinstance(model, OwnModel):
        raise UnsupportedModel(not_applicable(model.name, UNKNOWN.format(part=part)))


def class_scores_of(returned: Any, output: str | int | None, kind: str) -> Tensor | None:
    """Return the tensor of class scores in what a module returned; None if it holds none.

    `output` is a key of a dict, an attribute or the place in a tuple. Raises VitvizError if it does not
    exist, or if several tensors could be meant.
    """
    if output is not None:
        by_key = hasattr(returned, "__getitem__") and not isinstance(returned, Tensor)
        try:
            scores = returned[output] if by_key else getattr(returned, output)
        except (KeyError, IndexError, TypeError, AttributeError):
            scores = getattr(returned, str(output), None)
        if not isinstance(scores, Tensor):
            raise VitvizError(f"{kind} has no output={quoted(output)}; it returns {_describe(returned)}.")
        if scores.ndim != 2:
            raise VitvizError(f"output={quoted(output)} is {_describe(scores)}; expected (image, class).")
        return scores
    if isinstance(returned, Tensor):
        return returned if returned.ndim == 2 else None
    if isinstance(getattr(returned, "logits", None), Tensor):
        return returned.logits
    outputs = _by_key(returned)
    if isinstance(outputs.get("logits"), Tensor):
        return outputs["logits"]
    if hasattr(returned, "last_hidden_state"):  # features of transformers' models
        return None
    tensors = [key for key, value in outputs.items() if isinstance(value, Tensor) and value.ndim == 2]
    if len(tensors) > 1:
        raise VitvizError(
            f"{kind} returns several outputs ({_describe(returned)}), and any of them may be the class"
            f" scores. Choose one: output={quoted(tensors[0])}."
        )
    return outputs[tensors[0]] if tensors else None


def _by_key(returned: Any) -> Mapping:
    """Return what a module returns by key or by place in a sequence; empty for anything else."""
    if isinstance(returned, Mapping):
        return returned
    return dict(enumerate(returned)) if isinstance(returned, tuple | list) else {}


def _describe(returned: Any) -> str:
    """Return a phrase for what a module returned: a tensor's shape, the keys or places, or the type."""
    if isinstance(returned, Tensor):
        return f"a tensor of shape {tuple(returned.shape)}"
    return ", ".join(map(str, _by_key(returned))) or f"a {type(returned).__name__}"
