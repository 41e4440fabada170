"""Kernel functions: linear, poly, rbf, sigmoid, as tiles of values; a row is a tile of one row, a value a tile of one.

`FORMULAS` has all that the package knows of each of them.

A tile is a matrix product (BLAS on dense rows, a vectorised sum over the non-zeros of CSR members) and an epilogue that
turns the dot products into kernel values while they are in the cache. K(x, x) and |x|² - 2x·x' + |x'|² are clipped where
rounding would leave their range.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import SUMS, njit
from dasksvm.solver.kernels.features import DenseFeatures, Features, Floats, Ints, SparseFeatures
from dasksvm.solver.memory import Workspace
from dasksvm.solver.registry import look_up

BLOCK_ROWS = 512
BLOCK_COLUMNS = 1024
DENSE_BYTES = 4 << 20


@dataclass(frozen=True)
class Kernel:
    """A kernel function with its parameters.

    Attributes
    ----------
    name : {"linear", "poly", "rbf", "sigmoid"}
        x·x', (γ x·x' + c)^p, exp(-γ |x - x'|²), tanh(γ x·x' + c).
    gamma, coef0 : float
        γ and c.
    degree : int
        p.
    """

    name: str
    gamma: float = 1.0
    coef0: float = 0.0
    degree: int = 3

    @property
    def formula(self) -> "Formula":
        """What is known of this kernel function."""
        return look_up(FORMULAS, "kernel", self.name)

    def diagonal(self, rows: Features) -> NDArray[np.float64]:
        """Compute K(x, x) of each row in float64, shape (n,)."""
        return self.formula.diagonal(self, rows.squares.astype(np.float64))

    def tile(
        self,
        rows: Features,
        columns: Features,
        order: Ints | None = None,
        out: Floats | None = None,
        workspace: Workspace | None = None,
    ) -> Floats:
        """Compute K(rows, columns[order]), shape (rows, columns), in the type of the features.

        The same arguments give the same bits whatever else runs: the blocks depend on the shapes and the non-zeros alone.
        """
        width = len(columns) if order is None else len(order)
        if out is None:
            out = np.empty((len(rows), width), rows.dtype)
        for left, right in column_blocks(width, len(rows)):
            part = columns.part(left, right) if order is None else columns.take(order[left:right], workspace)
            self.block(rows, part, out, left)
        return out

    def block(self, rows: Features, columns: Features, out: Floats, left: int) -> None:
        """Fill out[:, left : left + len(columns)] with K(rows, columns), by blocks of rows that stay in the cache."""
        right = left + len(columns)
        step, finish = BLOCK_ROWS, self.formula.finish
        if isinstance(rows, SparseFeatures):
            step = _dense_rows(rows, out.itemsize)
        for top in range(0, len(rows), step):
            bottom = min(top + step, len(rows))
            part = out[top:bottom]
            if isinstance(columns, SparseFeatures):
                assert isinstance(rows, SparseFeatures)
                line_of, piece = rows.part(top, bottom).compact()
                _sparse_dots(columns.data, columns.indices, columns.indptr, line_of, piece, part, left)
            else:
                assert isinstance(rows, DenseFeatures)
                # OpenBLAS (0.3.31, SkylakeX, single rows) reads lanes it then drops, and their garbage sets the flag.
                with np.errstate(invalid="ignore"):
                    np.matmul(rows.values[top:bottom], columns.values.T, out=part[:, left:right])
            finish(self, part, left, right, rows.squares[top:bottom], columns.squares)


class Formula(NamedTuple):
    """What the package knows of a kernel function.

    Attributes
    ----------
    diagonal : callable
        Called with the kernel and |x|² in float64, shape (n,); gives K(x, x).
    finish : callable
        Called with the kernel, a tile `out`, `left`, `right`, |x|² of the tile's rows and |x'|² of its columns; turns the dot
        products in out[:, left:right] into kernel values.
    shift_invariant : bool
        Whether K(x + t, x' + t) = K(x, x') for every t.
    unit_diagonal : bool
        Whether K(x, x) = 1 for every x.
    parameters : tuple of str
        The attributes of `Kernel` that the kernel function uses.
    """

    diagonal: Callable[[Kernel, NDArray[np.float64]], NDArray[np.float64]]
    finish: Callable[[Kernel, Floats, int, int, Floats, Floats], None]
    shift_invariant: bool
    unit_diagonal: bool
    parameters: tuple[str, ...]


def column_blocks(width: int, height: int) -> list[tuple[int, int]]:
    """Cut the columns of a tile into the blocks in which it is computed: wide ones where the rows are few."""
    step = max(BLOCK_COLUMNS, BLOCK_ROWS * BLOCK_COLUMNS // max(height, 1))
    return [(left, min(left + step, width)) for left in range(0, width, step)]


def _dense_rows(rows: SparseFeatures, itemsize: int) -> int:
    """Count the rows that fit the cache when they are made dense in the columns that some of them use."""
    values = DENSE_BYTES // itemsize
    in_all_columns = values // max(rows.width, 1)
    in_their_own = math.isqrt(values * max(len(rows), 1) // max(len(rows.data), 1))
    return min(max(in_all_columns, in_their_own, 1), BLOCK_ROWS)


@njit(fastmath=SUMS)
def _sparse_dots(
    data: Any, indices: Any, indptr: Any, line_of: Any, lines: Any, out: Any, left: int
) -> None:  # pragma: no cover
    """Dot products of CSR rows with dense ones: one multiply-add over all dense rows for each non-zero that they share.

    `lines` has the values of all dense rows for a feature; `line_of` says which line is a feature's, -1: none.
    """
    height = lines.shape[1]
    group = 16
    sums = np.empty((group, height), out.dtype)
    count = len(indptr) - 1
    for start in range(0, count, group):
        stop = min(start + group, count)
        for s in range(start, stop):
            line = sums[s - start]
            line[:] = 0
            for at in range(indptr[s], indptr[s + 1]):
                if line_of[indices[at]] < 0:
                    continue
                value, source = data[at], lines[line_of[indices[at]]]
                for r in range(height):
                    line[r] += value * source[r]
        for r in range(height):
            for s in range(start, stop):
                out[r, left + s] = sums[s - start, r]


@njit(fastmath={"contract"})
def _rbf_exponent(out: Any, left: int, right: int, rows: Any, columns: Any, gamma: Any) -> None:  # pragma: no cover
    """Turn x·x' into -γ |x - x'|², never above 0."""
    two, zero = out.dtype.type(2), out.dtype.type(0)
    for r in range(out.shape[0]):
        line, square = out[r][left:right], rows[r]
        for c in range(len(line)):
            distance = square + columns[c] - two * line[c]
            line[c] = -gamma * distance if distance > zero else zero


@njit(fastmath={"contract"})
def _exp(out: Any, left: int, right: int) -> None:  # pragma: no cover
    """Compute exp of non-positive float32 numbers in place: 2^k · p(r) with |r| ≤ 1/2, relative error below 1e-7.

    Below e^-87 the result is 0 to float32's normal range: about 1e-38.
    """
    log2e = np.float32(1.4426950408889634)
    for r in range(out.shape[0]):
        line = out[r][left:right]
        for c in range(len(line)):
            z = line[c] * log2e
            z = z if z > np.float32(-126.0) else np.float32(-126.0)
            k = np.int32(z - np.float32(0.5))
            x = z - np.float32(k)
            p = np.float32(1.535336188319500e-4)
            p = p * x + np.float32(1.339887440266574e-3)
            p = p * x + np.float32(9.618437357674640e-3)
            p = p * x + np.float32(5.550332471162809e-2)
            p = p * x + np.float32(2.402264791363012e-1)
            p = p * x + np.float32(6.931472028550421e-1)
            p = p * x + np.float32(1.0)
            line[c] = p * np.int32((k + np.int32(127)) << np.int32(23)).view(np.float32)


@njit()
def _poly(out: Any, left: int, right: int, gamma: Any, coef0: Any, degree: int) -> None:  # pragma: no cover
    for r in range(out.shape[0]):
        line = out[r][left:right]
        for c in range(len(line)):
            base = gamma * line[c] + coef0
            power = base
            for _ in range(degree - 1):
                power *= base
            line[c] = power


def _linear_diagonal(kernel: Kernel, squares: NDArray[np.float64]) -> NDArray[np.float64]:
    return squares


def _finish_linear(kernel: Kernel, out: Floats, left: int, right: int, rows: Floats, columns: Floats) -> None:
    """Leave the dot products as they are."""


def _poly_diagonal(kernel: Kernel, squares: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = (kernel.gamma * squares + kernel.coef0) ** kernel.degree
    return found


def _finish_poly(kernel: Kernel, out: Floats, left: int, right: int, rows: Floats, columns: Floats) -> None:
    number = out.dtype.type
    _poly(out, left, right, number(kernel.gamma), number(kernel.coef0), kernel.degree)


def _rbf_diagonal(kernel: Kernel, squares: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.ones(len(squares))


def _finish_rbf(kernel: Kernel, out: Floats, left: int, right: int, rows: Floats, columns: Floats) -> None:
    _rbf_exponent(out, left, right, rows, columns, out.dtype.type(kernel.gamma))
    if out.dtype == np.float32:
        _exp(out, left, right)
    elif out.dtype == np.float64:
        np.exp(out[:, left:right], out=out[:, left:right])
    else:
        raise ValueError(f"kernel values must be float32 or float64. Got {out.dtype} instead.")


def _sigmoid_diagonal(kernel: Kernel, squares: NDArray[np.float64]) -> NDArray[np.float64]:
    found: NDArray[np.float64] = np.tanh(kernel.gamma * squares + kernel.coef0)
    return found


def _finish_sigmoid(kernel: Kernel, out: Floats, left: int, right: int, rows: Floats, columns: Floats) -> None:
    number, part = out.dtype.type, out[:, left:right]
    np.tanh(number(kernel.gamma) * part + number(kernel.coef0), out=part)


# LIBSVM numbers the kernels in this order.
FORMULAS = {
    "linear": Formula(_linear_diagonal, _finish_linear, False, False, ()),
    "poly": Formula(_poly_diagonal, _finish_poly, False, False, ("degree", "gamma", "coef0")),
    "rbf": Formula(_rbf_diagonal, _finish_rbf, True, True, ("gamma",)),
    "sigmoid": Formula(_sigmoid_diagonal, _finish_sigmoid, False, False, ("gamma", "coef0")),
}
KERNELS = tuple(FORMULAS)
