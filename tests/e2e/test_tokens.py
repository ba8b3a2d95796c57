"""Tokens under the pointer: what is drawn is what the trace says, and nothing is asked of the server."""

import numpy as np
import pytest

import vitviz
from tests.e2e.conftest import open_tab, ready
from tests.e2e.test_explorer import cell

VIEW = "[...window.vitviz.views].find((view) => view.name === 'tokens' && view.root.isConnected)"


@pytest.fixture(scope="module")
def trace():
    return vitviz.load("vitviz-tiny", device="cpu").trace(vitviz.sample_image("coffee"))


def test_hover_shows_the_similarity_without_any_request(open_page, trace):
    page = open_page("?sample=coffee")
    open_tab(page, "Tokens")
    ready(page, "tokens")
    requests, skip, count = [], trace.grid.prefix, trace.grid.tokens
    page.on("request", lambda request: requests.append(request.url))
    for patch in (3, trace.grid.cols + 1, trace.grid.patches - 1):
        page.mouse.move(*cell(page, trace, patch, "#vitviz-tokens .vv-heat"))
        page.wait_for_function(f"() => {VIEW}.query === {patch + skip}")
        line = (
            f"Array.from({VIEW}.data.cosines.values.subarray({(patch + skip) * count + skip},"
            f" {(patch + skip + 1) * count}))"
        )
        expected = vitviz.token_similarity(trace, 8, patch, centred=True).numpy().ravel()
        np.testing.assert_allclose(page.evaluate(line), expected, atol=1e-3)
    assert requests == []
