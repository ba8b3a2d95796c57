"""Turn an image into a model's input, and locate that input in the image.

Resize, crop and normalisation are timm's own evaluation transform, run step by step, so that every number is
the one that the checkpoint was evaluated with. Folders and modules of transformers use the steps of its image
processors (`vitviz.engine.images.processor`). vitviz adds the geometry: the resized image's size and the
centre crop give the box of the upload that the model sees. Not shown: what the resize blurs away.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, floor, log, sqrt
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Num, Shaped, UInt8
from PIL import Image, ImageChops
from timm.data import create_transform, resolve_data_config
from torch import Tensor

from vitviz.engine.defaults import in_float32
from vitviz.engine.images.editing import strokes_on
from vitviz.engine.images.opening import open_bands, open_image
from vitviz.engine.images.processor import MODES, Processor
from vitviz.errors import AssumedWarning, CheckpointError, ImageError, quoted
from vitviz.traces.image_edits import NONE
from vitviz.traces.trace import ModelInput

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
# the image is scaled to size / crop_pct: ten times the input, or a tenth of it
MIN_CROP, MAX_CROP = (0.1, 10)
MIN_STD, LARGEST = 1e-4, 1e4  # 1/255 occurs, in models that read values up to 255
CROP_MODES = ("center", "squash", "border")


@dataclass(frozen=True)
class Preprocessing:
    """Input settings of a checkpoint, under timm's names; `size` is (height, width) in pixels.

    The image is scaled to size / crop_pct and its centre is cropped. `crop_mode` selects the scaling: center
    keeps the aspect ratio and crops the longer side, squash stretches the image to the input's shape, border
    keeps the aspect ratio and pads with the mean colour. Mean and std are of values from 0 to 1. `processor`,
    of transformers' models, replaces timm's resize and crop. A model that does not read RGB has a mean for
    each of its channels; `bands` are the channels (from 0) that are shown, three as red, green and blue, or
    one.

    >>> from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
    >>> small = Preprocessing((224, 224), IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD, crop_pct=0.9)
    >>> small.with_size((384, 256)).size
    (384, 256)
    """

    size: tuple[int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str = "bicubic"
    crop_pct: float = 1.0
    crop_mode: str = "center"
    processor: Processor | None = None
    bands: tuple[int, ...] = (0, 1, 2)

    @property
    def channels(self) -> int:
        """Number of channels that the model reads."""
        return len(self.mean)

    @property
    def channels_note(self) -> str:
        """What is shown of a model's channels; empty for RGB."""
        if self.channels == 3:
            return ""
        if self.channels == 1:
            return "It reads 1 channel; images are converted to grey."
        shown = f"{', '.join(map(str, self.bands))} (from 0) {'is' if len(self.bands) == 1 else 'are'} shown"
        return f"It reads {self.channels} channels, of which {shown}."

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Preprocessing:
        """Read a timm data config or a `pretrained_cfg`; missing values are timm's defaults (crop_pct 0.875).

        "random" interpolation, a training option that some configs carry, becomes bilinear. Raises
        CheckpointError if the config cannot be followed.

        >>> Preprocessing.from_config({"input_size": (3, 384, 384), "crop_pct": 1.0}).size
        (384, 384)
        """
        try:
            # The key without a value keeps timm from refusing an empty config.
            values = resolve_data_config(pretrained_cfg={"input_size": None, **config})
            channels, height, width = (int(length) for length in values["input_size"])
            both = [tuple(float(value) for value in values[key]) for key in ("mean", "std")]
            # three equal numbers come from one, or from a model whose first layer was adapted
            mean, std = (one[:1] * channels if len(one) == 3 and len({*one}) == 1 else one for one in both)
            usual = (0, 1, 2) if channels >= 3 else (0,)
            bands = tuple(int(band) for band in config.get("bands") or usual)
            crop_pct = float(values["crop_pct"])
        except (TypeError, ValueError, AssertionError) as error:
            raise CheckpointError(
                f"The checkpoint's preprocessing cannot be read ({error}). Check its config.json against"
                " timm's."
            ) from error
        interpolation = "bilinear" if values["interpolation"] == "random" else values["interpolation"]
        crop_mode, processor = values["crop_mode"], config.get("processor")
        known = MODES if processor else INTERPOLATIONS
        _check((channels, height, width), mean, std, crop_pct, interpolation, known, crop_mode, bands)
        return cls((height, width), mean, std, interpolation, crop_pct, crop_mode, processor, bands)

    def with_size(self, size: tuple[int, int]) -> Preprocessing:
        """Return a copy with another input size (height, width) in pixels."""
        return replace(self, size=size)

    def shown(self, values: Shaped[np.ndarray, "*axes channel"]) -> Shaped[np.ndarray, "*axes 3"]:
        """Return the channels that are shown as red, green and blue."""
        return values[..., list(self.bands if len(self.bands) == 3 else self.bands * 3)]

    def picture(
        self, values: Float[np.ndarray, "height width channel"]
    ) -> UInt8[np.ndarray, "height width 3"]:
        """Return the displayed image of input values from 0 to 1."""
        return (255 * self.shown(values)).round().clip(0, 255).astype(np.uint8)

    def scale(self) -> tuple[Float[Tensor, "channel 1 1"], Float[Tensor, "channel 1 1"]]:
        """Return mean and deviation of values from 0 to 1, as float32 tensors."""
        return tuple(torch.tensor(one, dtype=torch.float32)[:, None, None] for one in (self.mean, self.std))


