"""Every kind of pixel by its value in RGB."""

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


def reopened(picture: Image.Image, form: str, **options) -> Image.Image:
    file = io.BytesIO()
    picture.save(file, form, **options)
    return open_image(file.getvalue())


def row(picture: Image.Image) -> list[tuple[int, ...]]:
    return [picture.getpixel((x, 0)) for x in range(picture.width)]


GREY16 = np.array(
    [[0, 128, 129, 257, 32768, 65535]], dtype=np.uint16
)  # / 257: 0, 0.498, 0.502, 1, 127.5, 255
GREY8 = [(0,) * 3, (0,) * 3, (1,) * 3, (1,) * 3, (128,) * 3, (255,) * 3]


@pytest.mark.parametrize("form", ["PNG", "TIFF"])
def test_16_bit_grey_is_scaled_not_cut_off(form):
    assert row(reopened(Image.fromarray(GREY16), form)) == GREY8


def test_16_bit_grey_of_either_byte_order_and_in_32_bits():
    swapped = Image.frombytes("I;16B", (6, 1), GREY16.astype(">u2").tobytes())
    wide = Image.fromarray(GREY16.astype(np.int32))
    assert swapped.mode == "I;16B" and wide.mode == "I"
    for source in (swapped, wide, GREY16, GREY16.astype(">u2")):
        assert row(open_image(source)) == GREY8
    assert row(reopened(wide, "TIFF")) == GREY8


@pytest.mark.parametrize("value", [-1, 65536])
def test_32_bit_grey_beyond_16_bits_is_refused(value):
    with pytest.raises(ImageError, match="expected 0 to 65535.*8 or 16 bits"):
        open_image(Image.fromarray(np.array([[0, value]], dtype=np.int32)))


