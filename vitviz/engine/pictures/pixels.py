"""From any kind of pixel to 8-bit RGB: arrays, 16-bit and floating-point grey, palettes, CMYK, transparency.

A value is always scaled from the range of its type, never from the darkest and brightest pixel found, so that
a dark picture stays dark; where a type has no range of its own (floating point), 0 to 1 is expected.
"""

import numpy as np
from jaxtyping import Num, Shaped, UInt8
from PIL import Image

from vitviz.errors import ImageError

# TIFF 6.0: BitsPerSample, PhotometricInterpretation, SamplesPerPixel, PlanarConfiguration, SampleFormat
BITS, PHOTOMETRIC, SAMPLES, PLANAR, SAMPLE_FORMAT = 258, 262, 277, 284, 339
SIGNED = 2  # a SampleFormat
OVERSHOOT = 1e-3  # resampling leaves floating-point pictures this little outside of 0 to 1


def rgb_of(image: Image.Image) -> Image.Image:
    """A decoded picture in RGB, the transparent laid on white; RGB itself is handed back, not copied.

    Raises ImageError where grey values lie outside of their range.

    >>> rgb_of(Image.new("RGBA", (1, 1), (255, 0, 0, 0))).getpixel((0, 0))
    (255, 255, 255)
    """
    # Pillow would cut these off at 255.
    if image.mode == "F" or image.mode.startswith("I") or _signed(image):
        return rgb_of_array(_grey_values(image))
    if not image.has_transparency_data:
        return image if image.mode == "RGB" else image.convert("RGB")
    # Pillow writes a palette's transparency into the picture that it converts, which may be the caller's.
    rgba = (image.copy() if image.mode == "P" else image).convert("RGBA")
    canvas = Image.new("RGB", image.size, "white")
    canvas.paste(rgba, mask=rgba.getchannel("A"))
    return canvas


def require_interleaved(image: Image.Image) -> None:
    """ImageError for a TIFF in planes that Pillow misreads without a word: but three or four of 8 bits."""
    tags = getattr(image, "tag_v2", {})
    bits, samples = tags.get(BITS) or (1,), tags.get(SAMPLES, 1)
    if tags.get(PLANAR) == 2 and samples > 1 and not (samples in (3, 4) and set(bits) == {8}):
        raise ImageError(
            f"The picture is a TIFF that stores its {samples} channels of {bits[0]} bits apart: expected them"
            " side by side (PlanarConfiguration 1), or 8-bit RGB. Export it so, or as PNG."
        )


def rgb_of_array(array: Shaped[np.ndarray, "height width *channel"]) -> Image.Image:
    """The same from an array: uint8, uint16 (0 to 65535), bool, or floating point from 0 to 1.

    Channels come last: grey, RGB, or RGB with opacity. Raises ImageError for other shapes, types and ranges.

    >>> rgb_of_array(np.array([[0.0, 0.5, 1.0]])).getpixel((1, 0))
    (128, 128, 128)
    """
    width_and_height(array)
    values = _eight_bit(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array)
    return rgb_of(Image.fromarray(values))


def width_and_height(array: np.ndarray) -> tuple[int, int]:
    """The size of a picture given as an array; ImageError where its shape is not that of one picture."""
    if array.ndim == 2 or array.ndim == 3 and array.shape[2] in (1, 3, 4):
        return array.shape[1], array.shape[0]
    shape = " x ".join(map(str, array.shape)) or "a single number"
    raise ImageError(
        f"The array is {shape}: expected height x width, or height x width x 1, 3 or 4. "
        "Put the channels last and hand over one picture at a time."
    )


def _eight_bit(array: np.ndarray) -> UInt8[np.ndarray, "height width *channel"]:
    """Values from 0 to 255, scaled from the range of the array's type."""
    kind, bytes_each = array.dtype.kind, array.dtype.itemsize
    if kind == "b":
        return array.astype(np.uint8) * np.uint8(255)
    if kind == "u" and bytes_each == 1:
        return array
    if kind == "u" and bytes_each == 2:
        return ((array.astype(np.uint32) + 128) // 257).astype(np.uint8)  # 65535 / 255 is 257; to the nearest
    if kind != "f":
        raise ImageError(
            f"The array holds {array.dtype}: expected uint8, uint16, bool, or floating point from 0 to 1."
            " Convert it with astype('uint8')."
        )
    low, high = float(array.min()), float(array.max())
    if not (low >= -OVERSHOOT and high <= 1 + OVERSHOOT):  # said this way round, NaN is refused too
        raise ImageError(
            f"The floating-point picture has values from {low:.4g} to {high:.4g}: expected 0 to 1. Scale it,"
            " or convert it to uint8."
        )
    return np.rint(np.clip(array.astype(np.float32), 0, 1) * 255).astype(np.uint8)


def _grey_values(image: Image.Image) -> Num[np.ndarray, "height width"]:
    """The pixels of a grey picture other than of 8 plain bits: floats as they are, integers as uint16."""
    values = np.asarray(image)
    if image.mode == "L":
        values = values.view(np.int8)
    # Pillow hands over the numbers as they stand in a TIFF; what they mean, its tags say.
    tags = getattr(image, "tag_v2", {})
    bits, white_is_zero = (tags.get(BITS) or (16,))[0], tags.get(PHOTOMETRIC) == 0
    if values.dtype.kind == "f":
        return 1 - values if white_is_zero else values
    highest = {8: 127, 16: 32767}.get(bits, 65535) if _signed(image) else 4095 if bits == 12 else 65535
    if highest != 65535:  # 12 bits in 16, or signed numbers, whose lower half is darker than black
        if values.min() < 0:
            raise ImageError(
                f"The picture has grey values from {values.min()}: expected 0 to {highest}. Save it with 8 or"
                " 16 bits."
            )
        values = (values.astype(np.int64) * 65535 + highest // 2) // highest
    if white_is_zero and values.max() <= 65535:
        values = 65535 - values.astype(np.int64)
    if values.min() < 0 or values.max() > 65535:
        raise ImageError(
            f"The picture has grey values from {values.min()} to {values.max()}: expected 0 to 65535. Save it"
            " with 8 or 16 bits."
        )
    transparent = image.info.get("transparency")
    values = values if transparent is None else np.where(values == transparent, 65535, values)
    return values.astype(np.uint16)


def _signed(image: Image.Image) -> bool:
    """Whether a grey picture's numbers are signed, which Pillow's mode does not tell of those of 8 bits."""
    signed = (getattr(image, "tag_v2", {}).get(SAMPLE_FORMAT) or (1,))[0] == SIGNED
    return signed and (image.mode == "L" or image.mode.startswith("I"))
