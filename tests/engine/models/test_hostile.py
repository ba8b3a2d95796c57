"""Small files that ask for gigabytes, never end, or hold what weights do not: each ends soon, in one
sentence.
"""

import re
import sys

import pytest

from tests.engine.models.hostile import HOSTILE
from tests.engine.models.probe import faults, outcomes_of

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the peak of a process from /proc")


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    folder, left, found = tmp_path_factory.mktemp("hostile"), list(HOSTILE), {}
    while left:  # a process that is ended by one leaves the others to the next
        some = outcomes_of("tests.engine.models.hostile", left, folder / str(len(left)))
        found |= {one["name"]: one | {"folder": folder} for one in some}
        left = left[len(some) :]
    return found


@pytest.mark.processes
@pytest.mark.parametrize("name", HOSTILE)
def test_it_is_refused_within_seconds_and_little_memory(name, ended):
    one = ended[name]
    assert one["end"] == "refused", one
    assert not faults([one], one["folder"])
    assert re.search(HOSTILE[name][1], one["text"]), one["text"]
