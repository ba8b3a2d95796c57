"""Encoding of pixels as image files."""

import cv2
import numpy as np
from jaxtyping import UInt8


def encode_image(pixels: UInt8[np.ndarray, "height width 3"], ending: str) -> bytes:
    """Encode RGB pixels as the bytes of a .png or .jpg file.

    >>> encode_image(np.zeros((2, 3, 3), np.uint8), ".png")[1:4]
    b'PNG'
    """
    options = [cv2.IMWRITE_JPEG_QUALITY, 92] if ending == ".jpg" else [cv2.IMWRITE_PNG_COMPRESSION, 3]
    done, data = cv2.imencode(ending, cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), options)
    if not done:
        raise RuntimeError(f"OpenCV could not encode an image of shape {pixels.shape} as {ending}")
    return data.tobytes()
