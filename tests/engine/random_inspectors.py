"""Inspectors of random timm models, and noise images."""

from functools import cache

import timm
import torch
from PIL import Image

from vitviz.engine.checkpoint import Checkpoint, Loaded
from vitviz.engine.images.preprocess import Preprocessing
from vitviz.engine.inspector import Inspector


def perturbed(name: str, **options) -> torch.nn.Module:
    """Return a timm model with all weights perturbed. A bias left at its initial zero would
    pass any check.
    """
    torch.manual_seed(0)
    model = timm.create_model(name, pretrained=False, **options).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.02)
    return model


def inspect(model: torch.nn.Module, name: str = "random") -> Inspector:
    height, width = model.patch_embed.img_size
    preprocessing = Preprocessing((height, width), (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    return Inspector(Loaded(Checkpoint(name, None, "local", ""), model, preprocessing), "cpu")


SHAPES = [  # width, height: landscape, portrait, square, tiny, and as elongated as accepted
    (640, 427), (481, 321), (427, 640), (321, 481), (28, 28), (1, 1), (3, 2), (31, 97), (500, 26), (26, 500),
    (255, 256), (701, 1000),
]  # fmt: skip


@cache
def noise_image(width: int, height: int) -> Image.Image:
    return Image.fromarray(noise(width, (height, width)))


def noise(seed: int = 0, size: tuple[int, int] = (260, 300)):
    generator = torch.Generator().manual_seed(seed)
    return (torch.rand(*size, 3, generator=generator) * 255).to(torch.uint8).numpy()
