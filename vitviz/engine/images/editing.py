"""Edit an image by strokes, in order, each rounded to 8 bits, so that equal edits give equal bytes.

    brush       a path with round ends and the given width, in a colour, the mean colour of the original,
                noise (PCG64 of its seed, each byte equally likely), or the current image, blurred by a
                Gaussian of a quarter of that width
    erase       the original image, before all strokes
    move, copy  a rectangle, or the inside of an outline and the outline itself, pasted further on; optionally
                scaled (bilinear, an outline by the nearest pixel) and mirrored, with its upper left corner
                where it would be otherwise; a moved piece leaves the mean colour behind, likewise shift
    onto        as copy, onto another image, which is the original for all following strokes
    brightness  v + 255 b / 100; contrast 128 + (v - 128)(1 + c / 100); hue: H turned in HSV
    rotate      anticlockwise about the centre, bilinear, with the mean colour where no image is

All strokes paint in place, in bands or channel by channel, and check for cancellation in between: an image of
80 million pixels takes 240 MB, and each copy as much again.

What it does not show: no image in training was painted over; a hard edge affects the prediction, too.
"""

import zlib
from collections.abc import Iterator
from math import prod
from typing import Any

import cv2
import numpy as np
from jaxtyping import Bool, UInt8
from PIL import Image, ImageFilter

from vitviz.engine.images.opening import BAND, open_image, pixels_of
from vitviz.errors import ImageError
from vitviz.traces import cancellation
from vitviz.traces.image_edits import NONE, ImageEdit, ImageEdits
from vitviz.traces.samples import sample_image

MARK = "retouched"  # key in an image's info; a file can only store text there
WORK = 1_000_000_000  # pixels that all strokes may cover: a minute
FILLED = 20  # pixels of a path's shape are filled in the time of painting one
_PIECES = ("move", "copy", "onto", "shift")
_ROWS = 256  # of an image that are copied at a time
Pixels = UInt8[np.ndarray, "height width 3"]


def edit_image(image: Any, strokes: str | ImageEdits, other: Any = None) -> Image.Image:
    """Return a copy of an image with strokes applied, upright, in RGB and of its own size.

    Args:
        image: A path, PIL image or array, as for `Inspector.trace`. A trace of the result records the
            strokes, but not those of earlier calls.
        strokes: Strokes in pixels of the upright image, such as "brush.mean_24.10.20.5.3 erase_9.4.4
            move_0.0.16.16.32.0 rotate_15". Tools: brush, erase, move, copy, brightness, contrast, hue, rotate
            and shift. "onto.coffee_0.0.16.16.32.0" pastes a piece as `copy` does, but onto a sample, by its
            name, or onto `other` ("onto.other_"); the result is then that image.
        other: The image for "onto.other_".

    Raises:
        VitvizError: The strokes are invalid.
        ImageError: An image cannot be read or is missing, or the strokes cover too many pixels.

    >>> picture = edit_image(np.zeros((8, 8, 3), np.uint8), "brush.ff8800_3.4.4")
    >>> picture.getpixel((4, 4)), picture.getpixel((0, 0))
    ((255, 136, 0), (0, 0, 0))
    """
    strokes = strokes if isinstance(strokes, ImageEdits) else ImageEdits.parse(strokes)
    return mark_edited(edited_pixels(image, strokes, other), strokes)


def edited_pixels(image: Any, strokes: ImageEdits, other: Any = None) -> Pixels:
    """Return the pixels after all strokes; after an "onto" stroke, those of the image pasted onto."""
    original = pixels_of(open_image(image))
    erases = any(stroke.tool == "erase" for stroke in strokes.each)  # and so needs the original pixels
    result, left = original.copy() if erases else original, WORK
    mean = _mean(original)
    for stroke in strokes.each:
        cancellation.check()
        box = _box(stroke, original.shape)
        across, down = max(0, box[2] - box[0]), max(0, box[3] - box[1])
        area, pasted = across * down, abs(prod(stroke.goal or (0,)))
        left -= area + pasted + _filled_pixels(stroke, area) // FILLED
        if stroke.tool == "onto" and stroke.ink == "other" and other is None:
            raise ImageError(
                "An edit pastes a region from another image, but no other image was given. Pass it."
            )
        if left < 0:
            _refuse(original.shape)
        piece = _cut_piece(result, stroke, box) if stroke.tool in _PIECES and across and down else None
        if stroke.tool == "onto":
            del result, original  # one image in memory at a time
            original = pixels_of(open_image(other) if stroke.ink == "other" else sample_image(stroke.ink))
            result = original.copy() if erases else original
            mean, left = _mean(original), left - original.size // 3
            if left < 0:
                _refuse(original.shape)
        if piece is not None:
            _paste_piece(result, piece, mean, stroke, box)
        elif across and down:
            _apply_stroke(result, original, mean, stroke, box)
    return result


def _refuse(shape: tuple[int, ...]) -> None:
    """Raise ImageError because strokes cover too many pixels of an image (height, width, channel)."""
    raise ImageError(
        f"The strokes cover more than {WORK // 10**6:,} million pixels of an image of {shape[1]} x"
        f" {shape[0]}. Undo some, or use a smaller image."
    )


