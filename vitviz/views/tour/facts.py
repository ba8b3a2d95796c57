"""What the words of the guided tour depend on, and what one of its steps consists of.

A text is English with names in braces, the key of its translation, and the values that the page fills in.
What a model does not have is said, with the reason, and not skipped: a step is as much about why something is
there. Formulas are plain text in which _{} and ^{} mark indices; the page builds them from elements.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Facts:
    """What the words depend on."""

    grid: tuple[int, int]
    patch: tuple[int, int]
    prefix: tuple[str, ...]
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
    prefix_read: bool = False  # attention pooling asks the prefix tokens too; other pools' names say it
    root_scale: bool = True  # scores are divided by the root of d
    accounted: bool = True  # there is an account of its logits that adds up
    score: str = ""  # of given classes, what makes probabilities of their cosines

    @property
    def sequence(self) -> str:
        """The rows of equation 1 before E_pos, as a formula."""
        return "; ".join([*self.front, "x_{p}^{1}E", "…", "x_{p}^{N}E"])

    @property
    def front(self) -> list[str]:
        """The prefix tokens as symbols."""
        symbols = {"class": "x_{class}", "distillation": "x_{dist}"}
        registers = ["x_{reg}^{1}", "…"] * any(name.startswith("register") for name in self.prefix)
        return [symbols[name] for name in self.prefix if name in symbols] + registers

    @property
    def patches(self) -> int:
        return self.grid[0] * self.grid[1]

    @property
    def tokens(self) -> int:
        return self.patches + len(self.prefix)

    @property
    def numbers(self) -> int:
        return self.patch[0] * self.patch[1] * 3

    @property
    def values(self) -> dict[str, Any]:
        """What every text of the tour and its diagram may name."""
        (rows, cols), (tall, wide) = self.grid, self.patch
        found = {"rows": rows, "cols": cols, "tall": tall, "wide": wide, "table": self.position_rows}
        found |= {"height": rows * tall, "across": cols * wide}
        own = "patches tokens numbers width layers heads dim mlp classes".split()
        read = self.width * (2 if self.pool == "class and average" else 1)
        found |= {"read": read, "together": self.layers * self.heads}
        return found | {name: getattr(self, name) for name in own}


@dataclass(frozen=True)
class Step:
    """One stop of the tour, as it travels to the page; texts take the facts' values and its own."""

    name: str
    title: str
    said: tuple[str, ...]
    attempt: str  # one thing to try
    formulas: tuple[str, ...] = ()
    shapes: tuple[str, ...] = ()
    values: dict[str, Any] = field(default_factory=dict)
