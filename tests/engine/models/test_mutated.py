"""A damaged checkpoint must end within 5 s and 1 GB in a trace or a VitvizError."""

import sys

import pytest

from tests.engine.models.probe import faults, outcomes_of

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc"),
]


def collect_faults(seeds, folder):
    remaining, descriptions = [f"seed {seed}" for seed in seeds], []
    while remaining:  # if a checkpoint ends the process, the remaining names run in a new one
        batch = outcomes_of("tests.engine.models.mutated", remaining, folder / str(len(remaining)))
        descriptions += faults(batch, folder)
        remaining = remaining[len(batch) :]
    return descriptions


def test_60_damaged_checkpoints_cause_no_fault(tmp_path):
    assert collect_faults(range(60), tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(20))
def test_3000_damaged_checkpoints_cause_no_fault(batch, tmp_path):
    assert collect_faults(range(1000 + 150 * batch, 1000 + 150 * (batch + 1)), tmp_path) == []
