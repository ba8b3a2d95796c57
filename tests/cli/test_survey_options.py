"""Every option of `vitviz survey` is passed on, and an interrupt ends the command with status 130."""

import json
import sys
from types import SimpleNamespace

import pytest

import vitviz
from vitviz.cli import main


@pytest.fixture
def run_survey(monkeypatch, run_vitviz):
    """Return a function that runs the program: (status, output, arguments of load, arguments of survey)."""

    def run(*arguments, ends=None):
        seen = {}

        def load(name, **more):
            seen["load"] = {"name": name, **more}
            return "inspector"

        def survey(source, inspector, measures, **more):
            seen["survey"] = {"source": source, "measures": tuple(measures), **more}
            if ends is not None:
                raise ends
            return SimpleNamespace(images=3, left_out=0)

        monkeypatch.setattr(vitviz, "load", load, raising=False)
        monkeypatch.setattr(vitviz, "survey", survey, raising=False)
        status, printed, told = run_vitviz("survey", *arguments)
        return status, printed + told, seen.get("load"), seen.get("survey")

    return run


def test_every_option_is_passed_to_survey(run_survey, tmp_path):
    (tmp_path / "classes.json").write_text(json.dumps({"n01": 3}))
    status, told, load, survey = run_survey(
        "photos", "--out", tmp_path, "-c", "some", "-m", "entropy", "-m", "lens", "--limit", 7, "--seed", 2,
        "--classes", tmp_path / "classes.json", "--size", 224, "--batch", 3, "--device", "cpu",
        "--dtype", "bfloat16", "--weights", tmp_path / "mine", "--workers", 2, "--gpus-per-worker", 0.5,
    )  # fmt: skip
    assert status == 0 and "3 images." in told
    assert load == {"name": "some", "device": "cpu", "dtype": "bfloat16", "folder": tmp_path / "mine"}
    assert survey.pop("progress") is not None
    assert survey == {
        "source": "photos", "measures": ("entropy", "lens"), "out": tmp_path, "size": 224, "batch": 3,
        "limit": 7, "seed": 2, "classes": {"n01": 3}, "workers": 2,
        "gpus_per_worker": 0.5,
    }  # fmt: skip


def test_defaults_are_passed_to_survey(run_survey, tmp_path):
    _, _, load, survey = run_survey("photos", "-o", tmp_path)
    survey.pop("progress")
    assert load == {"name": "vitviz-tiny", "device": "auto", "dtype": "float32", "folder": None}
    assert survey == {
        "source": "photos", "measures": ("distance", "prefix_mass"), "out": tmp_path, "size": None,
        "batch": None, "limit": None, "seed": None, "classes": None, "workers": 0,
        "gpus_per_worker": 1,
    }  # fmt: skip


def test_interrupted_survey_reports_how_to_resume(run_survey, tmp_path):
    status, told, *_ = run_survey("photos", "--out", tmp_path, ends=KeyboardInterrupt())
    assert status == 130 and f"Finished parts are in {tmp_path}; run the same command to continue." in told


def test_classes_that_are_neither_list_nor_object_are_rejected(run_survey, tmp_path):
    (tmp_path / "classes.json").write_text("3")
    status, told, _, survey = run_survey("photos", "--out", tmp_path, "--classes", tmp_path / "classes.json")
    assert status == 1 and "neither a list of names nor an object" in told and survey is None


def test_here_lists_only_checkpoints_on_disk(monkeypatch, capsys):
    from vitviz import engine
    from vitviz.engine import Checkpoint

    known = [Checkpoint("far", "a", "hub", "x/far", on_disk=False), Checkpoint("near", "a", "local", "near")]
    monkeypatch.setattr(engine, "checkpoints", lambda folder: known)
    for arguments, names in (((), ["far", "near"]), (("--here",), ["near"])):
        monkeypatch.setattr(sys, "argv", ["vitviz", "checkpoints", *arguments, "--json"])
        with pytest.raises(SystemExit):
            main()
        assert [one["name"] for one in json.loads(capsys.readouterr().out)] == names
