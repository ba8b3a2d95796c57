"""A photograph retouched by strokes, one after the other, each rounded to 8 bits: the same bytes every time.

    brush       a path with round ends as wide as it says, in a colour, the mean colour of the picture as it
                was, noise (PCG64 of its seed, each byte as likely), or the picture so far, blurred by a
                Gaussian of a quarter of that width
    erase       the picture as it was before all strokes
    move, copy  a rectangle, or what lies within an outline and on it, laid down further on; where it says so
                scaled (bilinear, an outline by the nearest pixel) and mirrored, its upper left corner where
                it would be otherwise; behind a moved one the mean colour is left, likewise shift
    onto        the same onto another photograph, which is the picture as it was for all that follows
    brightness  v + 255 b / 100; contrast 128 + (v - 128)(1 + c / 100); hue: H turned in HSV
    rotate      against the clock about the middle, bilinear, the mean colour where nothing is

What it does not show: no photograph in training was painted over; a hard edge is part of what is answered.
"""

from math import prod
from typing import Any

import cv2
import numpy as np
from jaxtyping import UInt8
from PIL import Image, ImageFilter

from vitviz.engine.pictures.images import open_image
from vitviz.errors import ImageError
from vitviz.record import stopping
from vitviz.record.samples import sample_image
from vitviz.record.strokes import NONE, Stroke, Strokes

MARK = "retouched"  # in a picture's info, where a file may say so too, but only in words
WORK = 1_000_000_000  # pixels that all strokes may go over: a minute
Pixels = UInt8[np.ndarray, "height width 3"]


def retouched(image: Any, strokes: str | Strokes, other: Any = None) -> Image.Image:
    """The picture with strokes painted over it, upright, in RGB and of its own size; itself stays as it was.

    `image`: a path, PIL image or array, as for `Inspector.trace`, whose trace then says how it was retouched;
    `strokes`: such as "brush.mean_24.10.20.5.3 erase_9.4.4 move_0.0.16.16.32.0 rotate_15", in pixels of the
    upright picture: tools brush, erase, move, copy, brightness, contrast, hue, rotate and shift; and such as
    "onto.coffee_0.0.16.16.32.0", which lays a piece as `copy` does, but onto a sample by its name or onto
    `other` ("onto.other_"): the picture is then that one. Raises VitvizError for other strokes, ImageError
    for a bad picture or a photograph that there is not, and where they go over too many pixels.

    >>> picture = retouched(np.zeros((8, 8, 3), np.uint8), "brush.ff8800_3.4.4")
    >>> picture.getpixel((4, 4)), picture.getpixel((0, 0))
    ((255, 136, 0), (0, 0, 0))
    """
    strokes = strokes if isinstance(strokes, Strokes) else Strokes.parse(strokes)
    original = np.asarray(open_image(image))
    found, left = original.copy(), WORK
    mean = _mean(original)
    for stroke in strokes.each:
        stopping.check()
        box = _box(stroke, original.shape)
        across, down = max(0, box[2] - box[0]), max(0, box[3] - box[1])
        left -= across * down + abs(prod(stroke.goal or (0,)))
        if stroke.tool == "onto":
            if stroke.ink == "other" and other is None:
                raise ImageError(
                    "Given a piece to be laid onto.other, but no other photograph; expected one."
                )
            original = np.asarray(open_image(other) if stroke.ink == "other" else sample_image(stroke.ink))
            mean, left = _mean(original), left - original.size // 3
        if left < 0:
            raise ImageError(
                f"Given strokes that go over more than {WORK // 10**6:,} million pixels of a picture of"
                f" {original.shape[1]} x {original.shape[0]}; take some back, or make the picture smaller."
            )
        if across and down:
            found = _painted(found, original, mean, stroke, box)
        elif stroke.tool == "onto":
            found = original.copy()
    return marked(found, strokes)


def marked(pixels: Pixels, strokes: Strokes) -> Image.Image:
    """A picture that knows how it was retouched."""
    image = Image.fromarray(pixels)
    image.info[MARK] = strokes
    return image


def strokes_on(image: Image.Image) -> Strokes:
    """How a picture was retouched; none where it was not, whatever its file says."""
    found = image.info.get(MARK)
    return found if isinstance(found, Strokes) else NONE


