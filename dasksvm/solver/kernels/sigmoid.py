"""The sigmoid kernel, tanh(γ x·x' + c)."""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import Floats
from dasksvm.solver.kernels.formula import DotProductFormula, LibsvmName, Parameters


class Sigmoid(DotProductFormula):
    """tanh(γ x·x' + c)."""

    parameters = ("gamma", "coef0")
    libsvm = LibsvmName(3, "sigmoid")
    sklearn = "sigmoid"

    def diagonal(self, kernel: Parameters, squares: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute K(x, x)."""
        found: NDArray[np.float64] = np.tanh(kernel.gamma * squares + kernel.coef0)
        return found

    def finish(self, kernel: Parameters, out: Floats, left: int, right: int, rows: Floats, columns: Floats) -> None:
        """Turn dot products into kernel values."""
        number, part = out.dtype.type, out[:, left:right]
        np.tanh(number(kernel.gamma) * part + number(kernel.coef0), out=part)


SIGMOID = Sigmoid()
