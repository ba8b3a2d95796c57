"""From whatever a person hands over to an upright RGB picture, or to a sentence that says why not.

Everything that can be refused is refused from the header, before a pixel is decoded: the file's size, its format,
how many pixels it declares, how elongated it is. A picture is decoded once, at full resolution, because overlays are
drawn on the upload itself. Colour profiles are not applied: the models were trained on pictures read without them.
"""

from __future__ import annotations

import io
import os
import re
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from PIL import ExifTags, Image

from vitviz.errors import ImageError

MAX_BYTES = 20 * 2**20  # what the page's upload accepts as "20mb"
MAX_PIXELS = 80_000_000  # phones deliver 50 million; decoded, a picture takes 4 bytes a pixel
MAX_ELONGATION = 20  # longer side to shorter; beyond, the model would see next to nothing of the picture

# No formats beyond these, so that Pillow never starts Ghostscript (EPS) or follows another file's references.
FORMATS = {"JPEG": "JPEG", "PNG": "PNG", "WEBP": "WebP", "GIF": "GIF", "TIFF": "TIFF", "BMP": "BMP", "AVIF": "AVIF"}
READABLE = "JPEG, PNG, WebP, GIF, TIFF, BMP or AVIF"
HEIC_BRANDS = (b"heic", b"heix", b"hevc", b"heim", b"heis")

TURNS = {  # EXIF 2.32, tag 0x0112: what makes the picture upright
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}


@runtime_checkable
class Readable(Protocol):
    """An open binary file, or what behaves like one."""

    def read(self, size: int, /) -> bytes: ...


Source = str | os.PathLike | bytes | Readable | Image.Image | np.ndarray


def open_image(source: Source) -> Image.Image:
    """An upright RGB picture from a path, bytes, an open binary file, a PIL image, or an array of rows and columns.

    Arrays are height x width, alone or with 1, 3 or 4 channels last: uint8, uint16 (0 to 65535), bool, or floating
    point from 0 to 1. Transparency is laid on white; of animations and multi-page files the first frame is taken;
    16-bit grey is scaled from 0..65535. A PIL image that is upright RGB already is handed back itself, not a copy.
    Raises ImageError, with a sentence for the page, for what is no picture, is damaged, has more than 20 MB or 80
    million pixels, or is more than 20 times longer than wide.

    >>> open_image(np.full((2, 3), 65535, dtype=np.uint16)).getpixel((0, 0))
    (255, 255, 255)
    >>> open_image(b"Dear diary")
    Traceback (most recent call last):
    vitviz.errors.ImageError: The upload is not a picture that can be read: expected a JPEG, PNG, WebP, GIF, ...
    """
    if isinstance(source, np.ndarray):
        return _from_array(source)
    if isinstance(source, Image.Image):
        name, image = "The picture", source
    else:
        name, data = _read(source)
        image = _identified(name, data)
    _check_size(name, image.size)
    return _upright_rgb(name, image)


def _read(source: object) -> tuple[str, bytes]:
    """What to call a source in a sentence, and its bytes."""
    name = "The upload"
    try:
        if isinstance(source, (str, os.PathLike)):
            path = Path(source)
            name = _plain_name(path)
            if not path.is_file():  # a folder, or a pipe that would never end
                raise ImageError(f"There is no file {name}: expected the path of a picture on this machine. Check the path.")
            with path.open("rb") as file:
                data = file.read(MAX_BYTES + 1)
        elif isinstance(source, (bytes, bytearray, memoryview)):
            data = bytes(source)
        elif isinstance(source, Readable):
            if isinstance(source, io.IOBase) and source.seekable():
                source.seek(0)  # it may just have been written
            data = source.read(MAX_BYTES + 1)
        else:
            data = None
    except (OSError, ValueError, TypeError) as error:
        if isinstance(error, ImageError):
            raise
        raise ImageError(f"{name} could not be read ({type(error).__name__}): expected a readable picture file. Check the path and its permissions.") from error
    if not isinstance(data, bytes):
        raise ImageError(
            f"Expected a picture as a path, bytes, a file opened with 'rb', a PIL image or a NumPy array, but was given {type(source).__name__}. Convert it to one of these."
        )
    if len(data) > MAX_BYTES:
        raise ImageError(f"{name} is larger than {MAX_BYTES // 2**20} MB, the most that is accepted. Save the picture smaller and try again.")
    return name, data


def _identified(name: str, data: bytes) -> Image.Image:
    """The picture with its header read and nothing decoded."""
    if data[4:8] == b"ftyp" and any(brand in data[8:40] for brand in HEIC_BRANDS):
        raise ImageError(f"{name} is a HEIC photograph, which cannot be read here: expected {READABLE}. Export it as JPEG and try again.")
    # Pillow's own table of readers rather than Image.open, which raises or warns about size by a global limit before
    # the size is known, and cannot tell a damaged picture from what is none.
    Image.init()
    for key, title in FORMATS.items():
        reader, accepts = Image.OPEN.get(key, (None, None))
        if reader is None or accepts(data[:16]) is not True:
            continue
        try:
            return reader(io.BytesIO(data), "")
        except Exception as error:  # on broken files readers raise nearly anything
            raise _damaged(name, title) from error
    what = "is empty" if not data else "is not a picture that can be read"
    raise ImageError(f"{name} {what}: expected a {READABLE} file. Choose another file, or save the picture as one of these.")


