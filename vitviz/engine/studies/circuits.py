"""Public functions on circuits: upstream contributions, attention scores, paths and edge ablation."""

import itertools
import sys
from collections import defaultdict
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import torch
from jaxtyping import Float
from torch import Tensor

from vitviz.analyses import sufficient_edges as edge_subsets
from vitviz.analyses import upstream as formulas
from vitviz.analyses.effects import SIDES, Edge, EdgeAblationEffects, edges_into, sample_edges
from vitviz.analyses.logit_account import attribution_of, directions
from vitviz.analyses.logit_attribution import LogitTerms
from vitviz.analyses.paths import OPENED, AttributionPaths, largest_paths
from vitviz.analyses.sufficient_edges import SufficientEdges
from vitviz.analyses.target import TargetLike, classes_of, resolve_target, score_of
from vitviz.analyses.upstream import ScoreAttribution, Stream, Upstream
from vitviz.engine.forks import lock_of
from vitviz.engine.forward.edges import edge_ablation_logits, mean_replacements, stream_of
from vitviz.engine.inspector import Inspector
from vitviz.engine.studies.attribution import checked_logit_terms
from vitviz.errors import UnsupportedModel, VitvizError, quoted, require_whole, whole_number
from vitviz.traces.localized_text import LocalizedText, not_applicable
from vitviz.traces.trace import Trace

ROOM = 256 * 2**20  # bytes of all writers' outputs in one batch of passes
KEPT = 2  # traces whose recordings are cached
TOLERANCE = 1e-4  # relative to the largest term
ASTRAY = (
    "the inputs of its heads are explained by their sources only to {found} of the largest; {allowed} is"
    " expected"
)
NO_PREDICTION = (
    "Not applicable to {checkpoint}: its outputs are values (regression) and predict no class that some"
    " edges could keep."
)
_streams: WeakKeyDictionary[Trace, Stream] = WeakKeyDictionary()
_lock = lock_of(sys.modules[__name__])


def upstream_contributions(
    inspector: Inspector, trace: Trace, target: TargetLike, layer: int, head: int, *, relative: bool = False,
    via: Sequence[tuple[int, int]] = (),
) -> Upstream:  # fmt: skip
    """Decompose a head's contribution to a logit by the upstream sources of what it reads.

    The terms sum to the head's contribution in `logit_attribution`. One pass an image records what was
    written; further heads of the same trace need no pass. Source: `vitviz.analyses.upstream`.

    Args:
        inspector: The model, in float32.
        trace: A trace of this model.
        target, relative: As for `logit_attribution`.
        layer, head: The head, both from 0.
        via: The (layer, head) pairs between this head and the logit, the one nearest the logit first, for a
            path that is followed upstream.

    Returns:
        In logits: `.heads` (layer, head), `.biases` (layer,) and `.mlps` (layer,), NaN from this layer on;
        `.embedding`, `.positions` (None without learned absolute positions) and `.constant`. `.total` is the
        sum, `.gap` the unexplained rest. `.by_token` has the same terms with a last axis of tokens, prefix
        first.

    Raises:
        VitvizError: The target, layer or head does not exist.
        UnsupportedModel: The terms do not sum to the contribution.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> trace = inspector.trace(vitviz.sample_image("chelsea"))
    >>> found = upstream_contributions(inspector, trace, trace.top(1)[0][0], layer=7, head=1)
    >>> abs(found.gap) < 1e-5, found.by_token.mlps.shape
    (True, torch.Size([8, 197]))
    """
    recorded = _resolve_target(inspector, trace, target, relative)
    return _check_sum(formulas.upstream_of(*recorded, layer, head, via), trace)


