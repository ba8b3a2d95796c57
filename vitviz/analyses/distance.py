"""Attention distance: how far a head attends, in pixels of the model's input.

    d_ij = sqrt((P_r (row_i - row_j))^2 + (P_c (col_i - col_j))^2)
    D(l, h) = 1/N_p sum_i sum_j A_ij d_ij

over patch queries i and patch keys j. The rows and columns of prefix tokens are dropped and the rows not
renormalised, as in the authors' own code (google-research/vision_transformer, issue 162). `renormalise`
divides each row by its mass on patches instead (vit_analysis, CVPR 2023). Source: Dosovitskiy et al. 2021,
figures 7 right and 11, section D.7.

The distance does not show where a head attends, nor whether the prediction depends on it. A head with most of
its mass on the class token has a short distance without renormalisation: compare it with the prefix mass.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses import attention_kernel
from vitviz.analyses.streaming import Reading, by_images, distance_totals, read_layer, row_sums, sum_columns
from vitviz.traces.display import NotebookChart
from vitviz.traces.grid import Grid
from vitviz.traces.trace import Attention, Trace, TraceBatch


def pixel_distances(grid: Grid) -> Float[Tensor, "patch patch2"]:
    """Return the distance in pixels between the centres of every two patches, float32: (patch, patch).

    Patches are in sequence order. Source: paper section D.7. Raises nothing.

    >>> pixel_distances(Grid(rows=2, cols=2, patch=(3, 4)))[0].tolist()
    [0.0, 4.0, 3.0, 5.0]
    """
    rows = torch.arange(grid.rows, dtype=torch.float32) * grid.patch[0]
    cols = torch.arange(grid.cols, dtype=torch.float32) * grid.patch[1]
    down = (rearrange(rows, "row -> row 1") - rows).square_()
    across = (rearrange(cols, "col -> col 1") - cols).square_()
    squares = rearrange(down, "row row2 -> row 1 row2 1") + rearrange(across, "col col2 -> 1 col 1 col2")
    return rearrange(squares.sqrt_(), "row col row2 col2 -> (row col) (row2 col2)")


def token_distances(trace: Trace | TraceBatch) -> Float[Tensor, "token token2"]:
    """Return the distances in pixels between all tokens of a pass, in the dtype of its queries."""
    return _token_distances_in_float32(trace).to(trace.layers[0].q)


def _token_distances_in_float32(trace: Trace | TraceBatch) -> Float[Tensor, "token token2"]:
    """Return the distances in pixels between all tokens of a pass, in float32: (token, token).

    0 to and from prefix tokens; dropped patches are left out.
    """
    lengths = pixel_distances(trace.grid)
    if trace.kept is not None:  # the mean is then over the remaining patches
        kept = list(trace.kept)
        lengths = lengths[kept][:, kept]
    return F.pad(lengths, (trace.grid.prefix, 0, trace.grid.prefix, 0))


@dataclass(frozen=True)
class Distances(NotebookChart):
    """Attention distance of every head, by both conventions, and its attention mass on prefix tokens."""

    distance: Float[Tensor, "*image layer head"]  # px, rows not renormalised
    renormalised: Float[Tensor, "*image layer head"]  # px, each row divided by its mass on patches
    prefix_mass: Float[Tensor, "*image layer head"]  # between 0 and 1


def join_layer_readings(readings: Sequence[Reading], like: Tensor) -> Distances:
    """Return the layers' readings stacked to (layer, head) tensors, in the dtype and device of `like`."""
    names = ("distance", "renormalised", "prefix_mass")
    return Distances(*(torch.stack([getattr(one, name) for one in readings]).to(like) for name in names))


