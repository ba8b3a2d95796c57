"""Photographs to begin with: public-domain pictures that scikit-image carries inside its package, without any
download.

Titles, credits and licences are those of scikit-image's own documentation of each picture (skimage.data).
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from vitviz.errors import ImageError

if TYPE_CHECKING:
    from PIL import Image


@dataclass(frozen=True)
class Sample:
    """A photograph by its name in skimage.data, with what the page says of it."""

    name: str
    title: str
    credit: str


# name, file inside scikit-image, title, credit
_SAMPLES = (
    ("chelsea", "chelsea.png", "Chelsea the cat", "Stefan van der Walt, CC0"),
    ("coffee", "coffee.png", "Coffee cup", "Rachel Michetti, courtesy of Pikolo Espresso Bar, CC0"),
    ("astronaut", "astronaut.png", "Astronaut Eileen Collins", "NASA, public domain"),
    ("rocket", "rocket.jpg", "Launch of a Falcon 9 with DSCOVR", "SpaceX, public domain"),
)


def samples() -> tuple[Sample, ...]:
    """The photographs that `sample_image` opens, in the order in which the page shows them.

    >>> [sample.name for sample in samples()]
    ['chelsea', 'coffee', 'astronaut', 'rocket']
    """
    return tuple(Sample(name, title, credit) for name, _, title, credit in _SAMPLES)


def sample_image(name: str) -> Image.Image:
    """One of the photographs as an RGB picture in its full size; raises ImageError where there is none of
    that name.

    >>> sample_image("chelsea").size
    (451, 300)
    """
    from PIL import Image

    found = {name: file for name, file, _, _ in _SAMPLES}
    if name not in found:
        raise ImageError(f"There is no sample {name!r}: expected one of {', '.join(found)}.")
    # The file itself: skimage.data's functions bring in imageio, and look for a cached copy first.
    with files("skimage").joinpath("data", found[name]).open("rb") as file, Image.open(file) as picture:
        return picture.convert("RGB")
