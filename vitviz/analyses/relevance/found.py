"""What a method found: one raw number a patch, and what the numbers add up to where that means anything."""

from __future__ import annotations

from dataclasses import dataclass, field

from jaxtyping import Float
from torch import Tensor

from vitviz.shown import Shown


@dataclass(frozen=True, eq=False)
class Relevance(Shown):
    """A map, before any scaling for display.

    `explained` = map + prefix tokens' share + constants, in units of the answer (the logit); None where the
    method's numbers are in no units that add up to it. `unexplained` = answer - explained. `prefix` is the
    prefix tokens' sum (None where the method gives them none), `constants` what biases and other parts that
    are no patch give, by kind.
    """

    method: str
    map: Float[Tensor, "row col"]
    answer: float  # the logit, the difference of two, or the value along a direction
    at: str = ""  # where it was read: "tokens", "pixels", "layer 3", or a place in words
    prefix: float | None = None
    constants: dict[str, float] = field(default_factory=dict)
    adds_up: bool = False  # whether the sum is an account of the answer, exact or not
    signed: bool = True  # whether a number below zero speaks against the answer

    @property
    def explained(self) -> float | None:
        if not self.adds_up:
            return None
        return self.map.double().sum().item() + (self.prefix or 0.0) + sum(self.constants.values())

    @property
    def unexplained(self) -> float | None:
        return None if self.explained is None else self.answer - self.explained

    @property
    def nothing_positive(self) -> bool:
        """Whether no patch speaks for the answer, or none more than another: to be said in a sentence, not
        drawn blank.
        """
        return not bool((self.map > max(0.0, self.map.min().item())).any())
