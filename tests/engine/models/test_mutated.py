"""However a valid checkpoint is damaged, it ends within 5 s and 1 GB in a trace or a VitvizError."""

import sys

import pytest

from tests.engine.models.probe import faults, outcomes_of

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc"),
]


def faults_of(seeds, folder):
    left, found = [f"seed {seed}" for seed in seeds], []
    while left:  # a process that was ended leaves the others to the next
        some = outcomes_of("tests.engine.models.mutated", left, folder / str(len(left)))
        found += faults(some, folder)
        left = left[len(some) :]
    return found


def test_some_dozens(tmp_path):
    assert faults_of(range(60), tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(20))
def test_some_thousand(batch, tmp_path):
    assert faults_of(range(1000 + 150 * batch, 1000 + 150 * (batch + 1)), tmp_path) == []
