"""Similarity of position embeddings (paper figure 7 centre, figure 10)."""

from typing import Any

import numpy as np

from vitviz import analyses
from vitviz.charts.mpl.spec import WIDE, FigureSpec, Map, Matrix, PatchFrame, Scale
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.base import PAPER, Needs, View, ViewTexts, drawing_item
from vitviz.views.controls import Choice
from vitviz.views.parts import ExportDefaults, Scope
from vitviz.views.printing import PrintStyle, grid_aspect, join_texts, patch_name, patch_tiles, place_name
from vitviz.views.subject import Settings, ViewContext

_INSTEAD = {
    "rotary": "it rotates queries and keys by an angle that grows with row and column (rotary embedding)",
    "relative": (
        "it adds a learned bias to the attention scores that depends on the distance between two patches "
        "(relative position bias)"
    ),
    "none": "it has no position information besides what its stem provides",
}
MOST = 1024  # most patches for which all training snapshots are compared; takes a second
EXTRA_TEXTS = (*_INSTEAD.values(),)


class PositionsView(View):
    title = "Positions"
    needs = Needs.WEIGHTS
    scope = Scope(needs_no_pass=True)
    words = ViewTexts.read(__file__, cites=PAPER)
    controls = (
        Choice("form", "Show", options=(("tiles", "Tiles"), ("matrix", "Matrix"))),
        Choice("scale", "Scale", options=(("data", "From lowest to highest"), ("full", "From -1 to 1"))),
    )
    items = (drawing_item("similarity", "patch patch", "cosine of two position embeddings", dtype="float16"),)
    export = ExportDefaults(
        arrays={"similarity": "row col row col", "position_embeddings": "patch width"},
        endpoint="position_similarity",
    )

    def unsupported(self, subject: ViewContext) -> str | None:
        """Return the reason if the model has no learned absolute position embeddings; else None."""
        kind = subject.inspector.position_kind()
        if subject.inspector.position_table() is not None:
            return None
        how = _INSTEAD.get(kind) or LocalizedText("it uses {kind} positions", kind=kind)
        return LocalizedText(
            "{checkpoint} has no learned table of absolute position embeddings: {how}. So there is no"
            " similarity of position embeddings to draw.",
            checkpoint=subject.checkpoint,
            how=how,
        )

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """Return the range of the cosines of different patches over all training snapshots.

        Colours are therefore comparable between snapshots. At large sizes only this snapshot is used.
        """
        low, high = subject.once_of_weights("ends", lambda: self._cosine_range(subject)).tolist()
        return {"minimum": low, "maximum": high, "kind": subject.inspector.position_kind()}

    def _cosine_range(self, subject: ViewContext) -> np.ndarray:
        """Return the lowest and highest cosine of different patches over all training snapshots.

        Above MOST patches, only this snapshot counts; (-1, 1) if both ends are equal.
        """
        grid, ends = subject.grid, []
        few = grid.patches <= MOST
        for table in subject.inspector.position_tables(grid.pixels) if few else [self._table(subject)]:
            result = _cosines(table, grid)
            if grid.patches > 1:
                np.fill_diagonal(result, result[0, 1])
            ends += [float(result.min()), float(result.max())]
        low, high = min(ends), max(ends)
        return np.array((low, high) if low < high else (-1.0, 1.0))

    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return the cosine of the position embeddings of every two patches: (patch, patch)."""
        return subject.once_of_weights("similarity", lambda: _cosines(self._table(subject), subject.grid))

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """Return the cosines, (row, col, row, col), and the position embeddings, for export."""
        grid = subject.grid
        similarity = self.item(subject, "similarity", settings).reshape(2 * (grid.rows, grid.cols))
        return {"similarity": similarity, "position_embeddings": self._table(subject).numpy()}

    def _table(self, subject: ViewContext):
        """Return the position embeddings at the subject's input size: (patch, width)."""
        return subject.inspector.position_table(subject.grid.pixels)


def spec(view: View, subject: ViewContext, settings: Settings, style: PrintStyle) -> FigureSpec:
    """Return all similarities as tiles or one matrix; with detail also the middle patch's, enlarged."""
    grid = subject.grid
    similarity = np.asarray(view.item(subject, "similarity", settings), np.float32)
    maps = similarity.reshape(grid.patches, grid.rows, grid.cols)
    details = view.summary(subject) if settings["scale"] == "data" else {"minimum": -1.0, "maximum": 1.0}
    scale = Scale("viridis", details["minimum"], details["maximum"], LocalizedText("Cosine similarity"))
    if settings["form"] == "matrix":
        label = LocalizedText("Input patch number")
        main = Matrix(similarity, scale, label, label, step=grid.cols)
    else:
        main = patch_tiles(grid, maps, aspect=grid.rows / grid.cols, scale=scale)
    if not style.detail:
        return FigureSpec(((main,),), width=112.0)
    middle = grid.rows // 2 * grid.cols + grid.cols // 2
    title = join_texts(patch_name(middle), place_name(grid, middle))
    panel = Map(title, None, maps[middle], None, scale, marks=(PatchFrame(middle),), aspect=grid_aspect(grid))
    return FigureSpec(((main, panel),), weights=((1.9, 1.0),), width=WIDE)


def _cosines(table, grid) -> np.ndarray:
    """Return the cosine of every two rows of a table of position embeddings: (patch, patch)."""
    return analyses.position_similarity(table, grid).reshape(grid.patches, -1).numpy()
