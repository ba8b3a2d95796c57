"""Statistics of a batch equal those of each image for every family, with few launches on a device."""

import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
import torch

import vitviz
from tests.engine.fake_gpu import copies, fake_gpu, launches
from tests.engine.random_inspectors import inspect, noise
from tests.engine.small_models import small_vit
from tests.tiers import sweep
from vitviz import Ablation, analyses
from vitviz.analyses import streaming
from vitviz.analyses.distance import token_distances
from vitviz.engine import ablation
from vitviz.errors import UnsupportedModel
from vitviz.surveys import MEASURES, Quantity
from vitviz.surveys.measure import MeasuredBatch, MeasuredImage
from vitviz.surveys.measures import sample_crops
from vitviz.surveys.rows import to_host
from vitviz.traces.trace import Attention, Bias, ResidualWrites, Trace, TraceBatch, to_device

FAMILIES = {
    "class": ("vit_tiny_patch16_224", {}),
    "registers": ("vit_tiny_patch16_224", {"reg_tokens": 3, "no_embed_class": True}),
    "average": ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "avg", "img_size": (24, 40)}),
    "maximum": ("vit_tiny_patch16_224", {"global_pool": "max"}),
    "attention pooling": ("vit_tiny_patch16_224", {"class_token": False, "global_pool": "map"}),
    "rotary": ("eva02_tiny_patch14_224", {}),
    "relative": ("vit_relpos_small_patch16_224", {"img_size": (32, 40)}),
    "shared relative": ("beit_base_patch16_224", {}),
    "patches removed": ("vit_tiny_patch16_224", {}),
}
QUICK = ("class", "average", "relative", "patches removed")
STATISTICS = ("distance", "renormalised", "prefix_mass", "entropy")


@cache
def inspector_of(family: str):
    architecture, options = FAMILIES[family]
    return inspect(small_vit(architecture, **options))


@cache
def batch_of(family: str) -> TraceBatch:
    inspector = inspector_of(family)
    prepared = [inspector.forward.prepare(noise(seed, (40, 50)), None)[0] for seed in range(3)]
    edit, size = None, inspector.preprocessing.size
    if family == "patches removed":
        taken = Ablation(patches=[0, 5, 6])
        _, edit = ablation.apply_ablation(inspector.forward, prepared[0], size, taken, None)
    return inspector.forward.batch(prepared, size, edit=edit)


def statistics_by_softmax(trace: Trace) -> dict[str, np.ndarray]:
    """Return layer x head arrays, from the softmax of all scores in float64."""
    lengths, prefix, found = token_distances(trace).double().numpy(), trace.grid.prefix, {}
    for attention in trace.layers:
        bias = 0 if attention.bias is None else attention.bias.rows().double().numpy()
        scores = attention.scale * (attention.q.double() @ attention.k.double().mT).numpy() + bias
        powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights = powers / powers.sum(axis=-1, keepdims=True)
        weighed, on_patches = (weights * lengths).sum(-1), weights[..., prefix:].sum(-1)
        rows = weighed, weighed / on_patches, weights[..., :prefix].sum(-1)
        values = [one[:, prefix:].mean(-1) for one in rows]
        values.append(-(weights * np.log(weights)).sum(-1).mean(-1))
        for name, value in zip(STATISTICS, values, strict=True):
            found.setdefault(name, []).append(value)
    return {name: np.stack(layers) for name, layers in found.items()}


def statistics(trace) -> dict[str, torch.Tensor]:
    layers = [analyses.attention_entropy(trace, layer) for layer in range(len(trace.layers))]
    return {**vars(analyses.distances(trace)), "entropy": torch.stack(layers, dim=-2)}


def on_device(batch):
    return to_device(batch, "cuda:0", TraceBatch | Trace | Attention | Bias | ResidualWrites)


