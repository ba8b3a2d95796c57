"""The patch grid: which token stands for which rectangle of the model's input.

A picture of H x W pixels is cut into rows x cols patches (paper section 3.1). The sequence holds the prefix
tokens first (class, distillation, registers), then the patches in row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass

from vitviz.traces.display import NotebookDisplay


@dataclass(frozen=True)
class Grid(NotebookDisplay):
    """Rows and columns of patches, their size in pixels, and prefix tokens' names in sequence order.

    >>> grid = Grid(rows=14, cols=14, patch=(16, 16), prefix_names=("class",))
    >>> grid.tokens, grid.token(row=0, col=1), grid.cell(15)
    (197, 2, (1, 0))
    """

    rows: int
    cols: int
    patch: tuple[int, int]
    prefix_names: tuple[str, ...] = ()

    @property
    def prefix(self) -> int:
        """How many tokens stand before the first patch."""
        return len(self.prefix_names)

    @property
    def patches(self) -> int:
        """How many patches the picture has."""
        return self.rows * self.cols

    @property
    def tokens(self) -> int:
        """The length of the sequence: prefix and patches."""
        return self.prefix + self.patches

    @property
    def pixels(self) -> tuple[int, int]:
        """Height and width in pixels of the model's input."""
        return self.rows * self.patch[0], self.cols * self.patch[1]

    def sequence(self, patches: int) -> Grid:
        """So many of the patches one after the other, behind the same prefix: where the others were left out.

        >>> Grid(2, 2, (8, 8), ("class",)).sequence(3).tokens
        4
        """
        return Grid(1, patches, self.patch, self.prefix_names)

    def token(self, row: int, col: int) -> int:
        """The sequence index of a patch, prefix tokens counted."""
        if not (0 <= row < self.rows and 0 <= col < self.cols):
            raise IndexError(
                f"No patch at row {row}, column {col}: the grid has {self.rows} rows and {self.cols} columns,"
                " counted from 0."
            )
        return self.prefix + row * self.cols + col

    def cell(self, token: int) -> tuple[int, int]:
        """Row and column of a patch token."""
        if not self.prefix <= token < self.tokens:
            raise IndexError(
                f"Token {token} is no patch: patches are tokens {self.prefix} to {self.tokens - 1}."
            )
        return divmod(token - self.prefix, self.cols)

    def patch_at(self, x: float, y: float) -> int:
        """The token of the patch under a pixel of the model's input (x to the right, y down)."""
        height, width = self.pixels
        if not (0 <= x < width and 0 <= y < height):
            raise IndexError(f"The point ({x}, {y}) lies outside of the input of {width} x {height} pixels.")
        return self.token(int(y // self.patch[0]), int(x // self.patch[1]))
