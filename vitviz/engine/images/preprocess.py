"""How a picture reaches a model, and where the model's input lies in the picture.

Resize, crop and normalisation are timm's own evaluation transform, run step by step, so that every number is
the one the checkpoint was evaluated with; for folders and modules of transformers they are those of its image
processors (`vitviz.engine.images.processor`). What is added is the geometry: the resized picture's size and
the centre crop give the box of the upload that the model sees. Not shown: what the resize blurs away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import product
from math import ceil, floor, log, sqrt
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from PIL import Image
from timm.data import create_transform, resolve_data_config
from torch import Tensor

from vitviz.engine.defaults import in_float32
from vitviz.engine.images.editing import strokes_on
from vitviz.engine.images.processor import MODES, Processor
from vitviz.errors import CheckpointError, ImageError, quoted
from vitviz.traces.trace import ModelInput

INTERPOLATIONS = ("nearest", "bilinear", "bicubic", "box", "hamming", "lanczos")
# the picture is scaled to size / crop_pct: ten times the input, or a tenth of it
MIN_CROP, MAX_CROP = (0.1, 10)
MIN_STD, LARGEST = 1e-4, 1e4  # 1/255 occurs, in models that read values up to 255
CROP_MODES = ("center", "squash", "border")


@dataclass(frozen=True)
class Preprocessing:
    """What a checkpoint expects of its input; timm's names, with `size` as (height, width) in pixels.

    The picture is scaled to size / crop_pct and the middle cut out of it. `crop_mode` says how it is scaled:
    center keeps its shape and cuts off what is too long, squash bends it to the input's shape, border keeps
    its shape and fills what is missing with the mean colour. Mean and std are of values from 0 to 1.
    `processor`, of transformers' models, replaces timm's resize and crop.

    >>> from timm.data.constants import IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD
    >>> small = Preprocessing((224, 224), IMAGENET_DEFAULT_MEAN, IMAGENET_DEFAULT_STD, crop_pct=0.9)
    >>> small.with_size((384, 256)).size
    (384, 256)
    """

    size: tuple[int, int]
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    interpolation: str = "bicubic"
    crop_pct: float = 1.0
    crop_mode: str = "center"
    processor: Processor | None = None

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Preprocessing:
        """From a timm data config or a `pretrained_cfg`; what it lacks is timm's default (crop_pct 0.875).

        "random" interpolation, a training option that some configs carry, becomes bilinear. Raises
        CheckpointError where the config cannot be followed.

        >>> Preprocessing.from_config({"input_size": (3, 384, 384), "crop_pct": 1.0}).size
        (384, 384)
        """
        try:
            # The key without a value keeps timm from refusing an empty config.
            values = resolve_data_config(pretrained_cfg={"input_size": None, **config})
            channels, height, width = (int(length) for length in values["input_size"])
            mean, std = (tuple(float(value) for value in values[key]) for key in ("mean", "std"))
            crop_pct = float(values["crop_pct"])
        except (TypeError, ValueError, AssertionError) as error:
            raise CheckpointError(
                f"The checkpoint's preprocessing cannot be understood ({error}). Check its config.json"
                " against timm's."
            ) from error
        interpolation = "bilinear" if values["interpolation"] == "random" else values["interpolation"]
        crop_mode, processor = values["crop_mode"], config.get("processor")
        known = MODES if processor else INTERPOLATIONS
        _check((channels, height, width), mean, std, crop_pct, interpolation, known, crop_mode)
        return cls((height, width), mean, std, interpolation, crop_pct, crop_mode, processor)

    def with_size(self, size: tuple[int, int]) -> Preprocessing:
        """The same at another input size (height, width) in pixels."""
        return replace(self, size=size)

    def scale(self) -> tuple[Float[Tensor, "3 1 1"], Float[Tensor, "3 1 1"]]:
        """Mean and deviation of the values from 0 to 1, in float32."""
        return tuple(torch.tensor(one, dtype=torch.float32)[:, None, None] for one in (self.mean, self.std))


@dataclass(frozen=True)
class Prepared:
    """A picture ready for the model, and what it looks like before normalisation."""

    tensor: Float[Tensor, "3 height width"]  # normalised
    view: ModelInput


@in_float32()  # torchvision makes tensors of the default dtype
def prepare(image: Image.Image, preprocessing: Preprocessing) -> Prepared:
    """The model's input from an upright RGB picture, to the last bit as timm's evaluation transform has it.

    `view.picture` holds exactly the pixels that are normalised; where these are fractions of a grey level,
    `view.exact` holds them, and `view.picture` rounds them. The edges of `view.box` are where its edges lie
    on the upload. The box reaches beyond the upload where the input was padded: with the mean colour in
    border mode or by a processor, with black by a crop. Raises ImageError where the picture is not RGB, or
    too elongated.

    >>> picture = Image.new("RGB", (400, 200), "red")
    >>> half = (0.5, 0.5, 0.5)
    >>> prepared = prepare(picture, Preprocessing((224, 224), half, half, crop_pct=0.875))
    >>> prepared.tensor.shape, prepared.view.box, prepared.view.upload
    (torch.Size([3, 224, 224]), (112.5, 12.5, 287.5, 187.5), (400, 200))
    """
    if image.mode != "RGB":
        raise ImageError(
            f"Expected an RGB picture, but was given one in mode {image.mode}; open it with open_image."
        )
    if preprocessing.processor is not None:
        return _processed(image, preprocessing, preprocessing.processor)
    names = ("mean", "std", "interpolation", "crop_pct", "crop_mode")
    told = {name: getattr(preprocessing, name) for name in names}
    steps = create_transform(input_size=(3, *preprocessing.size), **told)
    resize, crop, to_tensor, normalise = steps.transforms
    resized = resize(image)
    picture = crop(resized)
    left, right = _edges(image.width, resized.width, picture.width)
    top, bottom = _edges(image.height, resized.height, picture.height)
    view = ModelInput(np.array(picture), (left, top, right, bottom), image.size, strokes_on(image))
    return Prepared(normalise(to_tensor(picture)), view)


def _processed(image: Image.Image, preprocessing: Preprocessing, processor: Processor) -> Prepared:
    """The model's input as an image processor of transformers makes it."""
    mean, std = preprocessing.scale()
    values, box = processor.values(image, preprocessing.size, preprocessing.interpolation, mean)
    exact = values.permute(1, 2, 0).numpy()
    picture = (255 * exact).round().clip(0, 255).astype(np.uint8)
    fractions = exact if processor.in_fractions or processor.pad else None
    view = ModelInput(picture, box, image.size, strokes_on(image), fractions)
    return Prepared((values - mean) / std, view)


