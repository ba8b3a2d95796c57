"""Tests of the README: examples, front matter, files, and numbers."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.sweep
@pytest.mark.parametrize("page", ["README.md", "docs/python.md"])
def test_the_first_python_example_runs_as_it_stands(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an example writes files
    example, *_ = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)
    names: dict = {}
    exec(compile(example, page, "exec"), names)
    assert not names["without_mlp"].logits.equal(names["trace"].logits)


def test_the_front_matter_is_what_a_space_needs():
    _, front, _ = README.split("---\n", 2)
    fields = dict(re.findall(r"^(\w+): (.+)$", front, re.M))
    assert fields["sdk"] == "gradio" and fields["app_file"] == "app.py" and fields["license"] == "mit"
    assert fields["python_version"].strip('"') in ("3.10", "3.12")  # versions offered by ZeroGPU
    lowest = re.search(r"^gradio>=([\d.]+)$", (ROOT / "requirements.txt").read_text(), re.M)[1]
    assert fields["sdk_version"].startswith(lowest)
    assert len(fields["short_description"]) <= 60
    assert fields["colorFrom"] in COLOURS and fields["colorTo"] in COLOURS


COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}


def test_pictures_and_files_named_exist():
    for path in re.findall(r"!\[[^]]*\]\(([^)]+)\)", README):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"^(vitviz/\w+(?:\.py|/)|weights/|tests/|app\.py)", README, re.M):
        assert (ROOT / path).exists(), path


def test_rollout_says_how_it_fares_as_the_trial_found():
    script = (ROOT / "vitviz" / "views" / "rollout" / "view.js").read_text(encoding="utf-8")
    told = {name: int(value) for name, value in re.findall(r"(rollout|ledger|random): (\d+)", script)}
    page = " ".join((ROOT / "docs" / "trial.md").read_text(encoding="utf-8").split())
    kept = r"([\d.]+) ± [\d.]+ % (?:of the patches are removed )?in (?:the order of|random order)"
    found = [float(value) for value in re.findall(kept, page)]
    assert [told[name] for name in ("ledger", "rollout", "random")] == [round(value) for value in found]
