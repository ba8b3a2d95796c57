"""Everything public on a GPU, or on a pretended one: nothing is mixed with the CPU's tensors, nothing read by
NumPy unasked, all equals the CPU, and what makes the host wait is counted. `tests/gpu.md` says what a real
one must show.
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
from tests.engine.pretend import OnDevice, copies, fake_gpu
from tests.tiers import sweep
from vitviz import Ablation, analyses
from vitviz.analyses import sufficient_edges
from vitviz.engine.images.opening import open_image
from vitviz.engine.images.preprocess import prepare
from vitviz.server.api.endpoints import PUBLIC, Endpoints, endpoint, views_with_endpoints
from vitviz.server.services.analysis_service import AnalysisService, ServiceSettings
from vitviz.surveys.measures import MEASURES
from vitviz.views import VIEWS, Needs, ViewContext
from vitviz.views.trial import compute

REAL = torch.cuda.is_available()
PICTURE, OTHER = vitviz.sample_image("chelsea"), vitviz.sample_image("coffee")
BOTH, EXPENSIVE = (
    [PICTURE, OTHER],
    {"smallest_part": 1},
)  # a picture of it costs as much as twenty of the others
TAKEN = Ablation(heads=[(1, 1)], mlps=[2], patches=[0, 5])


def on_device(inspector):
    """A trace that stays where the model is, as a survey's do."""
    prepared = prepare(open_image(PICTURE), inspector.preprocessing)
    return inspector.traces([prepared], inspector.preprocessing.size, keep_on_device=True)[0]


def in_words(inspector):
    vectors = torch.randn(9, len(inspector.labels), generator=torch.Generator().manual_seed(0))
    return inspector.with_classes(vitviz.Classes([f"word {number}" for number in range(9)], vectors))


ASKED = {
    "trace": lambda i: i.trace(PICTURE),
    "another size": lambda i: i.trace(PICTURE, size=96),
    "taken away": lambda i: i.trace(PICTURE, ablation=TAKEN),
    "painted": lambda i: i.trace(PICTURE, ablation=Ablation(patches=[0, 5], patches_as="blur")),
    "patched in": lambda i: i.trace(PICTURE, ablation=Ablation(at=2, other="coffee")),
    "shuffled": lambda i: i.experiment(PICTURE, shuffle=1, positions=False),
    "effects": lambda i: i.effects(PICTURE, 0),
    "one layer's effects": lambda i: i.layer_effects(PICTURE, 1),
    "final norm": lambda i: i.final_norm(i.trace(PICTURE), 2),
    "readout": lambda i: i.readout(i.trace(PICTURE)),
    "positions": vitviz.position_similarity,
    "filters": vitviz.embedding_filters,
    "evidence": lambda i: vitviz.logit_attribution(i, on_device(i), 0),
    "lens": lambda i: vitviz.logit_lens(i, on_device(i)),
    "lens of patches": lambda i: vitviz.logit_lens(i, i.trace(PICTURE), form="share", patches=True, target=0),
    "distance": lambda i: analyses.attention_distance(on_device(i)),
    "rollout": lambda i: analyses.rollout(on_device(i), discard=0.5, fusion="max"),
    "norms": lambda i: analyses.token_norms(on_device(i)),
    "similarity": lambda i: analyses.token_similarity(on_device(i), 3, 5),
    "components": lambda i: analyses.token_components([on_device(i)], 3).scores.abs(),
    "sweep": lambda i: analyses.sweep(on_device(i)),
    "writers": lambda i: vitviz.upstream_contributions(i, i.trace(PICTURE), 0, 3, 1),
    "score account": lambda i: vitviz.attention_score_attribution(i, i.trace(PICTURE), 3, 1, 5, 7),
    "paths": lambda i: vitviz.attribution_paths(i, i.trace(PICTURE), 0),
    "edge effects": lambda i: vitviz.edge_ablation(i, i.trace(PICTURE), 0, count=3).effects,
    "dropped": lambda i: vitviz.perturbation(i, PICTURE, draws=2).probability,
    "trial": lambda i: vitviz.faithfulness(i, PICTURE, 0, ["ledger", "frozen"], draws=2).curves,
    **{f"map: {name}": lambda i, name=name: vitviz.saliency(i, PICTURE, 0, method=name).map
       for name in vitviz.METHODS},
    **{f"measure: {name}": lambda i, name=name: vitviz.survey(BOTH[: EXPENSIVE.get(name)], i, [name]).sums
       for name in MEASURES if name not in ("accuracy", "words")},
    "words": lambda i: vitviz.survey(BOTH, in_words(i), ["words"]).words,
}  # fmt: skip


@pytest.fixture(scope="module")
def cpu():
    return vitviz.load("vitviz-tiny", device="cpu")


def there():
    return nullcontext(copies) if REAL else fake_gpu()


@pytest.fixture(scope="module")
def gpu():
    with there():
        return vitviz.load("vitviz-tiny", device="cuda:0")