def statistics_on_device(batch) -> dict[str, np.ndarray]:
    with fake_gpu():
        return {name: value.inner.numpy() for name, value in statistics(on_device(batch)).items()}


@pytest.mark.parametrize("size", [1, 700, 2**25])
@sweep("family", FAMILIES, quick=QUICK)
def test_statistics_of_a_batch_equal_those_of_each_image(family, size, monkeypatch):
    monkeypatch.setattr(streaming, "BLOCK_ELSEWHERE", size)
    batch = batch_of(family)
    here, elsewhere, first = statistics(batch), statistics_on_device(batch), statistics_on_device(batch[0])
    for image, trace in enumerate(batch):
        alone, expected = statistics(trace), statistics_by_softmax(trace)
        for name in STATISTICS:
            close = {"rtol": 1e-6, "atol": 1e-6, "err_msg": name}
            assert torch.equal(here[name][image], alone[name])
            np.testing.assert_allclose(elsewhere[name][image], alone[name], **close)
            np.testing.assert_allclose(elsewhere[name][image], expected[name], **close)
            if image == 0:
                np.testing.assert_allclose(first[name], alone[name], **close)


def test_statistics_of_large_scores_match_each_image():
    batch = batch_of("shared relative")
    for factor, near in ((30.0, 1e-5), (1e4, 1e-3)):
        large = replace(batch, layers=tuple(replace(one, q=one.q * factor) for one in batch.layers))
        elsewhere = statistics_on_device(large)
        for image, trace in enumerate(large):
            alone = statistics(trace)
            for name in STATISTICS:
                np.testing.assert_allclose(elsewhere[name][image], alone[name], rtol=near, atol=near)


@sweep("family", FAMILIES, quick=QUICK)
def test_trace_of_batch_item_is_a_view_of_the_batch(family):
    batch = batch_of(family)
    trace = batch[1]
    assert trace.tokens[1].data_ptr() == batch.tokens[1][1].data_ptr()
    assert trace.layers[0].k.untyped_storage().data_ptr() == batch.layers[0].k.untyped_storage().data_ptr()
    assert len(batch) == len(list(batch)) == 3 and trace.view is batch.view[1] is not batch.view[0]
    with pytest.raises(IndexError):
        batch[3]
    if family != "patches removed":
        alone = inspector_of(family).trace(noise(1, (40, 50)))
        for name in ("tokens", "patch_embedding", "position_embedded", "logits", "read", "written", "layers"):
            assert_same(getattr(trace, name), getattr(alone, name), name)
        assert_same(trace.pooling, alone.pooling, "pooling")


def assert_same(found, wanted, name: str) -> None:
    if isinstance(wanted, torch.Tensor):
        torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4, msg=name)
    elif isinstance(wanted, tuple):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert_same(one, other, name)
    elif hasattr(wanted, "__dataclass_fields__"):
        for part, value in vars(wanted).items():
            assert_same(getattr(found, part), value, f"{name}.{part}")
    else:
        assert found == wanted, name


BATCHED = [name for name, measure in MEASURES.items() if getattr(measure, "batched", False)]


@pytest.mark.parametrize("name", [name for name in BATCHED if name not in ("similarity", "words")])
@sweep("family", FAMILIES, quick=QUICK)
def test_batched_measure_equals_measure_of_each_image(family, name):
    batch, inspector, labels = batch_of(family), inspector_of(family), (0, 3, None)
    measure, names = MEASURES[name], ("a", "b", "c")
    try:
        here = to_host(measure.of(MeasuredBatch(inspector, batch, labels, names)))
    except UnsupportedModel as refused:
        with pytest.raises(UnsupportedModel, match=re.escape(str(refused))):
            measure.of(MeasuredImage(inspector, batch[0], 0))
        return
    with fake_gpu():
        elsewhere = MeasuredBatch(inspector.on("cuda:0"), on_device(batch), labels, names)
        elsewhere = to_host(measure.of(elsewhere))
    assert here.keys() == elsewhere.keys()
    for image, trace in enumerate(batch):
        alone = to_host(measure.of(MeasuredImage(inspector, trace, labels[image])))
        assert alone.keys() == {key for key in here if labels[image] is not None or key not in LABELLED}
        for key, value in alone.items():
            near = {"rtol": 1e-6, "atol": 1e-6 * max(1, np.abs(value).max()), "err_msg": key}
            np.testing.assert_allclose(here[key][image], value, **near)
            np.testing.assert_allclose(elsewhere[key][image], value, **near)


