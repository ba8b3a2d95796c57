"""All public functions on a GPU or a fake GPU: results equal the CPU's, devices are not mixed, and host
waits are counted.

`tests/gpu.md` describes what a real GPU must show.
"""

import dataclasses
import inspect
from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest
import torch

import vitviz
from tests.engine.fake_gpu import OnDevice, copies, fake_gpu
from tests.tiers import sweep
from vitviz import Ablation, analyses
from vitviz.analyses import sufficient_edges
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.server.api.endpoints import PUBLIC, Endpoints, endpoint, views_with_endpoints
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.surveys.measures import MEASURES
from vitviz.views import VIEWS, Needs, ViewContext
from vitviz.views.routes import parse_settings
from vitviz.views.trial import compute

REAL = torch.cuda.is_available()
IMAGE, OTHER = vitviz.sample_image("chelsea"), vitviz.sample_image("coffee")
IMAGES, EXPENSIVE = (
    [IMAGE, OTHER],
    {"smallest_part": 1},
)  # one image costs as much as twenty of the other measures
ABLATION = Ablation(heads=[(1, 1)], mlps=[1], patches=[0, 5])


def trace_on_device(inspector):
    """Return a trace that stays on the model's device, as in a survey."""
    prepared = prepare(open_image(IMAGE), inspector.preprocessing)
    return inspector.traces([prepared], inspector.preprocessing.size, keep_on_device=True)[0]


def with_text_classes(inspector):
    vectors = torch.randn(9, len(inspector.labels), generator=torch.Generator().manual_seed(0))
    return inspector.with_classes(vitviz.Classes([f"word {number}" for number in range(9)], vectors))


FUNCTIONS = {
    "trace": lambda i: i.trace(IMAGE),
    "another size": lambda i: i.trace(IMAGE, size=96),
    "removed": lambda i: i.trace(IMAGE, ablation=ABLATION),
    "painted": lambda i: i.trace(IMAGE, ablation=Ablation(patches=[0, 5], patches_as="blur")),
    "patched in": lambda i: i.trace(IMAGE, ablation=Ablation(at=1, other="coffee")),
    "shuffled": lambda i: i.experiment(IMAGE, shuffle=1, positions=False),
    "effects": lambda i: i.effects(IMAGE, 0),
    "one layer's effects": lambda i: i.layer_effects(IMAGE, 1),
    "final norm": lambda i: i.final_norm(i.trace(IMAGE), 2),
    "readout": lambda i: i.readout(i.trace(IMAGE)),
    "positions": vitviz.position_similarity,
    "filters": vitviz.embedding_filters,
    "evidence": lambda i: vitviz.logit_attribution(i, trace_on_device(i), 0),
    "lens": lambda i: vitviz.logit_lens(i, trace_on_device(i)),
    "lens of patches": lambda i: vitviz.logit_lens(i, i.trace(IMAGE), form="share", patches=True, target=0),
    "distance": lambda i: analyses.attention_distance(trace_on_device(i)),
    "rollout": lambda i: analyses.rollout(trace_on_device(i), discard=0.5, fusion="max"),
    "norms": lambda i: analyses.token_norms(trace_on_device(i)),
    "similarity": lambda i: analyses.token_similarity(trace_on_device(i), 1, 5),
    "components": lambda i: analyses.token_components([trace_on_device(i)], 1).scores.abs(),
    "sweep": lambda i: analyses.sweep(trace_on_device(i)),
    "writers": lambda i: vitviz.upstream_contributions(i, i.trace(IMAGE), 0, 1, 1),
    "score account": lambda i: vitviz.attention_score_attribution(i, i.trace(IMAGE), 1, 1, 5, 7),
    "paths": lambda i: vitviz.attribution_paths(i, i.trace(IMAGE), 0),
    "edge effects": lambda i: vitviz.edge_ablation(i, i.trace(IMAGE), 0, count=3).effects,
    "dropped": lambda i: vitviz.perturbation(i, IMAGE, draws=2).probability,
    "trial": lambda i: vitviz.faithfulness(i, IMAGE, 0, ["ledger", "frozen"], draws=2).curves,
    **{f"map: {name}": lambda i, name=name: vitviz.saliency(i, IMAGE, 0, method=name).map
       for name in vitviz.METHODS},
    **{f"measure: {name}": lambda i, name=name: vitviz.survey(IMAGES[: EXPENSIVE.get(name)], i, [name]).sums
       for name in MEASURES if name not in ("accuracy", "words")},
    "words": lambda i: vitviz.survey(IMAGES, with_text_classes(i), ["words"]).words,
}  # fmt: skip


@pytest.fixture(scope="module")
def cpu(small_weights):
    return vitviz.load(small_weights / "small", device="cpu")


def gpu_context():
    return nullcontext(copies) if REAL else fake_gpu()


@pytest.fixture(scope="module")
def gpu(small_weights):
    with gpu_context():
        return vitviz.load(small_weights / "small", device="cuda:0")


