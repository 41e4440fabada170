"""The linear kernel, x·x'."""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import Floats
from dasksvm.solver.kernels.formula import DotProductFormula, LibsvmName, Parameters


class Linear(DotProductFormula):
    """x·x'."""

    libsvm = LibsvmName(0, "linear")
    sklearn = "linear"

    def diagonal(self, kernel: Parameters, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute K(x, x)."""
        return squares

    def finish(self, kernel: Parameters, out: Floats, left: int, right: int, rows: Floats, columns: Floats) -> None:
        """Leave the dot products as they are."""


LINEAR = Linear()
