"""Public: who wrote what a head reads, and why it looks there, asked of an inspector and a trace."""

import itertools
import threading
from collections.abc import Callable, Sequence
from weakref import WeakKeyDictionary

import torch

from vitviz.analyses import writers as formulas
from vitviz.analyses.effects import SIDES, EdgeEffects, edges_into, sampled
from vitviz.analyses.evidence import account_of, directions
from vitviz.analyses.ledger import Ledger
from vitviz.analyses.target import Asked, classes_of, score_of, target_of
from vitviz.analyses.writers import Paths, Score, Stream, Writers
from vitviz.engine.asking.models import balanced_ledger
from vitviz.engine.inspector import Inspector
from vitviz.engine.passes.edges import without_edges
from vitviz.engine.passes.streams import stream_of
from vitviz.errors import UnsupportedModel, VitvizError
from vitviz.record.sentence import Sentence, not_applicable
from vitviz.record.trace import Trace

KEPT = 2  # pictures whose recordings are kept
TOLERANCE = 1e-4  # of the largest line
ASTRAY = (
    "what its heads read is explained by its writers only to {found} of the largest, where {allowed} is"
    " expected"
)
_streams: WeakKeyDictionary[Trace, Stream] = WeakKeyDictionary()
_lock = threading.Lock()


def writers(
    inspector: Inspector, trace: Trace, target: Asked, layer: int, head: int, *, relative: bool = False,
    via: Sequence[tuple[int, int]] = (),
) -> Writers:  # fmt: skip
    """A head's share of a logit by who wrote what it reads: the lines add up to its share in `evidence`.

    `target` and `relative` as for `evidence`; layers and heads from 0. `via`: the heads through which the
    answer is reached, the answer's first, where it is a path that is followed back. In logits: `.heads`
    (layer, head) and `.biases`, `.mlps` (layer), NaN from this layer on, `.embedding`, `.positions` (None
    without learned absolute positions), `.constant`, with `.total` and what it leaves unexplained, `.gap`;
    `.by_token` has the same with a last axis, token (prefix first). One pass a picture records what was
    written; more heads of it take no pass. Raises VitvizError for what does not exist, UnsupportedModel, with
    the reason, where the sum does not hold. Source: `vitviz.analyses.writers`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> trace = inspector.trace(vitviz.sample_image("chelsea"))
    >>> found = writers(inspector, trace, trace.top(1)[0][0], layer=7, head=1)
    >>> abs(found.gap) < 1e-5, found.by_token.mlps.shape
    (True, torch.Size([8, 197]))
    """
    ledger, basis = _asked(inspector, trace, target, relative)
    return _sound(formulas.writers_of(ledger, recorded(inspector, trace), basis, layer, head, via), trace)


def score_account(
    inspector: Inspector,
    trace: Trace,
    layer: int,
    head: int,
    query: int,
    key: int,
    against: int | None = None,
) -> Score:
    """One score before the softmax by who wrote the query's side and who the key's: `.matrix` adds up to it.

    `query` and `key`: tokens from 0, prefix first. `.writers` names rows and columns, `.rest` is a relative
    bias, `.total` the sum of all and `.gap` what it leaves unexplained of the model's own `.score`. What is
    the same for all keys moves no attention: `.relative` and `.relative_rest` are less the mean over keys, or
    the key `against`. `.content_position` are four numbers of that (None without E_pos). Raises as `writers`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = score_account(inspector, inspector.trace(vitviz.sample_image("chelsea")), 2, 0, 0, 100)
    >>> abs(found.gap) < 1e-4, found.content_position.shape
    (True, torch.Size([2, 2]))
    """
    ledger = balanced_ledger(inspector, trace)
    found = formulas.score_of(ledger, recorded(inspector, trace), layer, head, query, key, against)
    return _sound(found, trace, found.matrix.abs().max().item())


