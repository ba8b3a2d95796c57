"""Convert any image source into an upright RGB image, or raise ImageError with a message for the user.

Refusals come from the header, before a pixel is decoded: the file's size, its format, the number of pixels it
declares, the aspect ratio, and the number of a JPEG's scans. Each scan of a progressive JPEG covers the whole
image, and a file of 2.6 MB can ask for 20,000 scans, which keeps a core busy for an hour; usual are about ten
(10 for colour and 6 for grey by libjpeg's own script, 9 to 12 by mozjpeg's), in baseline files one to four.
The model's input and strokes are computed from the image at full resolution; images for display are first
made smaller (`open_for_drawing`). Conversions run band by band, and large images are decoded one at a time,
because 80 million pixels take 320 MB however few bytes the file has. Colour profiles are not applied, as the
models were trained without them.

A value is always scaled to 8 bits from the range of its type, never from the darkest and brightest pixel, so
that a dark image stays dark. A type without a range of its own (floating point) is expected to hold 0 to 1.
"""

import io
import os
import re
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Num, Shaped, UInt8
from PIL import ExifTags, Image

from vitviz.errors import AssumedWarning, ImageError, first_line
from vitviz.traces import cancellation
from vitviz.traces.localized_text import LocalizedText

MAX_BYTES = 20 * 2**20  # of an image file
MAX_PIXELS = 80_000_000  # phones deliver 50 million; decoded, a pixel takes 4 bytes
MOST_OF = {"WEBP": 50_000_000}  # its decoder takes 16 bytes a pixel, three times as much as others
MAX_DRAWN = 3_200  # pixels of a side for display: 400 mm, the widest figure, at 200 pixels an inch
BAND = 2**21  # pixels that are converted at once
LARGE = 10 * BAND  # pixels; larger images are decoded one at a time
MAX_ELONGATION = 20  # longer side to shorter; beyond, the model would see almost nothing of the image

# Pillow's names and the usual names. No other formats: reading EPS, for example, starts a program.
FORMATS = {name.upper(): name for name in ("JPEG", "PNG", "WebP", "GIF", "TIFF", "BMP", "AVIF")}
READABLE = "JPEG, PNG, WebP, GIF, TIFF, BMP or AVIF"
TIFF = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")  # and BigTIFF
HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis")  # written by iPhones; read by pillow-heif alone

# EXIF 2.32, tag 0x0112: operations that make the image upright, from value 2 on
_UPRIGHT = "FLIP_LEFT_RIGHT ROTATE_180 FLIP_TOP_BOTTOM TRANSPOSE ROTATE_270 TRANSVERSE ROTATE_90"
TURNS = {tag: Image.Transpose[name] for tag, name in enumerate(_UPRIGHT.split(), start=2)}

MAX_SCANS = 100  # libtiff's limit, too
MAX_WORK = 1_200_000_000  # scans x pixels: 15 scans of the largest image, 100 of 12 million pixels

_MARKER = re.compile(rb"\xff+([^\x00\xff])")  # fill bytes may precede a marker; 0xff before zero is data
_SCAN, _END, _ALONE = 0xDA, 0xD9, {0x01, *range(0xD0, 0xD9)}  # T.81, table B.1: these have no length

# TIFF 6.0: BitsPerSample, PhotometricInterpretation, SamplesPerPixel, PlanarConfiguration, SampleFormat
BITS, PHOTOMETRIC, SAMPLES, PLANAR, SAMPLE_FORMAT = 258, 262, 277, 284, 339
SIGNED = 2  # value of SampleFormat
OVERSHOOT = 1e-3  # resampling may leave floating-point values outside 0 to 1 by this much


