"""What stands in the place of heads and MLPs, against the model changed by hand."""

import pytest
import torch
from torch.testing import assert_close

import vitviz
from tests.engine.accounts import QUICK
from tests.engine.forward.ablation_oracle import FAMILIES, handed, inspector_of, pixels_of, put
from tests.engine.forward.helpers import HEADS, MLPS, near
from tests.engine.looking import noise
from tests.tiers import sweep
from vitviz import Ablation


@pytest.mark.parametrize("how", ["mean", "tokens", "zero", "other"])
@sweep("family", FAMILIES, quick=QUICK)
def test_heads_and_mlps_give_what_is_put_in_their_place(family, how):
    inspector = inspector_of(family)
    model = inspector.model
    other = None if how != "other" else "one"
    trace = inspector.trace(
        noise(), ablation=Ablation(heads=HEADS, mlps=MLPS, heads_as=how, other=other), other=noise(5)
    )
    pictures = (
        [vitviz.sample_image(name) for name in ("chelsea", "coffee", "astronaut", "rocket")]
        if how == "mean"
        else [noise(5)]
    )
    seen = [handed(model, pixels_of(inspector, picture)) for picture in pictures]
    heads, mlps = (
        [sum(each) / len(seen) for each in zip(*(one[kind] for one in seen), strict=True)] for kind in (0, 1)
    )
    known = {
        "tokens": (
            lambda layer, head: lambda given: given.mean(dim=-2, keepdim=True),
            lambda given: given.mean(dim=-2, keepdim=True),
        ),
        "zero": (lambda layer, head: torch.zeros_like, torch.zeros_like),
    }
    head_gives, mlp_gives = known.get(
        how, (lambda layer, head: lambda given: heads[layer][head], lambda given: mlps[1])
    )
    expected = put(
        model,
        pixels_of(inspector),
        {(one, head): head_gives(one, head) for one, head in HEADS},
        {1: mlp_gives},
    )
    assert_close(trace.logits, expected, **near)
