"""Our maps against other libraries': Grad-CAM of grad-cam, integrated gradients of captum."""

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
def test_class_activation_maps_are_those_of_grad_cam(construction, method, name):
    """Before their last steps, which clamp, scale to 0..1 and enlarge."""
    library = pytest.importorskip("pytorch_grad_cam")
    one = small_saliency_inputs(construction, TARGET)
    grid = one.trace.grid
    layer = one.blocks[-1] if construction.startswith("average") else one.blocks[-1].norm1

    def reshape(tokens):
        return on_grid(tokens, grid.prefix, grid.rows)

    chosen = [library.utils.model_targets.ClassifierOutputTarget(TARGET)]
    with getattr(library, name)(one.model, [layer], reshape_transform=reshape) as cam:
        cam(input_tensor=one.pixels, targets=chosen)
        activations = cam.activations_and_grads.activations[0].numpy()
        slopes = cam.activations_and_grads.gradients[0].numpy()
        weighed = cam.get_cam_image(one.pixels, layer, chosen, activations, slopes, False)[0]
    found = saliency_map(one, method).map.numpy()
    expected = np.maximum(weighed, 0) if method == "grad_cam" else weighed
    np.testing.assert_allclose(found, expected, atol=1e-12)
    assert np.ptp(found) > 1e-6


@pytest.mark.parametrize("construction", ["class", "registers"])
@pytest.mark.parametrize("steps", [2, 7, 20])
def test_integrated_gradients_are_those_of_captum(construction, steps):
    """By Gauss-Legendre from the mean colour; pixels are then summed within each patch. Their steps are
    float32.
    """
    attr = pytest.importorskip("captum.attr")
    one = small_saliency_inputs(construction, TARGET)
    grid = one.trace.grid
    theirs = attr.IntegratedGradients(one.model).attribute(
        one.pixels, torch.zeros_like(one.pixels), target=TARGET, n_steps=steps, method="gausslegendre"
    )
    height, width = grid.patch
    expected = rearrange(
        theirs[0],
        "colour (row height) (col width) -> row col (colour height width)",
        height=height,
        width=width,
    ).sum(dim=-1)
    found = integrated_gradients(one, steps=steps)
    torch.testing.assert_close(found.map, expected.detach(), rtol=0, atol=1e-6 * found.map.abs().max().item())
    with torch.no_grad():
        start = one.model(torch.zeros_like(one.pixels))[0, TARGET].item()
    assert found.constants == {"the empty picture": pytest.approx(start, abs=1e-12)}


def test_input_times_gradient_is_captums():
    attr = pytest.importorskip("captum.attr")
    one = small_saliency_inputs("class", TARGET)
    theirs = attr.InputXGradient(one.model).attribute(one.pixels.clone().requires_grad_(), target=TARGET)
    height, width = one.trace.grid.patch
    expected = theirs[0].detach().sum(dim=0).unfold(0, height, height).unfold(1, width, width).sum(dim=(2, 3))
    torch.testing.assert_close(saliency_map(one, "input_gradient").map, expected, rtol=0, atol=1e-12)