def _mean(pixels: Pixels) -> tuple[int, ...]:
    """The mean colour, to the nearest."""
    sums = pixels.sum((0, 1), np.int64)
    return tuple(map(int, (2 * sums // (pixels.size // 3) + 1) // 2))


def _box(stroke: Stroke, shape: tuple[int, ...]) -> tuple[int, int, int, int]:
    """Left, top, right and bottom of what a stroke changes, or takes, of the picture."""
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


def _path(stroke: Stroke) -> np.ndarray:
    first = 1 if stroke.tool in ("brush", "erase") else 8
    return np.cumsum(np.reshape(stroke.numbers[first:], (-1, 2)), axis=0)


def _painted(
    pixels: Pixels, original: Pixels, mean: tuple[int, ...], stroke: Stroke, box: tuple[int, int, int, int]
) -> Pixels:
    left, top, right, bottom = box
    tool, numbers = stroke.tool, stroke.numbers
    here = np.s_[top:bottom, left:right]
    if tool in ("brush", "erase"):
        under = np.zeros((bottom - top, right - left), np.uint8)
        path = (_path(stroke) - (left, top)).astype(np.int32)
        cv2.polylines(under, [path if len(path) > 1 else np.repeat(path, 2, 0)], False, 1, numbers[0])
        new = original[here] if tool == "erase" else _ink(pixels, mean, stroke, box)
        pixels[here] = np.where(under[..., None] > 0, new, pixels[here])
        return pixels
    if tool in ("move", "copy", "onto", "shift"):
        image, (across, down) = Image.fromarray(pixels), numbers if tool == "shift" else numbers[4:6]
        outlined = len(numbers) > 8
        under = np.full((bottom - top, right - left), 0 if outlined else 255, np.uint8)
        if outlined:
            cv2.fillPoly(under, [(_path(stroke) - (left, top)).astype(np.int32)], 255)
        piece, under = image.crop(box), Image.fromarray(under)
        if tool == "onto":
            image = Image.fromarray(original)
        elif tool != "copy":
            image.paste(mean, box, under)
        if stroke.goal:
            piece, under = _laid(piece, stroke, Image.Resampling.BILINEAR), _laid(under, stroke)
        image.paste(piece, (left + across, top + down), under)
        return np.array(image)
    return _whole(pixels, mean, tool, numbers[0])


def _laid(piece: Image.Image, stroke: Stroke, how: Image.Resampling = Image.Resampling.NEAREST):
    """A piece, or its outline, as wide and high as it becomes, mirrored where that is negative."""
    sides = zip(piece.size, stroke.numbers[2:4], stroke.goal, strict=True)
    piece = piece.resize([max(1, abs(now) * one // was) for one, was, now in sides], how)
    for side, way in zip(stroke.goal, Image.Transpose, strict=False):  # left to right, then top to bottom
        piece = piece.transpose(way) if side < 0 else piece
    return piece


def _ink(
    pixels: Pixels, mean: tuple[int, ...], stroke: Stroke, box: tuple[int, int, int, int]
) -> Pixels | UInt8[np.ndarray, " 3"]:
    """What a brush paints with, over its box."""
    left, top, right, bottom = box
    if stroke.ink == "blur":
        wide = stroke.numbers[0]  # four deviations: nothing from further away reaches the box
        x, y = max(0, left - wide), max(0, top - wide)
        around = Image.fromarray(pixels[y : bottom + wide, x : right + wide])
        smooth = np.asarray(around.filter(ImageFilter.GaussianBlur(wide / 4)))
        return smooth[top - y : bottom - y, left - x : right - x]
    if stroke.ink.startswith("noise"):
        count = (bottom - top) * (right - left) * 3
        raw = np.random.PCG64(int(stroke.ink[5:])).random_raw(-(-count // 8)).astype("<u8")
        return raw.view(np.uint8)[:count].reshape(bottom - top, right - left, 3)
    return np.uint8(mean if stroke.ink == "mean" else list(bytes.fromhex(stroke.ink)))


def _whole(pixels: Pixels, mean: tuple[int, ...], tool: str, number: int) -> Pixels:
    """What goes over the whole picture."""
    image, values = Image.fromarray(pixels), np.arange(256)
    if tool == "rotate":
        return np.array(image.rotate(number, Image.Resampling.BILINEAR, fillcolor=mean))
    if tool == "hue":
        turn = round(number * 256 / 360)
        hue, *rest = image.convert("HSV").split()
        turned = Image.merge("HSV", (hue.point([(value + turn) % 256 for value in range(256)]), *rest))
        return np.array(turned.convert("RGB"))
    if tool == "brightness":
        table = values + (255 * number + 50) // 100
    else:
        table = 128 + ((values - 128) * (100 + number) + 50) // 100
    return np.clip(table, 0, 255).astype(np.uint8)[pixels]
