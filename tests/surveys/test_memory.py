"""Batches that exceed memory are measured in halves with equal numbers, and the report states it."""

from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

import vitviz
from tests.engine.fake_gpu import fake_gpu
from tests.engine.random_inspectors import noise
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.engine.runner import ForwardRunner, all_finite
from vitviz.errors import OutOfMemory
from vitviz.surveys import MEASURES, Quantity, effort
from vitviz.surveys.effort import BatchSize

NAMES = ["distance", "prefix_mass", "entropy", "ledger", "lens", "skip"]


@dataclass(frozen=True)
class MemoryLimitedMeasure:
    """Measure the attention distance of at most `room` images at once."""

    room: int
    batches: list[int] = field(default_factory=list)  # sizes of the batches received
    name: str = "hungry"
    says: str = "distance, in little memory"
    quantities: tuple[Quantity, ...] = MEASURES["distance"].quantities
    batched: bool = True

    def of(self, seen):
        self.batches.append(len(seen.trace))
        if len(seen.trace) > self.room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return MEASURES["distance"].of(seen)


@pytest.fixture(scope="module")
def images():
    sound = [noise(seed, (40, 40)) for seed in range(8)]
    return [*sound[:5], b"damaged", *sound[5:]]


def assert_equal_surveys(found, wanted):
    assert (found.images, found.left_out) == (wanted.images, wanted.left_out) == (8, 1)
    assert [one[0] for one in found.answers] == [one[0] for one in wanted.answers]
    assert found.skipped == wanted.skipped and found.sums.keys() == wanted.sums.keys()
    for name, moments in wanted.sums.items():
        for value in ("mean", "m2"):
            one, other = getattr(found.sums[name], value), getattr(moments, value)
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * np.abs(moments.mean).max())


@pytest.mark.parametrize("room", [1, 2, 5, 8])
def test_measuring_halves_batch_when_out_of_memory(small_inspector, images, room):
    hungry, plenty = MemoryLimitedMeasure(room), MemoryLimitedMeasure(9)
    found = vitviz.survey([*images, *images], small_inspector, [hungry, *NAMES], batch=9, limit=9)
    assert_equal_surveys(found, vitviz.survey(images, small_inspector, [plenty, *NAMES], batch=9))
    assert plenty.batches == [8]
    tried = {1: [8, 4, 2], 2: [8, 4], 5: [8], 8: []}[room]
    assert hungry.batches[: len(tried)] == tried, "a failed size is not tried again"
    assert max(hungry.batches[len(tried) :]) <= room
    size = {1: 1, 2: 2, 5: 4, 8: 9}[room]
    assert found.about["images_per_pass"] == f"{size}; 8 did not fit into memory" if tried else "9"


def test_later_batches_keep_reduced_size_and_report_states_it(small_inspector, images, tmp_path):
    hungry = MemoryLimitedMeasure(2)
    found = vitviz.survey([*images] * 2, small_inspector, [hungry], batch=8, part=9, out=tmp_path)
    assert hungry.batches == [7, 4, 2, 2, 1, 2, 2, 2, 2, 1, 2] and found.images == 16
    page = (tmp_path / "report.html").read_text()
    assert "<td>images_per_pass</td><td>2; 7 did not fit into memory</td>" in page
    assert "<td>images_per_second</td>" in page and "<td>seconds</td><td>decode " in page


def test_failure_of_earlier_larger_batch_does_not_enlarge_later_ones():
    size = BatchSize(None, 8)
    sizes = []
    for failed in (8, 3, 8):
        size.halve(failed)
        sizes.append(size.images)
    assert sizes == [4, 2, 2]


@pytest.mark.parametrize("room", [1, 3])
def test_forward_pass_halves_batch_when_out_of_memory(small_inspector, images, room, monkeypatch):
    run, sizes = ForwardRunner.run, []

    def cramped(self, model, pixels, *given, **named):
        sizes.append(len(pixels))
        if len(pixels) > room:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
        return run(self, model, pixels, *given, **named)

    labelled = [(image, number % 7) for number, image in enumerate(images)]
    wanted = vitviz.survey(labelled, small_inspector, [*NAMES, "accuracy"], batch=3)
    monkeypatch.setattr(ForwardRunner, "run", cramped)
    found = vitviz.survey(labelled, small_inspector, [*NAMES, "accuracy"], batch=9)
    assert_equal_surveys(found, wanted)
    assert found.about["images_per_pass"] == f"{1 if room == 1 else 2}; 8 did not fit into memory"
    assert sizes[:2] == [8, 4] and max(sizes[3:]) <= room


def test_single_image_out_of_memory_raises(small_inspector, images):
    with pytest.raises(OutOfMemory, match="Measuring one image needs more memory than CPU has free"):
        vitviz.survey(images, small_inspector, [MemoryLimitedMeasure(0)])


def test_similarity_minibatch_out_of_memory_raises(small_inspector, images):
    with pytest.raises(OutOfMemory, match="size of a batch changes similarity: choose a smaller one"):
        vitviz.survey(images, small_inspector, [MemoryLimitedMeasure(4), "similarity"])
    sound = [one for one in images if not isinstance(one, bytes)]
    found = vitviz.survey(sound, small_inspector, [MemoryLimitedMeasure(4), "similarity"], batch=4)
    assert [len(one.pictures) for one in found.grams] == [4, 4] and found.about["batch"] == 4


@pytest.mark.parametrize(("free", "size"), [(None, 8), (10**12, 8), (3.9, 1), (4, 2), (15.9, 4), (0.1, 1)])
def test_batch_size_is_power_of_two_within_half_of_memory(small_inspector, monkeypatch, free, size):
    demand = small_inspector.demand().nbytes
    monkeypatch.setattr(effort, "free_bytes", lambda device: None if free is None else int(free * demand))
    assert effort.fitting(small_inspector, small_inspector.preprocessing.size) == size


def test_gpu_uses_larger_batches_with_equal_results(small_inspector, images):
    with fake_gpu():
        gpu, hungry = small_inspector.on("cuda:0"), MemoryLimitedMeasure(99)
        found = vitviz.survey([*images] * 8, gpu, [hungry, "lens"], part=72)
        assert hungry.batches == [64], "8 of 9 images are readable, times 8"
    wanted = vitviz.survey([*images] * 8, small_inspector, [MemoryLimitedMeasure(99), "lens"], part=72)
    for name, moments in wanted.sums.items():
        np.testing.assert_allclose(found.mean(name), moments.mean, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_all_finite_detects_single_nonfinite_value(value):
    tokens, logits = torch.randn(2, 3), torch.zeros(0)
    assert all_finite(tokens, logits) and all_finite(tokens.bfloat16(), tokens)
    tokens[1, 2] = value
    assert not all_finite(tokens, logits) and not all_finite(torch.zeros(2), tokens.bfloat16())


def test_uint8_and_float_inputs_give_equal_pixels(small_inspector):
    opened = [open_image(noise(seed, (50, 60))) for seed in range(3)]
    given = [[prepare(one, small_inspector.preprocessing, normalise=is_float) for one in opened]
             for is_float in (True, False)]  # fmt: skip
    assert given[1][0].tensor.dtype == torch.uint8
    floats, pixels = map(small_inspector.forward.pixels, given)
    assert torch.equal(floats, pixels) and pixels.is_contiguous()
    with fake_gpu():
        there = small_inspector.on("cuda:0").forward.pixels(given[1])
    assert torch.equal(there.inner, floats)
