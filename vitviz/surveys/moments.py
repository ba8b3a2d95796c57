"""Mean and variance over images in one pass, mergeable across parts that were computed separately.

For the values x of n images: n, their mean, and M2 = sum (x - mean)^2, all in float64. Two parts a and b
merge, with d = mean_b - mean_a and n = n_a + n_b (Chan, Golub and LeVeque 1979, equation 2.1), to

    mean = mean_a + d n_b / n        M2 = M2_a + M2_b + d^2 n_a n_b / n

This form avoids cancellation when the variance is small. Any order gives the same result up to rounding.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from vitviz.errors import VitvizError

T = TypeVar("T")  # Moments, or `analyses.Spread`


@dataclass(frozen=True)
class Moments:
    """Elementwise count, mean and M2 of one quantity over images; `+` merges two disjoint sets of images.

    >>> both = Moments.from_values(np.array([1.0, 2.0])) + Moments.from_values(np.array([6.0]))
    >>> both.count, float(both.mean), float(both.variance)
    (3, 3.0, 7.0)
    """

    count: int
    mean: np.ndarray  # float64
    m2: np.ndarray  # float64; the sum of squared differences from the mean

    @classmethod
    def from_values(cls, values: np.ndarray) -> Moments:
        """Compute the moments of an array of shape (images, ...).

        Raises:
            VitvizError: If there is no image.
        """
        values = np.asarray(values, dtype=np.float64)
        if values.ndim < 1 or not len(values):
            raise VitvizError(
                f"Values of shape {values.shape} have no image axis; expected one or more images along the"
                " first axis."
            )
        mean = values.mean(axis=0)
        return cls(len(values), mean, np.square(values - mean).sum(axis=0))

    def __add__(self, other: Moments) -> Moments:
        if self.mean.shape != other.mean.shape:
            raise VitvizError(
                f"Averages of shapes {self.mean.shape} and {other.mean.shape} cannot be combined; expected"
                " those of one checkpoint at one input size. Make a separate survey of each."
            )
        count, apart = self.count + other.count, other.mean - self.mean
        m2 = self.m2 + other.m2 + np.square(apart) * (self.count * other.count / count)
        return Moments(count, self.mean + apart * (other.count / count), m2)

    @property
    def variance(self) -> np.ndarray:
        """Return the sample variance over images, M2 / (n - 1); NaN for a single image."""
        return self.m2 / (self.count - 1) if self.count > 1 else np.full_like(self.mean, np.nan)

    @property
    def error(self) -> np.ndarray:
        """Return the standard error of the mean, sqrt(variance / n), for independently drawn images."""
        return np.sqrt(self.variance / self.count)


def add_sums(sums: Mapping[str, T], more: Mapping[str, T]) -> dict[str, T]:
    """Return the sums `a + b` by quantity of two mappings; a quantity in only one of them is copied."""
    return {**sums, **{name: sums[name] + one if name in sums else one for name, one in more.items()}}
