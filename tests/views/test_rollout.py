"""What the rollout's figure says of a model whose classifier decides nothing."""

from dataclasses import replace

import numpy as np
import pytest

from vitviz.views import ViewContext
from vitviz.views.rollout import AUTO, RolloutView
from vitviz.views.routes import parse_settings


@pytest.mark.parametrize(
    "pool, told", [("none", "class"), ("class", "class"), ("average", "average"), ("attention", "attention")]
)
def test_summary_names_auto_query_of_every_pooling(inspector, trace, pool, told):
    read = replace(trace, pool=pool)
    assert RolloutView().summary(ViewContext(inspector, read)) == {"auto": AUTO[told], "pool": pool}


def test_layer_numbers_are_head_mean_of_query_row(inspector, trace):
    subject, view = ViewContext(inspector, trace), RolloutView()
    for query, token in (("auto", 0), ("7", trace.grid.prefix + 7)):
        settings = parse_settings(view, {"query": query}, subject.about)
        rows = [
            sum(head[token, trace.grid.prefix :].numpy() for head in trace.attention(layer)) / 3
            for layer in range(8)
        ]
        expected = np.stack(rows).reshape(8, trace.grid.rows, trace.grid.cols)
        np.testing.assert_allclose(view.item(subject, "layers", settings), expected, rtol=1e-4, atol=1e-8)
        (name,) = [
            name for name, array in view.numbers(subject, settings).items() if array.shape == expected.shape
        ]
        np.testing.assert_allclose(view.numbers(subject, settings)[name], expected, rtol=1e-4, atol=1e-8)
