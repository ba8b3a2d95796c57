"""Mean and spread over pictures in one pass, which parts computed apart add up to.

Of n pictures' values x: n, their mean, and M2 = sum (x - mean)^2, all in float64. Two parts a and b make,
with d = mean_b - mean_a and n = n_a + n_b (Chan, Golub and LeVeque 1979, equation 2.1),

    mean = mean_a + d n_b / n        M2 = M2_a + M2_b + d^2 n_a n_b / n

which loses nothing to cancellation where the spread is small. Any order gives the same to rounding.
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
    """Of one quantity, number by number; adding two gives those of both sets of pictures.

    >>> both = Moments.from_values(np.array([1.0, 2.0])) + Moments.from_values(np.array([6.0]))
    >>> both.count, float(both.mean), float(both.variance)
    (3, 3.0, 7.0)
    """

    count: int
    mean: np.ndarray  # float64
    m2: np.ndarray  # float64; the sum of squared differences from the mean

    @classmethod
    def from_values(cls, values: np.ndarray) -> Moments:
        """Of pictures' values, a picture a row; at least one."""
        values = np.asarray(values, dtype=np.float64)
        if values.ndim < 1 or not len(values):
            raise VitvizError(
                f"Given values of shape {values.shape}; expected one or more pictures along the first axis."
            )
        mean = values.mean(axis=0)
        return cls(len(values), mean, np.square(values - mean).sum(axis=0))

    def __add__(self, other: Moments) -> Moments:
        if self.mean.shape != other.mean.shape:
            raise VitvizError(
                f"Given averages of shapes {self.mean.shape} and {other.mean.shape}; expected those of one"
                " checkpoint at one input size. Make a survey of its own for each."
            )
        count, apart = self.count + other.count, other.mean - self.mean
        m2 = self.m2 + other.m2 + np.square(apart) * (self.count * other.count / count)
        return Moments(count, self.mean + apart * (other.count / count), m2)

    @property
    def variance(self) -> np.ndarray:
        """Of the pictures, M2 / (n - 1); not a number for a single one, which has none."""
        return self.m2 / (self.count - 1) if self.count > 1 else np.full_like(self.mean, np.nan)

    @property
    def error(self) -> np.ndarray:
        """The standard error of the mean, sqrt(variance / n), for pictures drawn independently."""
        return np.sqrt(self.variance / self.count)


def added(sums: Mapping[str, T], more: Mapping[str, T]) -> dict[str, T]:
    """Both, quantity by quantity; a quantity that only one of them has stays as it is."""
    return {**sums, **{name: sums[name] + one if name in sums else one for name, one in more.items()}}
