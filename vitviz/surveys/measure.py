"""What a survey measures: from one picture's trace to arrays that may be averaged over pictures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np

from vitviz.analyses import Grams
from vitviz.engine import Inspector
from vitviz.traces.trace import Trace

T = TypeVar("T")


@dataclass(frozen=True)
class Quantity:
    """One array that a measure has to say of every picture."""

    name: str  # a word for files, such as "prefix_mass"
    axes: str  # such as "layer head"; "" for one number
    title: str  # for people, such as "Attention distance"
    unit: str = ""
    across: bool = False  # kept as `analyses.Spread`, how its numbers vary together, and not by picture


@dataclass(frozen=True)
class MeasuredImage:
    """One picture after its pass; what several measures need is computed a single time."""

    inspector: Inspector
    trace: Trace
    label: int | None = None  # the true class, where it is known
    name: str = ""  # within its source
    refused: dict[str, str] = field(default_factory=dict, repr=False)  # for measures to fill, see `Measure`
    _once: dict[Callable, Any] = field(default_factory=dict, repr=False)

    def once(self, make: Callable[[Trace], T]) -> T:
        """`make(trace)`, shared by all measures that ask for it by the same function."""
        if make not in self._once:
            self._once[make] = make(self.trace)
        return self._once[make]


@runtime_checkable
class Measure(Protocol):
    """A new one is a class in `measures/`; any object that looks like it can be handed to `vitviz.survey`.

    It holds nothing that changes: parts of a survey may be measured in different processes. Two with the same
    name must compute the same, because a survey that goes on knows its measures by name.
    """

    name: str
    says: str  # one line for a list of measures
    quantities: tuple[Quantity, ...]

    def of(self, seen: MeasuredImage) -> Mapping[str, np.ndarray]:
        """Float arrays by the quantities' names, of shapes that are the same for every picture.

        A quantity that this picture has nothing to say about (no label is known) is left out. What of an
        array does not exist for this picture is not a number, and `seen.refused["measure.part"]` says why,
        which the survey tells beside its averages. VitvizError ends the survey: a checkpoint it is not for.
        """


@runtime_checkable
class BatchMeasure(Protocol):
    """A measure that looks at the pictures of a batch together: what it finds is kept, and no average."""

    def together(self, traces: Sequence[Trace], pictures: Sequence[str]) -> Grams:
        """Of four pictures or more and their marks, which say that two surveys are of the same pictures."""
