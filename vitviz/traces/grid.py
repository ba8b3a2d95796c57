"""The patch grid: the rectangle of the model's input that each token represents.

An image of H x W pixels is cut into rows x cols patches (paper section 3.1). The sequence holds the prefix
tokens first (class, distillation, registers), then the patches in row-major order.
"""

from __future__ import annotations

from dataclasses import dataclass

from vitviz.traces.display import NotebookDisplay

Size = tuple[int, int]  # height and width in pixels


@dataclass(frozen=True)
class Grid(NotebookDisplay):
    """Rows and columns of patches, the patch size in pixels, and the names of the prefix tokens.

    `patch` is (height, width). `prefix_names` is in sequence order.

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
        """Number of tokens before the first patch."""
        return len(self.prefix_names)

    @property
    def patches(self) -> int:
        """Number of patches."""
        return self.rows * self.cols

    @property
    def tokens(self) -> int:
        """Length of the sequence: prefix tokens and patches."""
        return self.prefix + self.patches

    @property
    def pixels(self) -> tuple[int, int]:
        """Height and width of the model's input in pixels."""
        return self.rows * self.patch[0], self.cols * self.patch[1]

    def sequence(self, patches: int) -> Grid:
        """Return a grid of `patches` patches in one row, with the same prefix.

        It describes the sequence after patches were dropped.

        >>> Grid(2, 2, (8, 8), ("class",)).sequence(3).tokens
        4
        """
        return Grid(1, patches, self.patch, self.prefix_names)

    def token(self, row: int, col: int) -> int:
        """Return the index of a patch's token in the sequence, where prefix tokens come before the patches.

        Raises IndexError outside the grid.
        """
        if not (0 <= row < self.rows and 0 <= col < self.cols):
            detail = f"the grid has {self.rows} rows and {self.cols} columns, counted from 0"
            raise IndexError(f"No patch at row {row}, column {col}: {detail}.")
        return self.prefix + row * self.cols + col

    def cell(self, token: int) -> tuple[int, int]:
        """Return the (row, col) of a patch from its sequence index; raise IndexError for any other token."""
        if not self.prefix <= token < self.tokens:
            detail = f"patches are tokens {self.prefix} to {self.tokens - 1}"
            raise IndexError(f"Token {token} is no patch: {detail}.")
        return divmod(token - self.prefix, self.cols)

    def patch_at(self, x: float, y: float) -> int:
        """Return the sequence index of the patch at a point of the input, in pixels (x right, y down).

        Raises IndexError for a point outside the input.
        """
        height, width = self.pixels
        if not (0 <= x < width and 0 <= y < height):
            raise IndexError(f"The point ({x}, {y}) lies outside of the input of {width} x {height} pixels.")
        return self.token(int(y // self.patch[0]), int(x // self.patch[1]))