def _check_size(name: str, size: tuple[int, int]) -> None:
    """Raises ImageError where a picture (width, height) is empty, too large, or too elongated."""
    width, height = size
    if min(size) < 1:
        raise ImageError(f"{name} is {width} x {height} pixels: expected at least 1 x 1. Choose another picture.")
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"{name} has {width} x {height} pixels, {width * height / 1e6:.0f} million: at most {MAX_PIXELS // 10**6} million are accepted. Make it smaller and try again."
        )
    if max(size) > MAX_ELONGATION * min(size):
        raise ImageError(
            f"{name} is {width} x {height} pixels: its longer side is {max(size) / min(size):.0f} times the shorter, and at most {MAX_ELONGATION} times is accepted. "
            "Crop it to a less elongated part and try again."
        )


def _upright_rgb(name: str, image: Image.Image) -> Image.Image:
    """The picture decoded, in RGB and turned as its EXIF tag asks."""
    try:
        image.load()
        rgb = _rgb(name, image)
        turn = TURNS.get(_orientation(image))
        if turn is None:
            return rgb
        turned = rgb.transpose(turn)
    except ImageError:
        raise
    except Exception as error:  # decoders raise nearly anything on broken pixels, and running out of memory is one of them
        raise _damaged(name, FORMATS.get(image.format or "", "picture")) from error
    turned.info.clear()  # it still asked for the turn, and would be turned again when handed in again
    return turned


def _rgb(name: str, image: Image.Image) -> Image.Image:
    """A decoded picture in RGB, transparency on white."""
    if image.mode == "RGB" and not image.has_transparency_data:
        return image
    if image.mode == "F" or image.mode.startswith("I"):  # Pillow would cut these off at 255
        return _from_array(_numbers(name, image))
    if not image.has_transparency_data:
        return image.convert("RGB")
    # Pillow writes the transparency of a palette into the picture that it converts: keep the caller's as it is.
    rgba = (image.copy() if image.mode == "P" else image).convert("RGBA")
    canvas = Image.new("RGB", image.size, "white")
    canvas.paste(rgba, mask=rgba.getchannel("A"))
    return canvas


def _numbers(name: str, image: Image.Image) -> np.ndarray:
    """The pixels of a 16-bit, 32-bit or floating-point grey picture; integers as uint16, transparent ones white."""
    values = np.asarray(image)
    if values.dtype.kind == "f":
        return values
    if values.min() < 0 or values.max() > 65535:
        raise ImageError(f"{name} has grey values from {values.min()} to {values.max()}: expected 0 to 65535. Scale it, or save it with 8 or 16 bits, and try again.")
    transparent = image.info.get("transparency")
    if transparent is not None:
        values = np.where(values == transparent, 65535, values)
    return values.astype(np.uint16)


def _from_array(array: np.ndarray) -> Image.Image:
    """An RGB picture from an array, height x width (x channel)."""
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.ndim != 2 and not (array.ndim == 3 and array.shape[2] in (3, 4)):
        shape = " x ".join(map(str, array.shape)) or "no rows"
        raise ImageError(f"The array is {shape}: expected height x width, or height x width x 1, 3 or 4. Put the channels last and hand over one picture at a time.")
    _check_size("The array", (array.shape[1], array.shape[0]))
    return _rgb("The array", Image.fromarray(_eight_bit(array)))


def _eight_bit(array: np.ndarray) -> np.ndarray:
    """Values of 0 to 255 from a type's own range: uint8, uint16, bool, or floating point from 0 to 1."""
    kind, bytes_each = array.dtype.kind, array.dtype.itemsize
    if kind == "b":
        return array.astype(np.uint8) * np.uint8(255)
    if kind == "u" and bytes_each == 1:
        return array
    if kind == "u" and bytes_each == 2:
        return ((array.astype(np.uint32) + 128) // 257).astype(np.uint8)  # 65535 / 255 = 257, rounded to nearest
    if kind != "f":
        raise ImageError(f"The array holds {array.dtype}: expected uint8, uint16, bool, or floating point from 0 to 1. Convert it with astype('uint8').")
    low, high = float(array.min()), float(array.max())
    if not (low >= -1e-3 and high <= 1 + 1e-3):  # resampling overshoots by a little; NaN fails both
        raise ImageError(f"The floating-point picture has values from {low:.4g} to {high:.4g}: expected 0 to 1. Scale it, or convert it to uint8.")
    return np.rint(np.clip(array.astype(np.float32), 0, 1) * 255).astype(np.uint8)


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation; 1 where it cannot be read: a damaged tag is no reason to refuse a photograph."""
    try:
        return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # struct.error, SyntaxError, UnicodeDecodeError and others
        return 1


def _damaged(name: str, title: str) -> ImageError:
    return ImageError(f"{name} is damaged or breaks off: expected a whole {title} file. Download or export it again, and try again.")


def _plain_name(path: Path) -> str:
    """A file's name as plain text for a sentence: names may be hostile, and some pages render what they show."""
    return re.sub(r"[^\w .+-]", "_", path.name)[:60] or "with an empty name"
