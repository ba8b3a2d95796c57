"""The truth check reads some queries of every layer: what is wrong in the record must show in them."""

from dataclasses import replace

import pytest
import torch

from tests.engine.looking import inspect, noise, perturbed
from vitviz.engine.forward import capture, tracing
from vitviz.engine.forward.recording import sampled_queries
from vitviz.errors import UnsupportedModel
from vitviz.traces.trace import Bias

NAMES = ["vit_tiny_patch16_224", "beit_base_patch16_224", "eva02_tiny_patch14_224"]
true_of = tracing.to_attention


def scaled(attention, layer):
    return replace(attention, scale=attention.scale * 1.1)


def heads_moved(attention, layer):
    return replace(attention, v=attention.v.roll(1, 1))


def queries_moved(attention, layer):
    return replace(attention, q=attention.q.roll(1, 2))


def a_seventh_of_the_queries_in_one_layer(attention, layer):
    if layer != 1:
        return attention
    q, part = attention.q.clone(), attention.q.shape[2] // 7
    q[:, :, 2 * part : 3 * part] += 0.5
    return replace(attention, q=q)


def a_key_hidden(attention, layer):
    tokens = attention.q.shape[2]
    mask = torch.zeros(1, 1, 1, tokens)
    mask[..., tokens // 2] = float("-inf")
    return replace(attention, bias=Bias(dense=mask))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "wrong", [scaled, heads_moved, queries_moved, a_seventh_of_the_queries_in_one_layer, a_key_hidden]
)
def test_a_wrong_record_is_refused(name, wrong, monkeypatch):
    layers = iter(range(100))

    def to_attention(*given):
        return wrong(true_of(*given), next(layers))

    monkeypatch.setattr(tracing, "to_attention", to_attention)
    with pytest.raises(UnsupportedModel, match="cannot be read truthfully"):
        inspect(perturbed(name, depth=2)).trace(noise())


@pytest.mark.parametrize("mask", [None, "another head's"])
def test_a_bias_that_is_left_out_or_mixed_up_is_refused(mask, monkeypatch):
    true = tracing.biases_of

    def changed(bias):
        return replace(bias, table=torch.zeros_like(bias.table) if mask is None else bias.table.roll(1, 0))

    monkeypatch.setattr(tracing, "biases_of", lambda *given: list(map(changed, true(*given))))
    with pytest.raises(UnsupportedModel, match="cannot be read truthfully"):
        inspect(perturbed("vit_relpos_small_patch16_224", depth=2)).trace(noise())


def test_layers_in_another_order_are_refused(monkeypatch):
    true = tracing.to_trace_batch

    def batch_of(*given):
        batch = true(*given)
        return replace(batch, layers=batch.layers[::-1])

    monkeypatch.setattr(tracing, "to_trace_batch", batch_of)
    with pytest.raises(UnsupportedModel, match="block 1 the recorded attention"):
        inspect(perturbed("vit_tiny_patch16_224", depth=2)).trace(noise())


def test_calls_that_are_counted_to_another_layer_are_refused(monkeypatch):
    true = capture.AttentionInterceptor.on_event

    def on_event(self, moment, layer, args, output):
        given = true(self, moment, layer, args, output)
        self._layer = 1 - layer if moment == "input" else self._layer
        return given

    monkeypatch.setattr(capture.AttentionInterceptor, "on_event", on_event)
    with pytest.raises(UnsupportedModel, match="goes on with nothing"):
        inspect(perturbed("vit_tiny_patch16_224", depth=2)).trace(noise())


def test_every_layer_is_looked_at_and_a_size_is_trusted_only_afterwards(monkeypatch):
    inspector = inspect(perturbed("vit_tiny_patch16_224", depth=3))
    monkeypatch.setattr(tracing, "to_attention", lambda *given: scaled(true_of(*given), 0))
    for _ in range(2):  # a refusal is no pass
        with pytest.raises(UnsupportedModel):
            inspector.trace(noise())
    monkeypatch.setattr(tracing, "to_attention", true_of)
    inspector.trace(noise())
    monkeypatch.setattr(tracing, "to_attention", lambda *given: scaled(true_of(*given), 0))
    with pytest.raises(UnsupportedModel):
        inspector.trace(noise(), 96)


def test_the_queries_are_spread_over_the_sequence_and_the_same_every_time():
    for tokens in (1, 40, 41, 197, 577, 4097):
        for layer in (0, 11):
            queries = sampled_queries(tokens, layer)
            assert torch.equal(queries, sampled_queries(tokens, layer)) and (queries.diff() > 0).all()
            assert 0 <= queries[0] and queries[-1] == tokens - 1
            assert set(range(min(tokens, 8))) <= set(queries.tolist())
            assert max([1, *queries.diff().tolist()]) <= max(1, 2 * tokens // 32)
    assert not torch.equal(sampled_queries(197, 0), sampled_queries(197, 1))
