"""Genuine DeiT-Tiny on a dog and a cat: reference correlations and published balances."""

import pytest
import torch

import vitviz
from tests.shared import shared_file
from vitviz.analyses.correlation import spearman
from vitviz.analyses.saliency import saliency_map
from vitviz.engine.studies.saliency import explained

DOG, CAT = 243, 282
REFERENCE = {  # Spearman correlation of dog and cat, and the peaks of both
    ("ledger", None): (0.24, (1, 7), (11, 6)),
    ("gradient_rollout", None): (0.53, (3, 8), (11, 4)),
    ("chefer", None): (0.78, (1, 7), (13, 9)),
    ("frozen", "tokens"): (0.17, (0, 5), (10, 10)),
    ("frozen", "pixels"): (0.03, (0, 7), (9, 10)),
    ("input_gradient", "pixels"): (-0.03, None, None),
    ("input_gradient", "tokens"): (0.00, None, None),
    ("rollout", None): (1.00, None, None),
    ("last_attention", None): (1.00, None, None),
}


@pytest.fixture(scope="module")
def dog_and_cat():
    weights = shared_file("weights/deit_tiny_patch16_224.safetensors")
    inspector = vitviz.load(weights, architecture="deit_tiny_patch16_224", device="cpu")
    dog = explained(inspector, shared_file("data/both.png"), DOG)
    return dog, explained(inspector, dog.trace, CAT)


def peak_of(found):
    return divmod(found.map.argmax().item(), found.map.shape[1])


@pytest.mark.parametrize("method, at", REFERENCE)
def test_maps_have_reference_correlation_and_peaks(dog_and_cat, method, at):
    correlation, *peaks = REFERENCE[method, at]
    dog, cat = (saliency_map(inputs, method, at) for inputs in dog_and_cat)
    assert spearman(dog.map, cat.map) == pytest.approx(correlation, abs=0.006)
    if peaks[0] is not None:
        assert [peak_of(dog), peak_of(cat)] == peaks


@pytest.mark.parametrize("method, correlation, peaks", [
    ("hires_cam", 0.17, [(0, 5), (11, 6)]),
    ("grad_cam", 0.30, [(1, 7), (11, 5)]),
])  # fmt: skip
def test_class_activation_maps_have_reference_correlation_and_peaks(dog_and_cat, method, correlation, peaks):
    """The reference clamps both maps and breaks ties by NumPy's default sort, which is not stable.

    Of Grad-CAM, 124 and 144 of 196 patches are zero. The reference gives 0.302, ties by position 0.332, and
    shared ranks 0.052.
    """
    dog, cat = (saliency_map(inputs, method) for inputs in dog_and_cat)
    assert [peak_of(dog), peak_of(cat)] == peaks
    ranks = [
        result.map.clamp(min=0).flatten().argsort(stable=True).argsort().double() for result in (dog, cat)
    ]
    assert spearman(*ranks) == pytest.approx(correlation, abs=0.04)


def test_grad_cam_correlation_depends_on_ties(dog_and_cat):
    """The reference gives 0.30. Most patches of both maps are zero, so the correlation depends on how a sort
    orders zeros.
    """
    dog, cat = (saliency_map(map_, "grad_cam").map for map_ in dog_and_cat)
    assert [(map_ == 0).sum().item() for map_ in (dog, cat)] == [124, 144]
    ranks = [map_.flatten().argsort(stable=True).argsort().double() for map_ in (dog, cat)]
    assert spearman(*ranks) == pytest.approx(0.332, abs=0.002)
    assert spearman(dog, cat) == pytest.approx(0.052, abs=0.002)


def test_attention_grad_cam_is_blank_and_reported(dog_and_cat):
    assert all(saliency_map(inputs, "attention_grad_cam").nothing_positive for inputs in dog_and_cat)


def test_maps_have_published_balances(dog_and_cat):
    dog, _ = dog_and_cat
    frozen = saliency_map(dog, "frozen", "pixels")
    assert frozen.map.sum().item() == pytest.approx(6.7749, abs=1e-3) and frozen.answer == pytest.approx(
        8.1673, abs=1e-3
    )
    assert sum(frozen.constants.values()) == pytest.approx(1.3923, abs=1e-3)
    assert frozen.constants["norm biases"] == pytest.approx(-15.0, abs=0.05)
    assert frozen.constants["linear biases"] == pytest.approx(13.2, abs=0.05)
    for at in ("pixels", "tokens", *range(1, 13)):
        assert abs(saliency_map(dog, "frozen", at).unexplained) < 1e-5 * frozen.answer
    input_gradient = saliency_map(dog, "input_gradient")
    assert input_gradient.map.sum().item() == pytest.approx(
        1.397, abs=1e-3
    ) and input_gradient.unexplained == pytest.approx(4.87, abs=5e-3)
    assert abs(saliency_map(dog, "ledger").unexplained) < 1e-5 * frozen.answer


@pytest.mark.sweep  # 240 gradient passes
def test_integrated_gradients_sum_to_score_difference(dog_and_cat):
    """Here 128 nodes deviate by 1.1 % from 1,000 nodes; 50 midpoint steps deviated by 8.8 %."""
    from vitviz.analyses.saliency import integrated_gradients

    result = integrated_gradients(dog_and_cat[0])
    assert result.converged and result.steps == 128
    assert result.unexplained == pytest.approx(0, abs=0.02)
    assert result.answer - result.constants["the empty picture"] == pytest.approx(8.23, abs=5e-3)


def test_without_removal_logits_are_the_models_own(dog_and_cat):
    dog, _ = dog_and_cat
    full_logits = dog.answers(torch.arange(196)[None])[0]
    torch.testing.assert_close(full_logits, dog.trace.logits, rtol=0, atol=1e-4)
    assert torch.softmax(full_logits, -1)[DOG].item() == pytest.approx(0.414, abs=2e-3)


def test_parameter_randomisation_changes_maps_but_not_checkpoint():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    before = {name: value.clone() for name, value in inspector.model.state_dict().items()}
    from vitviz.engine.studies.saliency import parameter_randomisation

    image = vitviz.sample_image("chelsea")
    correlations = parameter_randomisation(
        inspector, image, 0, ["ledger", "rollout"], blocks=(0, 2), seeds=(0,)
    )
    (head,), (last,) = correlations["rollout"]
    assert head == 1.0 and last < 1.0  # rollout does not use the head
    assert all(abs(value) < 0.9 for (value,) in correlations["ledger"])
    for name, value in inspector.model.state_dict().items():
        assert torch.equal(value, before[name])