def paths(
    inspector: Inspector, trace: Trace, target: Asked, count: int = 12, *, opened: int = 24, relative=False
) -> Paths:
    """The `count` largest paths, by |share|, from writers through heads into an answer, by opening so many.

    `.paths`: (heads from the answer back, writer, share in logits); with `.left_out` they add up to `.total`,
    the heads' shares of the logit. They stop at an MLP's result. Raises as `writers`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> found = paths(inspector, inspector.trace(vitviz.sample_image("chelsea")), 0, count=5)
    >>> abs(sum(path.share for path in found.paths) + found.left_out - found.total) < 1e-5
    True
    """
    ledger, basis = _asked(inspector, trace, target, relative)
    shares = account_of(ledger, target, relative).heads
    return formulas.paths_of(ledger, recorded(inspector, trace), basis, shares, count, opened)


def edge_effects(
    inspector: Inspector, trace: Trace, target: Asked, layer: int | None = None, head: int | None = None, *,
    into: str = "value", parts_as: str = "mean", count: int | None = None, seed: int = 0, batch: int = 8,
    progress: Callable[[int, int], bool | None] | None = None,
) -> EdgeEffects:  # fmt: skip
    """What a logit loses when one head's input lacks a writer's part: a real pass an edge, beside its share.

    Edges end in the values (or `into` "query" or "key") of one head, or, without `layer` and `head`, of all;
    `count` of them, drawn by `seed`, are run. `parts_as`: "mean" over the reference set (the embedding's,
    over this picture's patches) or "zero". `progress(done, of)` ends it by returning False. `.edges`,
    `.effects`, `.shares` (none for queries and keys), `.correlation` and how many edges there are, `.of`.
    Raises as `writers`; UnsupportedModel for a part in several inputs. Source: `vitviz.analyses.effects`.

    >>> import vitviz
    >>> inspector = vitviz.load("vitviz-tiny")
    >>> trace = inspector.trace(vitviz.sample_image("chelsea"))
    >>> edge_effects(inspector, trace, 0, 7, 1, count=4).effects.shape
    torch.Size([4])
    """
    if into not in SIDES or (layer is None) != (head is None):
        raise VitvizError(f"Given into={into!r}, layer={layer!r}, head={head!r}; expected into to be one of"
                          f" {', '.join(SIDES)}, and a layer with its head, or neither.")  # fmt: skip
    (ledger, basis), stream = _asked(inspector, trace, target, False), recorded(inspector, trace)
    layers, heads = len(trace.layers), trace.layers[0].heads
    ends = [(layer, head)] if layer is not None else itertools.product(range(layers), range(heads))
    positions, classes = stream.positions is not None, classes_of(ledger.trace, target)
    every = [edge for end in ends for edge in edges_into(*end, heads, into, positions)]
    some = sampled(every, count, seed)
    effects, shares = torch.full((2, len(some)), float("nan"), dtype=torch.float64)
    whole = score_of(without_edges(inspector, ledger, stream, [{}], parts_as).double(), classes)
    for first in range(0, len(some), batch):
        asked = some[first : first + batch]
        removals = [{(one.into, one.layer, one.head): [one.writer]} for one in asked]
        found = without_edges(inspector, ledger, stream, removals, parts_as)
        effects[first : first + len(asked)] = whole - score_of(found.double(), classes)
        if progress is not None and progress(first + len(asked), len(some)) is False:
            break
    if into == "value":
        lines = {
            end: dict(formulas.writers_of(ledger, stream, basis, *end).lines())
            for end in {(one.layer, one.head) for one in some}
        }
        shares[:] = torch.tensor([lines[one.layer, one.head][one.writer] for one in some])
    return EdgeEffects(tuple(some), effects, shares, len(every), parts_as)


def recorded(inspector: Inspector, trace: Trace) -> Stream:
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


def _asked(inspector: Inspector, trace: Trace, target: Asked, relative: bool) -> tuple[Ledger, object]:
    ledger = balanced_ledger(inspector, trace)
    asked = target_of(ledger.trace, ledger.readout, target, relative)
    return ledger, directions(ledger, asked.direction)[0]


def _sound(found, trace: Trace, largest: float | None = None):
    """What was found, if its lines add up."""
    if largest is None:
        largest = max(abs(part) for _, part in found.lines())
    if not abs(found.gap) <= TOLERANCE * largest:
        figures = {"found": f"{abs(found.gap) / largest:.1e}", "allowed": f"{TOLERANCE:.0e}"}
        raise UnsupportedModel(not_applicable(trace.checkpoint, Sentence(ASTRAY, **figures)))
    return found
