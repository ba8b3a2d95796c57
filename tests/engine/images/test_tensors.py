"""Opening torch tensors and HEIC files as images."""

import io
import sys
import warnings

import numpy as np
import pytest
import torch
from PIL import Image

import vitviz
from vitviz.engine.images.opening import open_image
from vitviz.errors import ImageError

PIXELS = np.random.default_rng(0).integers(0, 256, (5, 7, 3), np.uint8)
FIRST = torch.from_numpy(PIXELS).movedim(-1, 0)
EXACT = {
    "channels first": FIRST,
    "channels last": torch.from_numpy(PIXELS),
    "a batch of one": FIRST[None],
    "0 to 1": FIRST / 255,
    "0 to 1 in float64, with a gradient": (FIRST.double() / 255).requires_grad_(),
}
GUESSED = {"floats": FIRST.float(), "integers": FIRST.long(), "bfloat16": FIRST.bfloat16()}


@pytest.mark.parametrize("kind", EXACT)
def test_tensor_is_read_as_its_image(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert np.array_equal(open_image(EXACT[kind]), PIXELS)


@pytest.mark.parametrize("kind", GUESSED)
def test_guessed_value_range_is_reported(kind):
    with pytest.warns(vitviz.AssumedWarning, match="range 0 to 255 was assumed"):
        assert np.array_equal(open_image(GUESSED[kind]), PIXELS)


def test_grey_and_three_row_tensors_are_read():
    assert np.array_equal(open_image(FIRST[:1] / 255), np.repeat(PIXELS[..., :1], 3, 2))
    assert open_image(torch.zeros(3, 9, 3)).size == (3, 9)  # channels first, although both layouts fit


@pytest.mark.parametrize(
    ("tensor", "says"),
    [
        ((FIRST / 255 - 0.5) / 0.25, "as after normalisation.*from before normalisation"),
        (torch.zeros(2, 3, 5, 7), "one image at a time"),
        (torch.zeros(5, 7, 13), "expected height x width"),
        (torch.full((3, 5, 7), float("nan")), "expected 0 to 1"),
        (torch.full((3, 5, 7), 300.0), "expected 0 to 1"),
        (torch.zeros(3, 0, 7), "at least 1 x 1 is expected"),
    ],
)
def test_invalid_tensor_is_rejected(tensor, says):
    with pytest.raises(ImageError, match=says):
        open_image(tensor)


def test_tensor_gives_logits_of_its_image():
    inspector = vitviz.load("vitviz-tiny", device="cpu")
    expected = inspector.trace(Image.fromarray(PIXELS)).logits
    assert torch.equal(inspector.trace(FIRST / 255).logits, expected)


def test_heic_is_read_with_pillow_heif():
    heif = pytest.importorskip("pillow_heif")
    pixels, file = np.full((64, 96, 3), (200, 120, 40), np.uint8), io.BytesIO()
    heif.from_pillow(Image.fromarray(pixels)).save(file, quality=95)
    opened = np.asarray(open_image(file.getvalue()), np.int64)
    assert opened.shape == pixels.shape and abs(opened - pixels).max() <= 3  # HEIC is lossy
    with pytest.raises(ImageError, match="decoded as HEIC"):
        open_image(file.getvalue()[:60])


def test_heic_without_pillow_heif_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(ImageError, match=r"as JPEG .*vitviz\[heic\]"):
        open_image(b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic")
