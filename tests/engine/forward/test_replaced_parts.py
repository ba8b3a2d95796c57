"""Replacement outputs of heads and MLPs, against the model edited by hooks."""

import pytest
import torch
from torch.testing import assert_close

import vitviz
from tests.engine.constructions import QUICK
from tests.engine.forward.ablation_oracle import (
    FAMILIES,
    head_and_mlp_outputs,
    inspector_of,
    logits_with_replacements,
    pixels_of,
)
from tests.engine.forward.cases import HEADS, MLPS, TOLERANCES
from tests.engine.random_inspectors import noise
from tests.tiers import sweep
from vitviz import Ablation


@pytest.mark.parametrize("how", ["mean", "tokens", "zero", "other"])
@sweep("family", FAMILIES, quick=QUICK)
def test_heads_and_mlps_output_their_replacement(family, how):
    inspector = inspector_of(family)
    model = inspector.model
    other = None if how != "other" else "one"
    trace = inspector.trace(
        noise(),
        ablation=Ablation(heads=HEADS, mlps=MLPS, heads_as=how, other=other),
        other=other and noise(5),
    )
    images = (
        [vitviz.sample_image(name) for name in ("chelsea", "coffee", "astronaut", "rocket")]
        if how == "mean"
        else [noise(5)]
    )
    outputs = [head_and_mlp_outputs(model, pixels_of(inspector, image)) for image in images]
    heads, mlps = (
        [sum(each) / len(outputs) for each in zip(*(output[kind] for output in outputs), strict=True)]
        for kind in (0, 1)
    )
    replacements = {
        "tokens": (
            lambda layer, head: lambda given: given.mean(dim=-2, keepdim=True),
            lambda given: given.mean(dim=-2, keepdim=True),
        ),
        "zero": (lambda layer, head: torch.zeros_like, torch.zeros_like),
    }
    head_gives, mlp_gives = replacements.get(
        how, (lambda layer, head: lambda given: heads[layer][head], lambda given: mlps[1])
    )
    expected = logits_with_replacements(
        model,
        pixels_of(inspector),
        {(layer, head): head_gives(layer, head) for layer, head in HEADS},
        {1: mlp_gives},
    )
    assert_close(trace.logits, expected, **TOLERANCES)
