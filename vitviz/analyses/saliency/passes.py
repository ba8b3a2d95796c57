"""What a method may ask for: values that an engine computes, and the interface through which they are asked.

No method knows a model. What it needs beyond the trace (gradients, answers to the picture without some
patches) it gets from an object of this shape, which computes each thing once and when it is first wanted;
tests hand in closed forms. What it finds is a `SaliencyMap`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from vitviz.analyses.readout_stage import ReadoutStage
from vitviz.analyses.target import TargetLike
from vitviz.traces.display import NotebookDisplay
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.trace import Trace

CONVERGED = "{steps} steps. Doubling them last changed the map by {change} %. The sum is off by {gap}."
NOT_CONVERGED = (
    "{steps} steps, the limit. Doubling them last still changed the map by {change} %, so the map is not"
    " reliable. The sum is off by {gap}."
)
STEPS_SET = (
    "{steps} steps, as set: whether more would change the map was not tested. The sum is off by {gap}."
)
KINDS = ("linear biases", "norm biases", "positions", "prefix tokens")  # constants, as lines of an account


@dataclass(frozen=True)
class WeightedAttention:
    """One attention after the softmax, and the gradient of the answer by it."""

    attention: Float[Tensor, "head query key"]
    gradient: Float[Tensor, "head query key"]

    @property
    def product(self) -> Float[Tensor, "head query key"]:
        return self.attention * self.gradient


@dataclass(frozen=True)
class Gradients:
    """One pass's values times gradients, in units of the answer s; layers count from 0.

    `tokens` has a row for what entered each block and one for what the last gave. `constants` has for each
    kind the biases (and other constants) of each block, times their gradients: in the first place those
    before the first block, in the last those behind the last. `attentions` are not there where it was held.
    """

    answer: float
    tokens: Float[Tensor, "depth token"]
    constants: Mapping[str, Float[Tensor, " place"]]
    pixels: Float[Tensor, "row col"] | None = None  # per patch; None where patches are not cut from pixels
    attentions: tuple[WeightedAttention, ...] = ()
    pooling: WeightedAttention | None = None
    activations: Float[Tensor, "patch width"] | None = None  # where Grad-CAM looks; None where it cannot
    slopes: Float[Tensor, "patch width"] | None = None  # the gradient there

    def constants_after(self, depth: int) -> dict[str, float]:
        """The constants behind a depth, by kind: from block `depth` on; -1 for all, pixels' own."""
        return {kind: values[depth + 1 :].sum().item() for kind, values in self.constants.items()}


@dataclass(frozen=True)
class PathGradients:
    """Gradients on the line from an empty picture to the given one, times the way: integrated gradients."""

    pixels: Float[Tensor, "row col"]
    start: float  # the answer to the empty picture
    steps: int  # nodes of Gauss-Legendre


@runtime_checkable
class Passes(Protocol):
    """What an engine computes for one picture and one target."""

    trace: Trace
    target: TargetLike
    # what is explained, as the model gave it: a logit, the difference of two, or a value along a direction
    answer: float

    def tail(self) -> ReadoutStage:
        """The readout; UnsupportedModel, with the reason, where it is not understood."""

    def ledger(self):
        """The trace's ledger, whose balance has been checked."""

    def gradients(self) -> Gradients:
        """The model's own."""

    def held(self) -> Gradients:
        """Those of the frozen linear map."""

    def path(self, steps: int) -> PathGradients:
        """Gradients on the way from the mean colour, at so many nodes of Gauss-Legendre."""

    def answers(self, kept: Int[Tensor, "batch patch"]) -> Float[Tensor, "batch class"]:
        """The logits of the picture with these patches alone, by sequence number from 0."""

    def patches(
        self, handed: Float[Tensor, "head token dim"] | None, alone: bool
    ) -> Float[Tensor, "token class"]:
        """Each token's own logits behind the last block, whose heads hand on what is given (None: their own);
        where its attention stands `alone`, without what entered and its MLP. Of a direction its value.
        """

    def cam_place(self) -> str:
        """Where Grad-CAM looks, in words; UnsupportedModel where that is nowhere."""


@dataclass(frozen=True, eq=False)
class SaliencyMap(NotebookDisplay):
    """A map, before any scaling for display.

    `explained` = map + prefix tokens' share + constants, in units of the answer (the logit); None where the
    method's numbers are in no units that add up to it. `unexplained` = answer - explained. `prefix` is the
    prefix tokens' sum (None for none), `constants` what biases and other parts but patches give, by kind.
    """

    method: str
    map: Float[Tensor, "row col"]
    answer: float  # the logit, the difference of two, or the value along a direction
    at: str = ""  # where it was read: "tokens", "pixels", "layer 3", or a place in words
    prefix: float | None = None
    constants: dict[str, float] = field(default_factory=dict)
    adds_up: bool = False  # whether the sum is an account of the answer, exact or not
    signed: bool = True  # whether a number below zero speaks against the answer
    # of integrated gradients: how many nodes; the relative L1 change of the map when they were last doubled,
    # None where `steps` was set; and whether that was small enough, False where the limit was reached first
    steps: int | None = None
    change: float | None = None
    converged: bool | None = None

    @classmethod
    def from_patches(
        cls, method: str, passes: Passes, patches: Float[Tensor, " patch"], at: str, **told
    ) -> "SaliencyMap":
        """The map of numbers that patches have, one after the other."""
        grid = passes.trace.grid
        return cls(method, patches.double().unflatten(0, (grid.rows, grid.cols)), passes.answer, at, **told)

    @property
    def explained(self) -> float | None:
        if not self.adds_up:
            return None
        return self.map.double().sum().item() + (self.prefix or 0.0) + sum(self.constants.values())

    @property
    def unexplained(self) -> float | None:
        return None if self.explained is None else self.answer - self.explained

    @property
    def convergence(self) -> LocalizedText | str:
        """Return in one sentence how far integrated gradients have converged; empty for other methods."""
        if self.steps is None:
            return ""
        told = {"steps": self.steps, "gap": f"{abs(self.unexplained):.3g}"}
        if self.change is None:
            return LocalizedText(STEPS_SET, **told)
        told["change"] = f"{100 * self.change:.2g}"
        return LocalizedText(CONVERGED if self.converged else NOT_CONVERGED, **told)

    @property
    def nothing_positive(self) -> bool:
        """Whether no patch speaks for the answer, or none more than another: to be said, not drawn blank."""
        return not bool((self.map > max(0.0, self.map.min().item())).any())
