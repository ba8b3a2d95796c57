"""Sample images: public-domain photographs that scikit-image ships in its package.

Titles, credits and licences are those of scikit-image's own documentation of each image (skimage.data).
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
    """A photograph in skimage.data, its subject (`shows`), and the ImageNet `classes` that fit it.

    `mistaken_by` names the shipped checkpoints whose most likely class does not fit.
    """

    name: str
    title: str
    credit: str
    shows: str = ""
    classes: tuple[str, ...] = ()
    mistaken_by: tuple[str, ...] = ()

    def truth(self, labels: Sequence[str]) -> list[int]:
        """Return the indices of the labels that fit the photograph; empty if a classifier has no such class.

        >>> samples()[0].truth(["tench", "tabby, tabby cat"]), samples()[2].truth(["tench"])
        ([1], [])
        """
        named = [{name.strip().lower() for name in label.split(",")} for label in labels]
        return [i for i, names in enumerate(named) if names & set(self.classes)]


_SAMPLES = {  # by file name inside scikit-image, with ImageNet classes
    "chelsea.png": Sample(
        "chelsea", "Chelsea the cat", "Stefan van der Walt, CC0", "cat",
        ("tabby", "tabby cat", "egyptian cat", "tiger cat"), ("vitviz-tiny",),
    ),
    "coffee.png": Sample(
        "coffee", "Coffee cup", "Rachel Michetti, courtesy of Pikolo Espresso Bar, CC0", "espresso",
        ("espresso", "cup", "coffee mug"),
    ),
    "astronaut.png": Sample("astronaut", "Astronaut Eileen Collins", "NASA, public domain", "astronaut"),
    "rocket.jpg": Sample(
        "rocket", "Launch of a Falcon 9 with DSCOVR", "SpaceX, public domain", "rocket",
        ("missile", "projectile", "space shuttle"), ("vitviz-tiny",),
    ),
}  # fmt: skip
# First on the page: the sample that the shipped model classifies correctly with at least 60 %, then one that
# it does not.
FEATURED = ("coffee", "chelsea")


def samples() -> tuple[Sample, ...]:
    """Return the photographs that `sample_image` opens, in a fixed order.

    >>> [sample.name for sample in samples()]
    ['chelsea', 'coffee', 'astronaut', 'rocket']
    """
    return tuple(_SAMPLES.values())


def sample_image(name: str) -> Image.Image:
    """Return a sample photograph as a full-size RGB image.

    Args:
        name: one of the names of `samples()`.

    Raises:
        ImageError: there is no sample of this name.

    >>> sample_image("chelsea").size
    (451, 300)
    """
    from PIL import Image

    result = {sample.name: file for file, sample in _SAMPLES.items()}
    if name not in result:
        raise ImageError(f"There is no sample {quoted(name)}: expected one of {', '.join(result)}.")
    # The file is opened directly: skimage.data's functions import imageio and look for a cached copy first.
    with files("skimage").joinpath("data", result[name]).open("rb") as file, Image.open(file) as picture:
        return picture.convert("RGB")
