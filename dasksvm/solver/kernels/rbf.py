"""The Gaussian kernel, exp(-γ |x - x'|²)."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.exponential import exponential
from dasksvm.solver.kernels.features import Floats
from dasksvm.solver.kernels.formula import DotProductFormula, LibsvmName, Parameters


class Rbf(DotProductFormula):
    """exp(-γ |x - x'|²), the distance from dot products: |x|² - 2x·x' + |x'|², which rounding must not make negative."""

    parameters = ("gamma",)
    shift_invariant = True
    unit_diagonal = True
    libsvm = LibsvmName(2, "rbf")
    sklearn = "rbf"

    def diagonal(self, kernel: Parameters, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute K(x, x)."""
        return np.ones(len(squares))

    def finish(self, kernel: Parameters, out: Floats, left: int, right: int, rows: Floats, columns: Floats) -> None:
        """Turn dot products into kernel values."""
        _rbf_exponent(out, left, right, rows, columns, out.dtype.type(kernel.gamma))
        exponential(out, left, right)


RBF = Rbf()


@njit(fastmath={"contract"})
def _rbf_exponent(
    out: Floats, left: int, right: int, rows: Floats, columns: Floats, gamma: np.floating[Any]
) -> None:  # pragma: no cover
    """Turn x·x' into -γ |x - x'|², never above 0."""
    two, zero = out.dtype.type(2), out.dtype.type(0)
    for r in range(out.shape[0]):
        line, square = out[r][left:right], rows[r]
        for c in range(len(line)):
            distance = square + columns[c] - two * line[c]
            line[c] = -gamma * distance if distance > zero else zero
