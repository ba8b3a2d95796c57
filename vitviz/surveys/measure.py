"""Interface of survey measures: arrays computed from traces, image by image or a batch at once."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from vitviz.analyses import Grams
from vitviz.engine import Inspector
from vitviz.traces.trace import Trace, TraceBatch

T = TypeVar("T")
Array = np.ndarray | Tensor


@dataclass(frozen=True)
class Quantity:
    """Description of one array that a measure returns for every image."""

    name: str  # identifier used in files, such as "prefix_mass"
    axes: str  # names of the axes, such as "layer head"; "" for a scalar
    title: str  # display title, such as "Attention distance"
    unit: str = ""
    across: bool = False  # stored as mean and scatter over images (`analyses.Spread`), not per image
    labelled: bool = False  # left out for images without a label


@dataclass(frozen=True)
class MeasuredImage:
    """One image after its forward pass, with a cache for results that several measures share."""

    inspector: Inspector
    trace: Trace
    label: int | None = None  # true class (from 0), if known
    name: str = ""  # name within the source
    refused: dict[str, str] = field(default_factory=dict, repr=False)  # filled by measures, see `Measure`
    measures: frozenset[str] = frozenset()  # names of all measures of the survey
    _once: dict[Callable, Any] = field(default_factory=dict, repr=False)

    @property
    def labels(self) -> Int[Tensor, "*image"] | None:
        """True classes on the device of the trace, -1 where unknown; None if no image has a label."""
        known = [-1 if one is None else one for one in np.atleast_1d(np.asarray(self.label, object))]
        if max(known) < 0:
            return None
        place = self.trace.tokens[0].device
        return torch.tensor(known if isinstance(self.label, tuple) else known[0]).to(place, non_blocking=True)

    def once(self, make: Callable[[Trace], T]) -> T:
        """Return `make(trace)`, computed once per image and function and shared by all measures."""
        if make not in self._once:
            self._once[make] = make(self.trace)
        return self._once[make]


@dataclass(frozen=True)
class MeasuredBatch(MeasuredImage):
    """The images of one forward pass, as `MeasuredImage` for a measure that is `batched`."""

    trace: TraceBatch
    label: tuple[int | None, ...] = ()
    name: tuple[str, ...] = ()  # `refused` holds for every image of the batch


@runtime_checkable
class Measure(Protocol):
    """Protocol of a measure: arrays computed from the trace of one image.

    A measure whose attribute `batched` is true also accepts a `MeasuredBatch`. `of` then returns arrays with
    a leading image axis, on the model's device; the survey copies the results of all measures to the host at
    once. Quantities for labelled images alone have `labelled`.

    New built-in measures are classes in `measures/`. `vitviz.survey` accepts any object with these members.
    A measure must be immutable, because parts of a survey may run in different processes. Two measures with
    the same name must compute the same numbers, because a resumed survey identifies its measures by name.
    """

    name: str
    says: str  # one-line description for lists of measures
    quantities: tuple[Quantity, ...]

    def of(self, seen: MeasuredImage) -> Mapping[str, Array]:
        """Measure one image.

        Args:
            seen: The image after its forward pass. For entries that do not exist for this image, the measure
                stores the reason in `seen.refused["measure.part"]`; the survey reports it next to the
                averages.

        Returns:
            Float arrays or tensors by quantity name. Shapes follow `Quantity.axes` and are the same for
            every image. A quantity that does not exist for this image (for example, without a label) is left
            out. Entries that do not exist are NaN.

        Raises:
            VitvizError: If the measure does not apply to the checkpoint. The error ends the survey.
        """


@runtime_checkable
class BatchMeasure(Protocol):
    """Protocol of a measure of whole batches. Its results are stored per batch and are not averaged."""

    def together(self, traces: TraceBatch, pictures: Sequence[str]) -> Grams:
        """Return the Gram matrices of a batch of at least four images.

        Args:
            traces: Traces of the batch.
            pictures: One identifier per image, used to verify that two surveys cover the same images.
        """
