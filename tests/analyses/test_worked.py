import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.analyses import oracle
from vitviz.analyses.example import example_trace
from vitviz.analyses.worked import worked_row
from vitviz.errors import VitvizError
from vitviz.trace import Bias

GRID = oracle.GRIDS[2]


@pytest.mark.parametrize("factor, shifted", [(1.0, False), (500.0, True)])
@pytest.mark.parametrize("biased", [False, True])
def test_every_step_from_q_and_k_to_the_weights(factor, shifted, biased):
    trace = example_trace(GRID, heads=3, seed=1)
    call = replace(trace.layers[1], q=trace.layers[1].q * factor)
    bias = torch.randn(3, GRID.tokens, GRID.tokens, generator=torch.Generator().manual_seed(2)) if biased else None
    call = replace(call, bias=Bias(dense=bias) if biased else None)
    row = worked_row(replace(trace, layers=(trace.layers[0], call)), 1, 2, (1, 3))

    token = GRID.token(1, 3)
    q, k, v = call.q[2, token].double().tolist(), call.k[2].double().tolist(), call.v[2].double().tolist()
    products = [sum(a * b for a, b in zip(q, key, strict=True)) for key in k]
    scores = [product * call.scale + (bias[2, token, j].item() if biased else 0) for j, product in enumerate(products)]
    assert row.token == token and (row.shift != 0) == shifted
    np.testing.assert_allclose(row.products, products, rtol=1e-12)
    np.testing.assert_allclose(row.scores, scores, rtol=1e-12)
    np.testing.assert_allclose(row.powers, [math.exp(score - row.shift) for score in scores], rtol=1e-9)
    assert row.total == pytest.approx(sum(row.powers.tolist()))
    weights = oracle.softmax_rows(np.array([scores]))[0]
    np.testing.assert_allclose(row.weights, weights, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(row.output, [sum(w * value[d] for w, value in zip(weights, v, strict=True)) for d in range(4)], rtol=1e-9)


def test_what_does_not_exist_is_said():
    trace = example_trace(GRID)
    with pytest.raises(VitvizError, match="heads 0 to 1"):
        worked_row(trace, 0, 2, 0)
    with pytest.raises(VitvizError, match="There is no query"):
        worked_row(trace, 0, 0, "auto")
    with pytest.raises(IndexError, match="layers 0 to 1"):
        worked_row(trace, 2, 0, 0)
