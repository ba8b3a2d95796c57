"""Describe a checkpoint, before and after loading."""

from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from vitviz.engine.images.preprocess import Preprocessing
from vitviz.traces.display import NotebookDisplay
from vitviz.traces.head_type import HeadType


@dataclass(frozen=True)
class Identity:
    """Contents of a checkpoint's files at loading time; equal for equal contents, whatever the files' times.

    `digest` is the SHA-256 of weights and configs. `stamps` detects cheaply that a file has been touched.
    """

    digest: str
    stamps: tuple = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Assumption:
    """A setting that a file omits, and the value that was assumed.

    `name` is one of weights, heads, pool, block, head_type, normalisation, crop_pct, interpolation,
    activation, epsilon and mapping. `taken` and `choices` have the form of a checkpoint's name ("heads=6").
    Both are empty for a mapping, which needs a file of its own.
    """

    name: str
    taken: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkpoint(NotebookDisplay):
    """Trained weights to load: shipped with vitviz, added by the user, or on the hub.

    `name` is the argument of `vitviz.load` and the entry of the page's picker; `location` is a folder, a
    file, or the hub's id.
    """

    name: str
    architecture: str | None
    source: Literal["shipped", "local", "hub", "memory"]
    location: str  # empty for a model in memory
    input_size: tuple[int, int, int] | None = None  # channels, height, width
    parameters: int | None = None
    trained_on: str = ""
    licence: str = ""
    paper: str = ""
    note: str = ""  # one sentence that the page shows, such as the accuracy
    on_disk: bool = True
    identity: Identity | None = None  # None before loading
    assumed: tuple[Assumption, ...] = ()  # settings that the file omits; filled in by loading
    projects: bool = False  # the files declare a projection into a space shared with texts
    replaced: bool = False  # this server loaded other weights under the same name before


@dataclass(frozen=True)
class Loaded:
    """A model with its trained weights in evaluation mode on the CPU, and its preprocessing."""

    checkpoint: Checkpoint
    model: nn.Module = field(repr=False)
    preprocessing: Preprocessing
    labels: tuple[str, ...] = field(default=(), repr=False)
    head_type: HeadType = "softmax"