def tiff(
    numbers: bytes, width: int, bits: int, photometric: int, sample_format: int, order: str = "<"
) -> bytes:
    """A grey TIFF of one row, written by hand from the specification (TIFF 6.0, sections 2 and 19)."""
    # width, height, bits, no compression, photometric, strip at, samples, rows, strip's bytes, sample format
    at = 8 + 2 + 12 * 10 + 4
    given = {
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
    entries = b"".join(struct.pack(order + "HHII", tag, 4, 1, value) for tag, value in given.items())
    return (
        (b"II" if order == "<" else b"MM")
        + struct.pack(order + "HIH", 42, 8, len(given))
        + entries
        + bytes(4)
        + numbers
    )


def test_white_is_zero_is_no_negative():
    assert row(open_image(tiff(GREY16.astype("<u2").tobytes(), 6, 16, 1, 1))) == GREY8
    negative = (65535 - GREY16.astype(int)).astype("<u2").tobytes()
    assert row(open_image(tiff(negative, 6, 16, 0, 1))) == GREY8
    for order in "<>":
        numbers = np.array([1.0, 0.5, 0.0], f"{order}f4").tobytes()
        assert [grey[0] for grey in row(open_image(tiff(numbers, 3, 32, 0, 3, order)))] == [0, 128, 255]
        assert [grey[0] for grey in row(open_image(tiff(numbers, 3, 32, 1, 3, order)))] == [255, 128, 0]


def test_12_bits_are_scaled_from_their_own_range():
    # Two numbers in three bytes, the high bits first: 0, 4095, 2048, 16.
    numbers = bytes([0x00, 0x0F, 0xFF, 0x80, 0x00, 0x10])
    assert [grey[0] for grey in row(open_image(tiff(numbers, 4, 12, 1, 1)))] == [0, 255, 128, 1]


@pytest.mark.parametrize("order", "<>")
def test_signed_16_bits_are_scaled_from_their_own_range(order):
    numbers = np.array([0, 16384, 32767, 129], f"{order}i2").tobytes()
    assert [grey[0] for grey in row(open_image(tiff(numbers, 4, 16, 1, 2, order)))] == [0, 128, 255, 1]
    with pytest.raises(ImageError, match="from -5: expected 0 to 32767"):
        open_image(tiff(np.array([0, -5, 7], f"{order}i2").tobytes(), 3, 16, 1, 2, order))


def test_signed_8_bits_are_scaled_from_their_own_range():
    numbers = np.array([0, 64, 127, 1], "i1").tobytes()
    assert [grey[0] for grey in row(open_image(tiff(numbers, 4, 8, 1, 2)))] == [0, 129, 255, 2]
    with pytest.raises(ImageError, match="from -5: expected 0 to 127"):
        open_image(tiff(np.array([0, -5, 7], "i1").tobytes(), 3, 8, 1, 2))


@pytest.mark.parametrize("kind", ["u1", "u2"])
@pytest.mark.parametrize("channels", [2, 3, 4])
@pytest.mark.parametrize("compression", [None, "zlib"])
@pytest.mark.parametrize("order", "<>")
def test_channels_that_are_stored_apart_are_read_right_or_refused(kind, channels, compression, order):
    """By another library's writer; Pillow makes noise of some of them."""
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
        with pytest.raises(ImageError, match="apart|could not be decoded"):
            open_image(file.getvalue())


def test_grey_bits_and_palette():
    assert row(reopened(Image.fromarray(np.array([[0, 100, 255]], dtype=np.uint8)), "PNG")) == [
        (0,) * 3,
        (100,) * 3,
        (255,) * 3,
    ]
    assert row(reopened(Image.fromarray(np.array([[True, False]])), "PNG")) == [(255,) * 3, (0,) * 3]
    palette = Image.fromarray(np.array([[0, 1, 2]], dtype=np.uint8)).convert("P")
    palette.putpalette([255, 0, 0, 0, 255, 0, 0, 0, 255])
    for form in ("PNG", "GIF", "BMP", "TIFF"):
        assert row(reopened(palette, form)) == [(255, 0, 0), (0, 255, 0), (0, 0, 255)], form
    assert row(reopened(palette, "PNG", transparency=1)) == [(255, 0, 0), (255, 255, 255), (0, 0, 255)]
    assert row(reopened(palette, "GIF", transparency=1)) == [(255, 0, 0), (255, 255, 255), (0, 0, 255)]
    assert row(reopened(palette, "PNG", transparency=bytes([0, 255, 128]))) == [
        (255, 255, 255),
        (0, 255, 0),
        (127, 127, 255),
    ]


def test_transparency_is_laid_on_white():
    rgba = Image.fromarray(np.array([[[200, 0, 0, 255], [200, 0, 0, 0], [200, 0, 0, 128]]], dtype=np.uint8))
    on_white = [(200, 0, 0), (255, 255, 255), (227, 127, 127)]  # 255 + 128 / 255 * (200 - 255) = 227.4
    for form in ("PNG", "TIFF"):
        assert row(reopened(rgba, form)) == on_white
    assert row(reopened(rgba, "WEBP", lossless=True, exact=True)) == on_white
    assert row(open_image(np.asarray(rgba))) == on_white
    assert row(reopened(rgba.convert("LA"), "PNG"))[1] == (255, 255, 255)
    assert row(open_image(rgba.convert("RGBa")))[1] == (255, 255, 255)


def test_one_transparent_colour_is_white():
    assert row(reopened(Image.fromarray(np.array([[7, 8]], dtype=np.uint8)), "PNG", transparency=7)) == [
        (255,) * 3,
        (8,) * 3,
    ]
    assert row(reopened(Image.fromarray(GREY16), "PNG", transparency=32768)) == GREY8[:4] + [(255,) * 3] * 2
    rgb = Image.fromarray(np.array([[[1, 2, 3], [1, 2, 4]]], dtype=np.uint8))
    assert row(reopened(rgb, "PNG", transparency=(1, 2, 3))) == [(255, 255, 255), (1, 2, 4)]


@pytest.mark.parametrize("form", ["JPEG", "TIFF"])
def test_cmyk_has_the_colours_of_its_inks(form):
    inks = np.zeros((16, 64, 4), dtype=np.uint8)
    inks[:, :16, 0] = inks[:, 16:32, 1] = inks[:, 32:48, 3] = 255  # cyan, magenta, black, paper
    file = io.BytesIO()
    Image.fromarray(inks, mode="CMYK").save(file, form, **({"quality": 100} if form == "JPEG" else {}))
    assert form != "JPEG" or b"Adobe" in file.getvalue()  # the marker that says: stored inverted
    picture = np.asarray(open_image(file.getvalue()))[8, 8::16].astype(int)
    assert np.abs(picture - [[0, 255, 255], [255, 0, 255], [0, 0, 0], [255, 255, 255]]).max() <= 3


def test_other_colour_spaces():
    red = Image.new("RGB", (8, 8), (200, 30, 30))
    for mode in ("YCbCr", "HSV", "LAB", "RGBX"):
        assert np.abs(np.asarray(open_image(red.convert(mode))).astype(int) - (200, 30, 30)).max() <= 5, mode


@pytest.mark.parametrize("form", ["GIF", "TIFF", "WEBP", "PNG", "AVIF", "MPO"])
def test_the_first_frame_counts(form):
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue", "lime")]
    picture = reopened(frames[0], form, save_all=True, append_images=frames[1:])
    assert np.abs(np.asarray(picture).astype(int) - (255, 0, 0)).max() <= 4


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_floating_point_goes_from_0_to_1(dtype):
    ramp = np.array([[0, 0.4, 1]], dtype=dtype)
    expected = [(0,) * 3, (102,) * 3, (255,) * 3]
    assert (
        row(open_image(ramp))
        == row(open_image(ramp[..., None]))
        == row(open_image(np.stack([ramp] * 3, -1)))
        == expected
    )
    assert row(open_image(ramp - dtype(9e-4))) == row(open_image(ramp + dtype(9e-4))) == expected, (
        "resampling overshoots"
    )
    assert row(open_image(Image.fromarray(ramp.astype(np.float32)))) == expected


@pytest.mark.parametrize(
    "array, words",
    [
        (np.array([[0.0, 255.0]]), "values from 0 to 255: expected 0 to 1"),
        (np.array([[-0.1, 1.0]]), "values from -0.1 to 1"),
        (np.array([[np.nan, 1.0]]), "values from nan"),
        (np.array([[np.inf, 1.0]]), "to inf"),
        (np.zeros((4, 4), dtype=np.int64), "holds int64: expected uint8.*astype"),
        (np.array([["a", "b"]]), "holds <U1"),
        (np.zeros((4, 4), dtype=complex), "holds complex128"),
        (np.zeros((3, 8, 8), dtype=np.uint8), "is 3 x 8 x 8: expected height x width.*channels last"),
        (np.zeros((1, 8, 8, 3), dtype=np.uint8), "is 1 x 8 x 8 x 3.*one picture at a time"),
        (np.zeros((8, 8, 2), dtype=np.uint8), "is 8 x 8 x 2"),
        (np.array(3, dtype=np.uint8), "is a single number"),
        (np.zeros((0, 8, 3), dtype=np.uint8), "8 x 0 pixels: expected at least 1 x 1"),
        (np.zeros((4000, 3), dtype=np.uint8), "3 x 4000 pixels.*at most 20 times"),
        (np.broadcast_to(np.uint8(0), (20_000, 20_000, 3)), "400 million"),
    ],
)
def test_arrays_that_are_no_picture(array, words):
    with pytest.raises(ImageError, match=words):
        open_image(array)


def test_arrays_of_bits_columns_and_other_strides():
    assert row(open_image(np.array([[True, False]]))) == [(255,) * 3, (0,) * 3]
    pixels = np.random.default_rng(0).integers(0, 256, (6, 8, 3), dtype=np.uint8)
    assert np.array_equal(np.asarray(open_image(pixels[::-1, ::2])), pixels[::-1, ::2])
    assert np.array_equal(np.asarray(open_image(pixels[..., :1])), pixels[..., :1].repeat(3, -1))


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGBA", "LA", "CMYK", "YCbCr", "HSV", "I;16", "I", "F"])
def test_a_picture_is_the_same_whole_or_in_bands(mode, monkeypatch):
    random = np.random.default_rng(1)
    if mode in ("I;16", "I", "F"):
        kind = {"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode]
        grey = random.integers(0, 65535, (37, 23)).astype(kind)
        picture = Image.fromarray(grey / kind(65535) if mode == "F" else grey)
    else:
        picture = Image.fromarray(random.integers(0, 255, (37, 23, 4), np.uint8)).convert(mode)
    if mode == "P":
        picture.info["transparency"] = 7
    assert picture.mode == mode
    whole = open_image(picture)
    monkeypatch.setattr(opening, "BAND", 100)
    assert np.array_equal(open_image(picture), whole)
    assert np.array_equal(opening.pixels_of(whole), whole)


def test_what_is_drawn_is_the_picture_or_its_averages():
    random = np.random.default_rng(2)
    pixels = random.integers(0, 255, (64, opening.MAX_DRAWN // 5, 3), np.uint8)
    assert np.array_equal(opening.open_for_drawing(pixels), pixels)
    wide = random.integers(0, 255, (400, 2 * opening.MAX_DRAWN, 3), np.uint8)
    means = wide.reshape(200, 2, opening.MAX_DRAWN, 2, 3).mean((1, 3))
    assert np.abs(opening.open_for_drawing(wide) - means).max() <= 1


def test_a_webp_of_more_pixels_than_its_decoder_may_take_is_refused(monkeypatch):
    monkeypatch.setitem(opening.MOST_OF, "WEBP", 99)
    with pytest.raises(ImageError, match="10 x 10 pixels"):
        reopened(Image.new("RGB", (10, 10)), "WEBP")
    assert reopened(Image.new("RGB", (9, 11)), "WEBP").size == (9, 11)


def test_large_pictures_are_decoded_one_at_a_time_and_waiting_ends_with_its_visitor(monkeypatch):
    monkeypatch.setattr(opening, "LARGE", 9)
    with opening._turn_of_large((5, 5)):
        with opening._turn_of_large((3, 3)):
            pass  # a small one waits for none
        with cancellation.when(lambda: True), pytest.raises(Stopped):
            open_image(Image.new("RGB", (5, 5)))
    assert open_image(Image.new("RGB", (5, 5))).size == (5, 5)
