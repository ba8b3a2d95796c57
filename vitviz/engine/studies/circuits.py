"""Public: who wrote what a head reads, and why it looks there, asked of an inspector and a trace."""

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
from vitviz.analyses.effects import SIDES, Edge, EdgeAblationEffects, edges_into, sampled
from vitviz.analyses.logit_account import account_of, directions
from vitviz.analyses.logit_attribution import LogitTerms
from vitviz.analyses.paths import OPENED, AttributionPaths, paths_of
from vitviz.analyses.sufficient_edges import SufficientEdges
from vitviz.analyses.target import TargetLike, classes_of, score_of, target_of
from vitviz.analyses.upstream import ScoreAttribution, Stream, Upstream
from vitviz.engine.forks import lock_of
from vitviz.engine.forward.edges import less, stream_of, usual_of, without_edges
from vitviz.engine.inspector import Inspector
from vitviz.engine.studies.attribution import balanced_ledger
from vitviz.errors import UnsupportedModel, VitvizError, quoted
from vitviz.traces.localized_text import LocalizedText, not_applicable
from vitviz.traces.trace import Trace

ROOM = 256 * 2**20  # bytes, of what writers wrote in the passes that are made at once
KEPT = 2  # pictures whose recordings are kept
TOLERANCE = 1e-4  # of the largest line
ASTRAY = (
    "what its heads read is explained by its writers only to {found} of the largest, where {allowed} is"
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
    """A head's share of a logit by who wrote what it reads: the lines add up to its share in `evidence`.

    `target` and `relative` as for `evidence`; layers and heads from 0. `via`: the heads through which the
    answer is reached, the answer's first, where it is a path that is followed back. In logits: `.heads`
    (layer, head) and `.biases`, `.mlps` (layer), NaN from this layer on, `.embedding`, `.positions` (None
    without learned absolute positions), `.constant`, with `.total` and what it leaves unexplained, `.gap`;
    `.by_token` has the same with a last axis, token (prefix first). One pass a picture records what was
    written; more heads of it take no pass. Raises VitvizError for what does not exist, UnsupportedModel, with
    the reason, where the sum does not hold. Source: `vitviz.analyses.upstream`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> trace = inspector.trace(vitviz.sample_image("chelsea"))
    >>> found = upstream_contributions(inspector, trace, trace.top(1)[0][0], layer=7, head=1)
    >>> abs(found.gap) < 1e-5, found.by_token.mlps.shape
    (True, torch.Size([8, 197]))
    """
    ledger, basis = _resolve_target(inspector, trace, target, relative)
    return _sound(
        formulas.writers_of(ledger, record_stream(inspector, trace), basis, layer, head, via), trace
    )


def attention_score_attribution(
    inspector: Inspector,
    trace: Trace,
    layer: int,
    head: int,
    query: int,
    key: int,
    against: int | None = None,
) -> ScoreAttribution:
    """One score before the softmax by who wrote the query's side and who the key's: `.matrix` adds up to it.

    `query` and `key`: tokens from 0, prefix first. `.writers` names rows and columns, `.rest` is a relative
    bias, `.total` the sum of all and `.gap` what it leaves unexplained of the model's own `.score`. What is
    the same for all keys moves no attention: `.relative` and `.relative_rest` are less the mean over keys, or
    the key `against`. `.content_position` are four numbers of that (None without E_pos). Raises as `writers`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = attention_score_attribution(inspector, inspector.trace(vitviz.sample_image("chelsea")), 2,
    ...     0, 0, 100)
    >>> abs(found.gap) < 1e-4, found.content_position.shape
    (True, torch.Size([2, 2]))
    """
    ledger = balanced_ledger(inspector, trace)
    found = formulas.score_of(ledger, record_stream(inspector, trace), layer, head, query, key, against)
    return _sound(found, trace, found.matrix.abs().max().item())


def attribution_paths(
    inspector: Inspector, trace: Trace, target: TargetLike, count: int = 12, *, opened: int = OPENED,
    relative: bool = False,
) -> AttributionPaths:  # fmt: skip
    """Return the `count` largest paths, by |share|, from writers through heads into an answer.

    `.paths`: (heads from the answer back, writer, share in logits); with `.left_out` they add up to `.total`,
    the heads' shares of the logit. A path stops at an MLP's result. The search opens at most `opened` chains
    of heads, and every head once: `.proven` says whether it went far enough to exclude a larger path that is
    not listed, `.bound` what no unlisted path exceeds. Large paths of opposite sign cancel, so a list says
    nothing about the sum of all others. Raises as `writers`. Source: `vitviz.analyses.paths`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = attribution_paths(inspector, inspector.trace(vitviz.sample_image("chelsea")), 0, count=5)
    >>> abs(sum(path.share for path in found.paths) + found.left_out - found.total) < 1e-5, found.proven
    (True, True)
    """
    ledger, basis = _resolve_target(inspector, trace, target, relative)
    shares = account_of(ledger, target, relative).heads
    return paths_of(ledger, record_stream(inspector, trace), basis, shares, count, opened)


def edge_ablation(
    inspector: Inspector, trace: Trace, target: TargetLike, layer: int | None = None, head: int | None = None,
    *, into: str = "value", parts_as: str = "mean", count: int | None = None, seed: int = 0, batch: int = 8,
    progress: Callable[[int, int], bool | None] | None = None
) -> EdgeAblationEffects:  # fmt: skip
    """What a logit loses when one head's input lacks a writer's part: a real pass an edge, beside its share.

    Edges end in the values (or `into` "query" or "key") of one head, or, without `layer` and `head`, of all,
    and with all values in the answer too; `count` of them, drawn by `seed`, are run. `parts_as`: "mean" over
    the reference set (the embedding's, over this picture's patches) or "zero". `progress(done, of)` ends it
    by returning False. `.edges`, `.effects`, `.shares` (none for queries and keys), `.correlation` and how
    many edges there are, `.of`.
    Raises as `writers`; UnsupportedModel for a part in several inputs. Source: `vitviz.analyses.effects`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> trace = inspector.trace(vitviz.sample_image("chelsea"))
    >>> edge_ablation(inspector, trace, 0, 7, 1, count=4).effects.shape
    torch.Size([4])
    """
    if into not in SIDES or (layer is None) != (head is None):
        raise VitvizError(f"Given into={quoted(into)}, layer={quoted(layer)}, head={quoted(head)};"
                          " expected into to be one of"
                          f" {', '.join(SIDES)}, and a layer with its head, or neither.")  # fmt: skip
    (ledger, basis), stream = (
        _resolve_target(inspector, trace, target, False),
        record_stream(inspector, trace),
    )
    layers, heads = len(trace.layers), trace.layers[0].heads
    ends = [(layer, head)] if layer is not None else itertools.product(range(layers), range(heads))
    classes = classes_of(ledger.trace, target)
    positions = stream.positions is not None and parts_as == "zero"  # their mean is themselves
    every = [edge for end in ends for edge in edges_into(*end, heads, into, positions)]
    if layer is None and into == "value":
        every += edges_into(layers, None, heads, "answer", positions)
    some = sampled(every, count, seed)
    effects, shares = torch.full((2, len(some)), float("nan"), dtype=torch.float64)
    for first in range(0, len(some), batch):
        asked = some[first : first + batch]
        lost = losses_of(inspector, trace, asked, parts_as)
        effects[first : first + len(asked)] = score_of(lost, classes)
        if progress is not None and progress(first + len(asked), len(some)) is False:
            break
    if into == "value":
        lines = {
            end: dict(formulas.writers_of(ledger, stream, basis, *end).lines())
            for end in {(one.layer, one.head) for one in some if one.into == "value"}
        }
        into_answer = itertools.takewhile(
            lambda one: one[0] == layers, edge_subsets.flows(ledger, stream, basis)
        )
        lines[layers, None] = {writer: share.item() for _, writer, share in into_answer}
        shares[:] = torch.tensor([lines[one.layer, one.head][one.writer] for one in some])
    return EdgeAblationEffects(tuple(some), effects, shares, len(every), parts_as)


def losses_of(
    inspector: Inspector, trace: Trace, edges: Sequence[Edge], parts_as: str = "mean"
) -> Float[Tensor, "edge class"]:
    """What every logit loses without each of these edges alone, by one pass of so many pictures and one."""
    ledger, stream = balanced_ledger(inspector, trace), record_stream(inspector, trace)
    removals = [{}, *({one.reader: [one.writer]} for one in edges)]
    usual = _usual(inspector, ledger, stream, parts_as)
    found = without_edges(inspector, ledger, stream, removals, usual).double()
    return found[0] - found[1:]


def sufficient_edges(
    inspector: Inspector, trace: Trace, target: TargetLike | None = None, *, parts_as: str = "mean",
    effects: EdgeAblationEffects | None = None, draws: int = 3, seed: int = 0,
    progress: Callable[[int, int], bool | None] | None = None,
) -> SufficientEdges:  # fmt: skip
    """Measure with how many edges a prediction is preserved: its margin over the next class with the edges of
    largest |share| alone, by real passes, beside `draws` random orders and that of known `effects`.

    Edges end in heads' values and in the answer; what others carry is replaced as in `edge_effects`.
    `target`: the model's prediction, or as for `edge_effects`. Margins need not grow with the number of
    edges, and only some sizes are tried: `.curve` has each with its margin in logits, `.tried` how many.
    `.smallest_preserving` is the smallest tried size that preserves the prediction, `.preserving_from` the
    one from which on every tried size does. `.margins` by order (draw, count), `.faithfulness()`.
    `progress(done, of)` ends it by returning False. Raises as `edge_effects`. Source:
    `vitviz.analyses.sufficient_edges`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = sufficient_edges(inspector, inspector.trace(vitviz.sample_image("coffee")), draws=1)
    >>> 0 < found.smallest_preserving <= found.preserving_from < len(found.edges)
    True
    """
    require_prediction(inspector.answered(trace))
    target = int(trace.logits.argmax()) if target is None else target
    edges, shares = ranked_edges(inspector, trace, target, parts_as)
    orders, counts = (
        edge_subsets.orders_of(len(edges), draws, seed),
        edge_subsets.kept_counts(len(edges)),
    )
    if effects is not None:
        lost = dict(zip(effects.edges, effects.effects.nan_to_num().abs().tolist(), strict=True))
        orders["effect"] = [sorted(range(len(edges)), key=lambda one: -lost.get(edges[one], 0.0))]
    margins = {name: torch.full((len(rows), len(counts)), torch.nan) for name, rows in orders.items()}

    def keep_edges(rows: list[list[int]]) -> list[float]:
        return margins_of(inspector, trace, target, [[edges[i] for i in row] for row in rows], parts_as)

    for column, count in enumerate(counts):
        found = iter(keep_edges([row[:count] for rows in orders.values() for row in rows]))
        for table in margins.values():
            table[:, column] = torch.tensor([next(found) for _ in table])
        if progress is not None and progress(column + 1, len(counts)) is False:
            break
    curve = {size: one for size, one in zip(counts, margins["share"][0].tolist(), strict=True) if one == one}
    stable = edge_subsets.preserving([*curve], [*curve.values()])[1]
    if counts[-1] in curve and stable:  # between the last tried size that fails and the next one
        low = max(size for size in curve if size < stable)
        while stable - low > max(1, len(edges) // 500):
            middle = (low + stable) // 2
            (curve[middle],) = keep_edges([range(middle)])
            low, stable = (low, middle) if curve[middle] > 0 else (middle, stable)
    return SufficientEdges(edges, shares, counts, margins, parts_as, tuple(sorted(curve.items())))


def require_prediction(trace: Trace) -> None:
    """UnsupportedModel for a head of values: no part of the model could keep its prediction."""
    if trace.head_type == "value":
        raise UnsupportedModel(LocalizedText(NO_PREDICTION, checkpoint=trace.checkpoint))


def ranked_edges(
    inspector: Inspector, trace: Trace, target: TargetLike, parts_as: str = "mean"
) -> tuple[tuple[Edge, ...], Tensor]:
    """All edges into values and the answer with what flows along them, beyond what would stand in its place;
    the largest |share| first.
    """
    (ledger, basis), stream = (
        _resolve_target(inspector, trace, target, False),
        record_stream(inspector, trace),
    )
    usual = _usual(inspector, ledger, stream, parts_as)
    heads, positions = trace.layers[0].heads, stream.positions is not None
    edges = edge_subsets.every_edge(len(trace.layers), heads, positions and usual is None)
    shares = edge_subsets.shares_of(ledger, stream if usual is None else less(stream, usual), basis, edges)
    order = shares.abs().argsort(descending=True, stable=True)
    return tuple(edges[i] for i in order.tolist()), shares[order]


def margins_of(
    inspector: Inspector, trace: Trace, target: TargetLike, kept: Sequence[Sequence[Edge]],
    parts_as: str = "mean"
) -> list[float]:  # fmt: skip
    """The target's margin over the next class with each set of edges alone, in logits."""
    trace = inspector.answered(trace)
    require_prediction(trace)
    ledger, stream = balanced_ledger(inspector, trace), record_stream(inspector, trace)
    usual, classes = _usual(inspector, ledger, stream, parts_as), classes_of(trace, target)
    side = trace.prediction if trace.head_type == "sigmoid" else None  # of a yes or no
    heads, positions = trace.layers[0].heads, stream.positions is not None
    edges = edge_subsets.every_edge(len(trace.layers), heads, positions and usual is None)
    writers = 2 + len(trace.layers) * (heads + 1)
    batch = min(8, max(1, ROOM // (writers * stream.embedding.nbytes)))
    found = []
    for first in range(0, len(kept), batch):
        removals = []
        for some in map(set, kept[first : first + batch]):
            removals.append(defaultdict(list))
            for edge in edges:
                if edge not in some:
                    removals[-1][edge.reader].append(edge.writer)
        logits = without_edges(inspector, ledger, stream, removals, usual)
        found += edge_subsets.margin_of(logits.double(), classes, side).tolist()
    return found


def record_stream(inspector: Inspector, trace: Trace) -> Stream:
    """What was written in a trace's pass: recorded once a trace, and kept for the last few."""
    with _lock:
        found = _streams.get(trace)
    if found is None:
        found = stream_of(inspector, trace)
        with _lock:
            for old in list(_streams)[: 1 - KEPT]:
                _streams.pop(old, None)
            _streams[trace] = found
    return found


def _usual(inspector: Inspector, ledger: LogitTerms, stream: Stream, parts_as: str) -> Stream | None:
    if parts_as not in ("mean", "zero"):
        raise VitvizError(f"Given parts_as={quoted(parts_as)}; expected 'mean' or 'zero'.")
    return usual_of(inspector, ledger, stream) if parts_as == "mean" else None


def _resolve_target(
    inspector: Inspector, trace: Trace, target: TargetLike, relative: bool
) -> tuple[LogitTerms, object]:
    ledger = balanced_ledger(inspector, trace)
    asked = target_of(ledger.trace, ledger.readout, target, relative)
    return ledger, directions(ledger, asked.direction)[0]


def _sound(found, trace: Trace, largest: float | None = None):
    """What was found, if its lines add up."""
    if largest is None:
        largest = max(abs(part) for _, part in found.lines())
    if not abs(found.gap) <= TOLERANCE * largest:
        figures = {"found": f"{abs(found.gap) / largest:.1e}", "allowed": f"{TOLERANCE:.0e}"}
        raise UnsupportedModel(not_applicable(trace.checkpoint, LocalizedText(ASTRAY, **figures)))
    return found
