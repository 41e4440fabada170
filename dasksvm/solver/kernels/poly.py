"""The polynomial kernel, (γ x·x' + c)^p."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Floats
from dasksvm.solver.kernels.formula import DotProductFormula, LibsvmName, Parameters


class Poly(DotProductFormula):
    """(γ x·x' + c)^p."""

    parameters = ("degree", "gamma", "coef0")
    libsvm = LibsvmName(1, "polynomial")
    sklearn = "poly"

    def diagonal(self, kernel: Parameters, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute K(x, x)."""
        found: NDArray[np.float64] = (kernel.gamma * squares + kernel.coef0) ** kernel.degree
        return found

    def finish(self, kernel: Parameters, out: Floats, left: int, right: int, rows: Floats, columns: Floats) -> None:
        """Turn dot products into kernel values."""
        number = out.dtype.type
        _poly(out, left, right, number(kernel.gamma), number(kernel.coef0), kernel.degree)


POLY = Poly()


@njit()
def _poly(
    out: Floats, left: int, right: int, gamma: np.floating[Any], coef0: np.floating[Any], degree: int
) -> None:  # pragma: no cover
    for r in range(out.shape[0]):
        line = out[r][left:right]
        for c in range(len(line)):
            base = gamma * line[c] + coef0
            power = base
            for _ in range(degree - 1):
                power *= base
            line[c] = power
