"""The Laplacian kernel, exp(-γ |x - x'|₁)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.exponential import exponential
from dasksvm.solver.kernels.features import DenseFeatures, Floats, Ints, SparseFeatures
from dasksvm.solver.kernels.formula import Formula, Parameters

# Columns and features whose values are in the fastest cache while all rows of a tile are compared with them.
COLUMNS, FEATURES = 256, 32


class Laplacian(Formula):
    """exp(-γ |x - x'|₁).

    Each distance is a sum over the features in their order, whatever the shape of the tile: the bits of a value do not depend on
    the tile that it is in.
    """

    parameters = ("gamma",)
    shift_invariant = True
    unit_diagonal = True
    deviation_order = 1
    cost = 4.0

    def diagonal(self, kernel: Parameters, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute K(x, x)."""
        return np.ones(len(squares))

    def dense(self, kernel: Parameters, rows: DenseFeatures, columns: DenseFeatures, out: Floats, left: int) -> None:
        """Fill a part of a tile."""
        _dense_distances(rows.values, columns.values, out, left)
        self._finish(kernel, out, left, left + len(columns))

    def sparse(self, kernel: Parameters, rows: SparseFeatures, columns: SparseFeatures, out: Floats, left: int) -> None:
        """Fill a part of a tile.

        |x - x'|₁ is |x|₁ + |x'|₁ minus 2 min(|a|, |b|) for each feature whose values a and b in both rows have the same sign.
        """
        line_of, lines = rows.compact()
        own, theirs = (_absolute_sums(part.data, part.indptr) for part in (rows, columns))
        _sparse_distances(columns.data, columns.indices, columns.indptr, line_of, lines, own, theirs, out, left)
        self._finish(kernel, out, left, left + len(columns))

    def _finish(self, kernel: Parameters, out: Floats, left: int, right: int) -> None:
        out[:, left:right] *= out.dtype.type(-kernel.gamma)
        exponential(out, left, right)


LAPLACIAN = Laplacian()


@njit()
def _dense_distances(rows: Floats, columns: Floats, out: Floats, left: int) -> None:  # pragma: no cover
    """Compute |x - x'|₁ of rows and columns, four features at a time, with the columns side by side for vector code."""
    width, count = columns.shape[1], len(columns)
    side = np.empty((FEATURES, COLUMNS), out.dtype)
    for start in range(0, count, COLUMNS):
        size = min(COLUMNS, count - start)
        for r in range(len(rows)):
            for at in range(left + start, left + start + size):
                out[r, at] = 0
        for first in range(0, width, FEATURES):
            features = min(FEATURES, width - first)
            for c in range(size):
                source = columns[start + c]
                for f in range(features):
                    side[f, c] = source[first + f]
            for r in range(len(rows)):
                row, sums = rows[r], out[r][left + start : left + start + size]
                f = 0
                while f + 4 <= features:
                    x0, x1, x2, x3 = row[first + f], row[first + f + 1], row[first + f + 2], row[first + f + 3]
                    z0, z1, z2, z3 = side[f], side[f + 1], side[f + 2], side[f + 3]
                    for at in range(len(sums)):
                        sums[at] += (abs(x0 - z0[at]) + abs(x1 - z1[at])) + (abs(x2 - z2[at]) + abs(x3 - z3[at]))
                    f += 4
                while f < features:
                    x0, z0 = row[first + f], side[f]
                    for at in range(len(sums)):
                        sums[at] += abs(x0 - z0[at])
                    f += 1


@njit()
def _absolute_sums(data: Floats, indptr: Ints) -> Floats:  # pragma: no cover
    """Compute |x|₁ of CSR rows, summed in float64."""
    found = np.empty(len(indptr) - 1, data.dtype)
    for r in range(len(found)):
        total = 0.0
        for at in range(indptr[r], indptr[r + 1]):
            total += abs(np.float64(data[at]))
        found[r] = total
    return found


@njit()
def _sparse_distances(
    data: Floats,
    indices: NDArray[np.integer[Any]],
    indptr: Ints,
    line_of: NDArray[np.int32],
    lines: Floats,
    own: Floats,
    theirs: Floats,
    out: Floats,
    left: int,
) -> None:  # pragma: no cover
    """Compute |x - x'|₁ of dense rows and CSR columns; `lines` and `line_of` are as for dot products.

    Each sum is over the features of the column in their order.
    """
    height, group = lines.shape[1], 16
    zero, two = out.dtype.type(0), out.dtype.type(2)
    sums = np.empty((group, height), out.dtype)
    count = len(indptr) - 1
    for start in range(0, count, group):
        stop = min(start + group, count)
        for s in range(start, stop):
            shared = sums[s - start]
            shared[:] = 0
            for at in range(indptr[s], indptr[s + 1]):
                if line_of[indices[at]] < 0:
                    continue
                value, source = data[at], lines[line_of[indices[at]]]
                if value > zero:
                    for r in range(height):
                        common = source[r] if source[r] < value else value
                        shared[r] += common if common > zero else zero
                else:
                    for r in range(height):
                        common = value if source[r] < value else source[r]
                        shared[r] -= common if common < zero else zero
        for r in range(height):
            for s in range(start, stop):
                distance = own[r] + theirs[s] - two * sums[s - start, r]
                out[r, left + s] = distance if distance > zero else zero