def distances(trace: Trace | TraceBatch) -> Distances:
    """Return attention distance by both conventions and prefix mass, in one pass over the attention.

    Returns:
        `Distances` of (layer, head) tensors, of a batch (image, layer, head): distances in pixels of the
            model's input, masses from 0 to 1.

    Source: see the module. Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> measured = distances(example_trace(Grid(14, 14, (16, 16), ("class",))))  # its attention is uniform
    >>> [round(value[0, 0].item(), 3) for value in (measured.distance, measured.renormalised)]
    [115.901, 116.492]
    """
    if not trace.tokens[0].is_cpu:
        return Distances(*head_sums(trace))
    if isinstance(trace, TraceBatch):
        result = [vars(distances(one)) for one in trace]
        return Distances(**{name: torch.stack([one[name] for one in result]) for name in result[0]})
    lengths, prefix = token_distances(trace), trace.grid.prefix
    return join_layer_readings([read_layer(one, prefix, lengths) for one in trace.layers], lengths)


def head_sums(trace: Trace | TraceBatch, entropy: bool = False) -> Float[Tensor, "value *image layer head"]:
    """Return by head the three values of `Distances` and, with `entropy`, the entropy; not on a CPU."""
    prefix, stored = trace.grid.prefix, getattr(trace.layers, "stored", trace.layers)
    lengths = _token_distances_in_float32(trace)
    if attention_kernel.applies(stored):
        sums = attention_kernel.row_sums(stored, lengths, prefix)
    else:
        columns = sum_columns(prefix, lengths).to(trace.layers[0].q)

        def read(attention: Attention) -> Tensor:
            return row_sums(attention, columns, entropy=entropy)[0]

        sums = torch.stack([by_images(read, one) for one in trace.layers])
    result = distance_totals(sums[..., prefix:, :3]) / (trace.length - prefix)
    if entropy:
        result = torch.cat([result, sums[..., 3].double().mean(dim=-1)[None]])
    return result.movedim(1, -2).to(torch.promote_types(stored[0].q.dtype, torch.float32))


def attention_distance(trace: Trace, renormalise: bool = False) -> Float[Tensor, "layer head"]:
    """Return the mean attention distance of every head.

    Args:
        trace: the trace.
        renormalise: divide each row by its mass on patches; otherwise attention to prefix tokens counts as
            distance 0.

    Returns:
        (layer, head), in pixels of the model's input.

    Source: paper figure 7 right, section D.7. Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> attention_distance(example_trace(Grid(14, 14, (16, 16), ("class",)), layers=2, heads=3)).shape
    torch.Size([2, 3])
    """
    measured = distances(trace)
    return measured.renormalised if renormalise else measured.distance


def prefix_mass(trace: Trace) -> Float[Tensor, "layer head"]:
    """Return the attention mass that patches spend on prefix tokens, by head.

    Returns:
        (layer, head), from 0 to 1, mean over the patch queries; 0 without prefix tokens.

    Source: reported with the distance, whose rows it explains. Raises nothing.

    >>> from vitviz.analyses.example import example_trace
    >>> round(prefix_mass(example_trace(Grid(3, 3, (16, 16), ("class",))))[0, 0].item(), 3)
    0.1
    """
    return distances(trace).prefix_mass


def uniform_distance(grid: Grid, renormalise: bool = False, kept: Sequence[int] | None = None) -> float:
    """Return the attention distance in pixels of uniform attention over all tokens of a grid.

    `renormalise` selects the same convention as in `attention_distance`. `kept` are the remaining patches,
    from 0, if others were dropped (`Trace.kept`). For a whole grid, each row and column offset is counted as
    often as it occurs, so no N x N matrix is made. Raises nothing.

    >>> round(uniform_distance(Grid(7, 7, (32, 32)), renormalise=True), 3)
    115.503
    """

    if kept is not None:
        places, count = list(kept), len(kept)
        total = pixel_distances(grid)[places][:, places].sum(dtype=torch.float64)
        return total.item() / (count * (count if renormalise else count + grid.prefix))

    def steps(count: int, size: int) -> tuple[Tensor, Tensor]:
        step = torch.arange(count, dtype=torch.float64)
        return step * size, torch.where(step == 0, count, 2 * (count - step))

    down, down_count = steps(grid.rows, grid.patch[0])
    across, across_count = steps(grid.cols, grid.patch[1])
    lengths = torch.hypot(rearrange(down, "row -> row 1"), across)
    total = down_count @ lengths @ across_count
    return total.item() / (grid.patches * (grid.patches if renormalise else grid.tokens))
