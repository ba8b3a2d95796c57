"""The first hostile inputs of each kind. `python -m tests.security.hostile_inputs` runs all thousand."""

import sys

import pytest

from tests.security.hostile_inputs import COUNTS, REQUESTED, faults_of_kind, faults_of_requests
from tests.security.judge import response_faults
from vitviz.server.api.serialization import UNEXPECTED

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc")


ELSEWHERE = ("checkpoints",)  # 60 seeds in tests/engine/models/test_mutated.py


@pytest.mark.processes
@pytest.mark.parametrize("kind", [kind for kind in COUNTS if kind not in REQUESTED + ELSEWHERE])
def test_hostile_inputs_end_in_time_with_result_or_message(kind, tmp_path):
    assert faults_of_kind(kind, 0, 12, tmp_path) == []


@pytest.mark.processes
def test_hostile_requests_end_in_time_with_result_or_message(tmp_path):
    assert faults_of_requests(REQUESTED, 0, 12, tmp_path) == []


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (500, ""), (200, '{"error": null}'), (200, "event: error\ndata: null\n"), (422,
        f'{{"detail": "{UNEXPECTED}"}}'),
        (404, "Traceback (most recent call last)"), (200, "root:x:0:0"), (422, f"no file {__file__}"),
    ],
)  # fmt: skip
def test_response_without_message_counts_as_fault(status, said):
    assert response_faults(status, said) and not response_faults(422, '{"detail": "Expected a picture."}')
