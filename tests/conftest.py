"""Shared fixtures, test tiers and shape checks of the test suite.

jaxtyping's import hook with beartype checks the shapes in signatures at every call of a test. Only packages
that compute are checked. Tests of the other packages pass wrong shapes on purpose, to check the error message
for users; a type error would come first.

Tests run in one process per core, plus one if a tier is selected (browser tests wait a third of their time),
but in at most four. Each process receives its share of the cores before torch is imported, because threads of
several processes on one core would wait for one another. Each process has its own folder for Gradio's files,
because one test counts the files in it.

The tiers are markers (docs/testing.md). Tests that use the fixture `browser` or `server` are marked
automatically; other tests carry an explicit marker. A quick test that starts a Python process fails with an
instruction to mark it.
"""

import json
import os
import re
import shutil
import sys
import tempfile
from functools import partial

import pytest
from beartype import BeartypeConf, beartype
from jaxtyping import install_import_hook

typechecker = beartype(conf=BeartypeConf(is_pep484_tower=True))  # accepts an int for a float


def cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def pytest_xdist_auto_num_workers(config) -> int:
    return min(4, cores() + bool(config.option.markexpr))  # one more if a tier is selected


if processes := int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", 0)):
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, cores() // processes)))

uploads = tempfile.TemporaryDirectory(prefix="vitviz-tests-")
os.environ["GRADIO_TEMP_DIR"] = uploads.name
# processes that tests start cache bytecode, whatever the environment says, so that they compile only once
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

QUICK = "not browser and not processes and not sweep and not long and not slow"


def pytest_configure(config) -> None:
    """Select the quick tier if the command line names neither a tier nor files or tests."""
    named = config.args_source is config.ArgsSource.ARGS
    config.option.markexpr = config.option.markexpr or ("not slow" if named else QUICK)


OTHER_TIERS = re.compile(r"^pytestmark = .*pytest\.mark\.(browser|processes|sweep|long|slow)", re.M)


def pytest_ignore_collect(collection_path, config) -> bool | None:
    """Leave out, in the quick tier, files whose tests are all in other tiers: imports take time."""
    if config.option.markexpr != QUICK or not collection_path.name.startswith("test_"):
        return None
    text = collection_path.read_text(encoding="utf-8")
    in_browser = collection_path.parent.name == "browser" and "pytest.mark.visit" not in text
    return True if in_browser or OTHER_TIERS.search(text) else None


running: list[pytest.Item] = []  # the current test
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


def require_process_marker(event: str, given: tuple) -> None:
    """Audit hook: raise if a quick test starts a Python process."""
    if event != "subprocess.Popen" or sys.executable not in map(str, given[1]):
        return
    if running and not any(map(running[0].get_closest_marker, MAY_START)):
        raise RuntimeError(f"{running[0].nodeid} starts a program: mark it pytest.mark.processes")


sys.addaudithook(require_process_marker)

install_import_hook(
    [
        "vitviz.traces.grid",
        "vitviz.traces.readout",
        "vitviz.traces.trace",
        "vitviz.analyses",
        "vitviz.engine.studies.attribution",
    ],
    f"{__name__}.typechecker",
)


STEPS = (0, 30, 3000)  # training steps


@pytest.fixture
def fast_faithfulness(monkeypatch):
    """Limit the Faithfulness view to four methods and three random maps; all methods take half a minute."""
    from vitviz.views.trial import compute

    monkeypatch.setattr("vitviz.views.trial.ORDER", ("random", "centre", "ledger", "frozen"))
    monkeypatch.setattr(compute, "evaluate_methods", partial(compute.evaluate_methods, draws=3))


@pytest.fixture
def fast_perturbation(monkeypatch):
    """Limit the Perturbations view to two draws of each step; ten take several seconds."""
    from vitviz.analyses import perturbation
    from vitviz.engine.studies import perturbation as study

    own = perturbation.perturbation_orders

    def orders(grid, kind, draws=2):
        return own(grid, kind, min(draws, 2))

    monkeypatch.setattr(perturbation, "perturbation_orders", orders)
    monkeypatch.setattr(study, "perturbed_logits", partial(study.perturbed_logits, draws=2))
    monkeypatch.setattr("vitviz.views.experiment.DRAWS", 2)


@pytest.fixture(scope="module")
def short_training():
    """Limit the shipped training to three of its seventeen snapshots and the final model.

    A test file applies the fixture to all its tests through `pytestmark`.
    """
    from vitviz.engine.hub import snapshots

    every = snapshots.snapshot_files
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(
            snapshots, "snapshot_files", lambda given: [kept for kept in every(given) if kept[0] in STEPS]
        )
        yield


@pytest.fixture(scope="module")
def cached_sample_survey():
    """Cache the survey of the sample images' crops per checkpoint for all tests of a file."""
    from vitviz.export import over_a_set

    own, kept = over_a_set.survey_samples, {}

    def over_samples(inspector, size=None, measures=None):
        asked = (inspector.checkpoint.location or id(inspector), size, measures and tuple(measures))
        if asked not in kept:
            kept[asked] = own(inspector, size, measures)
        return kept[asked]

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(over_a_set, "survey_samples", over_samples)
        yield


@pytest.fixture(scope="session")
def node(tmp_path_factory):
    """Evaluate expressions over the browser's modules in Node."""
    if shutil.which("node") is None:
        reason = "no Node on this machine: what scripts compute is not compared with Python"
        pytest.fail(reason) if os.environ.get("VITVIZ_REQUIRE_ALL") else pytest.skip(reason)
    from tests.frontend.node import Node

    return Node(tmp_path_factory.mktemp("modules"))


@pytest.fixture(scope="session")
def inspector():
    import vitviz  # after the import hook above is installed

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
    """Create a weights folder with one checkpoint, "small": two layers, 4 x 4 patches, seven classes.

    The weights are random. A forward pass takes a fiftieth of the time of the shipped checkpoint, so that
    tests can afford hundreds.
    """
    import torch

    from tests.engine.small_models import SMALL, save_model, small_vit

    folder = tmp_path_factory.mktemp("small-weights")
    (folder / "small").mkdir()
    with torch.random.fork_rng():
        torch.manual_seed(1)  # with this seed, one map beats random for the fourth class
        model = small_vit()
    model.head.weight.data *= 5  # makes the predictions confident
    save_model(model, folder / "small" / "model.safetensors")
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
