"""Numbers of the Representations view, as arrays over the whole grid; NaN for dropped patches.

A basis may be shared with a second image, the second checkpoint or all steps of a training. It is then fitted
to all of them as one set, depth by depth, so a colour has the same meaning in each. The rotation of the
colours is computed for all together, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from vitviz import analyses
from vitviz.errors import WrongSetting
from vitviz.traces.localized_text import LocalizedText
from vitviz.views import lazy

if TYPE_CHECKING:
    from torch import Tensor

    from vitviz.engine import Inspector
    from vitviz.traces.trace import Trace
    from vitviz.views.subject import Settings, ViewContext

LARGEST = 3  # largest activations listed per depth
VIDEO = (
    "The components of a video use one basis for all frames. Choose the basis of this depth (own) and"
    " plain colours (plain)."
)
NO_SECOND = (
    "There is no second checkpoint. Choose one under “Comparison and input size”, or choose another basis."
)
NO_PHOTO = "There is no second image. Choose one under “Patch similarity”, or choose another basis."
NO_STEPS = "{checkpoint} has no stored training steps, so no basis can be shared by its steps."
APART = "{checkpoint} has {own}, {other} has {others}. A common basis needs the same depth and width."


def basis_members(subject: ViewContext, settings: Settings) -> list[ViewContext]:
    """Return the contexts that share the basis, `subject` too; raise WrongSetting if another is missing."""
    basis = settings["basis"]
    if basis == "beside":
        if subject.beside is None or subject.beside.trace is None:
            raise WrongSetting(LocalizedText(NO_SECOND))
        result = [subject, subject.beside]
    elif basis == "photo":
        result = [subject, second_context(subject, settings)]
    elif basis == "film":
        result = list(subject.training())
        if not result:
            raise WrongSetting(LocalizedText(NO_STEPS, checkpoint=subject.checkpoint))
    else:
        result = [subject]
    for run in result:
        if _depths_and_width(run) != _depths_and_width(subject):
            details = {"checkpoint": subject.checkpoint, "own": _shape_text(subject)}
            raise WrongSetting(LocalizedText(APART, **details, other=run.checkpoint, others=_shape_text(run)))
    return result


def patch_tokens(subject: ViewContext, depth: int, settings: Settings) -> Tensor:
    """Return the patch tokens of one depth, raw or through the final norm of the context's checkpoint."""
    return analyses.patches_at(subject.trace, depth, norm_inspector(subject, settings))


def norm_inspector(subject: ViewContext, settings: Settings) -> Inspector | None:
    """Return the checkpoint whose final norm is applied to the tokens; None for raw tokens."""
    return subject.inspector if settings["norm"] == "final" else None


def basis_key(subject: ViewContext, settings: Settings) -> str:
    """Return the cache key of a basis: everything that the basis depends on besides the run."""
    other = {"photo": settings["other"]}.get(settings["basis"], "")
    if settings["basis"] == "beside" and subject.beside is not None and subject.beside.trace is not None:
        trace = subject.beside.trace
        other = f"{trace.checkpoint} {trace.grid} {trace.without.text()}"
    return f"{settings['norm']} {settings['basis']} {other}"


def second_context(subject: ViewContext, settings: Settings) -> ViewContext:
    """Return the context of the second image; raise WrongSetting if none has been chosen."""
    if not settings["other"]:
        raise WrongSetting(LocalizedText(NO_PHOTO))
    return subject.another(settings["other"])


