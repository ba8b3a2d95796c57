"""Integrated gradients: steps are doubled until the map is stable, and the result reports convergence."""

import pytest
import torch

import vitviz
from tests.engine.constructions import small_model
from tests.engine.saliency_oracle import small_saliency_inputs
from vitviz.analyses.saliency import linear, saliency_map
from vitviz.analyses.saliency.linear import integrated_gradients
from vitviz.analyses.saliency.passes import PathGradients
from vitviz.errors import Stopped, VitvizError
from vitviz.surveys.measures.trial import FaithfulnessMeasure
from vitviz.traces import cancellation
from vitviz.views import trial as view
from vitviz.views.routes import parse_settings

SHAPE = (3, 4)


def inputs_with_error(error):
    """Return inputs whose map is 1 plus an error of alternating sign, and the list of requested steps.

    `error` gives the mean absolute error at a number of steps. The errors cancel in the sum, so the
    completeness gap does not show them.
    """
    requested, inputs, signs = [], small_saliency_inputs(), torch.tensor([1.0, -1.0]).repeat(6).view(SHAPE)

    def path(steps):
        requested.append(steps)
        return PathGradients(torch.ones(SHAPE) + error(steps) * signs, 0.0, steps)

    inputs.path = path
    return inputs, requested


def test_steps_double_until_map_changes_less_than_five_per_cent():
    inputs, requested = inputs_with_error(lambda steps: 3 / steps)
    result = integrated_gradients(inputs)
    assert requested == [16, 32, 64], "from 16 to 32 they differ by 9.4 %, from 32 to 64 by 4.7 %"
    assert (result.steps, result.converged) == (64, True) and result.change == pytest.approx(0.046875)
    assert result.map.sum().item() == pytest.approx(12), "the errors cancel in the sum"
    assert result.convergence.startswith("64 steps. The last doubling changed the map by 4.7 %. ")


@pytest.mark.parametrize("error", [lambda steps: steps, lambda steps: float("nan")])
def test_diverging_map_stops_at_limit_and_is_marked_unreliable(error):
    inputs, requested = inputs_with_error(error)
    result = integrated_gradients(inputs)
    assert requested == [16, 32, 64, 128, 256, 512] == [linear.FIRST * 2**n for n in range(6)]
    assert result.steps == linear.MOST and result.converged is False
    assert "512 steps, the limit." in result.convergence and "not reliable" in result.convergence


def test_blank_map_counts_as_converged():
    inputs, requested = inputs_with_error(lambda steps: 0.0)
    inputs.path = lambda steps: PathGradients(torch.zeros(SHAPE), 0.0, steps)
    assert integrated_gradients(inputs).change == 0 and integrated_gradients(inputs).converged


def test_given_steps_are_used_once_without_convergence_claim():
    inputs, requested = inputs_with_error(lambda steps: 1 / steps)
    result = saliency_map(inputs, "integrated_gradients", steps=50)
    assert requested == [50] and (result.steps, result.change, result.converged) == (50, None, None)
    assert "not tested" in result.convergence
    assert saliency_map(inputs, "frozen").convergence == ""


@pytest.mark.long
def test_converged_map_equals_map_of_thousand_steps():
    model = small_model("class")
    with torch.no_grad():
        # makes the gradient change along the path from the mean colour
        model.patch_embed.proj.weight *= 20
    inputs = small_saliency_inputs(target=(1, 4), model=model)
    result, exact = integrated_gradients(inputs), integrated_gradients(inputs, steps=1_000)
    error = (result.map - exact.map).abs().sum() / exact.map.abs().sum()
    assert error <= result.change <= 0.05 and result.steps < 1_000
    start, change = result.constants["the empty picture"], exact.map.sum().item()
    with torch.no_grad():
        end = inputs._score(inputs.pixels).item()
    assert change == pytest.approx(end - start, rel=1e-6), "a thousand steps are complete"


