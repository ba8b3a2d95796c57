"""Checks of the weights: finite, trained, distinct, one precision, heads alive, positions with structure.

Initial values: the singular values of a matrix whose entries are independent follow one law, whatever the
distribution of the entries (Marchenko and Pastur 1967). Training moves single values far away from the law.

    d(W) = |s(W) - s0| / |s0|,   W with mean 0 and deviation 1,   limit: 1.7 max d(random matrix)

s are the sorted singular values and s0 their mean over random matrices of the same shape. The distance does
not show how well a matrix is trained.

Position structure: mean cosine of the embeddings of neighbouring patches minus that of all pairs, after the
mean embedding is subtracted. Near 0 for a random table, also for the table of a few training steps. In a
table of the grid's own width, embeddings one row apart are more similar than those at offsets near a row.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import ceil, inf

import torch
from einops import rearrange
from jaxtyping import Float, Float64
from torch import Tensor, nn
from torch.nn.functional import normalize

from vitviz.analyses.similarity import position_similarity
from vitviz.diagnostics.finding import Finding, verdict
from vitviz.diagnostics.subject import CheckSubject
from vitviz.traces import cancellation
from vitviz.traces.grid import Grid
from vitviz.traces.localized_text import LocalizedText

DRAWS, TIMES = 6, 1.7  # random matrices by shape; the limit is so many times their largest distance
UNTRAINED = 0.5  # share of the weight matrices
LEAST = 16  # rows and columns of a matrix whose singular values can be judged
DEAD = 1e-3  # of the median head's length in its layer
EQUAL = 0.999  # cosine of two heads' outputs
STRUCTURE = 0.1
LEAD = 0.05  # of another offset's mean cosine over that of one row
MANY_CONSTANT = 0.1  # share of the biases and norms; single ones may be constant by design
GREY = 0.98  # mean cosine of the channels
VALUES = 256  # different values of 8 bits


def finite(subject: CheckSubject) -> Iterator[Finding]:
    """Find weights that are NaN or infinite."""
    counts = {name: int((~value.isfinite()).sum()) for name, value in subject.model.named_parameters()}
    wrong, total = [name for name, count in counts.items() if count], sum(counts.values())
    yield verdict("not_finite", total, 0, count=total, names=", ".join(wrong[:3]))


@lru_cache(maxsize=64)
def random_values(rows: int, cols: int) -> tuple[Float64[Tensor, " value"], float]:
    """Return the mean singular values of random matrices of a shape, and the largest distance from the mean.

    The distance is relative; every random matrix is compared with the mean of the others.
    """
    generator = torch.Generator().manual_seed(0)
    samples = [torch.randn(rows, cols, generator=generator) for _ in range(DRAWS)]
    values = torch.stack([singular_values(sample) for sample in samples])
    others = (values.sum(dim=0) - values) / (DRAWS - 1)
    return values.mean(dim=0), max(map(_relative_distance, values, others))


def singular_values(matrix: Float[Tensor, "row col"]) -> Float64[Tensor, " value"]:
    """Return the singular values of a matrix with its mean subtracted and its deviation divided out."""
    whole = matrix.detach().double().cpu()
    whole = (whole - whole.mean()) / whole.std()
    gram = whole @ whole.mT if whole.shape[0] <= whole.shape[1] else whole.mT @ whole
    return torch.linalg.eigvalsh(gram).clamp_min(0).sqrt()


def _relative_distance(values: Tensor, mean: Tensor) -> float:
    """Return the norm of (values - mean) divided by that of the mean; both hold singular values."""
    return ((values - mean).norm() / mean.norm()).item()


def matrices(model: nn.Module) -> Iterator[tuple[str, Float[Tensor, "row col"]]]:
    """Yield the weight matrices of a model by name; joint query, key and value matrices one by one."""
    for name, module in model.named_modules():
        if not isinstance(module, nn.Linear | nn.Conv2d) or getattr(module, "weight", None) is None:
            continue
        joint = name.endswith("qkv")
        names = [f"{name} ({part})" for part in ("query", "key", "value")] if joint else [name]
        yield from zip(names, module.weight.flatten(1).chunk(len(names)), strict=True)


def initial(subject: CheckSubject) -> Iterator[Finding]:
    """Yield findings on constant weight matrices, and on how many others have random singular values."""
    constant, ratios = [], {}
    for name, matrix in matrices(subject.model):
        cancellation.check()
        if min(matrix.shape) < LEAST:
            continue
        if matrix.std() == 0:
            constant.append(name)
            continue
        mean, spread = random_values(*matrix.shape)
        ratios[name] = _relative_distance(singular_values(matrix), mean) / spread
    tested, untrained = len(constant) + len(ratios), [name for name, ratio in ratios.items() if ratio < TIMES]
    source = LocalizedText("{count} random matrices of each shape", count=DRAWS)
    counts = {"count": len(untrained), "tested": tested, "names": ", ".join(untrained[:6])}
    if constant:
        yield verdict("constant_weights", len(constant), 0, names=", ".join(constant[:3]))
    if len(untrained) > UNTRAINED * tested:
        yield verdict("untrained", len(untrained) / tested, UNTRAINED, source=source, **counts)
    elif tested:
        patches = bool(untrained) and all(name.startswith("patch_embed") for name in untrained)
        rule = "initial_weights patches" if patches else "initial_weights"
        yield verdict(rule, min(ratios.values(), default=inf), TIMES, source=source, **counts)


def heads(subject: CheckSubject) -> Iterator[Finding]:
    """Find heads that write nothing, and pairs of heads that write the same, on the first image."""
    trace, dead, equal, smallest, nearest = subject.traces[0], [], [], float("inf"), -1.0
    stage = subject.inspector.tail(trace.grid.pixels)
    for number, (layer, projection) in enumerate(zip(trace.layers, stage.layers, strict=True)):
        weights = rearrange(projection.weight, "width (head dim) -> head dim width", head=layer.heads)
        outputs = (layer.output() @ weights.to(layer.v)).flatten(1)
        lengths = outputs.norm(dim=1)
        shares = lengths / lengths.median().clamp_min(1e-30)
        smallest = min(smallest, shares.min().item())
        dead += [f"{number + 1}.{head + 1}" for head in (shares < DEAD).nonzero().flatten().tolist()]
        units = normalize(outputs, eps=1e-30)
        cosines = (units @ units.mT).fill_diagonal_(-1)
        nearest = max(nearest, cosines.max().item())
        pairs = (cosines.triu() > EQUAL).nonzero().tolist()
        equal += [f"{number + 1}.{head + 1} = {number + 1}.{other + 1}" for head, other in pairs]
    yield verdict("dead_heads", smallest, DEAD, heads=", ".join(dead[:6]))
    yield verdict("equal_heads", nearest, EQUAL, heads=", ".join(equal[:6]))


def constants(subject: CheckSubject) -> Iterator[Finding]:
    """Find biases, scales and norms that hold one value only, as before training."""
    vectors = {name: p for name, p in subject.model.named_parameters() if p.ndim == 1 and p.numel() > 1}
    same = [name for name, vector in vectors.items() if bool((vector == vector[0]).all())]
    share = len(same) / max(1, len(vectors))
    severity = "serious" if share > MANY_CONSTANT else "note"
    counts = {"count": len(same), "tested": len(vectors), "names": ", ".join(same[:6])}
    yield verdict("constant_vectors", share, 0.0, severity=severity, **counts)


def channels(subject: CheckSubject) -> Iterator[Finding]:
    """Find a patch embedding whose filters are equal in all colour channels."""
    weight = subject.inspector.patch_filters()
    if weight is None or weight.shape[1] < 2:
        return
    by_channel = normalize(weight.detach().flatten(2).double(), dim=-1)
    alike = (by_channel[:, 1:] * by_channel[:, :1]).sum(dim=-1).mean().item()
    yield verdict("grey_filters", alike, GREY)


def repeated(subject: CheckSubject) -> Iterator[Finding]:
    """Find weight matrices that equal another one."""
    known: dict[tuple, tuple[str, Tensor]] = {}
    pairs = []
    for name, matrix in matrices(subject.model):
        other, same = known.setdefault((*matrix.shape, *matrix[0, :4].tolist()), (name, matrix))
        pairs += [f"{name} = {other}"] if other != name and torch.equal(matrix, same) else []
    yield verdict("equal_weights", len(pairs), 0, count=len(pairs), names=", ".join(pairs[:3]))


def stored_precision(subject: CheckSubject) -> Iterator[Finding]:
    """Find weight matrices that are quantised, or rounded to half precision while others were not."""
    rounded, whole, quantised, kinds = [], [], [], (torch.float16, torch.bfloat16)
    for name, matrix in matrices(subject.model):
        half = any(torch.equal(matrix, matrix.to(kind).to(matrix.dtype)) for kind in kinds)
        (rounded if half else whole).append(name)
        values = matrix[0].unique().numel()
        quantised += [values] if values < min(VALUES, matrix.shape[1] / 2) else []
    if len(quantised) > 1:  # equal channels of a patch embedding repeat values, too
        yield verdict("quantised", max(quantised), VALUES, count=len(quantised), values=max(quantised))
    few = min(rounded, whole, key=len)
    mixed = len(few) / max(1, len(rounded) + len(whole))
    kind = LocalizedText("half precision") if rounded else "float32"
    rule = "mixed_precision" if few is rounded else "mixed_precision float32"
    yield verdict(rule, mixed, 0.0, count=len(few), names=", ".join(few[:3]), kind=kind)


def position_structure(table: Float[Tensor, "patch width"], grid: Grid) -> float:
    """Return the mean cosine of neighbours minus that of all pairs, after the mean is subtracted.

    >>> round(position_structure(torch.eye(6), Grid(2, 3, (8, 8))), 3)
    0.0
    """
    cosines = position_similarity(table - table.mean(dim=0), grid).double()
    whole = rearrange(cosines, "row col row2 col2 -> (row col) (row2 col2)")
    at = torch.arange(grid.patches).view(grid.rows, grid.cols)
    near = torch.cat([whole[at[1:], at[:-1]].flatten(), whole[at[:, 1:], at[:, :-1]].flatten()])
    others = whole[~torch.eye(grid.patches, dtype=torch.bool)]
    return (near.mean() - others.mean()).item()


def row_offset(table: Float[Tensor, "patch width"], cols: int) -> tuple[int, float]:
    """Return the offset of 0.6 to 1.6 rows with the most similar embeddings, and its lead over one row.

    The mean embedding is subtracted; the lead is a difference of mean cosines, 0 if one row is the best.

    >>> table = torch.eye(8).repeat(8, 1)  # repeats after 8 patches
    >>> row_offset(table, 8), row_offset(table, 6)[0]
    ((8, 0.0), 8)
    """
    vectors = normalize((table - table.mean(dim=0)).double(), dim=-1)
    offsets = range(ceil(0.6 * cols), min(int(1.6 * cols), len(table) - 1) + 1)
    cosines = {one: (vectors[:-one] * vectors[one:]).sum(-1).mean().item() for one in offsets}
    best = max(cosines, key=cosines.__getitem__)
    return best, cosines[best] - cosines[cols]


def positions(subject: CheckSubject) -> Iterator[Finding]:
    """Find a position table that is missing, random or of another grid, and name a resized one."""
    table, grid = subject.inspector.position_table(), subject.inspector.grid()
    if table is None or grid.patches < 9:
        return
    if table.std(dim=0).max() == 0:
        yield verdict("no_positions", 0.0, 0.0)
        return
    structure = position_structure(table, grid)
    yield verdict("random_positions", structure, STRUCTURE)
    if structure > STRUCTURE and min(grid.rows, grid.cols) > 4:
        offset, lead = row_offset(table, grid.cols)
        yield verdict("positions_of_other_grid", lead, LEAD, offset=offset, cols=grid.cols)
    note = subject.inspector.checkpoint.note
    if "resampled" in note:
        yield Finding("resized_positions", "weights", "note", note, view="positions")