def mark_edited(pixels: Pixels, strokes: ImageEdits) -> Image.Image:
    """Return pixels as an image that records its strokes."""
    image = Image.fromarray(pixels)
    image.info[MARK] = strokes, _checksum(image)
    return image


def strokes_on(image: Image.Image) -> ImageEdits:
    """Return the strokes applied to an image by vitviz; none for any other image, whatever its file says.

    Pillow passes the record on to copies, which may be cropped, resized or painted over: they have none.
    """
    mark = image.info.get(MARK)
    if not isinstance(mark, tuple) or not isinstance(mark[0], ImageEdits):
        return NONE
    strokes, checksum = mark
    return strokes if checksum == _checksum(image) else NONE


def _checksum(image: Image.Image) -> tuple[int, ...]:
    """Return numbers that change with an image's size and pixels, which are not copied as a whole."""
    (width, height), result = image.size, 0
    for top in range(0, height, _ROWS):
        rows = image.crop((0, top, width, min(height, top + _ROWS)))
        result = zlib.crc32(rows.tobytes(), result)
    return width, height, result


def _mean(pixels: Pixels) -> tuple[int, ...]:
    """Return the mean colour, rounded to the nearest integer."""
    sums = sum(pixels[rows].sum((0, 1), np.int64) for rows in _bands(pixels))
    return tuple(map(int, (2 * sums // (pixels.size // 3) + 1) // 2))


def _box(stroke: ImageEdit, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Return left, top, right and bottom of the region that a stroke changes or cuts."""
    height, width, _ = shape
    if stroke.tool in ("brush", "erase"):
        path, wide = _path(stroke), stroke.numbers[0]
        (left, top), (right, bottom) = path.min(0) - wide, path.max(0) + wide + 1
    elif stroke.tool in ("move", "copy", "onto"):
        left, top, across, down = stroke.numbers[:4]
        right, bottom = left + across, top + down
    else:
        return 0, 0, width, height
    return max(0, int(left)), max(0, int(top)), min(width, int(right)), min(height, int(bottom))


def _path(stroke: ImageEdit) -> np.ndarray:
    """Return the absolute points (x, y) of a stroke's path, or of a cut piece's outline, in pixels."""
    first = 1 if stroke.tool in ("brush", "erase") else 8
    return np.cumsum(np.reshape(stroke.numbers[first:], (-1, 2)), axis=0)


def _filled_pixels(stroke: ImageEdit, area: int) -> int:
    """Return the number of pixels filled, with repetitions, to draw a path within a box of `area` pixels."""
    if stroke.tool not in ("brush", "erase"):
        return 0
    wide = stroke.numbers[0]
    steps = np.diff(_path(stroke), axis=0, prepend=_path(stroke)[:1])
    return int(np.minimum(area, wide * (wide + np.hypot(*steps.T))).sum())


def _bands(pixels: np.ndarray, rows: int = 8) -> Iterator[slice]:
    """Yield bands of about `BAND` pixels, each of a multiple of `rows` rows but the last."""
    step = rows * max(1, BAND // (rows * pixels.shape[1]))
    for top in range(0, len(pixels), step):
        cancellation.check()
        yield slice(top, top + step)


def _channels(pixels: Pixels) -> Iterator[tuple[int, Image.Image]]:
    """Yield each channel as an image of its own, a quarter of the memory that Pillow takes for RGB."""
    for channel in range(3):
        cancellation.check()
        yield channel, Image.fromarray(np.ascontiguousarray(pixels[..., channel]))


def _brush_mask(stroke: ImageEdit, box: tuple[int, int, int, int]) -> Bool[np.ndarray, "height width"]:
    """Return the mask of a path within its box, drawn piece by piece until it covers the whole box."""
    left, top, right, bottom = box
    under = np.zeros((bottom - top, right - left), np.uint8)
    path = (_path(stroke) - (left, top)).astype(np.int32)
    path = path if len(path) > 1 else np.repeat(path, 2, 0)
    step = max(1, BAND // under.size)
    for start in range(0, len(path) - 1, step):
        cancellation.check()
        cv2.polylines(under, [path[start : start + step + 1]], False, 1, stroke.numbers[0])
        if step == 1 and under.view(bool).all():
            break
    return under.view(bool)


def _apply_stroke(
    pixels: Pixels, original: Pixels, mean: tuple[int, ...], stroke: ImageEdit, box: tuple[int, int, int, int]
) -> None:
    """Apply one edit to the pixels, in place."""
    left, top, right, bottom = box
    here = np.s_[top:bottom, left:right]
    if stroke.tool in ("brush", "erase"):
        under, region = _brush_mask(stroke, box)[..., None], pixels[here]
        if stroke.ink == "blur":
            return _blurred(pixels, under, stroke.numbers[0], box)
        noise = np.random.PCG64(int(stroke.ink[5:])) if stroke.ink.startswith("noise") else None
        coloured = not noise and stroke.tool != "erase" and stroke.ink != "mean"
        colour = bytes.fromhex(stroke.ink) if coloured else mean
        for rows in _bands(region):
            new, shape = np.uint8(list(colour)), region[rows].shape
            if noise:
                raw = noise.random_raw(-(-prod(shape) // 8)).astype("<u8", copy=False)
                new = raw.view(np.uint8)[: prod(shape)].reshape(shape)
            elif stroke.tool == "erase":
                new = original[here][rows]
            np.copyto(region[rows], new, where=under[rows])
    elif stroke.tool == "rotate":
        for channel, image in _channels(pixels):
            how = {"resample": Image.Resampling.BILINEAR, "fillcolor": mean[channel]}
            pixels[..., channel] = image.rotate(stroke.numbers[0], **how)
    else:
        for rows in _bands(pixels):
            pixels[rows] = _recoloured(pixels[rows], stroke.tool, stroke.numbers[0])


def _blurred(pixels: Pixels, under: np.ndarray, margin: int, box: tuple[int, int, int, int]) -> None:
    """Blur the pixels under a brush (mask `under`), in place; `margin` is four standard deviations."""
    left, top, right, bottom = box  # four deviations: pixels further away do not affect the box
    x, y = max(0, left - margin), max(0, top - margin)
    for channel, image in _channels(pixels[y : bottom + margin, x : right + margin]):
        smooth = np.asarray(image.filter(ImageFilter.GaussianBlur(margin / 4)))
        smooth = smooth[top - y : bottom - y, left - x : right - x]
        np.copyto(pixels[top:bottom, left:right, channel], smooth, where=under[..., 0])


def _cut_piece(
    pixels: Pixels, stroke: ImageEdit, box: tuple[int, int, int, int]
) -> tuple[Pixels, Bool[np.ndarray, "height width"]]:
    """Return a piece of the image, and the mask of its outline."""
    left, top, right, bottom = box
    under = np.broadcast_to(True, (bottom - top, right - left))  # takes no memory
    if len(stroke.numbers) > 8:
        outline = np.zeros(under.shape, np.uint8)
        cv2.fillPoly(outline, [(_path(stroke) - (left, top)).astype(np.int32)], 1)
        under = outline.view(bool)
    return pixels[top:bottom, left:right].copy(), under


def _paste_piece(
    pixels: Pixels, cut: tuple[Pixels, np.ndarray], mean: tuple[int, ...], stroke: ImageEdit,
    box: tuple[int, int, int, int],
) -> None:  # fmt: skip
    """Paste a piece at its new position; a moved piece leaves the mean colour behind."""
    piece, under = cut
    if stroke.tool in ("move", "shift"):
        left, top, right, bottom = box
        region = pixels[top:bottom, left:right]
        for rows in _bands(region):
            np.copyto(region[rows], np.uint8(mean), where=under[rows, :, None])
    if stroke.goal:
        outline = _scaled(Image.fromarray(np.uint8(under)), stroke, Image.Resampling.NEAREST)
        under = np.asarray(outline).view(bool)
        scaled = np.empty((*under.shape, 3), np.uint8)
        for channel, image in _channels(piece):  # one at a time, to save memory
            scaled[..., channel] = _scaled(image, stroke, Image.Resampling.BILINEAR)
        piece = scaled
    across, down = stroke.numbers if stroke.tool == "shift" else stroke.numbers[4:6]
    left, top = box[0] + across, box[1] + down
    x, y, left, top = max(0, -left), max(0, -top), max(0, left), max(0, top)
    piece, under = piece[y:, x:], under[y:, x:]
    region = pixels[top : top + len(piece), left : left + piece.shape[1]]
    piece, under = piece[: len(region), : region.shape[1]], under[: len(region), : region.shape[1], None]
    if region.size:
        for rows in _bands(region):
            np.copyto(region[rows], piece[rows], where=under[rows])


def _scaled(piece: Image.Image, stroke: ImageEdit, resampling: Image.Resampling) -> Image.Image:
    """Return a piece, or its outline, at its new width and height, mirrored where these are negative."""
    sides = zip(piece.size, stroke.numbers[2:4], stroke.goal, strict=True)
    piece = piece.resize([max(1, abs(now) * one // was) for one, was, now in sides], resampling)
    for side, way in zip(stroke.goal, Image.Transpose, strict=False):  # left to right, then top to bottom
        piece = piece.transpose(way) if side < 0 else piece
    return piece


def _recoloured(pixels: Pixels, tool: str, number: int) -> Pixels:
    """Return pixels with changed brightness, contrast or hue."""
    values = np.arange(256)
    if tool == "hue":
        turn = round(number * 256 / 360)
        hue, *rest = Image.fromarray(pixels).convert("HSV").split()
        turned = Image.merge("HSV", (hue.point([(value + turn) % 256 for value in range(256)]), *rest))
        return np.asarray(turned.convert("RGB"))
    if tool == "brightness":
        table = values + (255 * number + 50) // 100
    else:
        table = 128 + ((values - 128) * (100 + number) + 50) // 100
    return cv2.LUT(np.ascontiguousarray(pixels), np.clip(table, 0, 255).astype(np.uint8))