@dataclass(frozen=True)
class Prepared:
    """An image ready for the model, and its view before normalisation."""

    # normalised; bytes for an image that the device normalises
    tensor: Float[Tensor, "channel height width"] | UInt8[Tensor, "channel height width"]
    view: ModelInput


def open_for(
    source: Any, preprocessing: Preprocessing
) -> Image.Image | Num[np.ndarray, "height width channel"]:
    """Return an image that `prepare` takes. Raises ImageError for an image that the model cannot read."""
    if preprocessing.channels == 3:
        return open_image(source)
    return open_bands(source, preprocessing.channels)


@in_float32()  # torchvision makes tensors of the default dtype
def prepare(
    image: Image.Image | Num[np.ndarray, "height width channel"], preprocessing: Preprocessing,
    normalise: bool = True,
) -> Prepared:  # fmt: skip
    """Return the model's input for an upright image, bit-identical to timm's evaluation transform.

    `image` is RGB, or bands from 0 to 255 for a model that does not read RGB: each band is resized alone.

    `view.picture` has exactly the pixels that are normalised. Where these are fractions of a grey level,
    `view.exact` has them and `view.picture` is rounded. `view.box` is the input's outline on the upload. The
    box extends beyond the upload if the input was padded: with the mean colour in border mode or by a
    processor, with black by a crop. Without `normalise` the tensor has the bytes of `view.picture`, unless
    these are rounded. Raises ImageError for an image that is not RGB or too elongated.

    >>> picture = Image.new("RGB", (400, 200), "red")
    >>> half = (0.5, 0.5, 0.5)
    >>> prepared = prepare(picture, Preprocessing((224, 224), half, half, crop_pct=0.875))
    >>> prepared.tensor.shape, prepared.view.box, prepared.view.upload
    (torch.Size([3, 224, 224]), (112.5, 12.5, 287.5, 187.5), (400, 200))
    """
    if preprocessing.channels != 3:
        return _banded(image, preprocessing)
    if image.mode != "RGB":
        raise ImageError(f"Expected an RGB image, but got one in mode {image.mode}. Open it with open_image.")
    if preprocessing.processor is not None:
        return _processed(image, preprocessing, preprocessing.processor)
    picture, box, to_tensor, scale = _cut(image, preprocessing)
    view = ModelInput(np.array(picture), box, image.size, strokes_on(image))
    tensor = scale(to_tensor(picture)) if normalise else torch.from_numpy(view.picture).movedim(-1, 0)
    return Prepared(tensor, view)


