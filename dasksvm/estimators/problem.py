"""The validated input of a fit: rows, class numbers and weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.data.chunked import is_dask
from dasksvm.data.sources import Labels, MemoryLabels, Source


@dataclass(frozen=True)
class Problem:
    """Rows and labels of a training set.

    Attributes
    ----------
    source : Source
    columns : Labels
        Class numbers and weights.
    classes : ndarray of shape (c,)
    counts : ndarray of int64, shape (c,)
        Number of rows of each class.
    """

    source: Source
    columns: Labels
    classes: NDArray[Any]
    counts: NDArray[np.int64]

    def boxes(self, C: float, class_weight: Any) -> NDArray[np.float64]:
        """Return the bound of the coefficients for each class: C times its weight."""
        if isinstance(class_weight, str) and class_weight == "balanced":
            return float(C) * np.asarray(
                self.counts.sum() / (len(self.classes) * np.maximum(self.counts, 1.0)), np.float64
            )
        return boxes_of(self.classes, C, class_weight)


def boxes_of(classes: NDArray[Any], C: float, class_weight: Mapping[Any, float] | None) -> NDArray[np.float64]:
    """Return the bound of the coefficients for each class: C times its weight."""
    if class_weight is None:
        return np.full(len(classes), float(C))
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight must be a dict, 'balanced' or None. Got {class_weight!r} instead.")
    # scikit-learn's `compute_class_weight` is not used here because it takes the label "1" for the number 1.
    known = classes.tolist()
    missing = [label for label in known if label not in class_weight]
    unknown = [label for label in class_weight if label not in known]
    if missing and unknown:
        raise ValueError(f"The classes {missing!r} are not in class_weight, which has {unknown!r}.")
    weights = np.array([class_weight.get(label, 1.0) for label in known], np.float64)
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise ValueError(f"class_weight must be finite and not negative. Got {class_weight!r} instead.")
    return float(C) * weights


def in_memory(source: Source, y: NDArray[Any], classes: NDArray[Any], sample_weight: Any) -> Problem:
    """Make a problem from labels and weights in memory."""
    if len(y) != sum(source.chunks):
        raise ValueError(f"X has {sum(source.chunks)} rows, but y has {len(y)}.")
    codes = np.searchsorted(classes, y)
    weight = None if sample_weight is None else _check_weights(sample_weight, len(y))
    return Problem(source, MemoryLabels(codes, weight), classes, np.bincount(codes, minlength=len(classes)))


def _check_weights(sample_weight: Any, count: int) -> NDArray[np.float64]:
    weights = np.asarray(sample_weight.compute() if is_dask(sample_weight) else sample_weight, np.float64)
    if weights.ndim == 0:
        weights = np.full(count, float(weights))
    if weights.ndim != 1:
        raise ValueError("Sample weights must be 1D array or scalar")
    if len(weights) != count:
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(count,)}!")
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise ValueError("sample_weight must be finite and not negative.")
    if not np.any(weights > 0):
        raise ValueError("sample_weight is zero for every example.")
    return weights
