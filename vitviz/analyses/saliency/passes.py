"""Interface between saliency methods and an engine: the values that a method may request, and its result.

No method knows a model. Everything beyond the trace (gradients, logits of the image without some patches)
comes from an object with this interface, which computes each value once, on first use. Tests pass closed
forms instead. The result is a `SaliencyMap`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from jaxtyping import Float, Int
from torch import Tensor

from vitviz.analyses.readout_stage import ReadoutStage
from vitviz.analyses.target import TargetLike
from vitviz.traces.display import NotebookChart
from vitviz.traces.localized_text import LocalizedText
from vitviz.traces.trace import Trace

CONVERGED = "{steps} steps. The last doubling changed the map by {change} %. The sum is off by {gap}."
NOT_CONVERGED = (
    "{steps} steps, the limit. The last doubling still changed the map by {change} %, so the map"
    " is not reliable. The sum is off by {gap}."
)
STEPS_SET = (
    "{steps} steps, as set. Whether more steps would change the map was not tested. The sum is off by {gap}."
)
KINDS = ("linear biases", "norm biases", "positions", "prefix tokens")  # constants, as terms of an account


@dataclass(frozen=True)
class WeightedAttention:
    """Attention of one layer after the softmax, and the gradient of the score with respect to it."""

    attention: Float[Tensor, "head query key"]
    gradient: Float[Tensor, "head query key"]

    @property
    def product(self) -> Float[Tensor, "head query key"]:
        """The attention times its gradient, entry by entry: (head, query, key)."""
        return self.attention * self.gradient


@dataclass(frozen=True)
class Gradients:
    """Values times gradients of one pass, in units of the score s; layers count from 0.

    `tokens` has one row for the input of each block and one for the output of the last. `constants` has, for
    each kind, the biases (and other constants) of each block, times their gradients: first those before the
    first block, last those after the last block. `attentions` is empty if attention was held.
    """

    answer: float
    tokens: Float[Tensor, "depth token"]
    constants: Mapping[str, Float[Tensor, " place"]]
    pixels: Float[Tensor, "row col"] | None = None  # per patch; None if patches are not cut from pixels
    attentions: tuple[WeightedAttention, ...] = ()
    pooling: WeightedAttention | None = None
    activations: Float[Tensor, "patch width"] | None = None  # at Grad-CAM's place; None if there is none
    slopes: Float[Tensor, "patch width"] | None = None  # the gradient at that place

    def constants_after(self, depth: int) -> dict[str, float]:
        """Return the sum of constants from block `depth` on, by kind; `depth` -1 sums all, as for pixels."""
        return {kind: values[depth + 1 :].sum().item() for kind, values in self.constants.items()}


@dataclass(frozen=True)
class PathGradients:
    """Integrated gradients: gradients on the line from an empty image to the image, times the difference."""

    pixels: Float[Tensor, "row col"]
    start: float  # score of the empty image
    steps: int  # Gauss-Legendre nodes


@runtime_checkable
class Passes(Protocol):
    """Values that an engine computes for one image and one target."""

    trace: Trace
    target: TargetLike
    # the explained score, as the model gave it: a logit, the difference of two, or a value along a direction
    answer: float

    def tail(self) -> ReadoutStage:
        """Return the readout stage; raise UnsupportedModel, with the reason, if it is not supported."""

    def ledger(self):
        """Return the class-independent attribution terms, whose balance has been checked."""

    def gradients(self) -> Gradients:
        """Return the model's own gradients."""

    def frozen_gradients(self) -> Gradients:
        """Return the gradients of the frozen linear map."""

    def path(self, steps: int) -> PathGradients:
        """Return the gradients on the path from the mean colour, at `steps` Gauss-Legendre nodes."""

    def answers(self, kept: Int[Tensor, "batch patch"]) -> Float[Tensor, "batch class"]:
        """Return the logits of the image with only the patches `kept`, numbered from 0 without the prefix."""

    def patches(
        self, handed: Float[Tensor, "head token dim"] | None, alone: bool
    ) -> Float[Tensor, "token class"]:
        """Return each token's own logits after the last block; for a direction, the value along it.

        `handed` replaces the outputs of the block's heads (None: unchanged). If `alone`, the block's input
        and its MLP are not added.
        """

    def cam_place(self) -> str:
        """Return in words where Grad-CAM reads activations; raise UnsupportedModel if there is no place."""


@dataclass(frozen=True, eq=False)
class SaliencyMap(NotebookChart):
    """A saliency map before any scaling for display.

    `explained` = map + prefix tokens' sum + constants, in units of the score (the logit); None if the
    method's numbers do not add up to it. `unexplained` = answer - explained. `prefix` is the prefix tokens'
    sum (None for none). `constants` are the contributions of biases and other components without a patch, by
    kind.
    """

    method: str
    map: Float[Tensor, "row col"]
    answer: float  # the logit, the difference of two, or the value along a direction
    at: str = ""  # place of the values: "tokens", "pixels", "layer 3", or a place in words
    prefix: float | None = None
    constants: dict[str, float] = field(default_factory=dict)
    adds_up: bool = False  # True if the sum accounts for the score, exactly or not
    signed: bool = True  # True if a number below zero lowers the score
    # Of integrated gradients: number of nodes; relative L1 change of the map at the last doubling, None where
    # `steps` was set; and whether that change was small enough, False if the limit was reached first.
    steps: int | None = None
    change: float | None = None
    converged: bool | None = None

    @classmethod
    def from_patches(
        cls, method: str, passes: Passes, patches: Float[Tensor, " patch"], at: str, **details
    ) -> "SaliencyMap":
        """Return the saliency map of one value per patch; patches are in row-major order."""
        cells = passes.trace.grid.rows, passes.trace.grid.cols
        return cls(method, patches.double().unflatten(0, cells), passes.answer, at, **details)

    @property
    def explained(self) -> float | None:
        """The sum of map, prefix tokens and constants, in units of the score; None if not `adds_up`."""
        if not self.adds_up:
            return None
        return self.map.double().sum().item() + (self.prefix or 0.0) + sum(self.constants.values())

    @property
    def unexplained(self) -> float | None:
        """The score minus `explained`, in units of the score; None if not `adds_up`."""
        return None if self.explained is None else self.answer - self.explained

    @property
    def convergence(self) -> LocalizedText | str:
        """Return the convergence of integrated gradients in one sentence; empty for other methods."""
        if self.steps is None:
            return ""
        details = {"steps": self.steps, "gap": f"{abs(self.unexplained):.3g}"}
        if self.change is None:
            return LocalizedText(STEPS_SET, **details)
        details["change"] = f"{100 * self.change:.2g}"
        return LocalizedText(CONVERGED if self.converged else NOT_CONVERGED, **details)

    @property
    def nothing_positive(self) -> bool:
        """True if no patch raises the score, or all raise it equally: reported, not drawn as a blank map."""
        return not bool((self.map > max(0.0, self.map.min().item())).any())
