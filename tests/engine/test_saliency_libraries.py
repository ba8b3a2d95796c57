"""Saliency maps against other libraries: Grad-CAM of grad-cam, integrated gradients of captum."""

import numpy as np
import pytest
import torch
from einops import rearrange

from tests.engine.saliency_oracle import small_saliency_inputs
from vitviz.analyses.saliency import integrated_gradients, saliency_map

TARGET = 2


def on_grid(tokens, prefix, rows):
    return rearrange(tokens[:, prefix:], "batch (row col) width -> batch width row col", row=rows)


@pytest.mark.parametrize("construction", ["class", "average, then norm"])
@pytest.mark.parametrize("method, name", [("grad_cam", "GradCAM"), ("hires_cam", "HiResCAM")])
def test_class_activation_maps_equal_grad_cam_library(construction, method, name):
    """Maps are compared before the library clamps, scales to 0..1 and enlarges them."""
    library = pytest.importorskip("pytorch_grad_cam")
    inputs = small_saliency_inputs(construction, TARGET)
    grid = inputs.trace.grid
    layer = inputs.blocks[-1] if construction.startswith("average") else inputs.blocks[-1].norm1

    def reshape(tokens):
        return on_grid(tokens, grid.prefix, grid.rows)

    chosen = [library.utils.model_targets.ClassifierOutputTarget(TARGET)]
    with getattr(library, name)(inputs.model, [layer], reshape_transform=reshape) as cam:
        cam(input_tensor=inputs.pixels, targets=chosen)
        activations = cam.activations_and_grads.activations[0].numpy()
        slopes = cam.activations_and_grads.gradients[0].numpy()
        weighed = cam.get_cam_image(inputs.pixels, layer, chosen, activations, slopes, False)[0]
    actual = saliency_map(inputs, method).map.numpy()
    expected = np.maximum(weighed, 0) if method == "grad_cam" else weighed
    np.testing.assert_allclose(actual, expected, atol=1e-12)
    assert np.ptp(actual) > 1e-6


@pytest.mark.parametrize("construction", ["class", "registers"])
@pytest.mark.parametrize("steps", [2, 7, 20])
def test_integrated_gradients_equal_captum(construction, steps):
    """Both use Gauss-Legendre nodes from the mean colour; pixels are summed within each patch. captum's
    steps are float32.
    """
    attr = pytest.importorskip("captum.attr")
    inputs = small_saliency_inputs(construction, TARGET)
    grid = inputs.trace.grid
    attributions = attr.IntegratedGradients(inputs.model).attribute(
        inputs.pixels, torch.zeros_like(inputs.pixels), target=TARGET, n_steps=steps, method="gausslegendre"
    )
    height, width = grid.patch
    expected = rearrange(
        attributions[0],
        "colour (row height) (col width) -> row col (colour height width)",
        height=height,
        width=width,
    ).sum(dim=-1)
    result = integrated_gradients(inputs, steps=steps)
    torch.testing.assert_close(
        result.map, expected.detach(), rtol=0, atol=1e-6 * result.map.abs().max().item()
    )
    with torch.no_grad():
        start = inputs.model(torch.zeros_like(inputs.pixels))[0, TARGET].item()
    assert result.constants == {"the empty picture": pytest.approx(start, abs=1e-12)}


def test_input_gradient_equals_captum():
    attr = pytest.importorskip("captum.attr")
    inputs = small_saliency_inputs("class", TARGET)
    attributions = attr.InputXGradient(inputs.model).attribute(
        inputs.pixels.clone().requires_grad_(), target=TARGET
    )
    height, width = inputs.trace.grid.patch
    expected = (
        attributions[0].detach().sum(dim=0).unfold(0, height, height).unfold(1, width, width).sum(dim=(2, 3))
    )
    torch.testing.assert_close(saliency_map(inputs, "input_gradient").map, expected, rtol=0, atol=1e-12)
