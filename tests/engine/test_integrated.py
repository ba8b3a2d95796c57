"""Integrated gradients: steps are doubled until the map is stable, and the result says what came of it."""

import pytest
import torch

import vitviz
from tests.engine.accounts import small_model
from tests.engine.saliency_oracle import small_saliency_inputs
from vitviz.analyses.saliency import linear, saliency_map
from vitviz.analyses.saliency.linear import integrated_gradients
from vitviz.analyses.saliency.passes import PathGradients
from vitviz.errors import Stopped, VitvizError
from vitviz.surveys.measures.trial import FaithfulnessMeasure
from vitviz.traces import cancellation
from vitviz.views import trial as view

SHAPE = (3, 4)


def drawn(error):
    """Passes whose map is 1 everywhere but for an error of either sign, and the steps that were asked for.

    `error` gives the mean absolute error at a number of steps; the errors cancel in the sum, as a small
    completeness gap hides them.
    """
    asked, one, signs = [], small_saliency_inputs(), torch.tensor([1.0, -1.0]).repeat(6).view(SHAPE)

    def path(steps):
        asked.append(steps)
        return PathGradients(torch.ones(SHAPE) + error(steps) * signs, 0.0, steps)

    one.path = path
    return one, asked


def test_steps_are_doubled_until_two_maps_differ_by_five_per_cent():
    one, asked = drawn(lambda steps: 3 / steps)
    found = integrated_gradients(one)
    assert asked == [16, 32, 64], "from 16 to 32 they differ by 9.4 %, from 32 to 64 by 4.7 %"
    assert (found.steps, found.converged) == (64, True) and found.change == pytest.approx(0.046875)
    assert found.map.sum().item() == pytest.approx(12), "of which the gap says nothing"
    assert found.convergence.startswith("64 steps. Doubling them last changed the map by 4.7 %. ")


@pytest.mark.parametrize("error", [lambda steps: steps, lambda steps: float("nan")])
def test_what_does_not_converge_ends_at_the_limit_and_says_so(error):
    one, asked = drawn(error)
    found = integrated_gradients(one)
    assert asked == [16, 32, 64, 128, 256, 512] == [linear.FIRST * 2**n for n in range(6)]
    assert found.steps == linear.MOST and found.converged is False
    assert "512 steps, the limit." in found.convergence and "not reliable" in found.convergence


def test_a_blank_map_has_converged():
    one, asked = drawn(lambda steps: 0.0)
    one.path = lambda steps: PathGradients(torch.zeros(SHAPE), 0.0, steps)
    assert integrated_gradients(one).change == 0 and integrated_gradients(one).converged


def test_given_steps_are_taken_once_and_nothing_is_claimed_of_more():
    one, asked = drawn(lambda steps: 1 / steps)
    found = saliency_map(one, "integrated_gradients", steps=50)
    assert asked == [50] and (found.steps, found.change, found.converged) == (50, None, None)
    assert "not tested" in found.convergence
    assert saliency_map(one, "frozen").convergence == ""


@pytest.mark.long
def test_the_converged_map_is_that_of_a_thousand_steps():
    model = small_model("class")
    with torch.no_grad():
        model.patch_embed.proj.weight *= 20  # on the way from the mean colour the gradient turns
    one = small_saliency_inputs(target=(1, 4), model=model)
    found, exact = integrated_gradients(one), integrated_gradients(one, steps=1_000)
    error = (found.map - exact.map).abs().sum() / exact.map.abs().sum()
    assert error <= found.change <= 0.05 and found.steps < 1_000
    start, change = found.constants["the empty picture"], exact.map.sum().item()
    with torch.no_grad():
        end = one._score(one.pixels).item()
    assert change == pytest.approx(end - start, rel=1e-6), "a thousand steps are complete"