def attention_score_attribution(
    inspector: Inspector, trace: Trace, layer: int, head: int, query: int, key: int,
    against: int | None = None
) -> ScoreAttribution:  # fmt: skip
    """Decompose one attention score (before the softmax) by the upstream sources of its query and key.

    The classifier is not involved and may be of any kind.

    Args:
        inspector: The model, in float32.
        trace: A trace of this model.
        layer, head: The head, both from 0.
        query, key: Tokens from 0, prefix first.
        against: A key whose score is subtracted in `.relative`; None subtracts the mean over keys.

    Returns:
        `.matrix` (query's source, key's source), which sums to the score; `.writers` names its rows and
        columns. `.rest` is a relative bias, `.total` the sum of all, `.gap` the unexplained rest of the
        model's own `.score`. A term that is equal for all keys moves no attention: `.relative` and
        `.relative_rest` are relative to `against`. `.content_position` (2, 2) sums `.relative` by content and
        position; None without E_pos.

    Raises:
        As `upstream_contributions`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = attention_score_attribution(inspector, inspector.trace(vitviz.sample_image("chelsea")), 2,
    ...     0, 0, 100)
    >>> abs(found.gap) < 1e-4, found.content_position.shape
    (True, torch.Size([2, 2]))
    """
    inspector.require_own(trace)
    readout = inspector.tail(trace.grid.pixels, trace.tokens[0].device, classifier=False)
    terms, stream = formulas.TracedBlocks(trace, readout), record_stream(inspector, trace)
    for name, token in (("query", query), ("key", key), ("key to compare with", against or 0)):
        if whole_number(token, below=trace.length) is None:
            expected = f"expected the number of a token, from 0 to {trace.length - 1}"
            raise VitvizError(f"{quoted(token)} as the {name} is not valid; {expected}.")
    attributed = formulas.attribute_score(terms, stream, layer, head, query, key, against)
    return _check_sum(attributed, trace, attributed.matrix.abs().max().item())


def attribution_paths(
    inspector: Inspector, trace: Trace, target: TargetLike, count: int = 12, *, opened: int = OPENED,
    relative: bool = False,
) -> AttributionPaths:  # fmt: skip
    """Return the `count` largest paths, by |contribution|, from sources through heads into a logit.

    Large paths of opposite sign cancel, so a list says nothing about the sum of all others. Source:
    `vitviz.analyses.paths`.

    Args:
        inspector: The model, in float32.
        trace: A trace of this model.
        target, relative: As for `logit_attribution`.
        count: Number of paths.
        opened: Limit of the search: the number of chains of heads that it expands. Every head is expanded
            once in any case.

    Returns:
        `.paths`: heads from the logit back, source, and contribution in logits. A path stops at an MLP's
        output. The contributions and `.left_out` sum to `.total`, the heads' contributions to the logit.
        `.proven` is True if no unlisted path is larger than those listed; `.bound` is an upper bound of every
        unlisted path.

    Raises:
        As `upstream_contributions`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = attribution_paths(inspector, inspector.trace(vitviz.sample_image("chelsea")), 0, count=5)
    >>> abs(sum(path.share for path in found.paths) + found.left_out - found.total) < 1e-5, found.proven
    (True, True)
    """
    require_whole("count", count)
    ledger, stream, basis = _resolve_target(inspector, trace, target, relative)
    shares = attribution_of(ledger, target, relative).heads
    return largest_paths(ledger, stream, basis, shares, count, opened)


