"""How things are written for the page: a checkpoint in a line, a control for the toolbar, pixels as a file."""

from __future__ import annotations

from typing import Any

import numpy as np


def line_of(checkpoint) -> str:
    """A checkpoint in a line: 'vit_base_patch16_224.dino · ≈ 86.6 M parameters · ImageNet-1k … · apache-2.0 · to be downloaded'.

    Of those in the weights folder name and size are enough: they stand in the narrow picker, and the facts say the rest.
    """
    hub = checkpoint.source == "hub"
    size = f"{'≈ ' if hub else ''}{checkpoint.parameters / 1e6:.3g} M{' parameters' if hub else ''}" if checkpoint.parameters else ""
    more = (checkpoint.trained_on, checkpoint.licence, "on disk" if checkpoint.on_disk else "to be downloaded") if hub else ()
    return " · ".join(part for part in (checkpoint.name, size, *more) if part)


def described(control) -> dict[str, Any]:
    """A control as the page's toolbar builder takes it."""
    kind = {"Choice": "choice", "Slider": "slider", "LayerRange": "layers", "Query": "query"}[type(control).__name__]
    return {"kind": kind, **{name: value for name, value in vars(control).items()}}


def encoded(pixels: np.ndarray, ending: str) -> bytes:
    """RGB pixels as a .png or .jpg file."""
    import cv2

    options = [cv2.IMWRITE_JPEG_QUALITY, 92] if ending == ".jpg" else [cv2.IMWRITE_PNG_COMPRESSION, 3]
    done, data = cv2.imencode(ending, cv2.cvtColor(pixels, cv2.COLOR_RGB2BGR), options)
    if not done:
        raise RuntimeError(f"OpenCV could not encode a picture of shape {pixels.shape} as {ending}")
    return data.tobytes()
