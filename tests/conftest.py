"""The shapes written in signatures are checked at every call of a test, by jaxtyping's import hook with
beartype.

The rooms that compute are checked. The others have tests that hand them wrong shapes on purpose, to read the
sentence that a user gets; a type error would come first.

Tests run in as many processes as there are cores, up to four, and one more where all tiers run: what opens a
page waits a third of its time. Each is given its share of the cores before torch is imported: threads of
several processes on one core would spend their time waiting for one another. Each has a folder of its own for
what Gradio writes, because a test counts what is in it.

The tiers are markers (docs/testing.md): what opens a page or asks for the running app is marked by what it
asks for, the rest says so itself, and a quick test that starts a program anyway is told.

The shipped checkpoint, a photograph and what one says of the other are here for all of them.
"""

import json
import os
import sys
import tempfile
from functools import partial

import pytest
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

checked = beartype(conf=BeartypeConf(is_pep484_tower=True))  # an int does where a float is asked for


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pytest_xdist_auto_num_workers(config) -> int:
    return min(4, cores() + bool(config.option.markexpr))  # a tier that was asked for


if processes := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // processes)))

uploads = tempfile.TemporaryDirectory(prefix="vitviz-tests-")
os.environ["GRADIO_TEMP_DIR"] = uploads.name
# programs that tests start compile the package once, whatever is set where the tests are run
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

QUICK = "not browser and not processes and not sweep and not slow"


def pytest_configure(config) -> None:
    """The quick tier, where neither a tier is chosen nor files or tests are named."""
    named = config.args_source is config.ArgsSource.ARGS
    config.option.markexpr = config.option.markexpr or ("not slow" if named else QUICK)


running: list[pytest.Item] = []  # the test of this moment
MAY_START = ("browser", "processes", "slow", "visit")


def pytest_collection_modifyitems(items) -> None:
    for item in items:
        asked = getattr(item, "fixturenames", ())
        tier = "browser" if "browser" in asked else "processes" if "server" in asked else None
        if tier and not item.get_closest_marker("visit"):
            item.add_marker(tier)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    running[:] = [item]
    return (yield)


def marked(event: str, given: tuple) -> None:
    """An audit hook: a program of Python's is what only a test of another tier may start."""
    if event != "subprocess.Popen" or sys.executable not in map(str, given[1]):
        return
    if running and not any(map(running[0].get_closest_marker, MAY_START)):
        raise RuntimeError(f"{running[0].nodeid} starts a program: mark it pytest.mark.processes")


sys.addaudithook(marked)

install_import_hook(
    [
        "vitviz.traces.grid",
        "vitviz.traces.readout",
        "vitviz.traces.trace",
        "vitviz.analyses",
        "vitviz.engine.studies.attribution",
    ],
    f"{__name__}.checked",
)


STEPS = (0, 30, 3000)  # of the training


@pytest.fixture
def few(monkeypatch):
    """A whole trial tries four methods beside three random maps: which and how many is asked elsewhere, and
    all take half a minute.
    """
    from vitviz.views.trial import compute

    monkeypatch.setattr("vitviz.views.trial.ORDER", ("random", "centre", "ledger", "frozen"))
    monkeypatch.setattr(compute, "trial_of", partial(compute.trial_of, draws=3))


@pytest.fixture(scope="module")
def short_training():
    """Three snapshots of the shipped training, and its end, instead of seventeen; for all tests of a file, by
    `pytestmark`.
    """
    from vitviz.engine.hub import snapshots

    every = snapshots.snapshots
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            snapshots, "snapshots", lambda given: [kept for kept in every(given) if kept[0] in STEPS]
        )
        yield


@pytest.fixture(scope="module")
def samples_once():
    """The survey of the sample photographs' parts is made once of each checkpoint for all tests of a file."""
    from vitviz.export import over_a_set

    own, kept = over_a_set.over_samples, {}

    def over_samples(inspector, size=None, measures=None):
        asked = (inspector.checkpoint.location or id(inspector), size, measures and tuple(measures))
        if asked not in kept:
            kept[asked] = own(inspector, size, measures)
        return kept[asked]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(over_a_set, "over_samples", over_samples)
        yield


@pytest.fixture(scope="session")
def inspector():
    import vitviz  # once the hook above is there

    return vitviz.load("vitviz-tiny", device="cpu")


@pytest.fixture(scope="session")
def photo():
    import vitviz

    return vitviz.sample_image("coffee")


@pytest.fixture(scope="session")
def trace(inspector, photo):
    return inspector.trace(photo)


@pytest.fixture(scope="session")
def small_weights(tmp_path_factory):
    """A weights folder with one checkpoint, "small": two layers, 4 x 4 patches, seven classes.

    Its weights are random. A pass takes a fiftieth of the shipped checkpoint's: hundreds are affordable.
    """
    import torch

    from tests.engine.small import SMALL, saved, small

    folder = tmp_path_factory.mktemp("small-weights")
    (folder / "small").mkdir()
    with torch.random.fork_rng():
        torch.manual_seed(1)  # one of its maps tells its fourth class better than chance
        model = small()
    model.head.weight.data *= 5  # answers that are sure of something
    saved(model, folder / "small" / "model.safetensors")
    size, half = SMALL["img_size"], [0.5, 0.5, 0.5]
    classes = SMALL["num_classes"]
    labels = [f"class {number}" for number in range(classes)]
    config = {"input_size": [3, size, size], "mean": half, "std": half, "interpolation": "bicubic",
              "crop_pct": 1.0, "num_classes": classes}  # fmt: skip
    about = {"architecture": "vit_tiny_patch16_224", "num_classes": classes, "model_args": SMALL,
             "pretrained_cfg": config, "label_names": labels}  # fmt: skip
    (folder / "small" / "config.json").write_text(json.dumps(about))
    return folder


@pytest.fixture(scope="session")
def small_inspector(small_weights):
    import vitviz

    return vitviz.load(small_weights / "small", device="cpu")


@pytest.fixture(scope="session")
def small_trace(small_inspector, photo):
    return small_inspector.trace(photo)
