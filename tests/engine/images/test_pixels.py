"""Conversion of every pixel format to RGB."""

import io
import struct

import numpy as np
import pytest
import tifffile
from PIL import Image

from vitviz.engine.images import opening
from vitviz.engine.images.opening import open_image
from vitviz.errors import ImageError, Stopped
from vitviz.traces import cancellation


def reopen(image: Image.Image, form: str, **options) -> Image.Image:
    file = io.BytesIO()
    image.save(file, form, **options)
    return open_image(file.getvalue())


def first_row(image: Image.Image) -> list[tuple[int, ...]]:
    return [image.getpixel((x, 0)) for x in range(image.width)]


GREY16 = np.array(
    [[0, 128, 129, 257, 32768, 65535]], dtype=np.uint16
)  # / 257: 0, 0.498, 0.502, 1, 127.5, 255
GREY8 = [(0,) * 3, (0,) * 3, (1,) * 3, (1,) * 3, (128,) * 3, (255,) * 3]


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_not_truncated(form):
    assert first_row(reopen(Image.fromarray(GREY16), form)) == GREY8


def test_16_bit_grey_of_either_byte_order_is_scaled():
    swapped = Image.frombytes("I;16B", (6, 1), GREY16.astype(">u2").tobytes())
    wide = Image.fromarray(GREY16.astype(np.int32))
    assert swapped.mode == "I;16B" and wide.mode == "I"
    for source in (swapped, wide, GREY16, GREY16.astype(">u2")):
        assert first_row(open_image(source)) == GREY8
    assert first_row(reopen(wide, "TIFF")) == GREY8


@pytest.mark.parametrize("value", [-1, 65536])
def test_32_bit_grey_beyond_16_bits_is_rejected(value):
    with pytest.raises(ImageError, match="expected 0 to 65535.*8 or 16 bits"):
        open_image(Image.fromarray(np.array([[0, value]], dtype=np.int32)))


def tiff(
    numbers: bytes, width: int, bits: int, photometric: int, sample_format: int, order: str = "<"
) -> bytes:
    """Return a grey TIFF of one row, written by hand from the specification (TIFF 6.0, sections 2 and 19)."""
    # width, height, bits, no compression, photometric,
    # strip offset, samples, rows, strip bytes, sample format
    at = 8 + 2 + 12 * 10 + 4
    tags = {
        256: width,
        257: 1,
        258: bits,
        259: 1,
        262: photometric,
        273: at,
        277: 1,
        278: 1,
        279: len(numbers),
        339: sample_format,
    }
    entries = b"".join(struct.pack(order + "HHII", tag, 4, 1, value) for tag, value in tags.items())
    return (
        (b"II" if order == "<" else b"MM")
        + struct.pack(order + "HIH", 42, 8, len(tags))
        + entries
        + bytes(4)
        + numbers
    )


def test_white_is_zero_tiff_is_inverted():
    assert first_row(open_image(tiff(GREY16.astype("<u2").tobytes(), 6, 16, 1, 1))) == GREY8
    negative = (65535 - GREY16.astype(int)).astype("<u2").tobytes()
    assert first_row(open_image(tiff(negative, 6, 16, 0, 1))) == GREY8
    for order in "<>":
        numbers = np.array([1.0, 0.5, 0.0], f"{order}f4").tobytes()
        assert [grey[0] for grey in first_row(open_image(tiff(numbers, 3, 32, 0, 3, order)))] == [0, 128, 255]
        assert [grey[0] for grey in first_row(open_image(tiff(numbers, 3, 32, 1, 3, order)))] == [255, 128, 0]


def test_12_bit_grey_is_scaled():
    # Two numbers in three bytes, most significant bits first: 0, 4095, 2048, 16.
    numbers = bytes([0x00, 0x0F, 0xFF, 0x80, 0x00, 0x10])
    assert [grey[0] for grey in first_row(open_image(tiff(numbers, 4, 12, 1, 1)))] == [0, 255, 128, 1]


@pytest.mark.parametrize("order", "<>")
def test_signed_16_bit_grey_is_scaled(order):
    numbers = np.array([0, 16384, 32767, 129], f"{order}i2").tobytes()
    assert [grey[0] for grey in first_row(open_image(tiff(numbers, 4, 16, 1, 2, order)))] == [0, 128, 255, 1]
    with pytest.raises(ImageError, match="from -5; expected 0 to 32767"):
        open_image(tiff(np.array([0, -5, 7], f"{order}i2").tobytes(), 3, 16, 1, 2, order))


def test_signed_8_bit_grey_is_scaled():
    numbers = np.array([0, 64, 127, 1], "i1").tobytes()
    assert [grey[0] for grey in first_row(open_image(tiff(numbers, 4, 8, 1, 2)))] == [0, 129, 255, 2]
    with pytest.raises(ImageError, match="from -5; expected 0 to 127"):
        open_image(tiff(np.array([0, -5, 7], "i1").tobytes(), 3, 8, 1, 2))


