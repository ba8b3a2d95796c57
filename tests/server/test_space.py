"""A simulated ZeroGPU Space: forward passes run in a fork and give the same numbers."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import vitviz
from tests.engine.small_models import save_model, small_vit
from tests.server.forking_process import start_forking_process
from vitviz.errors import VitvizError
from vitviz.server import zerogpu
from vitviz.server.page.figures import figure_value
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.traces.samples import sample_image
from vitviz.views import VIEWS

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def forking_process():
    """Start a forking process with one thread."""
    with start_forking_process("1") as process:
        yield process
        process.stdin.close()


@pytest.fixture
def run_on_space(forking_process, tmp_path):
    """Return a function that runs a program in the fork and returns its JSON output."""

    def run(code: str, *arguments: str, process: subprocess.Popen = forking_process) -> dict:
        out = tmp_path / "out"
        out.unlink(missing_ok=True)
        print(json.dumps([code, str(out), arguments]), file=process.stdin, flush=True)
        assert process.stdout.readline() == "done\n", "the process ended"
        last = out.read_text().strip().splitlines()[-1]
        assert last[0] in "[{", out.read_text()[-3000:]
        return json.loads(last)

    return run


def test_zerogpu_is_inactive_outside_a_space(monkeypatch):
    monkeypatch.delenv("SPACES_ZERO_GPU", raising=False)
    assert not zerogpu.on_zerogpu()
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    assert (
        zerogpu.with_space_gpu(inspector) is inspector
        and inspector.forward.elsewhere is None
        and "spaces" not in sys.modules
    )
    monkeypatch.setenv("SPACES_ZERO_GPU", "false")
    assert not zerogpu.on_zerogpu()


@pytest.mark.processes
def test_fork_gives_the_numbers_of_the_main_process(run_on_space, tmp_path):
    found = tmp_path / "found.npz"
    for name, sample in (("a", "chelsea"), ("b", "coffee"), ("c", "astronaut")):
        sample_image(sample).save(tmp_path / f"{name}.png")
    result = run_on_space(f"""
first = service.look(service.pictures.sample("coffee"), "vitviz-tiny")  # the warm-up: nobody asked
warm = len(spaces.calls)
visitor()
key = service.look(chelsea, "vitviz-tiny")
trace, again = service.subject(key).trace, service.look(chelsea, "vitviz-tiny")
values = {{view.slug: figure_value(service, key, view)["summary"] for view in VIEWS}}
looked = len(spaces.calls)
paths = [os.path.join({str(tmp_path)!r}, name) for name in ("a.png", "b.png", "c.png")]
*_, (_, survey) = service.sets.surveying(key, paths)
np.savez({str(found)!r}, logits=trace.logits, rollout=service.item(key, "rollout", "map", {{}}),
         survey=survey.distances.distance,
         **{{f"attention{{i}}": trace.attention(i) for i in range(len(trace.layers))}})
print(json.dumps({{"warm": warm, "looked": looked, "calls": spaces.calls, "pid": os.getpid(),
                   "values": values, "device": str(service.checkpoints.inspector("vitviz-tiny").device),
                   "seems": torch.cuda.is_available()}}))
""")
    assert result["seems"] and result["device"] == "cpu"
    assert (result["warm"], result["looked"], len(result["calls"])) == (0, 1, 2)
    assert (
        all(call["pid"] != result["pid"] for call in result["calls"])
        and result["calls"][0]["seconds"] < result["calls"][1]["seconds"] < 60
    )
    service = AnalysisService(ServiceSettings(device="cpu"))
    key = service.look(service.pictures.sample("chelsea"), "vitviz-tiny")
    trace = service.subject(key).trace
    *_, (_, survey) = service.sets.surveying(
        key, [str(tmp_path / name) for name in ("a.png", "b.png", "c.png")]
    )
    with np.load(found) as file:
        np.testing.assert_allclose(file["logits"], trace.logits, atol=1e-5)
        np.testing.assert_allclose(file["rollout"], service.item(key, "rollout", "map", {}), atol=1e-6)
        np.testing.assert_allclose(file["survey"], survey.distances.distance, atol=1e-3)
        for layer in range(len(trace.layers)):
            np.testing.assert_allclose(file[f"attention{layer}"], trace.attention(layer), atol=1e-6)
    for view in VIEWS:
        assert result["values"][view.slug].keys() == figure_value(service, key, view)["summary"].keys()


@pytest.mark.processes
def test_model_is_sent_once_to_an_older_fork(run_on_space, tmp_path):
    save_model(small_vit(), tmp_path / "mine.safetensors")
    save_model(small_vit(), tmp_path / "other.safetensors")
    result = run_on_space(
        """
