"""Model input cut into patches (paper section 3.1, figure 1)."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from vitviz.charts.chart import finite_range
from vitviz.charts.mpl.spec import NARROW, WIDE, FigureSpec, Map, Scale, Tiles
from vitviz.traces.grid import Grid
from vitviz.traces.localized_text import LocalizedText
from vitviz.views.base import PAPER, View, ViewTexts, drawing_item
from vitviz.views.controls import Choice, Slider
from vitviz.views.parts import ExportDefaults, Scope
from vitviz.views.printing import PrintStyle, grid_aspect, patch_tiles, prefix_name
from vitviz.views.subject import Settings, ViewContext

NUMBERED = 28  # most patches in a row with readable numbers
CUT = 0.04  # smallest gap in a printed figure, as a fraction of a patch: edges must show without a pointer
MORE = "{sum} patches of {height} × {width} pixels + {prefix} ({names}) = {tokens} tokens"


class PatchesView(View):
    title = "Patches"
    scope = Scope(needs_no_pass=True)  # all but the norms
    words = ViewTexts.read(__file__, cites=PAPER)
    controls = (
        Choice("form", "Layout", options=(("picture", "Image"), ("sequence", "Sequence"))),
        Slider("gap", "Gap between patches", step=0.05),
    )
    items = (drawing_item("norms", "stage patch", "norm of the embedding, before and after E_pos"),)
    export = ExportDefaults(
        arrays={
            "input_pixels": "pixel_row pixel_col channel",
            "crop_box": "edge",
            "norm_before_position": "patch",
            "norm_after_position": "patch",
            "patch_embedding": "patch width",
            "position_embedded": "patch width",
        }
    )

    def summary(self, subject: ViewContext) -> dict[str, Any]:
        """Return the normalisation's mean and std, and the width of the embedding, for the script."""
        preprocessing = subject.inspector.preprocessing
        return {
            "mean": list(preprocessing.mean),
            "std": list(preprocessing.std),
            "bands": "" if preprocessing.channels == 3 else ", ".join(map(str, preprocessing.bands)),
            "width": subject.inspector.model.embed_dim,
        }

    def item(self, subject: ViewContext, name: str, settings: Settings) -> np.ndarray:
        """Return the norm of each patch's embedding before and after E_pos: (stage, patch).

        The second stage is NaN if the model adds no E_pos.
        """
        trace = subject.trace
        before = trace.patch_embedding.norm(dim=-1).numpy()
        after = np.full_like(before, np.nan)
        if trace.position_embedded is not None:
            after = trace.position_embedded.norm(dim=-1).numpy()
        return np.stack([before, after])

    def numbers(self, subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
        """Return the input pixels, crop box, patch embeddings and their norms, for export."""
        (before, after), trace = self.item(subject, "norms", settings), subject.trace
        result = {
            "input_pixels": trace.view.picture,
            "crop_box": np.asarray(trace.view.box),
            "norm_before_position": before,
            "norm_after_position": after,
            "patch_embedding": trace.patch_embedding.numpy(),
        }
        if trace.position_embedded is not None:
            result["position_embedded"] = trace.position_embedded.numpy()
        return result


def spec(view: View, subject: ViewContext, settings: Settings, style: PrintStyle) -> FigureSpec:
    """Return the patches as the model receives them; with detail the norms of their embeddings."""
    grid, picture = subject.grid, subject.trace.view.picture
    (high, wide), rows, cols, sequence = grid.patch, grid.rows, grid.cols, settings["form"] == "sequence"
    patches = picture.reshape(rows, high, cols, wide, 3).swapaxes(1, 2)
    patches, notes = (
        patches.reshape(grid.patches, high, wide, 3),
        (_patch_count_text(grid, subject.trace.kept),),
    )
    gap, aspect = CUT + 0.3 * settings["gap"], high / wide
    if sequence:
        across = min(grid.patches, max(20, int(np.ceil(np.sqrt(2 * grid.patches)))))
        numbers = tuple(str(i + 1) for i in range(grid.patches)) if across <= NUMBERED else ()
        title = LocalizedText("In sequence order")
        main = Tiles(patches, across, title, numbers, gap=max(gap, 0.1), aspect=aspect)
    else:
        main = patch_tiles(grid, patches, gap=gap, aspect=aspect)
    if not style.detail:
        return FigureSpec(((main,),), notes, width=WIDE if sequence else NARROW)
    norms = np.asarray(view.item(subject, "norms", settings), float).reshape(2, rows, cols)
    titles = (LocalizedText("Embedding norm"), LocalizedText("… with position embedding"))
    maps = tuple(
        Map("", None, norm, None, Scale("viridis", *finite_range(norm), title), aspect=grid_aspect(grid))
        for norm, title in zip(norms, titles, strict=True)
        if np.isfinite(norm).any()
    )
    if sequence:
        return FigureSpec(((main,), maps), notes, width=WIDE)
    return FigureSpec(((main, *maps),), notes, ((1.5, *[1.0] * len(maps)),), WIDE)


def _patch_count_text(grid: Grid, kept: Sequence[int] | None) -> LocalizedText:
    """Return the text with the numbers of patches and tokens; `kept` are the remaining patches, or None."""
    (tall, wide), count = grid.patch, grid.patches if kept is None else len(kept)
    left = "" if kept is None else f" − {grid.patches - count}"
    text = f"{grid.rows} × {grid.cols}{left} = {count}"
    details = {"sum": text, "height": tall, "width": wide, "tokens": count + grid.prefix}
    if not grid.prefix:
        return LocalizedText("{sum} patches of {height} × {width} pixels: {tokens} tokens", **details)
    names = prefix_name(grid.prefix_names[0]) if grid.prefix == 1 else ", ".join(grid.prefix_names)
    return LocalizedText(MORE, prefix=grid.prefix, names=names, **details)