@pytest.mark.parametrize("kind", ["u1", "u2"])
@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("order", "<>")
def test_planar_channels_are_correct_or_rejected(kind, channels, compression, order):
    """Files are written by tifffile. Pillow decodes some of them as noise."""
    pixels = np.random.default_rng(channels).integers(0, 256, (9, 13, channels), dtype=np.uint8)
    if channels in (2, 4):
        pixels[..., -1] = 255  # opaque
    colours = pixels[..., : 1 if channels == 2 else 3]
    file = io.BytesIO()
    tifffile.imwrite(
        file,
        np.moveaxis(pixels.astype(kind) * (257 if kind == "u2" else 1), -1, 0),
        photometric="minisblack" if channels == 2 else "rgb",
        planarconfig="separate",
        extrasamples=["unassalpha"] if channels in (2, 4) else None,
        compression=compression,
        byteorder=order,
    )
    if kind == "u1" and channels > 2:
        assert np.array_equal(np.asarray(open_image(file.getvalue())), colours)
    else:
        with pytest.raises(ImageError, match="separate planes|could not be decoded"):
            open_image(file.getvalue())


def test_grey_bits_and_palette_are_converted():
    assert first_row(reopen(Image.fromarray(np.array([[0, 100, 255]], dtype=np.uint8)), "PNG")) == [
        (0,) * 3,
        (100,) * 3,
        (255,) * 3,
    ]
    assert first_row(reopen(Image.fromarray(np.array([[True, False]])), "PNG")) == [(255,) * 3, (0,) * 3]
    palette = Image.fromarray(np.array([[0, 1, 2]], dtype=np.uint8)).convert("P")
    palette.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    for form in ("PNG", "GIF", "BMP", "TIFF"):
        assert first_row(reopen(palette, form)) == [(255, 0, 0), (0, 255, 0), (0, 0, 255)], form
    assert first_row(reopen(palette, "PNG", transparency=1)) == [(255, 0, 0), (255, 255, 255), (0, 0, 255)]
    assert first_row(reopen(palette, "GIF", transparency=1)) == [(255, 0, 0), (255, 255, 255), (0, 0, 255)]
    assert first_row(reopen(palette, "PNG", transparency=bytes([0, 255, 128]))) == [
        (255, 255, 255),
        (0, 255, 0),
        (127, 127, 255),
    ]


def test_transparency_is_blended_with_white():
    rgba = Image.fromarray(np.array([[[200, 0, 0, 255], [200, 0, 0, 0], [200, 0, 0, 128]]], dtype=np.uint8))
    on_white = [(200, 0, 0), (255, 255, 255), (227, 127, 127)]  # 255 + 128 / 255 * (200 - 255) = 227.4
    for form in ("PNG", "TIFF"):
        assert first_row(reopen(rgba, form)) == on_white
    assert first_row(reopen(rgba, "WEBP", lossless=True, exact=True)) == on_white
    assert first_row(open_image(np.asarray(rgba))) == on_white
    assert first_row(reopen(rgba.convert("LA"), "PNG"))[1] == (255, 255, 255)
    assert first_row(open_image(rgba.convert("RGBa")))[1] == (255, 255, 255)


def test_transparent_colour_becomes_white():
    assert first_row(reopen(Image.fromarray(np.array([[7, 8]], dtype=np.uint8)), "PNG", transparency=7)) == [
        (255,) * 3,
        (8,) * 3,
    ]
    assert (
        first_row(reopen(Image.fromarray(GREY16), "PNG", transparency=32768)) == GREY8[:4] + [(255,) * 3] * 2
    )
    rgb = Image.fromarray(np.array([[[1, 2, 3], [1, 2, 4]]], dtype=np.uint8))
    assert first_row(reopen(rgb, "PNG", transparency=(1, 2, 3))) == [(255, 255, 255), (1, 2, 4)]


@pytest.mark.parametrize("form", ["JPEG", "TIFF"])
def test_cmyk_is_converted_to_rgb(form):
    inks = np.zeros((16, 64, 4), dtype=np.uint8)
    inks[:, :16, 0] = inks[:, 16:32, 1] = inks[:, 32:48, 3] = 255  # cyan, magenta, black, no ink
    file = io.BytesIO()
    Image.fromarray(inks, mode="CMYK").save(file, form, **({"quality": 100} if form == "JPEG" else {}))
    # Adobe's marker means that inks are stored inverted
    assert form != "JPEG" or b"Adobe" in file.getvalue()
    colours = np.asarray(open_image(file.getvalue()))[8, 8::16].astype(int)
    assert np.abs(colours - [[0, 255, 255], [255, 0, 255], [0, 0, 0], [255, 255, 255]]).max() <= 3


def test_other_colour_spaces_are_converted():
    red = Image.new("RGB", (8, 8), (200, 30, 30))
    for mode in ("YCbCr", "HSV", "LAB", "RGBX"):
        assert np.abs(np.asarray(open_image(red.convert(mode))).astype(int) - (200, 30, 30)).max() <= 5, mode


