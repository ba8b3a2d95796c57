"""Command line as a user types it."""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import vitviz
from vitviz import cli

ROOT = Path(__file__).parents[2]


@pytest.fixture
def image_folder(tmp_path):
    folder = tmp_path / "pictures"
    folder.mkdir()
    for name in ("chelsea", "coffee"):
        vitviz.sample_image(name).save(folder / f"{name}.jpg")
    (folder / "damaged.png").write_bytes(b"no picture")
    return folder


def test_survey_prints_json_and_writes_files(run_vitviz, image_folder, tmp_path):
    status, printed, errors = run_vitviz(
        "survey",
        image_folder,
        "--out",
        tmp_path / "out",
        "--measure",
        "distance",
        "--device",
        "cpu",
        "--json",
    )
    assert status == 0 and "3 of 3 images" in errors
    found = json.loads(printed)
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    expected = (
        sum(
            vitviz.attention_distance(inspector.trace(image_folder / f"{name}.jpg")).double()
            for name in ("chelsea", "coffee")
        )
        / 2
    )
    assert found["averages"]["distance.distance"]["mean"][3][1] == pytest.approx(
        expected[3, 1].item(), rel=1e-5
    )
    assert (found["pictures"], found["left_out"]) == (2, 1) and found["skipped"][0]["name"] == "damaged.png"
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {
        "report.html",
        "averages.npz",
        "skipped.csv",
        "summary.json",
        "survey.json",
    }
    status, printed, _ = run_vitviz(
        "survey", image_folder, "--out", tmp_path / "out", "--measure", "distance", "--device", "cpu"
    )
    assert status == 0 and "2 images; 1 could not be read" in printed and "report.html" in printed


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["nowhere", "--measure", "bogus"], "no measure 'bogus'"),
        (["nowhere"], "no folder or file nowhere"),
        (["nowhere", "--checkpoint", "bogus"], "bogus"),
        (["nowhere", "--classes", "missing.json"], "missing.json cannot be read"),
    ],
)
def test_invalid_survey_arguments_print_one_sentence(run_vitviz, tmp_path, arguments, expected):
    status, printed, errors = run_vitviz("survey", *arguments, "--out", tmp_path / "out")
    assert status == 1 and expected in errors and "Traceback" not in errors and printed == ""


@pytest.mark.processes
def test_survey_help_lists_measures_without_loading_torch():
    from vitviz.surveys import MEASURES

    assert cli.MEASURES == tuple(MEASURES)
    help_text = CliRunner().invoke(cli.program, ["survey", "--help"], terminal_width=120).output
    assert (
        all(f"  {name} " in help_text for name in MEASURES)
        and "SOURCE" in help_text
        and "Examples:" in help_text
    )
    code = "import sys, vitviz.cli; print(*{'torch', 'gradio', 'timm', 'numpy'} & set(sys.modules))"
    assert (
        subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split()
        == []
    )


def test_checkpoints_lists_shipped_model():
    (tiny,) = json.loads(
        CliRunner().invoke(cli.program, ["checkpoints", "vitviz-tiny", "--here", "--json"]).output
    )
    assert tiny["name"] == "vitviz-tiny" and tiny["source"] == "shipped" and tiny["on_disk"]
    assert "vitviz-tiny" in CliRunner().invoke(cli.program, ["checkpoints", "--here"]).output


@pytest.mark.processes
def test_app_command_has_options_of_app_script():
    """Separate processes, because the page sets Gradio's folder before it imports Gradio."""

    def run(*asked):
        line = [sys.executable, *asked]
        return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, check=True)

    script, command = run("app.py", "--help").stdout, run("-m", "vitviz", "app", "--help").stdout
    assert command.split()[:3] == ["Usage:", "vitviz", "app"]
    assert command.split("Options:")[1] == script.split("Options:")[1]
    for option in ("host", "port", "share", "device", "checkpoint", "weights", "model-cache", "trace-cache",
                   "picture-cache"):  # fmt: skip
        assert f"--{option}" in script


def test_pyproject_declares_script_and_extras():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")  # 3.10 has no tomllib
    assert '\n[project.scripts]\nvitviz = "vitviz.cli:main"\n' in project
    assert '\ndata = ["pyarrow' in project and '\nhub = ["datasets' in project


def test_progress_shows_rate_and_time_left(monkeypatch):
    from tqdm.auto import tqdm

    from vitviz.surveys.run import progress_bar

    now, lines = [0.0], io.StringIO()
    monkeypatch.setattr(tqdm, "_time", staticmethod(lambda: now[0]), raising=False)
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    with progress_bar(True, bar_format=cli.PROGRESS, mininterval=10, smoothing=0, file=lines) as progress:
        # 100 were done by an earlier run
        for seconds, done in ((0, 100), (10, 150), (12, 160), (30, 250), (60, 400)):
            now[0] = seconds
            progress(done, 400)
    run_vitviz = [line.strip() for line in lines.getvalue().split("\r") if line.strip()]
    assert run_vitviz[0].startswith("100 of 400 images")
    assert run_vitviz[1] == "150 of 400 images,  5.00 images/s, 00:50 left"
    assert not any(line.startswith("160") for line in run_vitviz)
    assert run_vitviz[-1].startswith("400 of 400 images,  5.00 images/s")


def test_check_report_must_be_an_html_file(run_vitviz, tmp_path):
    status, _, told = run_vitviz("check", "vitviz-tiny", "--out", tmp_path / "check.txt")
    assert status == 1 and "the report is an .html file" in told and not (tmp_path / "check.txt").exists()


def test_check_prints_findings_and_exits_with_status_1(run_vitviz, small_weights, image_folder, tmp_path):
    report = tmp_path / "check.html"
    status, printed, _ = run_vitviz(
        "check", small_weights / "small", "--out", report, "--device", "cpu", "--limit", "1"
    )
    assert status == 1 and "SERIOUS (weights) The model is untrained" in printed
    assert "untrained" in report.read_text(encoding="utf-8")
