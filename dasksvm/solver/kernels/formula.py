"""The base classes of kernel functions: what each declares about itself, and how kernels of dot products are computed."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import SUMS, njit
from dasksvm.solver.kernels.features import DenseFeatures, Floats, Ints, SparseFeatures


class Parameters(Protocol):
    """The numbers of a kernel, as `Kernel` has them."""

    @property
    def gamma(self) -> float: ...  # noqa: D102

    @property
    def coef0(self) -> float: ...  # noqa: D102

    @property
    def degree(self) -> int: ...  # noqa: D102


class LibsvmName(NamedTuple):
    """What LIBSVM calls a kernel: on its command line, and in its model files."""

    number: int
    name: str


class Formula(ABC):
    """A kernel function: how its values are computed, and what the rest of the package needs to know about it.

    Attributes
    ----------
    parameters : tuple of str
        The attributes of `Kernel` that the kernel function uses.
    shift_invariant : bool
        Whether K(x + t, x' + t) = K(x, x') for every t. Dense rows are then centred.
    unit_diagonal : bool
        Whether K(x, x) = 1 for every x. A step of length d in the feature space then changes no decision value by more than d.
    deviation_order : {1, 2}
        γ="scale" is 1 / (d · mean of |v - m|^order) over all values v of the data, whose mean is m: 2 stands for the variance,
        1 for the mean absolute deviation. γ="auto" is 1 / d.
    cost : float
        Multiply-adds of a kernel value for each feature of dense rows, roughly; 1 for kernels of dot products. `Kernel.seconds`
        uses it: for the sizes of tasks, and to decide whether the block engine keeps kernel values.
    libsvm : LibsvmName or None
        None: LIBSVM does not have this kernel.
    sklearn : str or None
        What scikit-learn's SVC calls it; None: SVC has it only as a function.
    """

    parameters: ClassVar[tuple[str, ...]] = ()
    shift_invariant: ClassVar[bool] = False
    unit_diagonal: ClassVar[bool] = False
    deviation_order: ClassVar[int] = 2
    cost: ClassVar[float] = 1.0
    libsvm: ClassVar[LibsvmName | None] = None
    sklearn: ClassVar[str | None] = None

    @abstractmethod
    def diagonal(self, kernel: Parameters, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute K(x, x), shape (n,), from |x|² in float64, shape (n,)."""

    @abstractmethod
    def dense(self, kernel: Parameters, rows: DenseFeatures, columns: DenseFeatures, out: Floats, left: int) -> None:
        """Fill out[:, left : left + len(columns)] with K(rows, columns)."""

    @abstractmethod
    def sparse(self, kernel: Parameters, rows: SparseFeatures, columns: SparseFeatures, out: Floats, left: int) -> None:
        """Fill out[:, left : left + len(columns)] with K(rows, columns), with `rows` few enough to be made dense."""


class DotProductFormula(Formula):
    """A kernel function of x·x', |x|² and |x'|².

    The dot products of dense rows are a matrix product (BLAS), those of sparse rows a vectorised sum over the non-zeros of the
    columns. `finish` turns them into kernel values while they are in the cache.
    """

    @abstractmethod
    def finish(self, kernel: Parameters, out: Floats, left: int, right: int, rows: Floats, columns: Floats) -> None:
        """Turn the dot products in out[:, left:right] into kernel values; `rows` and `columns` are |x|² and |x'|²."""

    def dense(self, kernel: Parameters, rows: DenseFeatures, columns: DenseFeatures, out: Floats, left: int) -> None:
        """Fill a part of a tile."""
        right = left + len(columns)
        # OpenBLAS (0.3.31, SkylakeX, single rows) computes vector lanes that it discards, and these may set the flag.
        with np.errstate(invalid="ignore"):
            np.matmul(rows.values, columns.values.T, out=out[:, left:right])
        self.finish(kernel, out, left, right, rows.squares, columns.squares)

    def sparse(self, kernel: Parameters, rows: SparseFeatures, columns: SparseFeatures, out: Floats, left: int) -> None:
        """Fill a part of a tile."""
        line_of, lines = rows.compact()
        _sparse_dots(columns.data, columns.indices, columns.indptr, line_of, lines, out, left)
        self.finish(kernel, out, left, left + len(columns), rows.squares, columns.squares)


@njit(fastmath=SUMS)
def _sparse_dots(
    data: Floats,
    indices: NDArray[np.integer[Any]],
    indptr: Ints,
    line_of: NDArray[np.int32],
    lines: Floats,
    out: Floats,
    left: int,
) -> None:  # pragma: no cover
    """Compute dot products of CSR rows with dense rows: one multiply-add over all dense rows for each non-zero.

    Each line of `lines` has the values of a feature in all dense rows; `line_of` is the line of each feature (-1: none).
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
