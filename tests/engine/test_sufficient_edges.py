"""Sufficient edges: contributions of edges as sums over all paths, and passes with some edges computed by
hand.
"""

import copy
import itertools
from dataclasses import replace

import pytest
import timm
import torch

import vitviz
from tests.engine.constructions import pixels_for
from tests.engine.upstream_cases import WEIGHTS, terms_and_stream
from tests.shared import shared_file
from vitviz.analyses import sufficient_edges
from vitviz.analyses.logit_account import attribution_of
from vitviz.analyses.upstream import Writer, upstream_of
from vitviz.engine.forward.edges import logits_without_edges, mean_replacements
from vitviz.engine.studies import circuits
from vitviz.errors import VitvizError

KINDS = [
    "registers",
    "average, then norm",
    "norm before the projection",
    "norms of queries and keys",
    "rotary",
]


def head_chains(layer, layers, heads):
    """Yield all chains of heads from above a layer to the output, the last head first."""
    above = range(layer + 1, layers)
    for count in range(len(above) + 1):
        for chosen in itertools.combinations(reversed(above), count):
            yield from itertools.product(
                *([(chosen_layer, head) for head in range(heads)] for chosen_layer in chosen)
            )


@pytest.mark.parametrize(
    "construction", [*KINDS, "RMSNorm, SwiGLU", "relative positions", "attention pooling"]
)
def test_edge_contribution_is_sum_over_all_paths(construction):
    _, ledger, stream, basis = terms_and_stream(construction)
    edges = sufficient_edges.every_edge(3, 3, stream.positions is not None)
    shares = dict(
        zip(edges, sufficient_edges.edge_shares(ledger, stream, basis, edges).tolist(), strict=True)
    )
    assert len(shares) == 3 * (0 + 4 + 8) + 3 * 4 + 10 * (1 + (stream.positions is not None))
    for layer, head in itertools.product(range(3), range(3)):
        by_writer = {}
        for via in head_chains(layer, 3, 3):
            for writer, part in upstream_of(ledger, stream, basis, layer, head, via).lines():
                by_writer[writer] = by_writer.get(writer, 0.0) + part
        for edge in edges:
            if (edge.into, edge.layer, edge.head) == ("value", layer, head):
                assert shares[edge] == pytest.approx(by_writer[edge.writer], abs=1e-11)
    account = attribution_of(ledger, 1)
    direct = {edge.writer: share for edge, share in shares.items() if edge.into == "answer"}
    for layer in range(3):
        heads = [direct[Writer("head", layer, head)] for head in range(3)]
        assert heads == pytest.approx(account.heads[layer].tolist(), abs=1e-11)
        assert direct[Writer("mlp", layer)] == pytest.approx(account.mlps[layer].item(), abs=1e-11)
    start = direct[Writer("embedding")] + direct.get(Writer("positions"), 0.0)
    assert start == pytest.approx(account.start, abs=1e-11)


def logits_by_hand(model, stream, usual, kept):
    """Return the logits of a plain ViT with only the kept edges: each head's values and the output have
    their own sums.
    """
    dim = model.embed_dim // model.blocks[0].attn.num_heads
    wrote = {Writer("embedding"): stream.embedding}
    if stream.positions is not None:
        wrote[Writer("positions")] = stream.positions
    instead = {one: getattr(usual, one.kind) if usual else 0 for one in wrote}
    always = 0.0

    def read(*end):
        some = (wrote[one] if (one, *end) in kept else instead[one] for one in wrote)
        return sum(some) + always + 0 * stream.embedding

    def scaled(scale, x):
        return x if isinstance(scale, torch.nn.Identity) else x * scale.gamma

    for layer, block in enumerate(model.blocks):
        entering, attention = sum(wrote.values()) + always, block.attn
        normed, added = block.norm1(entering), 0.0
        q, k, v = attention.qkv.weight.chunk(3)
        qb, kb, vb = attention.qkv.bias.chunk(3)
        new, usually = {}, {}
        for head in range(attention.num_heads):
            rows = slice(dim * head, dim * head + dim)
            one, two = normed @ q[rows].T + qb[rows], normed @ k[rows].T + kb[rows]
            one, two = attention.q_norm(one), attention.k_norm(two)
            value = block.norm1(read(layer, head, "value")) @ v[rows].T + vb[rows]
            handed = ((one @ two.T) * dim**-0.5).softmax(-1) @ value
            project = attention.proj.weight[:, rows].T
            new[Writer("head", layer, head)] = scaled(block.ls1, handed @ project)
            usually[Writer("head", layer, head)] = (
                scaled(block.ls1, usual.heads[layer][head] @ project) if usual else 0
            )
            added = added + new[Writer("head", layer, head)]
        bias = scaled(block.ls1, attention.proj.bias)
        always, mlp = always + bias, Writer("mlp", layer)
        new[mlp] = scaled(block.ls2, block.mlp(block.norm2(entering + added + bias)))
        usually[mlp] = usual.mlps[layer] if usual else 0
        wrote |= new
        instead |= usually
    last = model.norm(read(len(model.blocks), None, "answer")[None])
    return model.forward_head(last)[0]


