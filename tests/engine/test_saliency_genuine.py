"""Genuine DeiT-Tiny on a dog and a cat: the reference columns, and what was published of balances."""

import pytest
import torch

import vitviz
from tests.shared import shared_file
from vitviz.analyses.correlation import spearman
from vitviz.analyses.saliency import saliency_map
from vitviz.engine.studies.saliency import explained

DOG, CAT = 243, 282
REFERENCE = {  # Spearman between dog and cat, where each peaks
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
def both():
    weights = shared_file("weights/deit_tiny_patch16_224.safetensors")
    inspector = vitviz.load(weights, architecture="deit_tiny_patch16_224", device="cpu")
    dog = explained(inspector, shared_file("data/both.png"), DOG)
    return dog, explained(inspector, dog.trace, CAT)


def peak(found):
    return divmod(found.map.argmax().item(), found.map.shape[1])


@pytest.mark.parametrize("method, at", REFERENCE)
def test_dog_and_cat(both, method, at):
    correlation, *peaks = REFERENCE[method, at]
    dog, cat = (saliency_map(one, method, at) for one in both)
    assert spearman(dog.map, cat.map) == pytest.approx(correlation, abs=0.006)
    if peaks[0] is not None:
        assert [peak(dog), peak(cat)] == peaks


@pytest.mark.parametrize("method, correlation, peaks", [
    ("hires_cam", 0.17, [(0, 5), (11, 6)]),
    ("grad_cam", 0.30, [(1, 7), (11, 5)]),
])  # fmt: skip
def test_class_activation_maps(both, method, correlation, peaks):
    """The reference clamps both and breaks ties by NumPy's default sort, which is not stable: of Grad-CAM,
    124 and 144 of whose 196 patches are zero, it gives 0.302; ties by place 0.332, and shared ranks 0.052.
    """
    dog, cat = (saliency_map(one, method) for one in both)
    assert [peak(dog), peak(cat)] == peaks
    by_place = [one.map.clamp(min=0).flatten().argsort(stable=True).argsort().double() for one in (dog, cat)]
    assert spearman(*by_place) == pytest.approx(correlation, abs=0.04)


def test_what_ties_make_of_grad_cams_correlation(both):
    """The reference's 0.30: most patches of both maps are zero, and how a sort orders zeros is no finding."""
    dog, cat = (saliency_map(one, "grad_cam").map for one in both)
    assert [(one == 0).sum().item() for one in (dog, cat)] == [124, 144]
    by_place = [one.flatten().argsort(stable=True).argsort().double() for one in (dog, cat)]
    assert spearman(*by_place) == pytest.approx(0.332, abs=0.002)
    assert spearman(dog, cat) == pytest.approx(0.052, abs=0.002)


def test_chefers_grad_cam_is_blank_and_says_so(both):
    assert all(saliency_map(one, "attention_grad_cam").nothing_positive for one in both)


def test_published_balances(both):
    dog, _ = both
    found = saliency_map(dog, "frozen", "pixels")
    assert found.map.sum().item() == pytest.approx(6.7749, abs=1e-3) and found.answer == pytest.approx(
        8.1673, abs=1e-3
    )
    assert sum(found.constants.values()) == pytest.approx(1.3923, abs=1e-3)
    assert found.constants["norm biases"] == pytest.approx(-15.0, abs=0.05)
    assert found.constants["linear biases"] == pytest.approx(13.2, abs=0.05)
    for at in ("pixels", "tokens", *range(1, 13)):
        assert abs(saliency_map(dog, "frozen", at).unexplained) < 1e-5 * found.answer
    own = saliency_map(dog, "input_gradient")
    assert own.map.sum().item() == pytest.approx(1.397, abs=1e-3) and own.unexplained == pytest.approx(
        4.87, abs=5e-3
    )
    assert abs(saliency_map(dog, "ledger").unexplained) < 1e-5 * found.answer


@pytest.mark.sweep  # 240 gradients
def test_integrated_gradients_converge_to_the_difference_of_the_scores(both):
    """128 nodes are off by 1.1 % from 1,000 here; 50 steps at midpoints were by 8.8 %."""
    from vitviz.analyses.saliency import integrated_gradients

    found = integrated_gradients(both[0])
    assert found.converged and found.steps == 128
    assert found.unexplained == pytest.approx(0, abs=0.02)
    assert found.answer - found.constants["the empty picture"] == pytest.approx(8.23, abs=5e-3)


def test_with_nothing_removed_the_answer_is_the_models_own(both):
    dog, _ = both
    whole = dog.answers(torch.arange(196)[None])[0]
    torch.testing.assert_close(whole, dog.trace.logits, rtol=0, atol=1e-4)
    assert torch.softmax(whole, -1)[DOG].item() == pytest.approx(0.414, abs=2e-3)


def test_what_was_drawn_at_random_is_another_map_and_the_checkpoint_stays():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    before = {name: value.clone() for name, value in inspector.model.state_dict().items()}
    from vitviz.engine.studies.saliency import parameter_randomisation

    picture = vitviz.sample_image("chelsea")
    found = parameter_randomisation(inspector, picture, 0, ["ledger", "rollout"], blocks=(0, 2), seeds=(0,))
    (head,), (last,) = found["rollout"]
    assert head == 1.0 and last < 1.0  # rollout reads no head
    assert all(abs(value) < 0.9 for (value,) in found["ledger"])
    for name, value in inspector.model.state_dict().items():
        assert torch.equal(value, before[name])
