"""Plates as the frames of a film: pixels of one even size, everything in one place, its label above each."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import matplotlib.style
import numpy as np
from jaxtyping import UInt8
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from vitviz.figures.paper.layout import alike, laid_out, painted
from vitviz.figures.paper.pen import DARK, LIGHT, Pen
from vitviz.figures.paper.plates import Plate
from vitviz.figures.paper.sheet import OURS, one_at_a_time, spoken


class Reel:
    """A frame for each plate, `across` pixels wide, drawn when it is asked for; `labels` stand above them."""

    def __init__(
        self,
        plates: Sequence[Plate],
        labels: Sequence[str],
        across: int,
        dark: bool = False,
        say: Callable[[str], str] = str,
        language: str = "en",
    ):
        self._plates, self._ink, self._width = plates, DARK if dark else LIGHT, plates[0].width
        self._letters, self._say = spoken(language, say)
        told = zip(plates, labels, strict=True)
        self._layouts = alike(
            [laid_out(plate, self._width, self._letters, self._say, label) for plate, label in told]
        )
        self._dpi = across / self._width * 25.4
        tall = self._layouts[0].height / 25.4 * self._dpi
        self.size = (across, 2 * int(np.ceil(tall / 2)))  # H.264 halves both sides for its colours

    def __len__(self) -> int:
        return len(self._plates)

    def __getitem__(self, number: int) -> UInt8[np.ndarray, "tall wide 3"]:
        """A frame, counted from 0."""
        (across, down), dpi = self.size, self._dpi
        with one_at_a_time, matplotlib.style.context(["default", OURS]):
            inches = [(side + 1e-3) / dpi for side in self.size]  # matplotlib cuts what follows the point
            figure = Figure(figsize=inches, dpi=dpi)
            canvas = FigureCanvasAgg(figure)
            height = down / dpi * 25.4
            pen = Pen(figure, self._width, height, self._letters, self._ink, self._say, raster=True)
            painted(pen, self._plates[number], self._layouts[number])
            canvas.draw()
            return np.asarray(canvas.buffer_rgba())[:down, :across, :3].copy()


__all__ = ["Reel"]