def same(found, wanted, at="", near=1e-3):
    """Number by number, to 1e-3 of the largest, or as `near` says; on the CPU or not."""
    if isinstance(wanted, torch.Tensor | np.ndarray | float):
        found = (
            found.inner if isinstance(found, OnDevice) else found.cpu() if hasattr(found, "cpu") else found
        )
        found, wanted = np.asarray(found, float), np.asarray(wanted, float)
        most = np.nanmax(np.abs(wanted), initial=1e-6)
        least = 1e-5 if at.endswith(("gap", "unexplained")) else 1e-6  # what roundings leave
        np.testing.assert_allclose(found, wanted, rtol=0, atol=max(near * most, least), err_msg=at)
    elif isinstance(wanted, Mapping):
        assert found.keys() == wanted.keys()
        for name in wanted:
            same(found[name], wanted[name], f"{at} {name}", near)
    elif isinstance(wanted, list) and wanted and all(isinstance(one, float) for one in wanted):
        same(np.array(found), np.array(wanted), at, near)
    elif isinstance(wanted, list | tuple):
        assert len(found) == len(wanted)
        for number, pair in enumerate(zip(found, wanted, strict=True)):
            same(*pair, f"{at}[{number}]", near)
    elif isinstance(wanted, str | int | None):
        assert found == wanted, at
    elif dataclasses.is_dataclass(wanted):
        for name, value in vars(wanted).items():
            if name not in ("milliseconds", "deviation", "device", "said"):
                same(getattr(found, name), value, f"{at}.{name}", near)


@sweep(
    "name", ASKED, quick=["trace", "taken away", "evidence", "rollout", "map: frozen", "measure: distance"]
)
def test_all_that_is_public_equals_the_cpu(name, cpu, gpu, monkeypatch):
    monkeypatch.setattr(sufficient_edges, "KEPT", (0.0, 0.5, 1.0))  # a pass more says nothing about places
    with there():
        found = ASKED[name](gpu)
    same(found, ASKED[name](cpu), name)


@sweep("view", VIEWS, quick=[view for view in VIEWS if view.slug == "rollout"], ids=lambda view: view.slug)
def test_every_item_of_a_view_equals_the_cpu(view, cpu, gpu):
    if view.needs is Needs.SET:
        pytest.skip("of surveys, whose measures are compared above")
    subjects = {}
    for inspector in (cpu, gpu):
        with there() if inspector is gpu else nullcontext():
            subjects[inspector] = subject = ViewContext(inspector, inspector.trace(PICTURE))
            settings = view.settings({}, subject.about)
            subjects[inspector] = {
                item.name: view.item(subject, item.name, settings) for item in view.items if item.in_export
            }
    same(subjects[gpu], subjects[cpu], view.slug)


@sweep(
    "view",
    [view for view in VIEWS if view.slug != "tour"],
    quick=[view for view in VIEWS if view.slug == "rollout"],
    ids=lambda view: view.slug,
)
def test_every_print_equals_the_cpus(view, cpu, gpu, fast_faithfulness):  # every method is compared above
    found = {}
    for inspector in (cpu, gpu):
        with there() if inspector is gpu else nullcontext():
            found[inspector] = vitviz.figure(view.slug, inspector, inspector.trace(PICTURE), detail=True)
            drawn = found[inspector].svg()
        assert drawn.startswith(b"<?xml")
    assert found[gpu].caption == found[cpu].caption
    same(found[gpu].spec, found[cpu].spec, view.slug, near=1.01 / 255)  # walls are of bytes


ENDPOINTS = {  # what a program asks beyond the picture, where the defaults take long
    "without": {"without": "heads=2.1 patches=0.5"},
    "figure": {"detail": True},
    "film": {"over": "layers", "width": 320, "seconds": 0.1},
    "trial": {"method": "ledger"},
}


@pytest.fixture(scope="module")
def servers():
    """The endpoints of a server on the CPU and of one on the GPU."""
    found = {}
    for device, where in (("cpu", nullcontext), ("cuda:0", there)):
        with where():
            service = AnalysisService(ServiceSettings(device=device))
            derived = {view.slug: endpoint(view, Endpoints(service)) for view in views_with_endpoints()}
            found[device] = {name: getattr(Endpoints(service), name) for name in PUBLIC} | derived
    return found["cpu"], found["cuda:0"]


@sweep("name", [*PUBLIC, *(view.slug for view in views_with_endpoints())], quick=["rollout"])
def test_every_endpoint_answers_as_the_cpus(name, servers, monkeypatch):
    monkeypatch.setattr(
        compute, "evaluate_methods", partial(compute.evaluate_methods, shares=(0.0, 0.5, 1.0), draws=2)
    )
    given = ENDPOINTS.get(name, {})
    if "image" in inspect.signature(servers[0][name]).parameters:
        given = {"image": "chelsea", **given}
    with there():
        found = servers[1][name](**given)
        found = found if isinstance(found, dict | list) else [*found][-1]  # of a stream, the whole result
    wanted = servers[0][name](**given)
    wanted = wanted if isinstance(wanted, dict | list) else [*wanted][-1]
    if name in ("film", "figure"):  # encoded: what stands in them is compared above
        assert len(found.pop("data")) > 1000 < len(wanted.pop("data"))
    same(found, wanted, name)


@pytest.mark.skipif(REAL, reason="counted on the pretended one")
def test_how_often_the_host_waits_for_a_picture_is_known(gpu):
    """A trace brings q, k, v of 8 layers, 9 depths of tokens and what was written; each copy is a wait. More
    of them is slower on a GPU, and seen here.
    """
    with fake_gpu():
        gpu.trace(PICTURE)  # the first proves what it captures
        copies.clear()
        gpu.trace(PICTURE)
        assert sum(copies.values()) <= 54
        copies.clear()
        on_device(gpu)
        assert sum(copies.values()) <= 12, "a survey's trace stays there"