def open_image(source: Any) -> Image.Image:
    """Return an upright RGB image from a path, bytes, an open binary file, a PIL image, an array or a tensor.

    Arrays are height x width, alone or with 1, 3 or 4 channels last: uint8, uint16 (0 to 65535), bool, or
    floating point from 0 to 1. Torch tensors may also have their channels first, a batch of one, and values
    from 0 to 255 in any type (an AssumedWarning states a guessed range). Transparency is composited on white;
    of animations and multi-page files the first frame is read; 16-bit grey is scaled from 0..65535. A PIL
    image that is already upright RGB is returned itself, not a copy. Raises ImageError, with a sentence for
    the page, for a source that is not an image, is damaged, has more than 20 MB or 80 million pixels (a WebP
    50), or has one side 20 times longer than the other.

    >>> open_image(np.full((2, 3), 65535, dtype=np.uint16)).getpixel((0, 0))
    (255, 255, 255)
    >>> open_image(b"Dear diary")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    vitviz.errors.ImageError: The upload is not an image that can be read: expected a JPEG, PNG, WebP, ...
    """
    if "torch" in sys.modules and isinstance(source, sys.modules["torch"].Tensor):
        source = _array_of(source, (1, 3, 4))
    if isinstance(source, np.ndarray):
        check_size("The array", width_and_height(source))
        return rgb_of_array(source)
    if isinstance(source, Image.Image):
        name, image = "The picture", source
    else:
        name, data = _read(source)
        image = _identified(name, data)
        if data[:3] == b"\xff\xd8\xff":
            require_few_scans(name, data, image.size)
    check_size(name, image.size, MOST_OF.get(image.format, MAX_PIXELS))
    with _turn_of_large(image.size):
        return _upright_rgb(name, image)