def random_stream(stream):
    torch.manual_seed(1)
    drawn = {
        name: tuple(torch.randn_like(one) for one in getattr(stream, name)) for name in ("heads", "mlps")
    }
    return replace(stream, embedding=torch.randn_like(stream.embedding), **drawn)


@pytest.mark.parametrize("construction", ["registers", "average, then norm", "norms of queries and keys"])
@pytest.mark.parametrize("by", ["mean", "zero"])
def test_passes_with_kept_edges_equal_hand_computation(construction, by):
    model, ledger, stream, _ = terms_and_stream(construction)
    usual, edges = random_stream(stream) if by == "mean" else None, sufficient_edges.every_edge(3, 3, True)
    if by == "mean":
        edges = [one for one in edges if one.writer.kind != "positions"]  # the same for every image
    torch.manual_seed(0)
    edge_sets = [[], edges, [edges[i] for i in torch.randperm(len(edges))[: len(edges) // 2].tolist()]]
    removals = []
    for kept in edge_sets:
        removals.append({})
        for edge in edges:
            if edge not in kept:
                removals[-1].setdefault(edge.reader, []).append(edge.writer)
    with torch.no_grad():
        logits_by_set = logits_without_edges(model, pixels_for(model), ledger, stream, removals, usual)
        for logits, kept in zip(logits_by_set, edge_sets, strict=True):
            kept_tuples = set(map(tuple_of, kept))
            if by == "mean":
                kept_tuples |= {
                    tuple_of(one)
                    for one in sufficient_edges.every_edge(3, 3, True)
                    if one.writer.kind == "positions"
                }
            torch.testing.assert_close(
                logits, logits_by_hand(model, stream, usual, kept_tuples), atol=1e-11, rtol=0
            )
    torch.testing.assert_close(logits_by_set[1], ledger.trace.logits, atol=1e-11, rtol=0)
    assert (logits_by_set[0] - logits_by_set[2]).abs().max() > 1e-3


def tuple_of(edge):
    return edge.writer, edge.layer, edge.head, edge.into


@pytest.mark.long
def test_sufficient_edges_of_genuine_weights_equal_hand_computation():
    inspector = vitviz.load(shared_file(WEIGHTS), architecture="deit_tiny_patch16_224", device="cpu")
    trace = inspector.trace(shared_file("data/both.png"))
    found = vitviz.sufficient_edges(inspector, trace, draws=1)
    assert len(found.edges) == 3 * sum(1 + 4 * one for one in range(12)) + 1 + 12 * 4
    assert found.counts[0] == 0 and found.counts[-1] == len(found.edges)
    best, second = trace.logits.topk(2).values
    assert found.margins["share"][0, -1] == pytest.approx((best - second).item(), abs=1e-3)
    assert found.faithfulness()[0, [0, -1]].tolist() == [0, 1]
    ledger, stream = circuits.checked_logit_terms(inspector, trace), circuits.record_stream(inspector, trace)
    usual = mean_replacements(inspector, ledger, stream)
    model = copy.deepcopy(inspector.model).double()
    exact = [replace(one, embedding=one.embedding.double(), positions=one.positions.double(),
                     heads=tuple(part.double() for part in one.heads),
                     mlps=tuple(part.double() for part in one.mlps)) for one in (stream, usual)]  # fmt: skip
    positions = [one for one in sufficient_edges.every_edge(12, 3, True) if one.writer.kind == "positions"]
    top = int(trace.logits.argmax())
    for column in (0, 4):
        kept = {tuple_of(one) for one in (*found.edges[: found.counts[column]], *positions)}
        with torch.no_grad():
            logits = logits_by_hand(model, *exact, kept)
        others = torch.cat([logits[:top], logits[top + 1 :]]).max()
        assert found.margins["share"][0, column] == pytest.approx((logits[top] - others).item(), abs=2e-3)
    assert found.curve[0] == (0, found.margins["share"][0, 0].item()) and found.tried >= len(found.counts)
    effects = vitviz.edge_ablation(inspector, trace, top, count=3, seed=23, parts_as="zero")
    assert effects.of == len(found.edges) + 36 + 1  # positions have no mean of their own
    for edge, effect, share in zip(effects.edges, effects.effects, effects.shares, strict=True):
        if edge.into == "answer":  # only the norm and the head follow
            kind, layer, head = edge.writer
            assert kind == "head"  # as drawn with this seed
            weight = model.blocks[layer].attn.proj.weight[:, 64 * head : 64 * head + 64]
            with torch.no_grad():
                part = exact[0].heads[layer][head] @ weight.mT
                left = trace.tokens[-1].double() - torch.stack([0 * part, part])
                whole, without = model.forward_head(model.norm(left))[:, top]
            assert effect.item() == pytest.approx((whole - without).item(), abs=1e-3)
            direct = vitviz.logit_attribution(inspector, trace, top).heads[layer, head].item()
            assert share.item() == pytest.approx(direct, abs=1e-4)
            break
    else:
        raise AssertionError("no edge into the answer was drawn")
    stopped = vitviz.sufficient_edges(inspector, trace, effects=effects, progress=lambda done, of: False)
    assert stopped.margins["effect"].isfinite().sum() == 1 and stopped.tried == 1


@pytest.mark.long
def test_preserving_sizes_refer_to_tried_sizes_only(inspector):
    """For this image some larger sizes lose the prediction again, so no size can be claimed above which it
    is preserved.
    """
    trace = inspector.trace(vitviz.sample_image("chelsea"))
    found = vitviz.sufficient_edges(inspector, trace, draws=0, parts_as="zero")
    sizes = [size for size, _ in found.curve]
    assert sizes == sorted(set(sizes)) and found.tried == len(sizes) > len(found.counts)
    assert set(found.counts) <= set(sizes)

    def margins(sizes):
        kept = [found.edges[:size] for size in sizes]
        return circuits.kept_edge_margins(inspector, trace, int(trace.logits.argmax()), kept, "zero")

    assert [margin for _, margin in found.curve[::4]] == pytest.approx(margins(sizes[::4]), abs=1e-3)
    preserved = {size for size, margin in found.curve if margin > 0}
    assert found.smallest_preserving == min(preserved)
    assert found.preserving_from == min(
        size for size in preserved if {one for one in sizes if one >= size} <= preserved
    )
    between = range(found.preserving_from + 1, len(found.edges), 20)
    assert min(margins(between)) < 0, "an untried larger size loses the prediction"


@pytest.mark.parametrize(
    "margins, expected",
    [
        ([-1, 1, -1, 1, 1], (10, 30)),
        ([1, 1, 1, 1, 1], (0, 0)),
        ([-1, 1, 0, 1, -1], (10, None)),
        ([-1, -1, -1, -1, float("nan")], (None, None)),
    ],
)
def test_preserving_sizes_are_smallest_and_start_of_preserved_range(margins, expected):
    assert sufficient_edges.preserving_sizes([0, 10, 20, 30, 40], margins) == expected


def test_model_without_classifier_is_rejected():
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1, num_classes=0)
    features = vitviz.Inspector.of(model, mean=0.5, std=0.5, device="cpu")
    with pytest.raises(VitvizError, match="no classifier"):
        vitviz.sufficient_edges(features, features.trace(vitviz.sample_image("coffee")), draws=1)
