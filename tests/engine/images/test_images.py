"""What is refused, each with its sentence, and every kind of source; damaged files raise nothing else."""

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


def encoded(picture: Image.Image, form: str = "PNG", **options) -> bytes:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return file.getvalue()


def noise(width: int = 120, height: int = 90) -> Image.Image:
    return Image.fromarray(np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8))


def png_header(width: int, height: int) -> bytes:
    """A PNG that declares a size and holds next to no pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(bytes(100)))
        + chunk(b"IEND", b"")
    )


def refusal(source) -> str:
    with pytest.raises(ImageError) as caught:
        open_image(source)
    return str(caught.value)


@pytest.mark.parametrize(
    "data, words",
    [
        (b"Dear diary, today", ["not a picture", "expected a JPEG, PNG", "Choose another"]),
        (b"", ["is empty", "expected a JPEG"]),
        (b"%PDF-1.7 and so on", ["not a picture"]),
        (b"P6 1 1 255 abc", ["not a picture"]),  # a format that Pillow reads, and that is not on the list
        (b"\x00\x00\x00\x18ftypheic\x00\x00\x00\x00mif1heic", ["HEIC", "Export it as JPEG", "[heic]"]),
        (b"\x00\x00\x00\x18ftypmif1\x00\x00\x00\x00mif1heic", ["HEIC"]),
        (b"\x89PNG\r\n\x1a\n", ["whole PNG", "damaged"]),
        (b"\xff\xd8\xff\xe0", ["whole JPEG", "damaged"]),
        (
            png_header(20_000, 20_000),
            ["20000 x 20000", "400 million", "at most 80 million", "Make it smaller"],
        ),
        (png_header(9_000, 9_000), ["9000 x 9000", "81 million"]),
        (png_header(3, 4_000), ["3 x 4000", "1333 times", "at most 20 times", "Crop it"]),
        (png_header(2_001, 100), ["2001 x 100", "20.01 times"]),
    ],
)
def test_refused_from_the_header(data, words, monkeypatch):
    monkeypatch.setattr(ImageFile.ImageFile, "load", lambda self: pytest.fail("decoded"))
    monkeypatch.setitem(sys.modules, "pillow_heif", None)  # as where it is not installed
    sentence = refusal(data)
    assert all(word in sentence for word in words), sentence


@pytest.mark.parametrize("limit", [None, 1000])
def test_the_pixel_limit_is_our_own(limit, monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", limit)
    assert "400 million" in refusal(png_header(20_000, 20_000))
    assert open_image(encoded(noise(100, 80))).size == (100, 80)


def test_eps_is_never_handed_to_ghostscript(monkeypatch):
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *args: pytest.fail("started"))
    assert "not a picture" in refusal(
        b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n"
    )


def test_large_files_are_refused_unread(tmp_path):
    class Endless:
        def read(self, size):
            assert size <= opening.MAX_BYTES + 1
            return bytes(size)

    path = tmp_path / "large.png"
    with path.open("wb") as file:
        file.truncate(opening.MAX_BYTES + 1)
    for source in (path, bytes(opening.MAX_BYTES + 1), Endless()):
        sentence = refusal(source)
        assert "larger than 20 MB" in sentence and "Save it smaller" in sentence
    assert "large.png" in refusal(path)
    assert "larger" not in refusal(bytes(opening.MAX_BYTES))


@pytest.mark.parametrize("size", [(1, 1), (20, 1), (1, 20), (2000, 100), (10_000, 5_000)])
def test_accepted_sizes(size):
    picture = open_image(encoded(Image.new("1", size, 1)))
    assert (picture.mode, picture.size, picture.getpixel((0, 0))) == ("RGB", size, (255, 255, 255))


def test_every_kind_of_source_gives_the_same_picture(tmp_path):
    picture, data = noise(), encoded(noise())
    path = tmp_path / "a picture.png"
    path.write_bytes(data)
    written = io.BytesIO()
    written.write(data)  # left at its end
    with path.open("rb") as file:
        sources = [
            path,
            str(path),
            data,
            bytearray(data),
            memoryview(data),
            written,
            file,
            picture,
            Image.open(path),
            np.asarray(picture),
        ]
        for source in sources:
            assert np.array_equal(np.asarray(open_image(source)), np.asarray(picture)), type(source)


@pytest.mark.parametrize(
    "source, words",
    [
        ("nowhere/cat.png", ["no file cat.png", "Check the path"]),
        (".", ["no file"]),
        ("a\0b.png", ["no file a_b.png"]),
        ("x" * 5000, ["could not be read (OSError)"]),
        (None, ["given NoneType", "expected a picture as a path"]),
        (3, ["given int"]),
        ([[1, 2]], ["given list", "NumPy array"]),
        (io.StringIO("text"), ["given StringIO", "opened with 'rb'"]),
        (Image.new("RGB", (0, 5)), ["0 x 5", "at least 1 x 1"]),
        (Image.new("RGB", (3, 4000)), ["3 x 4000", "at most 20 times"]),
    ],
)
def test_sources_that_are_none(source, words):
    sentence = refusal(source)
    assert all(word.lower() in sentence.lower() for word in words), sentence


def test_closed_files_and_folders_without_permission_are_refused(tmp_path, monkeypatch):
    file = io.BytesIO(encoded(noise()))
    file.close()
    assert "could not be read (ValueError)" in refusal(file)
    path = tmp_path / "locked.png"
    path.write_bytes(b"")
    monkeypatch.setattr(Path, "open", lambda *args: (_ for _ in ()).throw(PermissionError("no")))
    assert "locked.png could not be read (PermissionError)" in refusal(path)


def test_hostile_names_are_plain_text_in_the_sentence(tmp_path):
    path = tmp_path / ("<img src=x onerror=alert('1')>`[a](b)\u202e\n" + "y" * 90)
    path.write_bytes(b"no picture")
    sentence = refusal(path)
    assert (
        "img src_x onerror_alert" in sentence
        and not set("<>='`[]\u202e\n") & set(sentence)
        and "y" * 60 not in sentence
    )


@pytest.mark.parametrize("form, options", [("JPEG", {}), ("JPEG", {"progressive": True}), ("PNG", {})])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.9])
def test_truncated_pictures_are_refused_however_they_come(form, options, kept, tmp_path):
    data = encoded(noise(), form, **options)
    path = tmp_path / "cut"
    path.write_bytes(data[: int(kept * len(data))])
    for source in (path, path.read_bytes(), Image.open(path)):
        sentence = refusal(source)
        assert f"whole {form} file" in sentence and "breaks off" in sentence and "export it again" in sentence


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("form", FORMATS)
def test_damaged_files_raise_nothing_but_image_errors(form):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6
    data, dice = (
        encoded(noise(24, 16), form, **({} if form in ("GIF", "BMP") else {"exif": exif})),
        random.Random(0),
    )
    state = Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES
    refused = 0
    for attempt in range(250):
        damaged = bytearray(data[: dice.randrange(len(data))] if attempt % 3 == 0 else data)
        for _ in range(dice.choice([1, 1, 3, 20])):
            damaged[dice.randrange(len(damaged)) if damaged else slice(0)] = (
                dice.randrange(256) if damaged else b""
            )
        try:
            assert open_image(bytes(damaged)).mode == "RGB"
        except ImageError:
            refused += 1
    assert refused > 20
    assert state == (Image.MAX_IMAGE_PIXELS, ImageFile.LOAD_TRUNCATED_IMAGES)


def test_a_caller_keeps_the_picture_as_it_was():
    picture = Image.new("P", (4, 3), 1)
    picture.putpalette([255, 0, 0, 0, 0, 255])
    picture.info["transparency"] = 1
    before = picture.tobytes(), dict(picture.info), picture.getpalette("RGBA")
    assert open_image(picture).getpixel((0, 0)) == (255, 255, 255)
    assert (picture.tobytes(), picture.info, picture.getpalette("RGBA")) == before
    rgb = noise()
    assert open_image(rgb) is rgb


def test_pictures_can_be_sent_to_another_process():
    picture = open_image(encoded(noise(), "JPEG"))
    assert np.array_equal(np.asarray(pickle.loads(pickle.dumps(picture))), np.asarray(picture))