def open_bands(source: Any, channels: int) -> Image.Image | Num[np.ndarray, "height width channel"]:
    """Return an image for a model that does not read RGB: its bands from 0 to 255, rounded only if uint8.

    The bands are an array's or a tensor's channels, last or first, or those of a TIFF, side by side, in
    planes or as pages. Types and ranges are those of `open_image`, which opens everything else for a model of
    one channel. Raises ImageError for another number of channels.

    >>> open_bands(np.full((2, 3, 4), 65535, dtype=np.uint16), 4)[0, 0].tolist()
    [255.0, 255.0, 255.0, 255.0]
    """
    name = "The array"
    if "torch" in sys.modules and isinstance(source, sys.modules["torch"].Tensor):
        source = _array_of(source, (1, 3, 4, channels))
    elif not isinstance(source, np.ndarray | Image.Image):
        name, data = _read(source)
        source = source if isinstance(source, (str, os.PathLike)) else data
        if data[:4] in TIFF:
            try:
                source = _tiff_bands(name, data)
            except ImageError:
                if channels != 1:  # Pillow reads many
                    raise
    if isinstance(source, np.ndarray):
        bands = source[..., None] if source.ndim == 2 else source
        if bands.ndim == 3 and bands.shape[-1] != channels == bands.shape[0]:
            bands = np.moveaxis(bands, 0, -1)
        if bands.ndim == 3 and bands.shape[-1] == channels:
            check_size(name, bands.shape[1::-1], MAX_PIXELS * 3 // max(3, channels))
            return _in_bytes(bands)
    if channels == 1:
        return open_image(source)
    raise ImageError(
        LocalizedText(
            "This model reads {channels} channels, and the image has another number of channels. Pass an"
            " array, a tensor or a TIFF with {channels} channels in Python, or choose another checkpoint.",
            channels=channels,
        )
    )


def _tiff_bands(name: str, data: bytes) -> Num[np.ndarray, "height width *channel"]:
    """Return the first image series of a TIFF, with the axis that is neither row nor column last."""
    try:
        import tifffile
    except ImportError:
        raise ImageError(
            f"{name} is a TIFF, whose bands cannot be read without tifffile. Install it (pip install"
            " 'vitviz[bands]'), or pass an array."
        ) from None
    try:
        with tifffile.TiffFile(io.BytesIO(data)) as file:
            series, colours = file.series[0], file.pages[0].photometric.name
            if colours in ("MINISWHITE", "PALETTE"):
                raise ValueError(f"its colours are {colours}")
            shape = dict(zip(series.axes, series.shape, strict=True))
            size = shape["X"], shape["Y"]
            check_size(name, size, MAX_PIXELS * 3 * size[0] * size[1] // max(series.size, 1))
            return np.moveaxis(series.asarray(), [series.axes.index(axis) for axis in "YX"], [0, 1])
    except ImageError:
        raise
    except Exception as error:  # decoders raise nearly anything
        raise ImageError(
            f"The bands of {name} cannot be read ({first_line(error)}). Save it without compression, or pass"
            " an array."
        ) from error


def _array_of(tensor: Any, channels: tuple[int, ...]) -> Shaped[np.ndarray, "height width *channel"]:
    """Return a tensor as an array; channels are first, or last where only that fits."""
    import torch

    values = tensor.detach().cpu()
    values = values[0] if values.ndim == 4 and len(values) == 1 else values
    if values.ndim == 3 and values.shape[0] in channels:
        values = values.movedim(0, -1)
    if values.dtype in (torch.uint8, torch.bool) or not values.numel():
        return values.numpy()
    values = values.to(torch.float32)
    low, high = values.min().item(), values.max().item()
    if low < -OVERSHOOT:
        raise ImageError(
            f"The tensor has values from {low:.4g} to {high:.4g}, as after normalisation; expected 0 to 1 or"
            " 0 to 255. Pass the image from before normalisation."
        )
    if 1 + OVERSHOOT < high <= 255 + OVERSHOOT:
        assumption = (
            f"The tensor of {tensor.dtype} has values up to {high:.4g}; the range 0 to 255 was assumed."
        )
        warnings.warn(f"{assumption} Pass uint8, or values from 0 to 1.", AssumedWarning, stacklevel=3)
        values = values / 255
    return values.numpy()


def open_for_drawing(source: Any) -> UInt8[np.ndarray, "height width 3"]:
    """Return the pixels of `open_image(source)`, at most `MAX_DRAWN` a side; a larger image is averaged.

    >>> open_for_drawing(np.zeros((100, 1000), np.uint8)).shape, open_for_drawing(np.zeros((400, 8000),
    ...     np.uint8)).shape
    ((100, 1000, 3), (160, 3200, 3))
    """
    image = open_image(source)
    share = MAX_DRAWN / max(image.size)
    if share < 1:
        image = image.resize([max(1, round(share * side)) for side in image.size], Image.Resampling.BOX)
    return np.asarray(image)


def pixels_of(image: Image.Image) -> UInt8[np.ndarray, "height width 3"]:
    """Return an RGB image's pixels as a new array; np.array would hold them three times meanwhile."""
    pixels = np.empty((image.height, image.width, 3), np.uint8)
    for top, band in _bands(image):
        pixels[top : top + band.height] = np.asarray(band)
    return pixels


def _bands(image: Image.Image) -> Iterator[tuple[int, Image.Image]]:
    """Yield the image in bands of about `BAND` pixels, each with its first row."""
    rows = max(1, BAND // image.width)
    for top in range(0, image.height, rows):
        cancellation.check()
        yield top, image.crop((0, top, image.width, min(top + rows, image.height)))


_large = threading.Lock()


@contextmanager
def _turn_of_large(size: tuple[int, int]) -> Iterator[None]:
    """Wait until no other large image is being decoded, if one of this (width, height) is large."""
    if size[0] * size[1] <= LARGE:
        yield
        return
    lock = _large
    while not lock.acquire(timeout=0.2):
        cancellation.check()
    try:
        yield
    finally:
        lock.release()


def _forget() -> None:
    """Renew the lock in a forked process, where the parent's thread that holds it does not exist."""
    global _large
    _large = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def _read(source: object) -> tuple[str, bytes]:
    """Return a source's name for messages, and its bytes."""
    name = "The upload"
    try:
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            name = printable_name(path)
            if not path.is_file():  # missing, a folder, or a pipe that would never end
                there = "expected the path of an image on this machine"
                raise ImageError(f"There is no file {name}: {there}. Check the path.")
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        elif isinstance(source, (bytes, bytearray, memoryview)):
            data = bytes(source)
        elif hasattr(source, "read"):  # an open binary file or a similar object
            if isinstance(source, io.IOBase) and source.seekable():
                source.seek(0)  # it may be at its end, just written
            data = source.read(MAX_BYTES + 1)
        else:
            data = None
    except ImageError:
        raise
    except (OSError, ValueError, TypeError) as error:
        raise ImageError(
            f"{name} could not be read ({type(error).__name__}); expected a readable image file. Check the"
            " path and its permissions."
        ) from error
    if not isinstance(data, bytes):
        raise ImageError(
            "Expected an image as a path, bytes, a file opened with 'rb', a PIL image, a NumPy array or a"
            f" tensor, but got {type(source).__name__}. Convert it to one of these."
        )
    if len(data) > MAX_BYTES:
        raise ImageError(
            f"{name} is larger than {MAX_BYTES // 2**20} MB, the maximum. Save it smaller and try again."
        )
    return name, data


def _identified(name: str, data: bytes) -> Image.Image:
    """Return the image with its header read and no pixel decoded."""
    if data[4:8] == b"ftyp" and any(brand in data[8:40] for brand in HEIC_BRANDS):
        try:
            from pillow_heif import HeifImageFile
        except ImportError:
            raise ImageError(
                f"{name} is a HEIC photo, which cannot be read here: expected {READABLE}. Export it as JPEG"
                " and try again, or install pillow-heif (pip install 'vitviz[heic]')."
            ) from None
        try:
            return HeifImageFile(io.BytesIO(data), "")
        except Exception as error:  # as below
            raise _undecodable_error(name, "HEIC") from error
    # Use Pillow's table of readers, not Image.open, which applies a global size limit before the size is
    # known and cannot tell a damaged image from a file that is not an image.
    Image.init()
    for key, title in FORMATS.items():
        reader, accepts = Image.OPEN.get(key, (None, None))
        if reader is None or accepts(data[:16]) is not True:
            continue
        try:
            return reader(io.BytesIO(data), "")
        except Exception as error:  # readers raise nearly anything on broken headers
            raise _undecodable_error(name, title) from error
    what = "is not an image that can be read" if data else "is empty"
    raise ImageError(
        f"{name} {what}: expected a {READABLE} file. Choose another file, or save the image as one of these."
    )


def check_size(name: str, size: tuple[int, int], most: int = MAX_PIXELS) -> None:
    """Raise ImageError if an image (width, height) is empty, too large, or too elongated."""
    width, height = size
    this = f"{name} is {width} x {height} pixels"
    if min(size) < 1:
        raise ImageError(f"{this}; at least 1 x 1 is expected. Choose another image.")
    if width * height > most:
        raise ImageError(
            f"{this}, {width * height / 1e6:.4g} million; at most {most // 10**6} million are accepted. Make"
            " it smaller and try again."
        )
    if max(size) > MAX_ELONGATION * min(size):
        raise ImageError(
            f"{this}, so its longer side is {max(size) / min(size):.4g} times the shorter; at most"
            f" {MAX_ELONGATION} times is accepted. Crop it and try again."
        )


def count_jpeg_scans(data: bytes) -> int:
    """Count the scans of a JPEG file's first image by its markers (T.81, annex B), up to `MAX_SCANS` + 1.

    >>> count_jpeg_scans(bytes.fromhex("ffd8 ffda0002 00ff00 ffd0 12 ffda0002 34 ffd9 ffda0002"))
    2
    """
    count, place = 0, 0
    while count <= MAX_SCANS:
        marker = _MARKER.search(data, place)
        if marker is None or marker[1][0] == _END:
            break
        place = marker.end()
        if marker[1][0] in _ALONE:
            continue
        count += marker[1][0] == _SCAN
        length = int.from_bytes(data[place : place + 2], "big")
        place += max(length, 2)  # skip the segment: a thumbnail in it is not counted
    return count


def require_few_scans(name: str, data: bytes, size: tuple[int, int]) -> None:
    """Raise ImageError for a JPEG of this (width, height) that has too many scans to decode."""
    result, pixels = count_jpeg_scans(data), size[0] * size[1]
    if result > MAX_SCANS or result * pixels > MAX_WORK:
        count = f"more than {MAX_SCANS}" if result > MAX_SCANS else str(result)
        raise ImageError(
            f"{name} is a JPEG in {count} scans of {pixels / 1e6:.3g} million pixels; at most {MAX_SCANS}"
            f" scans, and {MAX_WORK // 10**6} million pixels in all of them, are decoded. Save it again, as"
            " a baseline JPEG or PNG."
        )


def _upright_rgb(name: str, image: Image.Image) -> Image.Image:
    """Return the decoded image in RGB, turned as its EXIF tag asks."""
    try:
        require_interleaved(image)
        image.load()
        # after decoding, because Pillow turns TIFF itself and removes the tag
        turn = TURNS.get(_orientation(image))
        rgb = rgb_of(image)
        if turn is None:
            return rgb
        turned = rgb.transpose(turn)
    except ImageError:
        raise
    except Exception as error:  # decoders raise nearly anything on broken pixels
        raise _undecodable_error(name, FORMATS.get(image.format or "", "picture")) from error
    # the info still has the tag, which would turn the image again if it were opened again
    turned.info.clear()
    return turned


def _orientation(image: Image.Image) -> int:
    """Return the EXIF orientation; 1 for a damaged tag, which is no reason to refuse an image."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # struct.error, SyntaxError, UnicodeDecodeError and others
        return 1


def _undecodable_error(name: str, title: str) -> ImageError:
    """Return the error for an image file that cannot be decoded; `title` is a format such as 'HEIC'."""
    return ImageError(
        f"{name} could not be decoded as {title}: it is damaged, incomplete or of an unusual kind. Download"
        " or export it again, preferably as JPEG or PNG."
    )


def printable_name(path: Path) -> str:
    """Return a file's name as plain text: names may be hostile, and some pages render them."""
    return re.sub(r"[^\w .+-]", "_", path.name)[:60] or "with an empty name"


def rgb_of(image: Image.Image) -> Image.Image:
    """Return a decoded image in RGB, transparency composited on white; an RGB image is returned itself.

    Raises ImageError for grey values outside of their range.

    >>> rgb_of(Image.new("RGBA", (1, 1), (255, 0, 0, 0))).getpixel((0, 0))
    (255, 255, 255)
    """
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    canvas, tags = Image.new("RGB", image.size, "white"), getattr(image, "tag_v2", {})
    for top, band in _bands(image):
        # Pillow would clip these values at 255.
        if band.mode == "F" or band.mode.startswith("I") or _signed(band.mode, tags):
            canvas.paste(rgb_of_array(_grey_values(band, tags)), (0, top))
        elif band.has_transparency_data:
            rgba = band.convert("RGBA")
            canvas.paste(rgba, (0, top), rgba.getchannel("A"))
        else:
            canvas.paste(band.convert("RGB"), (0, top))
    return canvas


def require_interleaved(image: Image.Image) -> None:
    """Raise ImageError for a TIFF in planes (except 3 or 4 of 8 bits), which Pillow silently misreads."""
    tags = getattr(image, "tag_v2", {})
    bits, samples = tags.get(BITS) or (1,), tags.get(SAMPLES, 1)
    if tags.get(PLANAR) == 2 and samples > 1 and not (samples in (3, 4) and set(bits) == {8}):
        raise ImageError(
            f"The image is a TIFF that stores its {samples} channels of {bits[0]} bits in separate planes;"
            " expected interleaved channels (PlanarConfiguration 1), or 8-bit RGB. Export it so, or as PNG."
        )


def rgb_of_array(array: Shaped[np.ndarray, "height width *channel"]) -> Image.Image:
    """Return an array as an RGB image: uint8, uint16 (0 to 65535), bool, or floating point from 0 to 1.

    Channels come last: grey, RGB, or RGB with opacity. Raises ImageError for other shapes, types and ranges.

    >>> rgb_of_array(np.array([[0.0, 0.5, 1.0]])).getpixel((1, 0))
    (128, 128, 128)
    """
    width_and_height(array)
    values = _eight_bit(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)
    return rgb_of(Image.fromarray(values))


def width_and_height(array: np.ndarray) -> tuple[int, int]:
    """Return (width, height) of an image given as an array; raise ImageError for any other shape."""
    if array.ndim == 2 or array.ndim == 3 and array.shape[2] in (1, 3, 4):
        return array.shape[1], array.shape[0]
    shape = " x ".join(map(str, array.shape)) or "a single number"
    raise ImageError(
        f"The array is {shape}; expected height x width, or height x width x 1, 3 or 4. Put the channels"
        " last and pass one image at a time."
    )


def _eight_bit(array: np.ndarray) -> UInt8[np.ndarray, "height width *channel"]:
    """Return the nearest whole values from 0 to 255, scaled from the range of the array's type."""
    values = _in_bytes(array)
    return values if values.dtype == np.uint8 else np.rint(values, out=values).astype(np.uint8)


def _in_bytes(array: np.ndarray) -> Num[np.ndarray, "height width *channel"]:
    """Return values from 0 to 255, scaled from the range of the array's type: uint8 or float32."""
    kind, bytes_each = array.dtype.kind, array.dtype.itemsize
    if kind == "b":
        return array.astype(np.uint8) * np.uint8(255)
    if kind == "u" and bytes_each == 1:
        return array
    if kind == "u" and bytes_each == 2:
        return np.divide(array, 257, dtype=np.float32)  # 65535 / 255
    if kind != "f":
        raise ImageError(
            f"The array holds {array.dtype}; expected uint8, uint16, bool, or floating point from 0 to 1."
            " Convert it with astype('uint8')."
        )
    low, high = float(array.min()), float(array.max())
    if not (low >= -OVERSHOOT and high <= 1 + OVERSHOOT):  # in this form NaN is refused, too
        raise ImageError(
            f"The floating-point image has values from {low:.4g} to {high:.4g}; expected 0 to 1. Scale it,"
            " or convert it to uint8."
        )
    return np.clip(array.astype(np.float32), 0, 1) * 255


def _grey_values(image: Image.Image, tags: Mapping[int, Any]) -> Num[np.ndarray, "height width"]:
    """Return the pixels of a grey image that is not plain 8 bits: floats unchanged, integers as uint16."""
    values = np.asarray(image)
    if image.mode == "L":
        values = values.view(np.int8)
    # Pillow returns a TIFF's stored numbers; the tags define their meaning.
    bits, white_is_zero = (tags.get(BITS) or (16,))[0], tags.get(PHOTOMETRIC) == 0
    if values.dtype.kind == "f":
        return 1 - values if white_is_zero else values
    ranges = {8: 127, 16: 32767} if _signed(image.mode, tags) else {12: 4095}
    highest = ranges.get(bits, 65535)
    if highest != 65535:  # 12 bits in 16, or signed numbers, whose negative half is darker than black
        if values.min() < 0:
            raise ImageError(
                f"The image has grey values from {values.min()}; expected 0 to {highest}. Save it with 8 or"
                " 16 bits."
            )
        values = (values.astype(np.int64) * 65535 + highest // 2) // highest
    if white_is_zero and values.max() <= 65535:
        values = 65535 - values.astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise ImageError(
            f"The image has grey values from {values.min()} to {values.max()}; expected 0 to 65535. Save it"
            " with 8 or 16 bits."
        )
    if image.mode == "I" and image.format is None and 1 < values.max() <= 255:
        assumption = f"The grey values up to {values.max()} are read as 0 to 65535, which is nearly black."
        warnings.warn(f"{assumption} Convert 0 to 255 to mode L.", AssumedWarning, stacklevel=3)
    transparent = image.info.get("transparency")
    values = values if transparent is None else np.where(values == transparent, 65535, values)
    return values.astype(np.uint16)


def _signed(mode: str, tags: Mapping[int, Any]) -> bool:
    """Return True if a grey image's numbers are signed; Pillow's mode does not tell for 8 bits."""
    return (tags.get(SAMPLE_FORMAT) or (1,))[0] == SIGNED and (mode == "L" or mode.startswith("I"))
