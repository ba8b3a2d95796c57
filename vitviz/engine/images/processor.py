"""Resizing, cropping and padding as an image processor of transformers does them.

The torchvision backend is followed: since transformers 5, AutoImageProcessor returns it for every folder,
whether the processor's name ends in "Fast" or not. It resizes tensors (8 bits stay 8 bits) and rounds an odd
crop margin down. timm's transform resizes by Pillow and rounds an odd margin to even. transformers' PIL
backend ("slow") differs from the torchvision backend in the resize and in the odd pixel of a centred padding.

    resize -> crop at the centre, with black beyond the image -> padding on the right and below

DINOv3's processor rescales before it resizes, so that its values are fractions of a grey level.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from PIL import Image
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms.v2 import functional as torchvision

from vitviz.errors import ImageError

MODES = {
    "nearest": InterpolationMode.NEAREST_EXACT, "bilinear": InterpolationMode.BILINEAR,
    "bicubic": InterpolationMode.BICUBIC, "lanczos": InterpolationMode.LANCZOS,
}  # fmt: skip
Pair = tuple[int, int]


@dataclass(frozen=True)
class Processor:
    """The steps of a transformers image processor; all lengths are (height, width) in pixels.

    `size` is the size of its output. At another output size every length is scaled alike. `resize` is None,
    or which of the processor's rules `lengths` belong to:

        exact   to these lengths
        cover   the image keeps its shape; its shorter edge takes the length ("shortest_edge")
        limit   as cover by the first length, but the longer edge is at most the second ("longest_edge")
        within  the image keeps its shape and is as large as fits ("max_height", "max_width")

    >>> Processor((224, 224), "cover", (256, 256), crop=(224, 224)).resized(640, 427, (224, 224))
    (383, 256)
    """

    size: Pair
    resize: str | None = "exact"
    lengths: Pair = (0, 0)
    crop: Pair | None = None
    pad: Pair | None = None
    in_fractions: bool = False

    def cutting(self, crop_mode: str, crop_pct: float) -> Processor | None:
        """Return these steps with resize and crop in timm's words; None for a border, which only timm has."""
        if crop_mode == "border":
            return None
        lengths = tuple(floor(side / crop_pct + 1e-6) for side in self.size)  # a name keeps ten digits
        resize = "exact" if crop_mode == "squash" else "cover"
        return replace(self, resize=resize, lengths=lengths, crop=self.size, pad=None)

    def resized(self, height: int, width: int, size: Pair) -> Pair:
        """Return the height and width to which an image is resized for an output of `size`."""
        rows, cols = self._scaled(self.lengths, size)
        if self.resize is None:
            return height, width
        if self.resize == "exact":
            return rows, cols
        if self.resize == "within":
            scale = min(rows / height, cols / width)
            return int(height * scale), int(width * scale)
        if self.resize == "limit":
            share = min(size[0] / self.size[0], size[1] / self.size[1])
            edge, most = (int(length * share) for length in self.lengths)
            short, long, exact = min(height, width), max(height, width), edge
            if long / short * edge > most:
                exact = most * short / long
                edge = round(exact)
            if edge == short:
                return height, width
            return tuple(edge if side == short else int(exact * side / short) for side in (height, width))
        if rows * width >= cols * height:
            return rows, int(rows * width / height)
        return int(cols * height / width), cols

    def values(
        self, image: Image.Image, size: Pair, interpolation: str, beyond: Float[Tensor, "3 1 1"]
    ) -> tuple[Float[Tensor, "3 height width"], tuple[float, float, float, float]]:
        """Return an RGB image's values (0 to 1) at an output size, and the output's edges on the image.

        The edges are left, top, right and bottom in pixels of the image; `beyond` is the padding's colour.
        Raises ImageError for an image that is too elongated for these steps.
        """
        height, width = self.resized(image.height, image.width, size)
        crop, pad = (at and self._scaled(at, size) for at in (self.crop, self.pad))
        rows, cols = crop or (height, width)
        if min(height, width) < 1 or pad and (rows > pad[0] or cols > pad[1]):
            raise ImageError(
                f"This image of {image.width} x {image.height} pixels is too elongated: the model's"
                f" preprocessing would make it {width} x {height}. Crop it and try again."
            )
        top, left = int((height - rows) / 2), int((width - cols) / 2)  # towards zero, as transformers rounds

        def cut(bands: Image.Image) -> Float[Tensor, "1 band height width"]:
            part = torch.from_numpy(np.array(bands)).reshape(1, *bands.size[::-1], -1)
            part = part.permute(0, 3, 1, 2).contiguous()
            part = part / 255 if self.in_fractions else part
            if self.resize:
                part = torchvision.resize(part, [height, width], MODES[interpolation], antialias=True)
            return F.pad(part, (-left, left + cols - width, -top, top + rows - height))  # or cut off

        # fractions a channel at a time: all three of a large image would take a gigabyte
        parts = map(image.getchannel, "RGB") if self.in_fractions else [image]
        pixels = torch.cat([cut(part) for part in parts], dim=1)[0]
        pixels = pixels if self.in_fractions else pixels / 255
        if pad:
            padded = beyond.repeat(1, *pad)
            padded[:, :rows, :cols] = pixels
            pixels, (rows, cols) = padded, pad
        across, down = image.width / width, image.height / height
        return pixels, (left * across, top * down, (left + cols) * across, (top + rows) * down)

    def _scaled(self, lengths: Pair, size: Pair) -> Pair:
        """Return lengths of the default output, scaled to another output size."""
        return tuple(length * new // own for length, new, own in zip(lengths, size, self.size, strict=True))
