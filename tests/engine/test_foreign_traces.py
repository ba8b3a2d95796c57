"""Traces of another checkpoint, of an ablated model, of a pass with hooks or of an experiment are refused.

Whatever runs further passes, or applies weights, would mix two models.
"""

import pytest

import vitviz
from vitviz.errors import VitvizError

IMAGE = vitviz.sample_image("coffee")
OF_OWN_WEIGHTS = {
    "saliency": lambda model, trace: vitviz.saliency(model, trace, 5, method="naclip"),
    "faithfulness": lambda model, trace: vitviz.faithfulness(model, trace, 5, methods=["rollout"], draws=1),
    "perturbation": lambda model, trace: vitviz.perturbation(model, trace, "shuffle", draws=1),
    "filter responses": vitviz.filter_responses,
    "logit lens": vitviz.logit_lens,
    "attribution": lambda model, trace: vitviz.logit_attribution(model, trace, 5),
    "paths": lambda model, trace: vitviz.attribution_paths(model, trace, 5),
    "figure": lambda model, trace: vitviz.figure("filters", model, trace),
    "page": lambda model, trace: vitviz.show("filters", model, trace),
}
OF_FURTHER_PASSES = {
    "leave one out": lambda model, trace: vitviz.saliency(model, trace, 5, method="leave_one_out"),
    "path": lambda model, trace: vitviz.saliency(model, trace, 5, method="integrated_gradients", steps=2),
    "gradients": lambda model, trace: vitviz.saliency(model, trace, 5, method="chefer"),
    "faithfulness": OF_OWN_WEIGHTS["faithfulness"],
    "perturbation": OF_OWN_WEIGHTS["perturbation"],
}


@pytest.fixture(scope="module")
def model():
    return vitviz.load("vitviz-tiny", device="cpu")


@pytest.fixture(scope="module")
def snapshot():
    return vitviz.load("vitviz-tiny@30000", device="cpu").trace(IMAGE)


@pytest.fixture(scope="module")
def traces(model):
    """Traces that the plain model does not give, each with what the message says."""
    with model.hook("blocks.3.mlp", lambda output: output * 0):
        hooked = model.trace(IMAGE)
    ablated = model.trace(IMAGE, ablation=vitviz.Ablation(heads=[(0, 0), (0, 1)], heads_as="zero"))
    return {
        "ablated": (ablated, "ablated|full model"),
        "hooked": (hooked, "a pass with hooks"),
        "experiment": (model.experiment(IMAGE, positions=False), "an experiment"),
    }


@pytest.mark.parametrize("name", OF_OWN_WEIGHTS)
def test_trace_of_another_checkpoint_is_refused(name, model, snapshot):
    with pytest.raises(
        VitvizError, match="of vitviz-tiny@30000; expected one of vitviz-tiny. Use the inspector"
    ):
        OF_OWN_WEIGHTS[name](model, snapshot)


@pytest.mark.parametrize("kind", ["ablated", "hooked", "experiment"])
@pytest.mark.parametrize("name", OF_FURTHER_PASSES)
def test_trace_that_the_plain_model_does_not_give_is_refused(name, kind, model, traces):
    trace, says = traces[kind]
    with pytest.raises(VitvizError, match=says):
        OF_FURTHER_PASSES[name](model, trace)


@pytest.mark.parametrize("name", ["leave one out", "path", "gradients"])
def test_own_trace_gives_the_map_of_its_image(name, small_inspector, small_trace):
    expected = OF_FURTHER_PASSES[name](small_inspector, IMAGE).map
    assert OF_FURTHER_PASSES[name](small_inspector, small_trace).map.allclose(expected, atol=1e-5)
