"""The largest paths into an answer against all paths of a small model, each carried forward by hand."""

import itertools
from dataclasses import replace

import pytest
import torch

import vitviz
from tests.engine.accounts import pixels_for, small_model, trace_and_readout
from vitviz import analyses
from vitviz.analyses.logit_account import attribution_of, directions
from vitviz.analyses.paths import largest_paths
from vitviz.analyses.target import resolve_target
from vitviz.analyses.upstream import Writer
from vitviz.engine.forward.edges import recorded_stream

LAYERS = HEADS = 4


def by_hand(model, pixels, target):
    """Return every path's share of a logit: each writer's own result goes through its heads and the head."""
    dim, shares, read, scores = model.embed_dim // HEADS, {}, [], []
    patches = model.patch_embed(pixels)[0]
    place = model.pos_embed[0]
    x = torch.cat([model.cls_token[0], patches]) + place
    writers = [(Writer("positions"), place), (Writer("embedding"), x - place)]

    def centred(x):
        return x - x.mean(dim=-1, keepdim=True)

    def deviation(x, norm):
        return (centred(x).square().mean(dim=-1, keepdim=True) + norm.eps).sqrt()

    for layer, block in enumerate(model.blocks):
        read.append(deviation(x, block.norm1))
        q, k, _ = block.attn.qkv(block.norm1(x)).unflatten(-1, (3, HEADS, dim)).permute(1, 2, 0, 3)
        scores.append((q @ k.mT / dim**0.5).softmax(dim=-1))
        x = x + block.attn(block.norm1(x)[None])[0]
        mlp = block.mlp(block.norm2(x))
        x = x + mlp
        bias = block.attn.proj.bias.expand_as(x)
        writers += [(Writer("bias", layer), bias), (Writer("mlp", layer), mlp)]
    row = model.norm.weight * model.head.weight[target] / deviation(x[:1], model.norm)

    def through(layer, head, x):
        """What a head makes of x alone, and of nothing but its biases."""
        block, some = model.blocks[layer], slice(dim * head, dim * head + dim)
        weight, bias = (one[2 * model.embed_dim :] for one in (block.attn.qkv.weight, block.attn.qkv.bias))
        values = centred(x) / read[layer] * block.norm1.weight @ weight[some].T
        constant = (block.norm1.bias @ weight[some].T + bias[some]).expand_as(values)
        return (scores[layer][head] @ one @ block.attn.proj.weight[:, some].T for one in (values, constant))

    def onward(x, trail, writer):
        """Follow what stands behind a path's last head, and all ways on from there."""
        shares[trail, writer] = (centred(x[:1]) * row).sum().item()
        for layer, head in itertools.product(range(trail[0][0] + 1, LAYERS), range(HEADS)):
            onward(next(through(layer, head, x)), ((layer, head), *trail), writer)

    for layer, head in itertools.product(range(LAYERS), range(HEADS)):
        for writer, x in writers:
            if writer.layer is None or writer.layer < layer:
                onward(next(through(layer, head, x)), ((layer, head),), writer)
        onward([*through(layer, head, x)][1], ((layer, head),), Writer("constant"))
    return shares


@pytest.fixture(scope="module")
def small():
    """A model of four layers with four heads each: its ledger and stream, and all its 2,176 paths by hand."""
    model = small_model("class", depth=LAYERS, num_heads=HEADS)
    pixels = pixels_for(model)
    trace, tail = trace_and_readout(model, pixels)
    ledger, stream = analyses.logit_terms(trace, tail), recorded_stream(model, pixels, trace)
    basis = directions(ledger, resolve_target(trace, tail, 1).direction)[0]
    with torch.no_grad():
        every = by_hand(model, pixels, 1)
    return (ledger, stream, basis, attribution_of(ledger, 1).heads), every


@pytest.mark.parametrize("count", [1, 12, 60])
def test_paths_that_are_proven_are_the_largest_of_all(small, count):
    given, every = small
    assert len(every) == 2176
    found = largest_paths(*given, count)
    assert found.proven and found.opened < 340  # of 624
    order = sorted(every, key=lambda one: -abs(every[one]))
    assert [(one.heads, one.writer) for one in found.paths] == order[:count]
    assert [one.share for one in found.paths] == pytest.approx([every[one] for one in order[:count]])
    assert found.bound >= abs(every[order[count]]) - 1e-12
    assert found.total == pytest.approx(sum(every.values()))
    assert found.left_out == pytest.approx(found.total - sum(one.share for one in found.paths))


@pytest.mark.parametrize("opened", [0, 30, 100])
def test_no_unlisted_path_exceeds_the_bound_of_a_search_that_ends_early(small, opened):
    given, every = small
    found = largest_paths(*given, 60, opened)
    assert not found.proven and found.opened == max(opened, LAYERS * HEADS)  # every head once
    listed = {(one.heads, one.writer) for one in found.paths}
    others = [abs(share) for path, share in every.items() if path not in listed]
    assert max(others) <= found.bound + 1e-12 and found.bound > abs(found.paths[-1].share)
    first = found.first(7)
    others += [abs(one.share) for one in found.paths[7:]]
    assert len(first.paths) == 7 and first.bound >= max(others)
    assert first.left_out == pytest.approx(first.total - sum(one.share for one in first.paths))


def test_a_search_of_everything_lists_every_path(small):
    given, every = small
    found = largest_paths(*given, 10**4)
    assert {(one.heads, one.writer): one.share for one in found.paths} == pytest.approx(every, abs=1e-12)
    assert found.proven and found.bound == 0 and found.opened == 624


def test_a_replaced_head_ends_a_path(small):
    (ledger, stream, basis, _), every = small
    layers = list(ledger.trace.layers)
    layers[1] = replace(layers[1], replaced=(2,), given=layers[1].output()[[2]])  # what it handed on itself
    ledger = analyses.logit_terms(replace(ledger.trace, layers=tuple(layers)), ledger.readout)
    given = ledger, stream, basis, attribution_of(ledger, 1).heads
    found = largest_paths(*given, 10**4)
    expected = {}
    for (heads, writer), share in every.items():
        path = (heads[: heads.index((1, 2)) + 1], None) if (1, 2) in heads else (heads, writer)
        expected[path] = expected.get(path, 0.0) + share
    assert {(one.heads, one.writer): one.share for one in found.paths} == pytest.approx(expected, abs=1e-12)
    few = largest_paths(*given, 9)
    assert few.proven and few.paths == found.paths[:9]


def test_the_largest_path_lies_on_a_head_whose_parts_cancel(inspector, trace):
    """A search that opens heads by their net share alone never opens this one."""
    target = int(trace.logits.argmax())
    found = vitviz.attribution_paths(inspector, trace, target)
    largest = found.paths[0]
    assert found.proven and (largest.heads, largest.writer) == (((7, 1),), Writer("mlp", 0))
    assert largest.share == pytest.approx(1.265, abs=1e-3)
    written = vitviz.upstream_contributions(inspector, trace, target, 7, 1).mlps[0].item()
    assert largest.share == pytest.approx(written, abs=1e-4)