def test_passes_are_batched_and_can_be_cancelled():
    inputs, batches, checks = small_saliency_inputs(), [], []
    score = inputs._score

    def count_and_score(pixels):
        batches.append(len(pixels))
        return score(pixels)

    inputs._score = count_and_score
    integrated_gradients(inputs, steps=20)
    assert batches == [1, 8, 8, 4, 1], "the first is the gradient of the image, the last the empty image"
    inputs._score = lambda pixels: checks.append(1) or score(pixels)
    with cancellation.when(lambda: len(checks) >= 3), pytest.raises(Stopped):
        integrated_gradients(inputs)
    assert len(checks) <= 4


@pytest.mark.parametrize("steps", [0, -1, True, 10**6])
def test_invalid_steps_are_rejected_before_any_pass(inspector, trace, steps):
    for compute in (
        lambda: vitviz.saliency(inspector, trace, 7, "integrated_gradients", steps=steps),
        lambda: vitviz.faithfulness(inspector, trace, 7, ["integrated_gradients"], steps=steps),
        lambda: FaithfulnessMeasure(("integrated_gradients",), steps=steps),
    ):
        with pytest.raises(VitvizError, match="expected a whole number from 1 to 2048"):
            compute()


def test_steps_for_other_methods_are_rejected(inspector, trace):
    with pytest.raises(VitvizError, match="for frozen; only integrated_gradients uses it"):
        vitviz.saliency(inspector, trace, 7, steps=20)
    with pytest.raises(VitvizError, match="expected integrated_gradients among the methods"):
        FaithfulnessMeasure(("ledger",), steps=20)


@pytest.fixture(scope="module")
def small_input_trace(inspector):
    """Return a trace with 16 patches, whose gradients are cheap."""
    return inspector.trace(vitviz.sample_image("coffee"), size=64)


@pytest.mark.long
def test_steps_are_used_and_reported_everywhere(inspector, small_input_trace):
    from vitviz.notebook.cards import html
    from vitviz.views import ViewContext
    from vitviz.views.trial import compute

    result = vitviz.faithfulness(inspector, small_input_trace, 7, ["integrated_gradients"], draws=2, steps=3)
    (row,) = (row for row in result.rows() if row["method"] == "integrated_gradients")
    assert (row["steps"], row["change"], row["converged"]) == (3, None, None)
    assert all(row["steps"] is None for row in result.rows() if row["method"] == "random")
    assert "3 steps, as set" in html(result) and "3 steps, as set" in html(
        result.maps["integrated_gradients"]
    )

    subject, faithfulness_view = ViewContext(inspector, small_input_trace), view.FaithfulnessView()
    given = {"steps": "32", "method": "integrated_gradients"}
    settings = parse_settings(faithfulness_view, given, subject.about)
    evaluated = compute.evaluate_method(
        subject, 7, "dropped", "integrated_gradients", view.requested_steps(settings)
    )
    assert compute.method_json(evaluated)["convergence"]["values"]["steps"] == 32
    assert (
        compute.method_json(compute.evaluate_method(subject, 7, "dropped", "centre"))["convergence"] is None
    )
    names = {compute.part_key(7, "dropped", method, steps) for method in ("frozen", "integrated_gradients")
             for steps in (None, 32)}  # fmt: skip
    assert len(names) == 3, "other methods must not be evaluated again"

    images = [vitviz.sample_image(name) for name in ("coffee", "rocket")]
    measure = FaithfulnessMeasure(("integrated_gradients",), steps=3, shares=(0.0, 1.0))
    survey_result = vitviz.survey(images, inspector, [measure], size=64)
    gaps = []
    for image in images:
        image_trace = inspector.trace(image, size=64)
        top = int(image_trace.logits.argmax())
        gaps.append(vitviz.saliency(inspector, image_trace, top, "integrated_gradients", steps=3).unexplained)
    assert survey_result.mean("trial.unexplained") == pytest.approx(sum(gaps) / 2, abs=1e-5)
    assert survey_result.mean("trial.steps") == 3
    auto, other = FaithfulnessMeasure(("integrated_gradients",)), FaithfulnessMeasure(("ledger",))
    assert len({item.settings for item in (measure, auto, other)}) == 3
    assert "steps" not in {item.name for item in other.quantities}