@pytest.mark.parametrize("form", ["GIF", "TIFF", "WEBP", "PNG", "AVIF", "MPO"])
def test_first_frame_is_used(form):
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue", "lime")]
    image = reopen(frames[0], form, save_all=True, append_images=frames[1:])
    assert np.abs(np.asarray(image).astype(int) - (255, 0, 0)).max() <= 4


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_float_pixels_range_from_0_to_1(dtype):
    ramp = np.array([[0, 0.4, 1]], dtype=dtype)
    expected = [(0,) * 3, (102,) * 3, (255,) * 3]
    assert (
        first_row(open_image(ramp))
        == first_row(open_image(ramp[..., None]))
        == first_row(open_image(np.stack([ramp] * 3, -1)))
        == expected
    )
    assert (
        first_row(open_image(ramp - dtype(9e-4))) == first_row(open_image(ramp + dtype(9e-4))) == expected
    ), "small overshoots of resampling must be clipped"
    assert first_row(open_image(Image.fromarray(ramp.astype(np.float32)))) == expected


@pytest.mark.parametrize(
    "array, words",
    [
        (np.array([[0.0, 255.0]]), "values from 0 to 255; expected 0 to 1"),
        (np.array([[-0.1, 1.0]]), "values from -0.1 to 1"),
        (np.array([[np.nan, 1.0]]), "values from nan"),
        (np.array([[np.inf, 1.0]]), "to inf"),
        (np.zeros((4, 4), dtype=np.int64), "holds int64; expected uint8.*astype"),
        (np.array([["a", "b"]]), "holds <U1"),
        (np.zeros((4, 4), dtype=complex), "holds complex128"),
        (np.zeros((3, 8, 8), dtype=np.uint8), "is 3 x 8 x 8; expected height x width.*channels last"),
        (np.zeros((1, 8, 8, 3), dtype=np.uint8), "is 1 x 8 x 8 x 3.*one image at a time"),
        (np.zeros((8, 8, 2), dtype=np.uint8), "is 8 x 8 x 2"),
        (np.array(3, dtype=np.uint8), "is a single number"),
        (np.zeros((0, 8, 3), dtype=np.uint8), "8 x 0 pixels; at least 1 x 1 is expected"),
        (np.zeros((4000, 3), dtype=np.uint8), "3 x 4000 pixels.*at most 20 times"),
        (np.broadcast_to(np.uint8(0), (20_000, 20_000, 3)), "400 million"),
    ],
)
def test_invalid_array_is_rejected(array, words):
    with pytest.raises(ImageError, match=words):
        open_image(array)


def test_boolean_single_channel_and_strided_arrays_are_read():
    assert first_row(open_image(np.array([[True, False]]))) == [(255,) * 3, (0,) * 3]
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(open_image(pixels[::-1, ::2])), pixels[::-1, ::2])
    assert np.array_equal(np.asarray(open_image(pixels[..., :1])), pixels[..., :1].repeat(3, -1))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "LA", "CMYK", "YCbCr", "HSV", "I;16", "I", "F"])
def test_conversion_in_bands_equals_conversion_at_once(mode, monkeypatch):
    generator = np.random.default_rng(1)
    if mode in ("I;16", "I", "F"):
        kind = {"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]
        grey = generator.integers(0, 65535, (37, 23)).astype(kind)
        image = Image.fromarray(grey / kind(65535) if mode == "F" else grey)
    else:
        image = Image.fromarray(generator.integers(0, 255, (37, 23, 4), np.uint8)).convert(mode)
    if mode == "P":
        image.info["transparency"] = 7
    assert image.mode == mode
    whole = open_image(image)
    monkeypatch.setattr(opening, "BAND", 100)
    assert np.array_equal(open_image(image), whole)
    assert np.array_equal(opening.pixels_of(whole), whole)


def test_image_for_drawing_is_original_or_area_average():
    generator = np.random.default_rng(2)
    pixels = generator.integers(0, 255, (64, opening.MAX_DRAWN // 5, 3), np.uint8)
    assert np.array_equal(opening.open_for_drawing(pixels), pixels)
    wide = generator.integers(0, 255, (400, 2 * opening.MAX_DRAWN, 3), np.uint8)
    means = wide.reshape(200, 2, opening.MAX_DRAWN, 2, 3).mean((1, 3))
    assert np.abs(opening.open_for_drawing(wide) - means).max() <= 1


def test_webp_above_decoder_limit_is_rejected(monkeypatch):
    monkeypatch.setitem(opening.MOST_OF, "WEBP", 99)
    with pytest.raises(ImageError, match="10 x 10 pixels"):
        reopen(Image.new("RGB", (10, 10)), "WEBP")
    assert reopen(Image.new("RGB", (9, 11)), "WEBP").size == (9, 11)


def test_large_images_are_decoded_in_turn_and_waiting_can_be_cancelled(monkeypatch):
    monkeypatch.setattr(opening, "LARGE", 9)
    with opening._turn_of_large((5, 5)):
        with opening._turn_of_large((3, 3)):
            pass  # a small image does not wait
        with cancellation.when(lambda: True), pytest.raises(Stopped):
            open_image(Image.new("RGB", (5, 5)))
    assert open_image(Image.new("RGB", (5, 5))).size == (5, 5)
