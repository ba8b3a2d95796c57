"""Facts about a model that the texts of the guided tour depend on, and the parts of a step.

A text is English with names in braces; it is the key of its translations, and the page fills in the values. A
step is never skipped: if a model lacks a part, the step says so and gives the reason. Formulas are plain text
in which _{} and ^{} mark indices; the page builds them from elements.
"""

from dataclasses import dataclass, field
from typing import Any

from vitviz.traces.grid import Grid


@dataclass(frozen=True)
class Facts:
    """Facts about a model and input that the texts depend on."""

    grid: Grid
    width: int
    layers: int
    heads: int
    dim: int
    mlp: int | None
    classes: int
    named: bool  # the classes have names
    pool: str
    positions: str  # learned, rotary, relative, joined by " + ", or none
    position_rows: int
    stem: bool
    plain_blocks: bool
    layer_scale: bool
    norm_before_blocks: bool
    prefix_read: bool = (
        False  # attention pooling reads the prefix tokens too; other pools say so in their names
    )
    root_scale: bool = True  # scores are divided by the root of d
    accounted: bool = True  # its logits have an exact decomposition
    score: str = ""  # for classes given as vectors: the function from cosines to probabilities
    head_type: str = "softmax"  # interpretation of the logits, also for classes given as vectors

    @property
    def sequence(self) -> str:
        """Return the rows of equation 1 before E_pos, as a formula."""
        return "; ".join([*self.front, "x_{p}^{1}E", "…", "x_{p}^{N}E"])

    @property
    def front(self) -> list[str]:
        """Return the symbols of the prefix tokens, as formulas."""
        symbols = {"class": "x_{class}", "distillation": "x_{dist}"}
        names = self.grid.prefix_names
        registers = ["x_{reg}^{1}", "…"] * any(name.startswith("register") for name in names)
        return [symbols[name] for name in names if name in symbols] + registers

    @property
    def numbers(self) -> int:
        """Return how many numbers a patch has: height · width · 3."""
        return self.grid.patch[0] * self.grid.patch[1] * 3

    @property
    def values(self) -> dict[str, Any]:
        """Return the values that every text of the tour and its diagram may use."""
        grid, (tall, wide), (height, across) = self.grid, self.grid.patch, self.grid.pixels
        result = {"rows": grid.rows, "cols": grid.cols, "tall": tall, "wide": wide, "height": height}
        result |= {"across": across, "patches": grid.patches, "tokens": grid.tokens}
        fields = "numbers width layers heads dim mlp classes".split()
        read = self.width * (2 if self.pool == "class and average" else 1)
        result |= {"read": read, "together": self.layers * self.heads, "table": self.position_rows}
        return result | {name: getattr(self, name) for name in fields}


@dataclass(frozen=True)
class Step:
    """Step of the tour as sent to the page; its texts use the values of the facts and its own."""

    name: str
    title: str
    said: tuple[str, ...]
    attempt: str  # one thing to try
    formulas: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
