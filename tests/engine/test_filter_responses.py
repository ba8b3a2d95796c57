"""Filter responses against a float64 convolution of the normalised input, and models without
linear filters.
"""

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

import vitviz
from tests.engine.random_inspectors import inspect, noise
from tests.engine.small_models import small_vit
from tests.shared import shared_file
from vitviz.errors import UnsupportedModel
from vitviz.server.options import ServiceSettings
from vitviz.server.services.analysis_service import AnalysisService
from vitviz.views import VIEWS
from vitviz.views.routes import parse_settings

(VIEW,) = [view for view in VIEWS if view.slug == "filters"]


def normalised_input(inspector, trace) -> torch.Tensor:
    """Return the model input by its definition, in float64."""
    mean, std = (
        np.array(statistic) for statistic in (inspector.preprocessing.mean, inspector.preprocessing.std)
    )
    values = trace.view.picture / 255 if trace.view.exact is None else trace.view.exact
    return torch.from_numpy((values - mean) / std).permute(2, 0, 1)


def convolve_by_hand(inspector, trace, filters=None) -> torch.Tensor:
    projection = inspector.model.patch_embed.proj
    kernels = projection.weight if filters is None else filters.permute(0, 3, 1, 2)
    pixels = normalised_input(inspector, trace)[None]
    return F.conv2d(pixels, kernels.detach().double(), stride=projection.stride)[0]


@pytest.fixture(scope="module")
def deit():
    path = shared_file("weights/deit_tiny_patch16_224.safetensors")
    return vitviz.load(path, architecture="deit_tiny_patch16_224", device="cpu")


@pytest.mark.parametrize("name", ["inspector", "deit"])
def test_responses_equal_convolution_of_normalised_input(name, request):
    inspector = request.getfixturevalue(name)
    trace = inspector.trace(vitviz.sample_image("astronaut"))
    responses = vitviz.filter_responses(inspector, trace)
    np.testing.assert_allclose(responses, convolve_by_hand(inspector, trace), atol=1e-6)
    bias = inspector.model.patch_embed.proj.bias.detach()
    np.testing.assert_allclose(responses.plain().flatten(1).mT + bias, trace.patch_embedding, atol=1e-4)
    components = vitviz.embedding_filters(inspector, 3).pictures
    responses = vitviz.filter_responses(inspector, trace, components)
    np.testing.assert_allclose(responses, convolve_by_hand(inspector, trace, components), atol=1e-6)


@pytest.mark.parametrize("how", ["dropped", "mean"])
def test_removed_patches_have_no_or_small_response(inspector, photo, how):
    whole = vitviz.filter_responses(inspector, inspector.trace(photo)).plain().flatten(1)
    trace = inspector.trace(photo, ablation=vitviz.Ablation(patches=[0, 17], patches_as=how))
    responses = vitviz.filter_responses(inspector, trace).plain().flatten(1)
    rest = [patch for patch in range(196) if patch not in (0, 17)]
    assert torch.equal(responses[:, rest], whole[:, rest])
    removed = responses[:, [0, 17]]
    assert (
        removed.isnan().all()
        if how == "dropped"
        else removed.abs().max() < 0.1 < whole[:, [0, 17]].abs().max()
    )


def test_non_linear_embedding_is_rejected():
    normed_model = small_vit()
    normed_model.patch_embed.norm = nn.LayerNorm(normed_model.embed_dim)
    for model in (normed_model, small_vit("vit_tiny_r_s16_p8_224", img_size=64)):
        inspector = inspect(model)
        trace = inspector.trace(noise())
        with pytest.raises(UnsupportedModel, match="Not applicable, because .* one linear map"):
            vitviz.filter_responses(inspector, trace)
    assert "convolutional stem" in VIEW.summary(vitviz.views.ViewContext(inspector, trace))["unanswered"]


def test_view_shows_selected_filter_per_image_and_exports_it(inspector):
    service = AnalysisService(ServiceSettings(device="cpu"))
    keys = [service.look(service.pictures.sample(name), "vitviz-tiny") for name in ("coffee", "rocket")]
    raw = inspector.patch_filters()
    largest = raw.flatten(1).norm(dim=1).argsort(descending=True)
    components = vitviz.embedding_filters(inspector).pictures
    for key in keys:
        trace = service.subject(key).trace
        expected = convolve_by_hand(inspector, trace)[largest[4]]
        response = service.item(key, "filters", "response", {"kind": "raw", "filter": "5"})
        np.testing.assert_allclose(response, expected, atol=1e-5)
        response = service.item(key, "filters", "response", {"component": "2"})
        np.testing.assert_allclose(
            response, convolve_by_hand(inspector, trace, components[1:2])[0], atol=1e-5
        )
        assert np.isnan(service.item(key, "filters", "response", {})).all()
    for settings_given in ({"component": "29"}, {"kind": "raw", "filter": "193"}):
        with pytest.raises(vitviz.VitvizError, match="expected a whole number from 0 to"):
            service.item(keys[0], "filters", "response", settings_given)
    subject = service.subject(keys[1])
    settings = parse_settings(VIEW, {"kind": "raw", "filter": "5"}, subject.about)
    np.testing.assert_allclose(VIEW.numbers(subject, settings)["response"], expected, atol=1e-5)
    assert "response" not in VIEW.numbers(subject, parse_settings(VIEW, {}, subject.about))
    figure = vitviz.figure("filters", inspector, subject.trace, kind="raw", filter=5)
    tiles, over = figure.spec.rows[0]
    assert tiles.chosen == 4 and over.scale.colours == "balance" and over.scale.low == -over.scale.high
    np.testing.assert_allclose(over.values, expected, atol=1e-5)
    assert str(over.title) == "Response to filter 5 of 192" and "without the bias" in str(over.scale.label)