visitor()
service.look(chelsea, "mine")
keys = [service.look(service.pictures.sample(name), "other") for name in ("chelsea", "coffee")]
traces = [service.subject(key).trace for key in keys]
print(json.dumps({"calls": spaces.calls, "logits": traces[0].logits.tolist()}))
""",
        "--weights",
        str(tmp_path),
    )
    assert len({call["pid"] for call in result["calls"]}) == 1
    assert [len(call["bytes"]) for call in result["calls"]] == [
        1,
        1,
        2,
        1,
    ], "the fork did not request the model exactly once"
    expected = vitviz.load(tmp_path / "other.safetensors", device="cpu").trace(sample_image("chelsea")).logits
    torch.testing.assert_close(torch.tensor(result["logits"]), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.processes
def test_exceeded_quota_is_reported_and_results_stay(run_on_space):
    result = run_on_space("""
visitor()
key = service.look(chelsea, "vitviz-tiny")
said = []
quota = "You have exceeded your free ZeroGPU quota (22s requested vs. 5s left). Try again in 1:02:03. "
for error in (gr.Error(quota, title="ZeroGPU quota exceeded"),
              gr.Error("The requested GPU duration (22s) is larger than the maximum allowed",
                       title="ZeroGPU illegal duration"),
              RuntimeError("ZeroGPU API /schedule error: 500")):
    spaces.schedule_error = error
    try: service.look(service.pictures.sample("coffee"), "vitviz-tiny")
    except Exception as error: said.append([type(error).__name__, str(error)])
same = service.subject(key).trace.top(1)
later = service.subject(service.look(service.pictures.sample("coffee"), "vitviz-tiny")).trace.top(1)
print(json.dumps({"said": said, "same": same, "later": later}))
""")
    assert [kind for kind, _ in result["said"]] == ["Unavailable"] * 3 and issubclass(
        zerogpu.Unavailable, VitvizError
    )
    quota, duration, schedule = [text for _, text in result["said"]]
    assert (
        "(ZeroGPU quota exceeded: You have exceeded your free ZeroGPU quota (22s requested vs. 5s left). Try"
        " again in 1:02:03)" in quota
    )
    assert (
        "ZeroGPU illegal duration: The requested GPU duration (22s)" in duration
        and "schedule error: 500" in schedule
    )
    assert (
        all("What you see stays" in text for text in (quota, duration, schedule))
        and result["same"]
        and result["later"]
    )


@pytest.mark.processes
def test_errors_and_death_of_the_fork_are_reported(run_on_space):
    result = run_on_space("""
from vitviz.engine import runner
from vitviz.errors import UnsupportedModel
true = runner.check_truth
def refuse(*args): raise UnsupportedModel("The attention of this model cannot be read truthfully.")
def die(*args): os._exit(1)
visitor()
said = []
for check in (refuse, die):
    runner.check_truth = check
    try: service.look(chelsea, "vitviz-tiny")
    except Exception as error: said.append([type(error).__name__, str(error)])
    spaces._workers.clear()
runner.check_truth = true
print(json.dumps({"said": said, "then": service.subject(service.look(chelsea, "vitviz-tiny")).trace.top(1)}))
""")
    assert result["said"][0] == ["UnsupportedModel", "The attention of this model cannot be read truthfully."]
    assert result["said"][1][0] == "Unavailable" and "GPU task aborted" in result["said"][1][1]
    assert result["then"]


@pytest.mark.processes
def test_fork_after_multithreading_does_not_hang(run_on_space):
    with start_forking_process("2") as one:
        result = run_on_space(
            """
torch.set_num_threads(2)
torch.randn(2000, 2000) @ torch.randn(2000, 2000)  # the threads exist now
service.look(service.pictures.sample("coffee"), "vitviz-tiny")
visitor()
print(json.dumps(service.subject(service.look(chelsea, "vitviz-tiny")).trace.top(1)))
""",
            process=one,
        )
        one.stdin.close()
    assert result


@pytest.mark.processes
def test_bfloat16_deviation_is_computed_in_the_main_process(run_on_space):
    result = run_on_space(
        """
visitor()
trace = service.subject(service.look(chelsea, "vitviz-tiny")).trace
print(json.dumps({"dtype": trace.dtype, "attention": trace.deviation.attention, "calls": spaces.calls}))
""",
        "--dtype",
        "bfloat16",
    )
    expected = (
        vitviz.load("vitviz-tiny", device="cpu", dtype="bfloat16").trace(sample_image("chelsea")).deviation
    )
    assert (
        result["dtype"] == "bfloat16"
        and result["attention"] == pytest.approx(expected.attention, rel=0.01)
        and len(result["calls"]) == 1
    )
