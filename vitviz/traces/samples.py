"""Photographs to begin with: public-domain pictures that scikit-image carries inside its package.

Titles, credits and licences are those of scikit-image's own documentation of each picture (skimage.data).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from vitviz.errors import ImageError, quoted

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Sample:
    """A photograph by its name in skimage.data: what it `shows`, and the `classes` that would be right."""

    name: str
    title: str
    credit: str
    shows: str = ""
    classes: tuple[str, ...] = ()

    def truth(self, labels: Sequence[str]) -> list[int]:
        """The numbers of the labels that fit the photograph; none where a classifier has no class for it.

        >>> samples()[0].truth(["tench", "tabby, tabby cat"]), samples()[2].truth(["tench"])
        ([1], [])
        """
        named = [{name.strip().lower() for name in label.split(",")} for label in labels]
        return [i for i, names in enumerate(named) if names & set(self.classes)]


_SAMPLES = {  # by the file inside scikit-image, with classes of ImageNet
    "chelsea.png": Sample(
        "chelsea", "Chelsea the cat", "Stefan van der Walt, CC0", "cat",
        ("tabby", "tabby cat", "egyptian cat", "tiger cat"),
    ),
    "coffee.png": Sample(
        "coffee", "Coffee cup", "Rachel Michetti, courtesy of Pikolo Espresso Bar, CC0", "espresso",
        ("espresso", "cup", "coffee mug"),
    ),
    "astronaut.png": Sample("astronaut", "Astronaut Eileen Collins", "NASA, public domain", "astronaut"),
    "rocket.jpg": Sample(
        "rocket", "Launch of a Falcon 9 with DSCOVR", "SpaceX, public domain", "rocket",
        ("missile", "projectile", "space shuttle"),
    ),
}  # fmt: skip


def samples() -> tuple[Sample, ...]:
    """The photographs that `sample_image` opens, in the order in which the page shows them.

    >>> [sample.name for sample in samples()]
    ['chelsea', 'coffee', 'astronaut', 'rocket']
    """
    return tuple(_SAMPLES.values())


def sample_image(name: str) -> Image.Image:
    """One of the photographs as an RGB picture in its full size; ImageError for a name there is not.

    >>> sample_image("chelsea").size
    (451, 300)
    """
    from PIL import Image

    found = {sample.name: file for file, sample in _SAMPLES.items()}
    if name not in found:
        raise ImageError(f"There is no sample {quoted(name)}: expected one of {', '.join(found)}.")
    # The file itself: skimage.data's functions bring in imageio, and look for a cached copy first.
    with files("skimage").joinpath("data", found[name]).open("rb") as file, Image.open(file) as picture:
        return picture.convert("RGB")
