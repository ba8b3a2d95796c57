"""Small models with perturbed random weights, and comparison of a loaded model with its original."""

import timm
import torch
from safetensors.torch import save_file

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 128, "depth": 2, "num_heads": 2, "num_classes": 7}


def perturbed(model):
    """Move all weights away from their initial values. Parts initialised to zero would compare equal
    falsely.
    """
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=generator))
    return model.eval()


def small_vit(architecture="vit_tiny_patch16_224", **changes):
    return perturbed(timm.create_model(architecture, pretrained=False, **{**SMALL, **changes}))


def save_model(model, path):
    save_file({name: value.contiguous() for name, value in model.state_dict().items()}, path)
    return path


def logits(model, size=32):
    with torch.no_grad():
        return model(torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1)))


def assert_same_logits(loaded, model, size=32, tolerance=1e-6):
    torch.testing.assert_close(logits(loaded.model, size), logits(model, size), atol=tolerance, rtol=0)