def _cut(image: Image.Image, preprocessing: Preprocessing) -> tuple[Image.Image, tuple, Callable, Callable]:
    """Return timm's resized and cropped image, its box on the upload, and timm's last two steps."""
    names = ("mean", "std", "interpolation", "crop_pct", "crop_mode")
    parameters = {name: getattr(preprocessing, name) for name in names}
    steps = create_transform(input_size=(preprocessing.channels, *preprocessing.size), **parameters)
    resize, crop, to_tensor, scale = steps.transforms
    resized = resize(image)
    picture = crop(resized)
    left, right = _edges(image.width, resized.width, picture.width)
    top, bottom = _edges(image.height, resized.height, picture.height)
    return picture, (left, top, right, bottom), to_tensor, scale


def _banded(
    image: Image.Image | Num[np.ndarray, "height width channel"], preprocessing: Preprocessing
) -> Prepared:
    """Return the input of a model that does not read RGB, each band resized and cropped alone."""
    strokes = NONE
    if isinstance(image, Image.Image):  # a photograph, for a model of one channel
        red, green, _ = (open_bands(image, preprocessing.channels)).split()
        if ImageChops.difference(red, green).getbbox():
            converted = "the image's colours were converted to grey (ITU-R 601-2 luma)."
            warnings.warn(f"This model reads one channel: {converted}", AssumedWarning, stacklevel=4)
        image, strokes = np.asarray(image.convert("L"))[..., None], strokes_on(image)
    parts, box = [], (0.0, 0.0, 0.0, 0.0)
    for number in range(preprocessing.channels):
        mean, std = preprocessing.mean[number], preprocessing.std[number]
        own, processor = replace(preprocessing, mean=(mean,), std=(std,)), preprocessing.processor
        band = Image.fromarray(np.ascontiguousarray(image[..., number]))
        if processor is not None:
            processor = replace(processor, in_fractions=False)
            values, box = processor.values(band, own.size, own.interpolation, own.scale()[0])
        else:
            picture, box, to_tensor, _ = _cut(band, own)
            values = to_tensor(picture) / (1 if picture.mode == "L" else 255)
        parts.append(values.clip(0, 1))  # floating-point values are not clipped by the resize
    values = torch.cat(parts)
    exact = np.ascontiguousarray(values.movedim(0, -1).numpy())
    view = ModelInput(preprocessing.picture(exact), box, (image.shape[1], image.shape[0]), strokes, exact)
    return Prepared(normalised(values, preprocessing), view)


@in_float32()
def normalised(
    pixels: Shaped[Tensor, "*draw channel height width"], preprocessing: Preprocessing
) -> Float[Tensor, "*draw channel height width"]:
    """Normalise pixels in [0, 1], or bytes, for the model, on their device."""
    mean, std = (one.to(pixels.device, non_blocking=True) for one in preprocessing.scale())
    if pixels.dtype == torch.uint8:  # divided by a tensor: CUDA multiplies by the reciprocal of a number
        values = torch.empty(pixels.shape, device=pixels.device)  # contiguous
        pixels = torch.div(pixels, torch.full((), 255.0, device=pixels.device), out=values)
    return (pixels - mean) / std


def _processed(image: Image.Image, preprocessing: Preprocessing, processor: Processor) -> Prepared:
    """Return the model's input from a transformers image processor."""
    mean, std = preprocessing.scale()
    values, box = processor.values(image, preprocessing.size, preprocessing.interpolation, mean)
    exact = values.permute(1, 2, 0).numpy()
    picture = (255 * exact).round().clip(0, 255).astype(np.uint8)
    fractions = exact if processor.in_fractions or processor.pad else None
    view = ModelInput(picture, box, image.size, strokes_on(image), fractions)
    return Prepared((values - mean) / std, view)


