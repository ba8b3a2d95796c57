"""Arguments that cannot be meant are refused by name before anything is computed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import vitviz
from vitviz import VitvizError


def survey_by_two(inspector, photo):
    return vitviz.survey([photo] * 6, inspector, ["similarity"], batch=2)


def survey_in_parts_of_three(inspector, photo):
    return vitviz.survey([photo] * 6, inspector, ["similarity"], batch=4, part=3)


CALLS = {
    "saliency at another size": (
        lambda i, t: vitviz.saliency(i, t, 0, size=16),
        "size=16 is not valid with a trace of 32 × 32 pixels",
    ),
    "faithfulness at another size": (
        lambda i, t: vitviz.faithfulness(i, t, 0, size=16),
        "size=16 is not valid with a trace",
    ),
    "perturbation at another size": (
        lambda i, t: vitviz.perturbation(i, t, "drop", size=16),
        "size=16 is not valid with a trace",
    ),
    "no random map": (lambda i, t: vitviz.faithfulness(i, t, 0, draws=0), "draws=0 is not valid"),
    "a negative number of orders": (lambda i, t: vitviz.sufficient_edges(i, t, draws=-1), "draws=-1"),
    "no edge": (lambda i, t: vitviz.edge_ablation(i, t, 0, 1, 1, count=0), "count=0 is not valid"),
    "no edge at once": (lambda i, t: vitviz.edge_ablation(i, t, 0, 1, 1, batch=0), "batch=0 is not valid"),
    "a negative number of paths": (lambda i, t: vitviz.attribution_paths(i, t, 0, -1), "count=-1"),
    "one head as a path": (
        lambda i, t: vitviz.upstream_contributions(i, t, 0, 1, 0, via=(1, 0)),
        r"via=\(1, 0\) is not valid; expected a list",
    ),
    "a token's name": (
        lambda i, t: vitviz.attention_score_attribution(i, t, 1, 0, "class", 0),
        "'class' as the query is not valid",
    ),
    "a number as a label": (
        lambda i, t: vitviz.logit_attribution(i, t, "3"),
        "Give its number, from 0, as 3 without quotation marks",
    ),
    "no image to check": (lambda i, t: vitviz.check(i, limit=0), "limit=0 is not valid"),
}


@pytest.mark.parametrize("name", CALLS)
def test_argument_is_refused_by_name(small_inspector, small_trace, name):
    call, message = CALLS[name]
    with pytest.raises(VitvizError, match=message):
        call(small_inspector, small_trace)


def test_share_of_a_gpu_without_workers_is_refused(small_inspector, photo):
    with pytest.raises(VitvizError, match="pass their number as workers"):
        vitviz.survey([photo], small_inspector, gpus_per_worker=0.5)


def test_dark_32_bit_image_is_warned_about(small_inspector, photo):
    image = photo.convert("L").convert("I")
    with pytest.warns(vitviz.AssumedWarning, match="read as 0 to 65535"):
        small_inspector.trace(image)


@pytest.mark.parametrize("call", [survey_by_two, survey_in_parts_of_three])
def test_similarity_with_too_small_batches_is_refused_before_a_pass(small_inspector, photo, call):
    with pytest.raises(VitvizError, match="batch and part must each be at least 4"):
        call(small_inspector, photo)


def test_own_size_is_accepted_with_a_trace(small_inspector, small_trace):
    by_size = vitviz.saliency(small_inspector, small_trace, 0, size=32)
    np.testing.assert_array_equal(by_size.map, vitviz.saliency(small_inspector, small_trace, 0).map)


@pytest.mark.parametrize("method", ["ledger", "input_gradient"])
def test_tensor_of_one_number_is_a_class(small_inspector, small_trace, method):
    of = [vitviz.saliency(small_inspector, small_trace, one, method).map for one in (3, torch.tensor(3))]
    np.testing.assert_array_equal(*of)


@pytest.mark.parametrize("name", ["analyses", "charts", "export", "surveys"])
def test_documented_packages_are_attributes_of_vitviz(name):
    assert getattr(vitviz, name).__name__ == f"vitviz.{name}"


@pytest.mark.parametrize("change", ["resize", "crop", "paste"])
def test_changed_copy_of_an_edited_image_has_no_record_of_strokes(small_inspector, photo, change):
    edited = vitviz.edit_image(photo, "brush.ff0000_60.100.80")
    assert small_inspector.trace(edited.copy()).view.retouched.text() == "brush.ff0000_60.100.80"
    copy = edited.copy()
    if change == "paste":
        copy.paste((0, 0, 255), (0, 0, 9, 9))
    else:
        copy = copy.resize((64, 64)) if change == "resize" else copy.crop((9, 9, 99, 99))
    assert not small_inspector.trace(copy).view.retouched


def test_report_is_saved_as_html_only(small_inspector, tmp_path):
    report = vitviz.check(small_inspector, on_finding=lambda finding: False)
    with pytest.raises(VitvizError, match="expected a name that ends in .html"):
        report.save(tmp_path / "report.pdf")
    with pytest.raises(VitvizError, match="report.html cannot be written"):
        report.save(tmp_path / "nowhere" / "report.html")
    assert report.save(tmp_path / "report.html").read_text().startswith("<!doctype html>")