def cosines_across(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the cosine of every patch with every patch of the second image: (patch, other)."""
    if not settings["other"]:
        return np.zeros((subject.grid.patches, 0))
    other, centred = second_context(subject, settings), settings["mean"] == "out"
    norm = norm_inspector(subject, settings)
    result = analyses.patch_cosines(subject.trace, other.trace, settings["depth"], centred, norm)
    return result.flatten(2).flatten(0, 1).numpy()


def second_image(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the second image as the model receives it; an empty array if there is none."""
    return second_context(subject, settings).trace.view.picture if settings["other"] else np.zeros((0, 0, 3))


def cosines_to_second_patch(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the cosine of every patch with the selected patch of the second image; NaN if there is none."""
    grid = subject.grid
    if not settings["other"]:
        return np.full((grid.rows, grid.cols), np.nan)
    other, norm = second_context(subject, settings).trace, norm_inspector(subject, settings)
    depth, centred = settings["depth"], settings["mean"] == "out"
    result = analyses.token_similarity(subject.trace, depth, settings["partner"], centred, norm, of=other)
    return result.numpy()


def _depths_and_width(subject: ViewContext) -> tuple[int, int]:
    """Return the number of depths of the trace and the token width."""
    return len(subject.trace.tokens), subject.trace.tokens[0].shape[-1]


def _shape_text(subject: ViewContext) -> LocalizedText:
    """Return the text with the number of depths and the token width, for an error message."""
    depths, width = _depths_and_width(subject)
    return LocalizedText("{depths} depths and token width {width}", depths=depths, width=width)


def cosines(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the cosine of every two tokens' vectors at the chosen depth: (token, token)."""
    trace, centred = subject.trace, settings["mean"] == "out"

    def make() -> np.ndarray:
        result = analyses.token_cosines(trace, settings["depth"], centred, norm_inspector(subject, settings))
        return analyses.to_sequence(trace, analyses.to_sequence(trace, result).mT).mT.numpy()

    return subject.once(f"cosines {settings['depth']} {settings['norm']} {centred}", make)


def cosine_rows(
    subject: ViewContext, settings: Settings, tokens: Sequence[int], depth: int | None = None
) -> np.ndarray:
    """Return the cosines of some tokens with all tokens, by position in the whole sequence: (query, key)."""
    trace, depth = subject.trace, settings["depth"] if depth is None else depth
    if not tokens:
        return np.zeros((0, trace.grid.tokens), np.float32)
    first = trace.grid.prefix
    rows = [i if i < first else first + analyses.patch_index(trace, i - first) for i in tokens]
    centred, norm = settings["mean"] == "out", norm_inspector(subject, settings)
    result = analyses.token_cosines(trace, depth, centred, norm, rows)
    return analyses.to_sequence(trace, result).numpy()


def cosines_by_depth(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the cosine of the selected token with every patch at every depth: (depth, row, col)."""
    grid, depths = subject.grid, range(len(subject.trace.tokens))
    result = [cosine_rows(subject, settings, [settings["token"]], depth)[0] for depth in depths]
    return np.stack(result)[:, grid.prefix :].reshape(-1, grid.rows, grid.cols)


def component_scores(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the patches' scores at one depth, (row, col, component); 0 for missing components."""
    trace, depth = subject.trace, settings["depth"]
    basis = _bases(subject, settings)[depth]
    scores = basis.scores(patch_tokens(subject, depth, settings))
    return _pad_components(analyses.to_grid(trace, scores).float().numpy())


def variance_shares(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return each component's fraction of the variance: (depth, component).

    The rows are equal for basis "all".
    """
    return np.stack([_pad_components(basis.shares.float().numpy()) for basis in _bases(subject, settings)])


def component_colours(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return patch colours from the components, at every depth: (depth, row, col, RGB); black if dropped."""
    checkpoints = [context.checkpoint for context in basis_members(subject, settings)]
    return _tints(subject, settings)[checkpoints.index(subject.checkpoint)]


def second_component_colours(subject: ViewContext, settings: Settings) -> np.ndarray:
    """Return the second image's patch colours if it shares the basis; else an array without channels."""
    if settings["basis"] != "photo" or not settings["other"]:
        return np.zeros((len(subject.trace.tokens), subject.grid.rows, subject.grid.cols, 0), np.uint8)
    return _tints(subject, settings)[1]


def _tints(subject: ViewContext, settings: Settings) -> list[np.ndarray]:
    """Return the patch colours (depth, row, col, RGB) of each context that shares the basis.

    Raises:
        WrongSetting: For a frame of a video, if the tint is not "plain": its rotation differs in each frame.
    """
    if subject.fitted is not None and settings["tint"] != "plain":
        raise WrongSetting(LocalizedText(VIDEO))

    def make() -> list[np.ndarray]:
        result, scores = basis_members(subject, settings), []
        for depth, basis in enumerate(_bases(subject, settings)):
            score_sets = [basis.scores(patch_tokens(context, depth, settings)) for context in result]
            scores.append(analyses.whiten_scores(basis, lazy.torch.cat(score_sets)))
        colours = [analyses.patch_mean_colours(context.trace) for context in result]
        if settings["tint"] == "steady" and settings["basis"] != "all":
            scores = analyses.align_layers(scores, lazy.torch.cat(colours))
        elif settings["tint"] == "steady":  # a single basis needs a single rotation
            turn = analyses.alignment_rotation(scores[0], lazy.torch.cat(colours))
            scores = [matrix @ turn for matrix in scores]
        parts = zip(*(matrix.split(list(map(len, colours))) for matrix in scores), strict=True)
        return [_colours_on_grid(context.trace, part) for context, part in zip(result, parts, strict=True)]

    return subject.once(f"tints {basis_key(subject, settings)} {settings['tint']}", make)


def _colours_on_grid(trace: Trace, scores: Sequence) -> np.ndarray:
    """Return the colours of component scores at each depth, on the grid: (depth, row, col, RGB)."""
    laid = [analyses.to_grid(trace, analyses.scores_to_colours(matrix)).numpy() for matrix in scores]
    return np.nan_to_num(np.round(255 * np.stack(laid))).astype(np.uint8)


def basis_arrays(subject: ViewContext, settings: Settings) -> dict[str, np.ndarray]:
    """Return the basis of the selected depth: score = (token - mean) · direction."""
    basis = _bases(subject, settings)[settings["depth"]]
    return {"basis": basis.directions.float().numpy(), "mean": basis.mean.float().numpy()}


def trace_arrays(subject: ViewContext) -> dict[str, np.ndarray]:
    """Return the arrays that depend on no setting: norms and largest activations at every depth."""

    def make() -> dict[str, np.ndarray]:
        trace = subject.trace
        typical = analyses.typical_norms(trace)
        result = [analyses.largest_activations(trace, depth, LARGEST) for depth in range(len(trace.tokens))]
        largest = [
            np.stack([peak.values, _tokens(trace)[peak.tokens], peak.channels], axis=-1) for peak in result
        ]
        return {
            "norms": analyses.to_sequence(trace, analyses.token_norms(trace)).numpy(),
            "usual": np.stack([typical.median.numpy(), typical.mad.numpy()], axis=-1),
            "largest": np.stack(largest),
            "typical": np.asarray([peak.typical for peak in result]),
        }

    return subject.once("lengths", make)


def layer_array(subject: ViewContext, name: str, block: int) -> np.ndarray:
    """Return a quantity of one layer's attention by its item name; `block` counts from 0."""
    if name == "received":
        return analyses.to_sequence(subject.trace, _received(subject)[block]).numpy()
    redundancy = subject.once(f"redundancy {block}", lambda: analyses.head_redundancy(subject.trace, block))
    return getattr(redundancy, name).numpy()


def sinks(subject: ViewContext) -> np.ndarray:
    """Return, per head, the largest fraction of attention on one token, and this token: (layer, head, 2)."""
    result = [matrix.max(dim=-1) for matrix in _received(subject)]
    return np.stack([np.stack([top.values, _tokens(subject.trace)[top.indices]], axis=-1) for top in result])


def entropies(subject: ViewContext, name: str) -> np.ndarray:
    """Return "entropy", the mean over patch queries, (layer, head), or each prefix token's entropy."""
    result = _by_block(subject, "entropies", analyses.head_entropy)
    return np.stack([(layer.patches if name == "entropy" else layer.prefix).numpy() for layer in result])


def _received(subject: ViewContext) -> list:
    """Return, by layer, the fraction of attention on each token, (head, token); cached."""
    return _by_block(subject, "received", analyses.attention_received)


def _by_block(subject: ViewContext, name: str, compute: Callable) -> list:
    """Return `compute(trace, block)` for every block of the trace, from 0; cached under `name`."""
    trace = subject.trace
    return subject.once(name, lambda: [compute(trace, block) for block in range(len(trace.layers))])


def _bases(subject: ViewContext, settings: Settings) -> list[analyses.Basis]:
    """Return one basis of patch tokens per depth, fitted to all contexts that share it.

    Raises:
        WrongSetting: For a frame of a video, if the basis is not "own".
    """
    if subject.fitted is not None:
        if settings["basis"] != "own":
            raise WrongSetting(LocalizedText(VIDEO))
        return subject.fitted(f"bases {settings['norm']}", lambda frames: _bases_over(frames, settings))

    def make() -> list[analyses.Basis]:
        result, depths = basis_members(subject, settings), range(len(subject.trace.tokens))
        count = min(3, *patch_tokens(subject, 0, settings).shape)
        if settings["basis"] == "all":
            token_sets = [patch_tokens(subject, depth, settings) for depth in depths]
            return [analyses.fit_basis(token_sets, count)] * len(depths)
        sets = ([patch_tokens(context, depth, settings) for context in result] for depth in depths)
        return [analyses.fit_basis(tokens, count) for tokens in sets]

    return subject.once(f"bases {basis_key(subject, settings)}", make)


def _bases_over(frames: Iterable[ViewContext], settings: Settings) -> list[analyses.Basis]:
    """Return one basis per depth, fitted to all frames of a video, with one frame in memory at a time."""
    scatters: list[analyses.Scatter] = []
    for context in frames:
        depths = [patch_tokens(context, depth, settings) for depth in range(len(context.trace.tokens))]
        scatters = scatters or [analyses.Scatter() for _ in depths]
        for scatter, tokens in zip(scatters, depths, strict=True):
            scatter.add(tokens)
    return [scatter.basis(min(3, scatter.count, len(scatter.mean))) for scatter in scatters]


def _tokens(trace: Trace) -> np.ndarray:
    """Return the position of every remaining token in the whole sequence."""
    return np.arange(trace.grid.tokens)[trace.places]


def _pad_components(array: np.ndarray) -> np.ndarray:
    """Return the array with its last axis, the components, padded with zeros to length 3."""
    missing = 3 - array.shape[-1]
    return np.pad(array, [(0, 0)] * (array.ndim - 1) + [(0, missing)])
