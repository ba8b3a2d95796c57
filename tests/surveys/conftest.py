"""A checkpoint and pictures for surveys."""

import numpy as np
import pytest
from PIL import Image

import vitviz


@pytest.fixture(scope="module")
def inspector():
    return vitviz.load("vitviz-tiny", device="cpu")


def noise(random: np.random.Generator, height: int, width: int) -> Image.Image:
    """A picture of random colours."""
    return Image.fromarray(random.integers(0, 255, (height, width, 3), dtype=np.uint8))