def assert_same(actual, expected, at="", near=1e-3):
    """Compare numbers to 1e-3 of the largest, or to `near`, on any device."""
    if isinstance(expected, torch.Tensor | np.ndarray | float):
        actual = (
            actual.inner
            if isinstance(actual, OnDevice)
            else actual.cpu()
            if hasattr(actual, "cpu")
            else actual
        )
        actual, expected = np.asarray(actual, float), np.asarray(expected, float)
        largest = np.nanmax(np.abs(expected), initial=1e-6)
        least = 1e-5 if at.endswith(("gap", "unexplained")) else 1e-6  # rounding errors
        np.testing.assert_allclose(actual, expected, rtol=0, atol=max(near * largest, least), err_msg=at)
    elif isinstance(expected, Mapping):
        assert actual.keys() == expected.keys()
        for name in expected:
            assert_same(actual[name], expected[name], f"{at} {name}", near)
    elif isinstance(expected, list) and expected and all(isinstance(item, float) for item in expected):
        assert_same(np.array(actual), np.array(expected), at, near)
    elif isinstance(expected, list | tuple):
        assert len(actual) == len(expected)
        for number, pair in enumerate(zip(actual, expected, strict=True)):
            assert_same(*pair, f"{at}[{number}]", near)
    elif isinstance(expected, str | int | None):
        assert actual == expected, at
    elif dataclasses.is_dataclass(expected):
        for name, value in vars(expected).items():
            if name not in ("milliseconds", "deviation", "device", "said"):
                assert_same(getattr(actual, name), value, f"{at}.{name}", near)


@sweep(
    "name",
    FUNCTIONS,
    quick=["trace", "removed", "evidence", "rollout", "map: frozen", "measure: distance"],
)
def test_public_function_equals_cpu(name, cpu, gpu, monkeypatch):
    # more passes show nothing further about devices
    monkeypatch.setattr(sufficient_edges, "KEPT", (0.0, 0.5, 1.0))
    with gpu_context():
        actual = FUNCTIONS[name](gpu)
    assert_same(actual, FUNCTIONS[name](cpu), name)


@sweep("view", VIEWS, quick=[view for view in VIEWS if view.slug == "rollout"], ids=lambda view: view.slug)
def test_every_view_item_equals_cpu(view, cpu, gpu):
    if view.needs is Needs.SET:
        pytest.skip("surveys are covered by the measures above")
    subjects = {}
    for inspector in (cpu, gpu):
        with gpu_context() if inspector is gpu else nullcontext():
            subjects[inspector] = subject = ViewContext(inspector, inspector.trace(IMAGE))
            settings = parse_settings(view, {}, subject.about)
            subjects[inspector] = {
                item.name: view.item(subject, item.name, settings) for item in view.items if item.in_export
            }
    assert_same(subjects[gpu], subjects[cpu], view.slug)


@sweep(
    "view",
    [view for view in VIEWS if view.slug != "tour"],
    quick=[view for view in VIEWS if view.slug == "rollout"],
    ids=lambda view: view.slug,
)
def test_every_figure_equals_cpu(view, cpu, gpu, fast_faithfulness):  # every method is compared above
    figures = {}
    for inspector in (cpu, gpu):
        with gpu_context() if inspector is gpu else nullcontext():
            figures[inspector] = vitviz.figure(view.slug, inspector, inspector.trace(IMAGE), detail=True)
            drawn = figures[inspector].svg()
        assert drawn.startswith(b"<?xml")
    assert figures[gpu].caption == figures[cpu].caption
    # maps are stored as bytes
    assert_same(figures[gpu].spec, figures[cpu].spec, view.slug, near=1.01 / 255)


ENDPOINTS = {  # arguments besides the image, for endpoints whose defaults take long
    "without": {"without": "heads=2.1 patches=0.5"},
    "figure": {"detail": True},
    "film": {"over": "layers", "width": 320, "seconds": 0.1},
    "trial": {"method": "ledger"},
}


@pytest.fixture(scope="module")
def endpoints_by_device(small_weights):
    """Return the endpoints of a server on the CPU and of a server on the GPU."""
    by_device = {}
    for device, where in (("cpu", nullcontext), ("cuda:0", gpu_context)):
        with where():
            service = AnalysisService(
                ServiceSettings(checkpoint="small", weights=small_weights, device=device)
            )
            derived = {view.slug: endpoint(view, Endpoints(service)) for view in views_with_endpoints()}
            by_device[device] = {name: getattr(Endpoints(service), name) for name in PUBLIC} | derived
    return by_device["cpu"], by_device["cuda:0"]


@sweep("name", [*PUBLIC, *(view.slug for view in views_with_endpoints())], quick=["rollout"])
def test_every_endpoint_equals_cpu(name, endpoints_by_device, monkeypatch):
    monkeypatch.setattr(
        compute, "evaluate_methods", partial(compute.evaluate_methods, shares=(0.0, 0.5, 1.0), draws=2)
    )
    arguments = ENDPOINTS.get(name, {})
    if "image" in inspect.signature(endpoints_by_device[0][name]).parameters:
        arguments = {"image": "chelsea", **arguments}
    with gpu_context():
        actual = endpoints_by_device[1][name](**arguments)
        # of a stream, the last result
        actual = actual if isinstance(actual, dict | list) else [*actual][-1]
    expected = endpoints_by_device[0][name](**arguments)
    expected = expected if isinstance(expected, dict | list) else [*expected][-1]
    if name in ("film", "figure"):  # encoded; the contents are compared above
        assert len(actual.pop("data")) > 1000 < len(expected.pop("data"))
    assert_same(actual, expected, name)


@pytest.mark.skipif(REAL, reason="the fake GPU, which counts copies, is not used where there is a real one")
def test_host_waits_per_trace_are_limited():
    """A trace copies q, k, v of 8 layers, tokens at 9 positions and the branch outputs. Each copy is a wait
    of the host.
    """
    with fake_gpu():
        gpu = vitviz.load("vitviz-tiny", device="cuda:0")
        gpu.trace(IMAGE)  # the first trace includes the attention check
        copies.clear()
        gpu.trace(IMAGE)
        assert sum(copies.values()) <= 54
        copies.clear()
        trace_on_device(gpu)
        assert sum(copies.values()) <= 12, "the trace of a survey stays on the device"
