"""The model check of page and endpoint gives the findings of Python, one check at a time."""

import csv
import io
import json

import gradio as gr
import pytest

import vitviz
from vitviz.diagnostics import check, weights
from vitviz.diagnostics.finding import Finding
from vitviz.errors import TooMuch, Unknown, WrongSetting
from vitviz.server.api import checks
from vitviz.server.api.endpoints import Endpoints, _as_gradio_error
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings

FEW = {
    "weights": (weights.finite, weights.positions, weights.heads),
    "input": check.CHECKS["input"][:1],
    "attention": check.CHECKS["attention"],
}


@pytest.fixture
def service(small_weights, monkeypatch):
    monkeypatch.setattr(check, "CHECKS", FEW)
    monkeypatch.setattr(check, "QUICK", (FEW["weights"][1], FEW["input"][0]))
    return AnalysisService(ServiceSettings(checkpoint="small", weights=small_weights, device="cpu"))


@pytest.fixture
def key(service):
    return service.runs.known(service.pictures.sample("coffee"), "small")


def run_all_steps(service, key, **given):
    steps, number = [], 0
    while number is not None:
        steps.append(
            json.loads(json.dumps(checks.step_json(service, key, str(number), given), allow_nan=False))
        )
        number = steps[-1]["next"]
    return steps


def test_page_steps_match_python_findings(service, key, small_inspector):
    steps = run_all_steps(service, key)
    report = vitviz.check(small_inspector)
    findings = [finding for step in steps for finding in step["findings"]]
    assert [finding["name"] for finding in findings] == [finding.name for finding in report.findings] and len(
        findings
    ) >= 8
    for finding, expected in zip(findings, report.findings, strict=True):
        assert finding["severity"] == expected.severity and finding["view"] == expected.view
        assert finding["number"] == pytest.approx(expected.number, rel=1e-4, abs=1e-6)
        assert finding["sentence"]["text"] == getattr(expected.sentence, "pattern", expected.sentence)
    assert [step["share"] for step in steps] == [pytest.approx(i / 8) for i in range(1, 9)]
    assert {step["images"] for step in steps} == {4}


def test_quick_steps_skip_every_other_check(service, key):
    assert [checks.step_json(service, key, str(n), {"quick": "1"})["next"] for n in (0, 1, 3)] == [1, 3, None]


def test_damaged_weights_end_the_check(service, key, monkeypatch):
    damaged = Finding("not_finite", "weights", "serious", "7 weights are NaN.")
    monkeypatch.setattr(check, "CHECKS", {"weights": (lambda subject: iter([damaged]), weights.positions)})
    assert [step["next"] for step in run_all_steps(service, key)] == [None]


def test_check_step_is_cached_and_takes_a_turn(service, key, monkeypatch):
    step = service.checks.step(key, "", 0)
    monkeypatch.setattr(service.work, "computing", lambda *given: pytest.fail("a turn was taken"))
    assert service.checks.step(key, "", 0).findings is step.findings

    def busy(*given):
        raise TooMuch("All turns are taken.")

    monkeypatch.setattr(service.work, "computing", busy)
    with pytest.raises(TooMuch, match="All turns"):
        service.checks.step(key, "", 1)


def test_unknown_step_key_or_file_raises(service, key):
    for number in ("8", "-1", "first", "9" * 5000):
        with pytest.raises(WrongSetting, match="There is no check .* expected 0 to 7"):
            checks.step_json(service, key, number, {})
    with pytest.raises(Unknown):
        service.checks.step("nobody", "", 0)
    with pytest.raises(Unknown):
        service.checks.step(key, "no such set", 0)
    with pytest.raises(Unknown, match="report.html and report.csv"):
        checks.file(service, key, "report.pdf", {})


def test_report_files_contain_findings_without_paths(service, key, monkeypatch):
    lost = Finding("not_checked", "weights", "number", "'/srv/models/a.pth' is damaged.")
    monkeypatch.setattr(
        check, "CHECKS", {**FEW, "weights": (lambda subject: iter([lost]), weights.positions)}
    )
    run_all_steps(service, key)
    data, name = checks.file(service, key, "report.csv", {})
    rows = list(csv.DictReader(io.StringIO(data.decode())))
    assert name == "vitviz-check.csv" and rows[0].keys() == Finding.__dataclass_fields__.keys()
    assert len(rows) == sum(len(step["findings"]) for step in run_all_steps(service, key))
    page = checks.file(service, key, "report.html", {})[0].decode()
    for text in (data.decode(), page, json.dumps(run_all_steps(service, key))):
        assert "…/a.pth" in text or "\\u2026/a.pth" in text
        assert "/srv" not in text


def test_check_uses_fewer_images_for_a_small_trace_cache(service, key, uploaded_images):
    nbytes = service.checkpoints.inspector("small").demand().nbytes
    service.checks._limit = 3 * nbytes
    assert service.checks.step(key, "", 3).images == 3


def test_the_endpoint_streams_growing_results(service, small_inspector):
    results = list(_as_gradio_error(Endpoints(service).check)())
    assert [len(one["findings"]) for one in results] == sorted(len(one["findings"]) for one in results)
    own = vitviz.check(small_inspector)
    assert [one["sentence"] for one in results[-1]["findings"]] == [str(one.sentence) for one in own.findings]
    assert results[-1]["share"] == 1 and results[0]["checkpoint"] == "small"
    with pytest.raises(gr.Error, match="nothing"):
        next(_as_gradio_error(Endpoints(service).check)("nothing"))


def test_closed_stream_computes_no_more_steps(service):
    results = _as_gradio_error(Endpoints(service).check)()
    next(results)
    results.close()
    assert len(service.checks._steps._entries) == 1