def fitted_size(upload: tuple[int, int], tokens: int, patch: tuple[int, int]) -> tuple[int, int]:
    """Return the input size (height, width), in whole patches, nearest to an image's own aspect ratio.

    `upload` is the image's (width, height) in pixels, `patch` is (height, width). At most `tokens` patches
    are used, so an image costs no more than the square input with as many. Of the grids next to the exact one
    the least distorting is chosen; a crop_pct below 1 still crops. ValueError for `tokens` below 1.

    >>> fitted_size((600, 400), tokens=196, patch=(16, 16))
    (176, 272)
    >>> fitted_size((500, 500), tokens=196, patch=(16, 16))
    (224, 224)
    """
    if tokens < 1:
        raise ValueError(f"An image needs at least 1 patch, but {tokens} were given.")
    ratio = upload[0] / patch[1] / (upload[1] / patch[0])  # columns to rows
    rows, cols = sqrt(tokens / ratio), sqrt(tokens * ratio)
    # larger first, because min takes the first of equals
    around = product((ceil(rows), floor(rows)), (ceil(cols), floor(cols)))
    inside = [(max(1, min(r, tokens)), max(1, min(c, tokens))) for r, c in around]
    fitting = [(r, c) for r, c in inside if r * c <= tokens]
    rows, cols = min(fitting, key=lambda grid: abs(log(grid[1] / grid[0] / ratio)))  # the least distorted
    return rows * patch[0], cols * patch[1]


def _edges(upload: int, resized: int, kept: int) -> tuple[float, float]:
    """Return start and end of torchvision's and timm's centre crop on one axis, in pixels of the upload.

    The two cases round differently: a crop rounds half to even, and padding puts the odd pixel at the end.
    """
    start = round((resized - kept) / 2) if kept <= resized else -((kept - resized) // 2)
    return start * upload / resized, (start + kept) * upload / resized


def _check(
    size: tuple[int, int, int], mean: tuple, std: tuple, crop_pct: float, interpolation: str,
    interpolations: Iterable[str], crop_mode: str, bands: tuple[int, ...],
) -> None:  # fmt: skip
    """Raise CheckpointError for a config that timm cannot satisfy."""
    wrong = None
    if not size[0] == len(mean) == len(std):
        wrong = (
            f"its model reads {size[0]} channels, but there are {len(mean)} means and {len(std)} deviations;"
            " expected are mean=… and std=… with one number for each channel"
        )
    elif len(bands) not in (1, 3) or not all(0 <= band < size[0] for band in bands):
        wrong = f"bands={bands}; expected are one or three of its {size[0]} channels, counted from 0"
    elif size[0] == 3 and bands != (0, 1, 2):
        wrong = f"bands={bands} are for models that do not read RGB, but it has three channels"
    elif min(size) < 1 or crop_pct <= 0 or min(std) <= 0:
        wrong = f"input size {size}, crop_pct {crop_pct} and std {std} must be above 0"
    elif not MIN_CROP <= crop_pct <= MAX_CROP:
        wrong = f"crop_pct is {crop_pct:g}; expected {MIN_CROP} to {MAX_CROP}"
    elif not (
        all(MIN_STD <= value <= LARGEST for value in std) and all(abs(value) <= LARGEST for value in mean)
    ):
        wrong = (
            f"mean {mean} and std {std} refer to values from 0 to 1; each std must be from {MIN_STD:g} to"
            f" {LARGEST:g}"
        )
    elif interpolation not in interpolations:
        wrong = f"its interpolation is {quoted(interpolation)}; expected one of {', '.join(interpolations)}"
    elif crop_mode not in CROP_MODES:
        wrong = f"its crop mode is {quoted(crop_mode)}; expected one of {', '.join(CROP_MODES)}"
    if wrong:
        raise CheckpointError(
            f"The checkpoint's preprocessing is not supported: {wrong}. Correct the arguments or the"
            " checkpoint's config.json."
        )
