"""Named results are tensors equal to those of the analyses."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch

import vitviz
from vitviz import analyses
from vitviz.engine.studies import attribution
from vitviz.errors import VitvizError


def test_named_tensors_equal_analysis_tensors(results, inspector, trace):
    expected = {
        "attention_distance": analyses.attention_distance(trace),
        "rollout": analyses.rollout(trace, fusion="max", discard=0.9),
        "token_norms": analyses.token_norms(trace),
        "token_similarity": analyses.token_similarity(trace, 8, 100),
        "logit_lens": attribution.logit_lens(inspector, trace),
        "position_similarity": attribution.position_similarity(inspector),
    }
    for name, tensor in expected.items():
        assert isinstance(results[name], torch.Tensor) and torch.equal(results[name], tensor), name
        assert repr(results[name]) == repr(tensor) and np.array_equal(results[name].numpy(), tensor.numpy())


def test_derived_copied_and_saved_results_are_plain_tensors(results):
    named = results["rollout"]
    file = io.BytesIO()
    torch.save(named, file)
    file.seek(0)
    others = {
        "sum": named + 1,
        "row": named[0],
        "copy": copy.deepcopy(named),
        "pickle": pickle.loads(pickle.dumps(named)),
        "file": torch.load(file, weights_only=True),
    }
    assert {name for name, one in others.items() if type(one) is not torch.Tensor} == set()
    assert torch.equal(others["pickle"], named) and torch.equal(others["file"], named)


def test_public_functions_keep_signature_and_docstring(trace):
    import inspect

    assert inspect.signature(vitviz.rollout) == inspect.signature(analyses.rollout)
    assert vitviz.rollout.__doc__ == analyses.rollout.__doc__
    with pytest.raises(VitvizError, match="fusion='sum'"):
        vitviz.rollout(trace, fusion="sum")


def test_frames_contain_result_numbers(results):
    pytest.importorskip("pandas")
    account, survey = results["logit_attribution"], results["survey"]
    lines = account.frame()
    assert lines.logits.sum() == pytest.approx(account.total, abs=1e-6)
    heads = lines[lines.line == "head"].set_index(["layer", "head"]).logits
    assert all(heads[place] == account.heads[place].item() for place in np.ndindex(*account.heads.shape))
    means = survey.frame().set_index(["quantity", "layer", "head"])
    assert means.loc[("distance.distance", 3, 1), "mean"] == survey.mean("distance.distance")[3, 1]
    assert means.loc[("distance.distance", 3, 1), "error"] == survey.error("distance.distance")[3, 1]
    distances = results["attention_distance"]
    frame = distances.frame()
    assert list(frame.columns) == ["layer", "head", "value"] and len(frame) == distances.numel()
    assert frame.value[3 * 1 + 2] == distances[1, 2].item()
    assert list(results["checkpoints"].frame().name) == [one.name for one in results["checkpoints"]]


def test_frame_without_pandas_raises(results, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    for name in ("logit_attribution", "survey", "rollout", "faithfulness", "checkpoints"):
        with pytest.raises(VitvizError, match="pip install pandas"):
            results[name].frame()
