"""A JPEG with thousands of scans is rejected before decoding. Real files are accepted."""

import io
import struct
import time

import numpy as np
import pytest
from PIL import Image

from vitviz.engine.images import opening
from vitviz.engine.images.opening import open_image
from vitviz.errors import ImageError


def encoded(size=(64, 48), mode="RGB", **options) -> bytes:
    pixels = np.random.default_rng(0).integers(0, 255, (*size[::-1], 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def with_scans(count: int, size=(64, 48)) -> bytes:
    """Return a grey progressive JPEG with its last refinement scan repeated without data."""
    data = encoded(size, "L", progressive=True)
    extra = b"\xff\xda" + struct.pack(">HBBBBBB", 8, 1, 1, 0, 1, 63, 0x10) + b"\x00"
    return data[:-2] + extra * (count - opening.count_jpeg_scans(data)) + b"\xff\xd9"


@pytest.mark.parametrize("mode, options, expected", [
    ("RGB", {}, 1), ("L", {}, 1), ("RGB", {"progressive": True}, 10), ("L", {"progressive": True}, 6),
    ("RGB", {"restart_marker_blocks": 1}, 1), ("CMYK", {"progressive": True}, None),
])  # fmt: skip
def test_scans_of_real_files_are_counted(mode, options, expected):
    """10 and 6 are the lengths of libjpeg's own scripts (jpeg_simple_progression, jcparam.c)."""
    data = encoded(mode=mode, **options)
    count = opening.count_jpeg_scans(data)
    assert count == expected if expected else count < 30
    assert open_image(data).size == (64, 48)


def test_thousands_of_scans_are_rejected_within_a_second():
    data = with_scans(20_000)
    start = time.monotonic()
    with pytest.raises(ImageError, match="JPEG in more than 100 scans .* baseline JPEG or PNG"):
        open_image(data)
    assert time.monotonic() - start < 1


def test_hundred_scans_of_small_image_are_decoded():
    assert opening.count_jpeg_scans(with_scans(100)) == 100 and open_image(with_scans(100)).size == (64, 48)


def test_scan_limit_is_lower_for_large_images():
    data = bytearray(with_scans(40))
    frame = data.index(b"\xff\xc2")
    data[frame + 5 : frame + 9] = struct.pack(">HH", 7000, 9000)  # declares 63 million pixels
    with pytest.raises(ImageError, match="in 40 scans of 63 million pixels"):
        open_image(bytes(data))


def test_thumbnail_scans_are_not_counted():
    data, thumbnail = encoded(), with_scans(300, (16, 16))
    segment = b"\xff\xe5" + struct.pack(">H", len(thumbnail) + 2) + thumbnail
    assert opening.count_jpeg_scans(data[:2] + segment + data[2:]) == 1


def test_fill_bytes_do_not_hide_scans():
    data = with_scans(300).replace(b"\xff\xda", b"\x00\x12\xff\xff\xff\xda")
    with pytest.raises(ImageError, match="more than 100 scans"):
        open_image(data)
