"""What one pass over the rows tells of each feature, and the affine maps that follow from it."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

SCALES = ("none", "minmax", "standard")


@dataclass(frozen=True)
class Scaling:
    """An affine map of features: (x - offset) · factor.

    Attributes
    ----------
    offset, factor : ndarray of float64, shape (d,)
    """

    offset: NDArray[np.float64]
    factor: NDArray[np.float64]


@dataclass
class FeatureStatistics:
    """Count, mean, sum of squared deviations, extremes of each feature; merged block by block (Chan's update).

    Attributes
    ----------
    count : int
    mean, deviations, minimum, maximum : ndarray of float64, shape (d,)
    """

    count: int
    mean: NDArray[np.float64]
    deviations: NDArray[np.float64]
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]

    @classmethod
    def empty(cls, width: int) -> Self:
        """Begin with no rows."""
        zero = np.zeros(width)
        return cls(0, zero, zero.copy(), np.full(width, np.inf), np.full(width, -np.inf))

    def add(self, block: NDArray[Any]) -> None:
        """Take in some rows."""
        if not len(block):
            return
        mean = block.mean(axis=0, dtype=np.float64)
        deviations = np.square(block - mean).sum(axis=0)
        total = self.count + len(block)
        step = mean - self.mean
        self.deviations = self.deviations + deviations + step * step * (self.count * len(block) / total)
        self.mean = self.mean + step * (len(block) / total)
        self.minimum = np.minimum(self.minimum, block.min(axis=0))
        self.maximum = np.maximum(self.maximum, block.max(axis=0))
        self.count = total

    @property
    def variance(self) -> NDArray[np.float64]:
        """Variance of each feature."""
        variance: NDArray[np.float64] = self.deviations / max(self.count, 1)
        return variance

    def scaling(self, scale: str) -> Scaling | None:
        """Make the map onto [0, 1], or to mean 0 and variance 1; a constant feature is only shifted."""
        if scale == "none":
            return None
        if scale == "minmax":
            offset, width = self.minimum, self.maximum - self.minimum
        else:
            offset, width = self.mean, np.sqrt(self.variance)
        return Scaling(offset.copy(), 1.0 / np.where(width > 0, width, 1.0))