def edge_ablation(
    inspector: Inspector, trace: Trace, target: TargetLike, layer: int | None = None, head: int | None = None,
    *, into: str = "value", parts_as: str = "mean", count: int | None = None, seed: int = 0, batch: int = 8,
    progress: Callable[[int, int], bool | None] | None = None
) -> EdgeAblationEffects:  # fmt: skip
    """Remove one source's output from one head's input, edge by edge; return the drop of a logit.

    Each edge takes a forward pass. An edge ends in one head or, without `layer` and `head`, in any head; for
    values also in the logit. Source: `vitviz.analyses.effects`.

    Args:
        inspector: The model, in float32.
        trace: A trace of this model.
        target: A class or (a, b), as for `logit_attribution`.
        layer, head: The head, both from 0; None for all heads.
        into: The head's input: "value", "query" or "key".
        parts_as: Replacement of the removed output: its "mean" over the reference set (for the embedding,
            over this image's patches) or "zero".
        count: Number of edges, drawn at random; None for all.
        seed: Seed of the draw.
        batch: Number of edges in one pass.
        progress: Called as `progress(done, of)`; False ends the run.

    Returns:
        `.edges`; `.effects` (edge,), the drop in logits, NaN for edges that were not run; `.shares` (edge,),
        the contribution in logits, NaN for queries and keys, which have none; `.correlation` of effects and
        contributions; `.of`, the number of all edges.

    Raises:
        UnsupportedModel: A source is part of several inputs. Otherwise as `upstream_contributions`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> trace = inspector.trace(vitviz.sample_image("chelsea"))
    >>> edge_ablation(inspector, trace, 0, 7, 1, count=4).effects.shape
    torch.Size([4])
    """
    if into not in SIDES or (layer is None) != (head is None):
        raise VitvizError(f"into={quoted(into)}, layer={quoted(layer)}, head={quoted(head)} is not valid;"
                          f" expected into to be one of {', '.join(SIDES)}, and a layer with its head, or"
                          " neither.")  # fmt: skip
    require_whole("batch", batch)
    if count is not None:
        require_whole("count", count)
    ledger, stream, basis = _resolve_target(inspector, trace, target)
    layers, heads = len(trace.layers), trace.layers[0].heads
    ends = [(layer, head)] if layer is not None else itertools.product(range(layers), range(heads))
    classes = classes_of(ledger.trace, target)
    positions = stream.positions is not None and parts_as == "zero"  # position embeddings equal their mean
    every = [edge for end in ends for edge in edges_into(*end, heads, into, positions)]
    if layer is None and into == "value":
        every += edges_into(layers, None, heads, "answer", positions)
    some = sample_edges(every, count, seed)
    effects, shares = torch.full((2, len(some)), float("nan"), dtype=torch.float64)
    for first in range(0, len(some), batch):
        edges_at_once = some[first : first + batch]
        lost = edge_losses(inspector, trace, edges_at_once, parts_as)
        effects[first : first + len(edges_at_once)] = score_of(lost, classes)
        if progress is not None and progress(first + len(edges_at_once), len(some)) is False:
            break
    if into == "value":
        heads_read = {(one.layer, one.head) for one in some if one.into == "value"}
        lines = {end: dict(formulas.upstream_of(ledger, stream, basis, *end).lines()) for end in heads_read}
        flows = edge_subsets.edge_flows(ledger, stream, basis)
        into_answer = itertools.takewhile(lambda one: one[0] == layers, flows)
        lines[layers, None] = {writer: share.item() for _, writer, share in into_answer}
        shares[:] = torch.tensor([lines[one.layer, one.head][one.writer] for one in some])
    return EdgeAblationEffects(tuple(some), effects, shares, len(every), parts_as)


def edge_losses(
    inspector: Inspector, trace: Trace, edges: Sequence[Edge], parts_as: str = "mean"
) -> Float[Tensor, "edge class"]:
    """Return the drop of every logit without each of these edges alone; runs one batch of len(edges) + 1."""
    ledger, stream = checked_logit_terms(inspector, trace), record_stream(inspector, trace)
    removals = [{}, *({edge.reader: [edge.writer]} for edge in edges)]
    replacements = _replacements(inspector, ledger, stream, parts_as)
    logits = edge_ablation_logits(inspector, ledger, stream, removals, replacements).double()
    return logits[0] - logits[1:]