def fitted_size(upload: tuple[int, int], tokens: int, patch: tuple[int, int]) -> tuple[int, int]:
    """The input size (height, width) nearest to a whole picture's own shape, in whole patches.

    `upload` is the picture's (width, height) in pixels, `patch` is (height, width); at most `tokens` patches
    are spent, so that a picture costs no more than the square input with as many. Of the grids around the
    exact one it distorts least; a crop_pct below 1 still cuts. ValueError where `tokens` is below 1.

    >>> fitted_size((600, 400), tokens=196, patch=(16, 16))
    (176, 272)
    >>> fitted_size((500, 500), tokens=196, patch=(16, 16))
    (224, 224)
    """
    if tokens < 1:
        raise ValueError(f"A picture needs at least 1 patch, but {tokens} were given.")
    wanted = upload[0] / patch[1] / (upload[1] / patch[0])  # columns to rows
    rows, cols = sqrt(tokens / wanted), sqrt(tokens * wanted)
    # larger first: min takes the first of equals
    around = product((ceil(rows), floor(rows)), (ceil(cols), floor(cols)))
    inside = [(max(1, min(r, tokens)), max(1, min(c, tokens))) for r, c in around]
    fitting = [(r, c) for r, c in inside if r * c <= tokens]
    rows, cols = min(fitting, key=lambda grid: abs(log(grid[1] / grid[0] / wanted)))  # the least distorted
    return rows * patch[0], cols * patch[1]


def _edges(upload: int, resized: int, kept: int) -> tuple[float, float]:
    """Where the centre crop of torchvision and timm begins and ends on one axis, in pixels of the upload.

    The two cases round differently: a crop rounds half to even, and padding puts the odd pixel at the end.
    """
    start = round((resized - kept) / 2) if kept <= resized else -((kept - resized) // 2)
    return start * upload / resized, (start + kept) * upload / resized


def _check(
    size: tuple[int, int, int], mean: tuple, std: tuple, crop_pct: float, interpolation: str,
    interpolations: Iterable[str], crop_mode: str,
) -> None:  # fmt: skip
    """Raises CheckpointError where a config asks for what timm or a photograph cannot give."""
    wrong = None
    if size[0] != 3 or len(mean) != 3 or len(std) != 3:
        wrong = (
            f"it takes {size[0]} channels with {len(mean)} means and {len(std)} deviations, and a photograph"
            " has 3 channels"
        )
    elif min(size) < 1 or crop_pct <= 0 or min(std) <= 0:
        wrong = f"input size {size}, crop_pct {crop_pct} and std {std} have to be above 0"
    elif not MIN_CROP <= crop_pct <= MAX_CROP:
        wrong = f"crop_pct is {crop_pct:g}, and from {MIN_CROP} to {MAX_CROP} was expected"
    elif not (
        all(MIN_STD <= value <= LARGEST for value in std) and all(abs(value) <= LARGEST for value in mean)
    ):
        wrong = (
            f"mean {mean} and std {std} are of values from 0 to 1: each std has to be from {MIN_STD:g} to"
            f" {LARGEST:g}"
        )
    elif interpolation not in interpolations:
        wrong = f"its interpolation is {quoted(interpolation)}; expected one of {', '.join(interpolations)}"
    elif crop_mode not in CROP_MODES:
        wrong = f"its crop mode is {quoted(crop_mode)}; expected one of {', '.join(CROP_MODES)}"
    if wrong:
        raise CheckpointError(
            f"The checkpoint's preprocessing cannot be followed: {wrong}. Choose another checkpoint, or mend"
            " its config.json."
        )
