"""Random images for surveys."""

import numpy as np
from PIL import Image


def noise(random: np.random.Generator, height: int, width: int) -> Image.Image:
    """Return an image of random colours."""
    return Image.fromarray(random.integers(0, 255, (height, width, 3), dtype=np.uint8))
