"""The attention check samples queries of every layer. Errors in the recorded attention must show in these
queries.
"""

from dataclasses import replace

import pytest
import torch

from tests.engine.random_inspectors import inspect, noise, perturbed
from vitviz.engine.forward import capture, tracing
from vitviz.engine.forward.recording import sampled_queries
from vitviz.errors import UnsupportedModel
from vitviz.traces.trace import Bias

NAMES = ["vit_tiny_patch16_224", "beit_base_patch16_224", "eva02_tiny_patch14_224"]
true_of = tracing.to_attention


def scale_scores(attention, layer):
    return replace(attention, scale=attention.scale * 1.1)


def roll_heads(attention, layer):
    return replace(attention, v=attention.v.roll(1, 1))


def roll_queries(attention, layer):
    return replace(attention, q=attention.q.roll(1, 2))


def change_some_queries_in_one_layer(attention, layer):
    if layer != 1:
        return attention
    q, part = attention.q.clone(), attention.q.shape[2] // 7
    q[:, :, 2 * part : 3 * part] += 0.5
    return replace(attention, q=q)


def mask_one_key(attention, layer):
    tokens = attention.q.shape[2]
    mask = torch.zeros(1, 1, 1, tokens)
    mask[..., tokens // 2] = float("-inf")
    return replace(attention, bias=Bias(dense=mask))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    "corrupt", [scale_scores, roll_heads, roll_queries, change_some_queries_in_one_layer, mask_one_key]
)
def test_corrupted_attention_record_is_rejected(name, corrupt, monkeypatch):
    layers = iter(range(100))

    def to_attention(*args):
        return corrupt(true_of(*args), next(layers))

    monkeypatch.setattr(tracing, "to_attention", to_attention)
    with pytest.raises(UnsupportedModel, match="cannot be recorded correctly"):
        inspect(perturbed(name, depth=2)).trace(noise())


@pytest.mark.parametrize("mask", [None, "another head's"])
def test_missing_or_mixed_up_bias_is_rejected(mask, monkeypatch):
    original = tracing.biases_of

    def corrupt(bias):
        return replace(bias, table=torch.zeros_like(bias.table) if mask is None else bias.table.roll(1, 0))

    monkeypatch.setattr(tracing, "biases_of", lambda *args: list(map(corrupt, original(*args))))
    with pytest.raises(UnsupportedModel, match="cannot be recorded correctly"):
        inspect(perturbed("vit_relpos_small_patch16_224", depth=2)).trace(noise())


def test_reversed_layers_are_rejected(monkeypatch):
    original = tracing.to_trace_batch

    def batch_of(*args):
        batch = original(*args)
        return replace(batch, layers=batch.layers[::-1])

    monkeypatch.setattr(tracing, "to_trace_batch", batch_of)
    with pytest.raises(UnsupportedModel, match="block 1 the recorded attention"):
        inspect(perturbed("vit_tiny_patch16_224", depth=2)).trace(noise())


def test_calls_assigned_to_wrong_layer_are_rejected(monkeypatch):
    original = capture.AttentionInterceptor.on_event

    def on_event(self, moment, layer, args, output):
        result = original(self, moment, layer, args, output)
        self._layer = 1 - layer if moment == "input" else self._layer
        return result

    monkeypatch.setattr(capture.AttentionInterceptor, "on_event", on_event)
    with pytest.raises(UnsupportedModel, match="continues with nothing"):
        inspect(perturbed("vit_tiny_patch16_224", depth=2)).trace(noise())


def test_every_layer_is_checked_and_failed_check_is_repeated(monkeypatch):
    inspector = inspect(perturbed("vit_tiny_patch16_224", depth=3))
    monkeypatch.setattr(tracing, "to_attention", lambda *args: scale_scores(true_of(*args), 0))
    for _ in range(2):  # a rejected pass must not count as checked
        with pytest.raises(UnsupportedModel):
            inspector.trace(noise())
    monkeypatch.setattr(tracing, "to_attention", true_of)
    inspector.trace(noise())
    monkeypatch.setattr(tracing, "to_attention", lambda *args: scale_scores(true_of(*args), 0))
    with pytest.raises(UnsupportedModel):
        inspector.trace(noise(), 96)


def test_sampled_queries_cover_sequence_and_are_deterministic():
    for tokens in (1, 40, 41, 197, 577, 4097):
        for layer in (0, 11):
            queries = sampled_queries(tokens, layer)
            assert torch.equal(queries, sampled_queries(tokens, layer)) and (queries.diff() > 0).all()
            assert 0 <= queries[0] and queries[-1] == tokens - 1
            assert set(range(min(tokens, 8))) <= set(queries.tolist())
            assert max([1, *queries.diff().tolist()]) <= max(1, 2 * tokens // 32)
    assert not torch.equal(sampled_queries(197, 0), sampled_queries(197, 1))
