"""Opening images: every kind of source, rejection messages, and damaged files."""

import io
import pickle
import random
import struct
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, ExifTags, Image, ImageFile

from vitviz.engine.images import opening
from vitviz.engine.images.opening import open_image
from vitviz.errors import ImageError

FORMATS = ["JPEG", "PNG", "WEBP", "GIF", "TIFF", "BMP", "AVIF"]


def encoded(image: Image.Image, form: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def noise(width: int = 120, height: int = 90) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def png_header(width: int, height: int) -> bytes:
    """Return a PNG that declares a size and holds almost no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(100)))
        + chunk(b"IEND", b"")
    )


def error_message(source) -> str:
    with pytest.raises(ImageError) as caught:
        open_image(source)
    return str(caught.value)


@pytest.mark.parametrize(
    "data, words",
    [
        (b"Dear diary, today", ["not an image", "expected a JPEG, PNG", "Choose another"]),
        (b"", ["is empty", "expected a JPEG"]),
        (b"%PDF-1.7 and so on", ["not an image"]),
        # Pillow reads this format, but vitviz does not accept it
        (b"P6 1 1 255 abc", ["not an image"]),
        (b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", ["HEIC", "Export it as JPEG", "[heic]"]),
        (b"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1heic", ["HEIC"]),
        (b"\x89PNG\r\n\x1a\n", ["as PNG", "damaged"]),
        (b"\xff\xd8\xff\xe0", ["as JPEG", "damaged"]),
        (
            png_header(20_000, 20_000),
            ["20000 x 20000", "400 million", "at most 80 million", "Make it smaller"],
        ),
        (png_header(9_000, 9_000), ["9000 x 9000", "81 million"]),
        (png_header(3, 4_000), ["3 x 4000", "1333 times", "at most 20 times", "Crop it"]),
        (png_header(2_001, 100), ["2001 x 100", "20.01 times"]),
    ],
)
def test_file_is_rejected_by_its_header(data, words, monkeypatch):
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("decoded"))
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # as if pillow_heif is not installed
    message = error_message(data)
    assert all(word in message for word in words), message


@pytest.mark.parametrize("limit", [None, 1000])
def test_pixel_limit_does_not_depend_on_pillow_setting(limit, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    assert "400 million" in error_message(png_header(20_000, 20_000))
    assert open_image(encoded(noise(100, 80))).size == (100, 80)


def test_eps_is_never_passed_to_ghostscript(monkeypatch):
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args: pytest.fail("started"))
    assert "not an image" in error_message(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    )


def test_file_above_size_limit_is_rejected_unread(tmp_path):
    class Endless:
        def read(self, size):
            assert size <= opening.MAX_BYTES + 1
            return bytes(size)

    path = tmp_path / "large.png"
    with path.open("wb") as file:
        file.truncate(opening.MAX_BYTES + 1)
    for source in (path, bytes(opening.MAX_BYTES + 1), Endless()):
        message = error_message(source)
        assert "larger than 20 MB" in message and "Save it smaller" in message
    assert "large.png" in error_message(path)
    assert "larger" not in error_message(bytes(opening.MAX_BYTES))


@pytest.mark.parametrize("size", [(1, 1), (20, 1), (1, 20), (2000, 100), (10_000, 5_000)])
def test_extreme_but_valid_sizes_are_accepted(size):
    image = open_image(encoded(Image.new("1", size, 1)))
    assert (image.mode, image.size, image.getpixel((0, 0))) == ("RGB", size, (255, 255, 255))


def test_every_source_type_gives_same_image(tmp_path):
    image, data = noise(), encoded(noise())
    path = tmp_path / "a picture.png"
    path.write_bytes(data)
    written = io.BytesIO()
    written.write(data)  # the position is at the end
    with path.open("rb") as file:
        sources = [
            path,
            str(path),
            data,
            bytearray(data),
            memoryview(data),
            written,
            file,
            image,
            Image.open(path),
            np.asarray(image),
        ]
        for source in sources:
            assert np.array_equal(np.asarray(open_image(source)), np.asarray(image)), type(source)


@pytest.mark.parametrize(
    "source, words",
    [
        ("nowhere/cat.png", ["no file cat.png", "Check the path"]),
        (".", ["no file"]),
        ("a\0b.png", ["no file a_b.png"]),
        ("x" * 5000, ["could not be read (OSError)"]),
        (None, ["got NoneType", "expected an image as a path"]),
        (3, ["got int"]),
        ([[1, 2]], ["got list", "NumPy array"]),
        (io.StringIO("text"), ["got StringIO", "opened with 'rb'"]),
        (Image.new("RGB", (0, 5)), ["0 x 5", "at least 1 x 1"]),
        (Image.new("RGB", (3, 4000)), ["3 x 4000", "at most 20 times"]),
    ],
)
def test_invalid_source_is_rejected(source, words):
    message = error_message(source)
    assert all(word.lower() in message.lower() for word in words), message


def test_unreadable_source_is_rejected(tmp_path, monkeypatch):
    file = io.BytesIO(encoded(noise()))
    file.close()
    assert "could not be read (ValueError)" in error_message(file)
    path = tmp_path / "locked.png"
    path.write_bytes(b"")
    monkeypatch.setattr(Path, "open", lambda *args: (_ for _ in ()).throw(PermissionError("no")))
    assert "locked.png could not be read (PermissionError)" in error_message(path)


def test_hostile_file_name_is_escaped_in_message(tmp_path):
    path = tmp_path / ("<img src=x onerror=alert('1')>`[a](b)\u202e\n" + "y" * 90)
    path.write_bytes(b"no picture")
    message = error_message(path)
    assert (
        "img src_x onerror_alert" in message
        and not set("<>='`[]\u202e\n") & set(message)
        and "y" * 60 not in message
    )


@pytest.mark.parametrize("form, options", [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {})])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
def test_truncated_file_is_rejected_for_every_source_type(form, options, kept, tmp_path):
    data = encoded(noise(), form, **options)
    path = tmp_path / "cut"
    path.write_bytes(data[: int(kept * len(data))])
    for source in (path, path.read_bytes(), Image.open(path)):
        message = error_message(source)
        assert f"decoded as {form}" in message and "incomplete" in message and "export it again" in message


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMATS)
def test_damaged_file_raises_only_image_error(form):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    data, generator = (
        encoded(noise(24, 16), form, **({} if form in ("GIF", "BMP") else {"exif": exif})),
        random.Random(0),
    )
    state = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
    refused = 0
    for attempt in range(250):
        damaged = bytearray(data[: generator.randrange(len(data))] if attempt % 3 == 0 else data)
        for _ in range(generator.choice([1, 1, 3, 20])):
            damaged[generator.randrange(len(damaged)) if damaged else slice(0)] = (
                generator.randrange(256) if damaged else b""
            )
        try:
            assert open_image(bytes(damaged)).mode == "RGB"
        except ImageError:
            refused += 1
    assert refused > 20
    assert state == (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)


def test_open_image_leaves_given_image_unchanged():
    image = Image.new("P", (4, 3), 1)
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.info["transparency"] = 1
    before = image.tobytes(), dict(image.info), image.getpalette("RGBA")
    assert open_image(image).getpixel((0, 0)) == (255, 255, 255)
    assert (image.tobytes(), image.info, image.getpalette("RGBA")) == before
    rgb = noise()
    assert open_image(rgb) is rgb


def test_opened_image_can_be_pickled():
    image = open_image(encoded(noise(), "JPEG"))
    assert np.array_equal(np.asarray(pickle.loads(pickle.dumps(image))), np.asarray(image))
