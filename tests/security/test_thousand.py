"""The first of the thousand hostile inputs of each kind; all of them by `python -m
tests.security.thousand`.
"""

import sys

import pytest

from tests.security.judged import wrong_in
from tests.security.thousand import COUNTS, wrong
from vitviz.server.api.serialization import UNEXPECTED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc")


@pytest.mark.processes
@pytest.mark.parametrize("kind", COUNTS)
def test_each_ends_soon_in_a_result_or_a_sentence(kind, tmp_path):
    assert wrong(kind, 0, 12, tmp_path) == []


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (500, ""), (200, '{"error": null}'), (200, "event: error\ndata: null\n"), (422,
        f'{{"detail": "{UNEXPECTED}"}}'),
        (404, "Traceback (most recent call last)"), (200, "root:x:0:0"), (422, f"no file {__file__}"),
    ],
)  # fmt: skip
def test_what_is_no_sentence_is_noticed(status, said):
    assert wrong_in(status, said) and not wrong_in(422, '{"detail": "Expected a picture."}')
