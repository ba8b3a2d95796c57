"""Small files that demand gigabytes, never end, or hold what weights do not. Each load must end quickly in
one message.
"""

import re
import sys

import pytest

from tests.engine.models.hostile import HOSTILE
from tests.engine.models.probe import faults, outcomes_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder, remaining, by_name = tmp_path_factory.mktemp("hostile"), list(HOSTILE), {}
    while remaining:  # if a checkpoint ends the process, the remaining names run in a new one
        batch = outcomes_of("tests.engine.models.hostile", remaining, folder / str(len(remaining)))
        by_name |= {outcome["name"]: outcome | {"folder": folder} for outcome in batch}
        remaining = remaining[len(batch) :]
    return by_name


@pytest.mark.processes
@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_file_is_rejected_within_time_and_memory(name, outcomes):
    outcome = outcomes[name]
    assert outcome["end"] == "refused", outcome
    assert not faults([outcome], outcome["folder"])
    assert re.search(HOSTILE[name][1], outcome["text"]), outcome["text"]
