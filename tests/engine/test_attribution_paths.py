"""The largest attribution paths, against all paths of a small model, each computed by hand."""

import itertools
from dataclasses import replace

import pytest
import torch

import vitviz
from tests.engine.constructions import pixels_for, small_model, trace_and_readout
from vitviz import analyses
from vitviz.analyses.logit_account import attribution_of, directions
from vitviz.analyses.paths import largest_paths
from vitviz.analyses.target import resolve_target
from vitviz.analyses.upstream import Writer
from vitviz.engine.forward.edges import recorded_stream

LAYERS = HEADS = 4


def paths_by_hand(model, pixels, target):
    """Return every path's contribution to a logit: each component's output passes through its heads and the
    classifier.
    """
    dim, shares, deviations, scores = model.embed_dim // HEADS, {}, [], []
    patches = model.patch_embed(pixels)[0]
    positions = model.pos_embed[0]
    x = torch.cat([model.cls_token[0], patches]) + positions
    writers = [(Writer("positions"), positions), (Writer("embedding"), x - positions)]

    def centred(x):
        return x - x.mean(dim=-1, keepdim=True)

    def deviation(x, norm):
        return (centred(x).square().mean(dim=-1, keepdim=True) + norm.eps).sqrt()

    for layer, block in enumerate(model.blocks):
        deviations.append(deviation(x, block.norm1))
        q, k, _ = block.attn.qkv(block.norm1(x)).unflatten(-1, (3, HEADS, dim)).permute(1, 2, 0, 3)
        scores.append((q @ k.mT / dim**0.5).softmax(dim=-1))
        x = x + block.attn(block.norm1(x)[None])[0]
        mlp = block.mlp(block.norm2(x))
        x = x + mlp
        bias = block.attn.proj.bias.expand_as(x)
        writers += [(Writer("bias", layer), bias), (Writer("mlp", layer), mlp)]
    row = model.norm.weight * model.head.weight[target] / deviation(x[:1], model.norm)

    def head_outputs(layer, head, x):
        """Return a head's output for x alone, and for its biases alone."""
        block, some = model.blocks[layer], slice(dim * head, dim * head + dim)
        weight, bias = (
            parameter[2 * model.embed_dim :] for parameter in (block.attn.qkv.weight, block.attn.qkv.bias)
        )
        values = centred(x) / deviations[layer] * block.norm1.weight @ weight[some].T
        constant = (block.norm1.bias @ weight[some].T + bias[some]).expand_as(values)
        return (
            scores[layer][head] @ parameter @ block.attn.proj.weight[:, some].T
            for parameter in (values, constant)
        )

    def extend_path(x, trail, writer):
        """Add the contribution of the path so far, and follow all later heads."""
        shares[trail, writer] = (centred(x[:1]) * row).sum().item()
        for layer, head in itertools.product(range(trail[0][0] + 1, LAYERS), range(HEADS)):
            extend_path(next(head_outputs(layer, head, x)), ((layer, head), *trail), writer)

    for layer, head in itertools.product(range(LAYERS), range(HEADS)):
        for writer, x in writers:
            if writer.layer is None or writer.layer < layer:
                extend_path(next(head_outputs(layer, head, x)), ((layer, head),), writer)
        extend_path([*head_outputs(layer, head, x)][1], ((layer, head),), Writer("constant"))
    return shares


@pytest.fixture(scope="module")
def small_case():
    """Return the terms and stream of a model of four layers with four heads, and all its 2,176 paths by
    hand.
    """
    model = small_model("class", depth=LAYERS, num_heads=HEADS)
    pixels = pixels_for(model)
    trace, tail = trace_and_readout(model, pixels)
    ledger, stream = analyses.logit_terms(trace, tail), recorded_stream(model, pixels, trace)
    basis = directions(ledger, resolve_target(trace, tail, 1).direction)[0]
    with torch.no_grad():
        all_paths = paths_by_hand(model, pixels, 1)
    return (ledger, stream, basis, attribution_of(ledger, 1).heads), all_paths


@pytest.mark.parametrize("count", [1, 12, 60])
def test_proven_paths_are_largest_of_all(small_case, count):
    arguments, all_paths = small_case
    assert len(all_paths) == 2176
    result = largest_paths(*arguments, count)
    assert result.proven and result.opened < 340  # of 624
    order = sorted(all_paths, key=lambda path: -abs(all_paths[path]))
    assert [(path.heads, path.writer) for path in result.paths] == order[:count]
    assert [path.share for path in result.paths] == pytest.approx([all_paths[path] for path in order[:count]])
    assert result.bound >= abs(all_paths[order[count]]) - 1e-12
    assert result.total == pytest.approx(sum(all_paths.values()))
    assert result.left_out == pytest.approx(result.total - sum(path.share for path in result.paths))


@pytest.mark.parametrize("opened", [0, 30, 100])
def test_bound_of_stopped_search_covers_unlisted_paths(small_case, opened):
    arguments, all_paths = small_case
    result = largest_paths(*arguments, 60, opened)
    # every head is opened once
    assert not result.proven and result.opened == max(opened, LAYERS * HEADS)
    listed = {(path_entry.heads, path_entry.writer) for path_entry in result.paths}
    other_shares = [abs(share) for path, share in all_paths.items() if path not in listed]
    assert max(other_shares) <= result.bound + 1e-12 and result.bound > abs(result.paths[-1].share)
    first = result.first(7)
    other_shares += [abs(path_entry.share) for path_entry in result.paths[7:]]
    assert len(first.paths) == 7 and first.bound >= max(other_shares)
    assert first.left_out == pytest.approx(first.total - sum(path_entry.share for path_entry in first.paths))


def test_unlimited_search_lists_every_path(small_case):
    arguments, all_paths = small_case
    result = largest_paths(*arguments, 10**4)
    assert {(path.heads, path.writer): path.share for path in result.paths} == pytest.approx(
        all_paths, abs=1e-12
    )
    assert result.proven and result.bound == 0 and result.opened == 624


def test_replaced_head_ends_paths(small_case):
    (ledger, stream, basis, _), all_paths = small_case
    layers = list(ledger.trace.layers)
    # replaced by its own output
    layers[1] = replace(layers[1], replaced=(2,), given=layers[1].output()[[2]])
    ledger = analyses.logit_terms(replace(ledger.trace, layers=tuple(layers)), ledger.readout)
    arguments = ledger, stream, basis, attribution_of(ledger, 1).heads
    result = largest_paths(*arguments, 10**4)
    expected = {}
    for (heads, writer), share in all_paths.items():
        path = (heads[: heads.index((1, 2)) + 1], None) if (1, 2) in heads else (heads, writer)
        expected[path] = expected.get(path, 0.0) + share
    assert {
        (path_entry.heads, path_entry.writer): path_entry.share for path_entry in result.paths
    } == pytest.approx(expected, abs=1e-12)
    shorter = largest_paths(*arguments, 9)
    assert shorter.proven and shorter.paths == result.paths[:9]


def test_search_finds_path_through_head_with_cancelling_parts(inspector, trace):
    """A search that opens heads by net contribution alone never opens this head."""
    target = int(trace.logits.argmax())
    result = vitviz.attribution_paths(inspector, trace, target)
    largest = result.paths[0]
    assert result.proven and (largest.heads, largest.writer) == (((7, 1),), Writer("mlp", 0))
    assert largest.share == pytest.approx(1.265, abs=1e-3)
    upstream = vitviz.upstream_contributions(inspector, trace, target, 7, 1).mlps[0].item()
    assert largest.share == pytest.approx(upstream, abs=1e-4)
