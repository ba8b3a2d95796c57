"""The shapes written in signatures are checked at every call of a test, by jaxtyping's import hook with
beartype.

The rooms that compute are checked. The others have tests that hand them wrong shapes on purpose, to read the
sentence that a user gets; a type error would come first.

Tests run in as many processes as there are cores, up to four. Each is given its share of the cores before
torch is imported: threads of several processes on one core would spend their time waiting for one another.
Each has a folder of its own for what Gradio writes, because a test counts what is in it.

The shipped checkpoint, a photograph and what one says of the other are here for all of them.
"""

import os
import tempfile

import pytest
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int does where a float is asked for


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pytest_xdist_auto_num_workers(config) -> int:
    return min(4, cores())


if processes := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // processes)))

uploads = tempfile.TemporaryDirectory(prefix="vitviz-tests-")
os.environ["GRADIO_TEMP_DIR"] = uploads.name

install_import_hook(
    ["vitviz.grid", "vitviz.readout", "vitviz.trace", "vitviz.analyses", "vitviz.models"],
    f"{__name__}.checked",
)


@pytest.fixture(scope="module")
def inspector():
    import vitviz  # once the hook above is there

    return vitviz.load("vitviz-tiny", device="cpu")


@pytest.fixture(scope="module")
def photo():
    import vitviz

    return vitviz.sample_image("coffee")


@pytest.fixture(scope="module")
def trace(inspector, photo):
    return inspector.trace(photo)
