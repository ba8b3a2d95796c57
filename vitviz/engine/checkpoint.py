"""What a checkpoint is, before and after it is loaded."""

from dataclasses import dataclass, field
from typing import Literal

from torch import nn

from vitviz.engine.images.preprocess import Preprocessing
from vitviz.traces.display import NotebookDisplay
from vitviz.traces.head_type import HeadType


@dataclass(frozen=True)
class Identity:
    """What was in a checkpoint's files when it was loaded: equal for equal contents, whatever their times.

    `digest` is the SHA-256 of weights and configs; `stamps` tells cheaply whether a file has been touched.
    """

    digest: str
    stamps: tuple = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class Assumption:
    """What a file does not say, and what was taken for it.

    `name` is one of weights, heads, pool, block, head_type, normalisation, crop_pct, interpolation,
    activation, epsilon and mapping; `taken` and the `choices` are texts as a checkpoint's name carries them
    ("heads=6"); both are empty for a mapping, which a file of its own answers.
    """

    name: str
    taken: str = ""
    choices: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkpoint(NotebookDisplay):
    """Trained weights that can be picked: shipped with vitviz, put beside it by the user, or on the hub.

    `name` is what `vitviz.load` and the page's picker take; `location` a folder or file, or the hub's id.
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
    identity: Identity | None = None  # once it is loaded
    assumed: tuple[Assumption, ...] = ()  # what the file does not say, once it is loaded
    projects: bool = False  # its last layer leads into a space shared with texts, as its files say
    replaced: bool = False  # whether this server had loaded other weights under the same name before


@dataclass(frozen=True)
class Loaded:
    """A model with its trained weights in evaluation mode on the CPU, and how pictures reach it."""

    checkpoint: Checkpoint
    model: nn.Module = field(repr=False)
    preprocessing: Preprocessing
    labels: tuple[str, ...] = field(default=(), repr=False)
    head_type: HeadType = "softmax"
