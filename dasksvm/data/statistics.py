"""Statistics of features, collected in one pass over the rows, and the scalings that follow from them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dasksvm.data.blocks import BadRow
from dasksvm.data.chunked import is_sparse
from dasksvm.data.scales import SCALES
from dasksvm.solver.jit import njit

# A feature is on another scale than the others if both its range and its standard deviation are more than WIDE times the medians
# over all features, or less than 1 / NARROW of them. The range alone would also report standardised columns with rare large
# values, and the deviation alone columns from 0 to 1 in which values other than 0 are rare.
WIDE, NARROW = 100.0, 1000.0
# Least number of rows to judge scales by; number of columns that a warning lists.
LEAST_ROWS, NAMED = 10, 5
# The mean of this many first rows is subtracted before squares are summed.
SHIFT_ROWS = 100


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
    """Count, mean, sum of squared deviations, minimum and maximum of each feature, merged block by block (Chan's update).

    Later sparse blocks may be wider than earlier ones; features that a block does not have are 0.

    Attributes
    ----------
    count, nonzeros : int
        Number of rows, and of stored values; dense rows store all values.
    mean, deviations, minimum, maximum : ndarray of float64, shape (d,)
    """

    count: int
    nonzeros: int
    mean: NDArray[np.float64]
    deviations: NDArray[np.float64]
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]

    @classmethod
    def empty(cls, width: int) -> Self:
        """Return the statistics of no rows."""
        zero = np.zeros(width)
        return cls(0, 0, zero, zero.copy(), np.full(width, np.inf), np.full(width, -np.inf))

    def add(self, block: Any) -> None:
        """Add rows, shape (m, d); BadRow reports the first value that is not finite."""
        rows = block.shape[0]
        if not rows:
            return
        self._widen(block.shape[1])
        with np.errstate(invalid="ignore", over="ignore"):
            found = _of_sparse(block, len(self.mean)) if is_sparse(block) else _of_dense(block)
        mean, deviations, minimum, maximum = found
        if not np.all(np.isfinite(deviations)):
            _name_bad_value(block)
        total = self.count + rows
        step = mean - self.mean
        self.deviations = self.deviations + deviations + step * step * (self.count * rows / total)
        self.mean = self.mean + step * (rows / total)
        self.minimum = np.minimum(self.minimum, minimum)
        self.maximum = np.maximum(self.maximum, maximum)
        self.count = total
        self.nonzeros += block.nnz if is_sparse(block) else block.size

    def _widen(self, width: int) -> None:
        more = (0, max(width - len(self.mean), 0))
        seen = 0.0 if self.count else np.inf
        self.mean, self.deviations = np.pad(self.mean, more), np.pad(self.deviations, more)
        self.minimum = np.pad(self.minimum, more, constant_values=seen)
        self.maximum = np.pad(self.maximum, more, constant_values=-seen)

    @property
    def variance(self) -> NDArray[np.float64]:
        """Variance of each feature."""
        variance: NDArray[np.float64] = self.deviations / max(self.count, 1)
        return variance

    def scaling(self, scale: str, *, sparse: bool) -> Scaling | None:
        """Return the scaling to [0, 1], or to mean 0 and variance 1; a constant feature is only shifted.

        Sparse rows cannot be shifted, so a scaling that would shift them is refused.
        """
        found = SCALES.find(scale)(self)
        if found is None:
            return None
        offset, width = found
        if sparse and np.any(offset != 0.0):
            column = int(np.flatnonzero(offset)[0])
            raise ValueError(
                f"scale={scale!r} would shift sparse rows, in column {column} by {offset[column]:g}, and make them dense: "
                "use 'none', or 'minmax' if the smallest value of every feature is 0."
            )
        return Scaling(offset.copy(), 1.0 / np.where(width > 0, width, 1.0))

    def spread(self, *, sparse: bool) -> "Spread":
        """Return the ranges and variances of the features."""
        return Spread(self.count, self.minimum, self.maximum, self.variance, sparse)


class ScaleWarning(UserWarning):
    """Columns are on very different scales, so kernels give the columns with large values more weight."""


@dataclass(frozen=True)
class Spread:
    """Ranges and variances of the features of some rows.

    Attributes
    ----------
    rows : int
        Number of rows.
    minimum, maximum, variance : ndarray of float64, shape (d,)
        Of each feature.
    sparse : bool
        Whether the rows are sparse; if so, features with a small deviation are just rare.
    """

    rows: int
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    variance: NDArray[np.float64]
    sparse: bool

    @classmethod
    def of(cls, rows: Any) -> Self:
        """Compute them for a sample of rows, ndarray or csr_matrix of shape (m, d)."""
        if not is_sparse(rows):
            return cls(
                rows.shape[0],
                rows.min(axis=0).astype(np.float64),
                rows.max(axis=0).astype(np.float64),
                rows.var(axis=0, dtype=np.float64),
                False,
            )
        _, deviations, minimum, maximum = _of_sparse(rows, rows.shape[1])
        return cls(rows.shape[0], minimum, maximum, deviations / rows.shape[0], True)

    def uneven(self) -> NDArray[np.int64]:
        """List the features on a much larger or smaller scale than the others; in sparse rows only the larger ones."""
        varying = np.flatnonzero(self.maximum > self.minimum)
        if self.rows < LEAST_ROWS or len(varying) < 2:
            return varying[:0]
        wide = narrow = np.ones(len(varying), bool)
        for widths in (self.maximum - self.minimum, np.sqrt(self.variance)):
            width, middle = widths[varying], float(np.median(widths[varying]))
            wide, narrow = wide & (width > WIDE * middle), narrow & (width * NARROW < middle)
        return varying[wide | (narrow & (not self.sparse))]

    def warning(self, names: Sequence[str] | None, advice: str) -> ScaleWarning | None:
        """Return a warning that lists the features on another scale, followed by the advice; None if there are none."""
        uneven = self.uneven()
        if len(uneven) == 0:
            return None
        shown = ", ".join(
            f"{column if names is None else names[column]} ({self.minimum[column]:g} to {self.maximum[column]:g})"
            for column in uneven[:NAMED]
        )
        more = f" and {len(uneven) - NAMED} more" if len(uneven) > NAMED else ""
        text = f"columns are on very different scales, so those with large values dominate the kernel: {shown}{more}."
        return ScaleWarning(f"{text} {advice}")


def _of_dense(block: NDArray[Any]) -> tuple[NDArray[np.float64], ...]:
    shift = block[:SHIFT_ROWS].mean(axis=0, dtype=np.float64)
    minimum = block[0].astype(np.float64)
    maximum, sums = minimum.copy(), np.zeros((2, block.shape[1]))
    _add_rows(block, shift, sums[0], sums[1], minimum, maximum)
    mean = sums[0] / len(block)
    return shift + mean, np.maximum(sums[1] - sums[0] * mean, 0.0), minimum, maximum


@njit(fastmath={"contract", "reassoc"})
def _add_rows(block: Any, shift: Any, total: Any, squares: Any, minimum: Any, maximum: Any) -> None:  # pragma: no cover
    for r in range(block.shape[0]):
        row = block[r]
        for c in range(block.shape[1]):
            value = np.float64(row[c])
            step = value - shift[c]
            total[c] += step
            squares[c] += step * step
            minimum[c] = min(minimum[c], value)
            maximum[c] = max(maximum[c], value)


def _of_sparse(block: Any, width: int) -> tuple[NDArray[np.float64], ...]:
    rows = block.shape[0]
    values = block.data.astype(np.float64)
    filled = np.bincount(block.indices, minlength=width)
    mean = np.bincount(block.indices, values, width) / rows
    steps = values - mean[block.indices]
    deviations = np.bincount(block.indices, steps * steps, width) + (rows - filled) * mean * mean
    low, high = np.full(width, np.inf), np.full(width, -np.inf)
    np.minimum.at(low, block.indices, values)
    np.maximum.at(high, block.indices, values)
    partly = filled < rows
    return mean, deviations, np.where(partly, np.minimum(low, 0.0), low), np.where(partly, np.maximum(high, 0.0), high)


def _name_bad_value(block: Any) -> None:
    """Raise BadRow for the first value that is not finite."""
    values = block.data if is_sparse(block) else block
    bad = np.argwhere(~np.isfinite(values))
    if len(bad) == 0:
        return
    if is_sparse(block):
        at = int(bad[0, 0])
        row, column, value = int(np.searchsorted(block.indptr, at, side="right")) - 1, block.indices[at], values[at]
    else:
        row, column = bad[0]
        value = block[row, column]
    raise BadRow(int(row), int(column), f"the value is {value}")
