"""The maps of features that a data set can carry: what is subtracted from each feature, and what it is then divided by."""

from collections.abc import Callable
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

Values = NDArray[np.float64]


class Extent(Protocol):
    """What is known of the features of all rows, each of shape (d,)."""

    @property
    def mean(self) -> Values: ...  # noqa: D102

    @property
    def variance(self) -> Values: ...  # noqa: D102

    @property
    def minimum(self) -> Values: ...  # noqa: D102

    @property
    def maximum(self) -> Values: ...  # noqa: D102


# Gives what is subtracted and what is divided by, each of shape (d,); None: the features stay as they are.
Scale = Callable[[Extent], tuple[Values, Values] | None]


def none(features: Extent) -> None:
    """Leave the features as they are."""


def minmax(features: Extent) -> tuple[Values, Values]:
    """Map each feature onto [0, 1]."""
    return features.minimum, features.maximum - features.minimum


def standard(features: Extent) -> tuple[Values, Values]:
    """Map each feature to mean 0 and variance 1."""
    return features.mean, np.sqrt(features.variance)