LABELLED = {what.name for name in BATCHED for what in MEASURES[name].quantities if what.labelled}


class Mass:
    """A custom measure, written for one image."""

    name, says = "mass", "prefix mass of the first layer"
    quantities = (Quantity("first", "head", "First layer", ""), Quantity("all", "layer head", "All", ""))

    def of(self, seen):
        assert isinstance(seen.trace, Trace)
        mass = seen.once(analyses.distances).prefix_mass[0]
        return {"first": mass, "all": MEASURES["prefix_mass"].of(seen)["prefix_mass"]}


def test_single_image_measure_runs_beside_batched_measures(small_inspector):
    images = [noise(seed, (40, 40)) for seed in range(5)]
    found = vitviz.survey(images, small_inspector, [Mass(), "prefix_mass"], batch=3)
    np.testing.assert_allclose(found.mean("first"), found.mean("prefix_mass")[0], rtol=1e-12)
    np.testing.assert_allclose(found.mean("all"), found.mean("prefix_mass.prefix_mass"), rtol=1e-12)


@pytest.fixture(scope="module")
def gpu():
    with fake_gpu():
        return vitviz.load("vitviz-tiny", device="cuda:0")


FIVE_MEASURES = ["distance", "prefix_mass", "entropy", "ledger", "lens"]


@pytest.mark.long
@pytest.mark.parametrize(
    ("measures", "bound"),
    [(["distance"], 3), (FIVE_MEASURES[:3], 3), (FIVE_MEASURES, 4), (["skip", "accuracy"], 4)],
    ids=str,
)
def test_survey_limits_launches_and_copies(gpu, measures, bound):
    """Attention counts as one fused kernel, as on CUDA. Views and empty tensors are no launches."""
    images = sample_crops()[:16]
    given = [(image, number) for number, image in enumerate(images)] if "accuracy" in measures else images
    with fake_gpu():
        vitviz.survey(given[:2], gpu, measures, batch=8)  # the first pass runs the truth check
        prepared = [gpu.forward.prepare(image, None)[0] for image in images]
        launches.clear()
        with torch.no_grad():
            for first in (0, 8):
                gpu.model(gpu.forward.pixels(prepared[first : first + 8]))
        plain = launches.total()
        launches.clear(), copies.clear()
        found = vitviz.survey(given, gpu, measures, batch=8)
        assert launches.total() <= bound * plain, launches
        assert copies.total() <= 0.5 * len(images), copies
    wanted = vitviz.survey(given, gpu.on("cpu"), measures)
    assert found.sums.keys() == wanted.sums.keys()
    for name, moments in wanted.sums.items():
        np.testing.assert_allclose(found.sums[name].mean, moments.mean, rtol=1e-6, atol=1e-6)


@pytest.mark.long
@pytest.mark.parametrize("batch", [1, 5])
def test_survey_is_independent_of_batch_size(gpu, batch):
    images = sample_crops()[:5]
    measures = [*FIVE_MEASURES, "skip"]
    with fake_gpu():
        found, wanted = (
            vitviz.survey(images, gpu, measures, batch=batch),
            vitviz.survey(images, gpu, measures, batch=3),
        )
    for name, moments in wanted.sums.items():
        for value in ("mean", "m2"):
            one, other = getattr(found.sums[name], value), getattr(moments, value)
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6 * np.abs(moments.mean).max())
