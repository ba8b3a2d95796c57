"""Images are turned upright by their EXIF orientation, in every format that stores one."""

import io

import numpy as np
import pytest
from PIL import ExifTags, Image

from vitviz.engine.images.opening import open_image


def encoded(image: Image.Image, form: str, **options) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


# EXIF 2.32, tag 0x0112: the side of the scene in the first row and first column of the stored image.
SIDES = {
    1: "top left",
    2: "top right",
    3: "bottom right",
    4: "bottom left",
    5: "left top",
    6: "right top",
    7: "right bottom",
    8: "left bottom",
}


def stored(upright: np.ndarray, orientation: int) -> np.ndarray:
    """Return a scene as a camera stores it under an orientation."""
    first_row, first_column = SIDES[orientation].split()
    if first_row in ("left", "right"):
        upright = upright.swapaxes(0, 1)  # rows of the file are columns of the scene
    rows = slice(None, None, -1 if first_row in ("bottom", "right") else 1)
    return upright[rows, :: -1 if first_column in ("bottom", "right") else 1]


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "TIFF", "AVIF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_image_is_turned_upright(form, orientation):
    blocks = np.array(
        [[[200, 30, 30], [30, 200, 30], [30, 30, 200]], [[220, 220, 40], [40, 40, 40], [240, 240, 240]]],
        dtype=np.uint8,
    )
    upright = blocks.repeat(32, 0).repeat(32, 1)
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = orientation
    data = encoded(
        Image.fromarray(np.ascontiguousarray(stored(upright, orientation))), form, exif=exif, quality=95
    )
    for source in (data, Image.open(io.BytesIO(data))):
        image = open_image(source)
        assert image.size == (96, 64)
        # lossy formats
        assert np.abs(np.asarray(image)[16::32, 16::32].astype(int) - blocks).max() <= 12
        assert np.array_equal(open_image(image), image), "the opened image was turned again"


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
@pytest.mark.parametrize(
    "tag",
    [
        b"no TIFF header at all",
        b"II*\0\xff\xff\xff\x7f",
        b"II*\0\x08\0\0\0\x01\0\x12\x01\x02\0\x03\0\0\0up\0\0\0\0\0\0",
    ],
)
def test_damaged_orientation_is_ignored(tag):
    data = encoded(Image.new("RGB", (120, 90)), "JPEG", exif=b"Exif\0\0" + tag)
    assert open_image(data).size == (120, 90)