def test_passes_are_few_at_once_and_end_where_nobody_waits():
    one, batches, gone = small_saliency_inputs(), [], []
    score = one._score

    def counted(pixels):
        batches.append(len(pixels))
        return score(pixels)

    one._score = counted
    integrated_gradients(one, steps=20)
    assert batches == [1, 8, 8, 4, 1], "the first is the image's own gradient, the last the empty image"
    one._score = lambda pixels: gone.append(1) or score(pixels)
    with cancellation.when(lambda: len(gone) >= 3), pytest.raises(Stopped):
        integrated_gradients(one)
    assert len(gone) <= 4


@pytest.mark.parametrize("steps", [0, -1, True, 10**6])
def test_steps_that_cannot_be_are_refused_before_any_pass(inspector, trace, steps):
    for ask in (
        lambda: vitviz.saliency(inspector, trace, 7, "integrated_gradients", steps=steps),
        lambda: vitviz.faithfulness(inspector, trace, 7, ["integrated_gradients"], steps=steps),
        lambda: FaithfulnessMeasure(("integrated_gradients",), steps=steps),
    ):
        with pytest.raises(VitvizError, match="expected a whole number from 1 to 2048"):
            ask()


def test_steps_of_what_has_none_are_refused(inspector, trace):
    with pytest.raises(VitvizError, match="for frozen; expected it for integrated_gradients alone"):
        vitviz.saliency(inspector, trace, 7, steps=20)
    with pytest.raises(VitvizError, match="expected integrated_gradients among the methods"):
        FaithfulnessMeasure(("ledger",), steps=20)


@pytest.fixture(scope="module")
def small(inspector):
    """16 patches, whose gradients are quick."""
    return inspector.trace(vitviz.sample_image("coffee"), size=64)


@pytest.mark.long
def test_trial_survey_view_and_notebook_take_the_steps_and_say_what_came_of_them(inspector, small):
    from vitviz.notebook.cards import html
    from vitviz.views import ViewContext
    from vitviz.views.trial import compute

    own = vitviz.faithfulness(inspector, small, 7, ["integrated_gradients"], draws=2, steps=3)
    (row,) = (row for row in own.rows() if row["method"] == "integrated_gradients")
    assert (row["steps"], row["change"], row["converged"]) == (3, None, None)
    assert all(row["steps"] is None for row in own.rows() if row["method"] == "random")
    assert "3 steps, as set" in html(own) and "3 steps, as set" in html(own.maps["integrated_gradients"])

    subject, trial = ViewContext(inspector, small), view.FaithfulnessView()
    settings = trial.settings({"steps": "32", "method": "integrated_gradients"}, subject.about)
    tried = compute.evaluate_method(
        subject, 7, "dropped", "integrated_gradients", view.requested_steps(settings)
    )
    assert compute.method_json(tried)["convergence"]["values"]["steps"] == 32
    assert (
        compute.method_json(compute.evaluate_method(subject, 7, "dropped", "centre"))["convergence"] is None
    )
    names = {compute.part_key(7, "dropped", method, steps) for method in ("frozen", "integrated_gradients")
             for steps in (None, 32)}  # fmt: skip
    assert len(names) == 3, "other methods are not tried anew"

    pictures = [vitviz.sample_image(name) for name in ("coffee", "rocket")]
    measure = FaithfulnessMeasure(("integrated_gradients",), steps=3, shares=(0.0, 1.0))
    found = vitviz.survey(pictures, inspector, [measure], size=64)
    gaps = []
    for picture in pictures:
        seen = inspector.trace(picture, size=64)
        top = int(seen.logits.argmax())
        gaps.append(vitviz.saliency(inspector, seen, top, "integrated_gradients", steps=3).unexplained)
    assert found.mean("trial.unexplained") == pytest.approx(sum(gaps) / 2, abs=1e-5)
    assert found.mean("trial.steps") == 3
    auto, other = FaithfulnessMeasure(("integrated_gradients",)), FaithfulnessMeasure(("ledger",))
    assert len({one.settings for one in (measure, auto, other)}) == 3
    assert "steps" not in {one.name for one in other.quantities}