def sufficient_edges(
    inspector: Inspector, trace: Trace, target: TargetLike | None = None, *, parts_as: str = "mean",
    effects: EdgeAblationEffects | None = None, draws: int = 3, seed: int = 0,
    progress: Callable[[int, int], bool | None] | None = None,
) -> SufficientEdges:  # fmt: skip
    """Measure how many edges preserve a prediction, keeping the edges of largest |contribution| first.

    Each size takes real passes. They measure the margin over the next class, also for `draws` random orders
    and for the order of known `effects`. Edges end in heads' values and in the logit; outputs along dropped
    edges are replaced as in `edge_ablation`. Margins need not grow with the number of edges, and only some
    sizes are tried. Source: `vitviz.analyses.sufficient_edges`.

    Args:
        inspector: The model, in float32.
        trace: A trace of this model.
        target: As for `edge_ablation`; None for the model's prediction.
        parts_as: Replacement of outputs along dropped edges, "mean" or "zero".
        effects: Result of `edge_ablation`, for a further order by |effect|.
        draws: Number of random orders.
        seed: Seed of the random orders.
        progress: Called as `progress(done, of)`; False ends the run.

    Returns:
        `.curve` has (number of edges, margin in logits) for each tried size, `.tried` their number.
        `.smallest_preserving` is the smallest tried size that preserves the prediction, `.preserving_from`
        the size from which on every tried size does. `.margins` by order (draw, count) in logits;
        `.faithfulness()`.

    Raises:
        As `edge_ablation`; UnsupportedModel also for a model whose outputs are values.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = sufficient_edges(inspector, inspector.trace(vitviz.sample_image("coffee")), draws=1)
    >>> 0 < found.smallest_preserving <= found.preserving_from < len(found.edges)
    True
    """
    require_whole("draws", draws, 0)
    require_prediction(inspector.answered(trace))
    if target is None:
        target = int(trace.require_logits("it has no prediction to preserve").argmax())
    edges, shares = ranked_edges(inspector, trace, target, parts_as)
    orders, counts = edge_subsets.edge_orders(len(edges), draws, seed), edge_subsets.kept_counts(len(edges))
    if effects is not None:
        lost = dict(zip(effects.edges, effects.effects.nan_to_num().abs().tolist(), strict=True))
        orders["effect"] = [sorted(range(len(edges)), key=lambda one: -lost.get(edges[one], 0.0))]
    margins = {name: torch.full((len(rows), len(counts)), torch.nan) for name, rows in orders.items()}

    def keep_edges(rows: list[list[int]]) -> list[float]:
        kept = [[edges[i] for i in row] for row in rows]
        return kept_edge_margins(inspector, trace, target, kept, parts_as)

    for column, count in enumerate(counts):
        logits = iter(keep_edges([row[:count] for rows in orders.values() for row in rows]))
        for table in margins.values():
            table[:, column] = torch.tensor([next(logits) for _ in table])
        if progress is not None and progress(column + 1, len(counts)) is False:
            break
    curve = {size: one for size, one in zip(counts, margins["share"][0].tolist(), strict=True) if one == one}
    stable = edge_subsets.preserving_sizes([*curve], [*curve.values()])[1]
    if counts[-1] in curve and stable:  # bisect between the last failing size and the next one
        low = max(size for size in curve if size < stable)
        while stable - low > max(1, len(edges) // 500):
            middle = (low + stable) // 2
            (curve[middle],) = keep_edges([range(middle)])
            low, stable = (low, middle) if curve[middle] > 0 else (middle, stable)
    return SufficientEdges(edges, shares, counts, margins, parts_as, tuple(sorted(curve.items())))


def require_prediction(trace: Trace) -> None:
    """Raise UnsupportedModel for a model whose outputs are values (regression), which predicts no class."""
    if trace.head_type == "value":
        raise UnsupportedModel(LocalizedText(NO_PREDICTION, checkpoint=trace.checkpoint))


def ranked_edges(
    inspector: Inspector, trace: Trace, target: TargetLike, parts_as: str = "mean"
) -> tuple[tuple[Edge, ...], Tensor]:
    """Return all edges into values and the logit with their contributions, the largest |contribution| first.

    Contributions are relative to the replacement that `parts_as` names.
    """
    ledger, stream, basis = _resolve_target(inspector, trace, target)
    replacements = _replacements(inspector, ledger, stream, parts_as)
    heads, positions = trace.layers[0].heads, stream.positions is not None
    edges = edge_subsets.every_edge(len(trace.layers), heads, positions and replacements is None)
    flowing = stream if replacements is None else stream.minus(replacements)
    shares = edge_subsets.edge_shares(ledger, flowing, basis, edges)
    order = shares.abs().argsort(descending=True, stable=True)
    return tuple(edges[i] for i in order.tolist()), shares[order]


def kept_edge_margins(
    inspector: Inspector, trace: Trace, target: TargetLike, kept: Sequence[Sequence[Edge]],
    parts_as: str = "mean"
) -> list[float]:  # fmt: skip
    """Return the target's margin over the next class with each set of edges alone, in logits."""
    trace = inspector.answered(trace)
    require_prediction(trace)
    ledger, stream = checked_logit_terms(inspector, trace), record_stream(inspector, trace)
    replacements, classes = _replacements(inspector, ledger, stream, parts_as), classes_of(trace, target)
    side = trace.prediction if trace.head_type == "sigmoid" else None  # the predicted side of a yes or no
    heads, positions = trace.layers[0].heads, stream.positions is not None
    edges = edge_subsets.every_edge(len(trace.layers), heads, positions and replacements is None)
    writers = 2 + len(trace.layers) * (heads + 1)
    batch = min(8, max(1, ROOM // (writers * stream.embedding.nbytes)))
    margins = []
    for first in range(0, len(kept), batch):
        removals = []
        for some in map(set, kept[first : first + batch]):
            removals.append(defaultdict(list))
            for edge in edges:
                if edge not in some:
                    removals[-1][edge.reader].append(edge.writer)
        logits = edge_ablation_logits(inspector, ledger, stream, removals, replacements)
        margins += edge_subsets.margin_of(logits.double(), classes, side).tolist()
    return margins


def record_stream(inspector: Inspector, trace: Trace) -> Stream:
    """Return the recording of all writers' outputs in a trace's pass; the last few recordings are cached."""
    with _lock:
        stream = _streams.get(trace)
    if stream is None:
        stream = stream_of(inspector, trace)
        with _lock:
            for old in list(_streams)[: 1 - KEPT]:
                _streams.pop(old, None)
            _streams[trace] = stream
    return stream


def _replacements(inspector: Inspector, ledger: LogitTerms, stream: Stream, parts_as: str) -> Stream | None:
    """Return the replacements of removed contributions: means for 'mean', None (zero) for 'zero'.

    Raises VitvizError for any other `parts_as`.
    """
    if parts_as not in ("mean", "zero"):
        raise VitvizError(f"parts_as={quoted(parts_as)} is not valid; expected 'mean' or 'zero'.")
    return mean_replacements(inspector, ledger, stream) if parts_as == "mean" else None


def _resolve_target(
    inspector: Inspector, trace: Trace, target: TargetLike, relative: bool = False
) -> tuple[LogitTerms, Stream, Tensor]:
    """Return a trace's checked logit terms, its stream, and a target's direction by readout slot.

    `relative` is that of `resolve_target`. The direction is one at the tokens.
    """
    ledger = checked_logit_terms(inspector, trace)
    resolved = resolve_target(ledger.trace, ledger.readout, target, relative)
    return ledger, record_stream(inspector, trace), directions(ledger, resolved.direction)[0]


def _check_sum(result, trace: Trace, largest: float | None = None):
    """Return `result` if its terms sum to the explained value; otherwise raise UnsupportedModel."""
    if largest is None:
        largest = max(abs(part) for _, part in result.lines())
    if not abs(result.gap) <= TOLERANCE * largest:
        figures = {"found": f"{abs(result.gap) / largest:.1e}", "allowed": f"{TOLERANCE:.0e}"}
        raise UnsupportedModel(not_applicable(trace.checkpoint, LocalizedText(ASTRAY, **figures)))
    return result
