"""Gradients and duals in float64, from the features alone: what is claimed is computed anew."""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.features import Features
from dasksvm.solver.kernels import Kernel
from dasksvm.solver.tiles import margins

BLOCK = 512


def exact_margins(kernel: Kernel, rows: Features, members: Features, alpha: NDArray[np.float64]) -> NDArray[np.float64]:
    """Σ α K of each row in float64, shape (n,); only members with α ≠ 0 are visited."""
    real = np.dtype(np.float64)
    active = np.flatnonzero(alpha)
    support = members.take(active).astype(real)
    weights = alpha[active][None]
    parts = [
        margins(kernel, rows.part(start, min(start + BLOCK, len(rows))).astype(real), support, weights)[0]
        for start in range(0, len(rows), BLOCK)
    ]
    return np.concatenate(parts) if parts else np.zeros(0)


def exact_gradients(
    kernel: Kernel, members: Features, alpha: NDArray[np.float64], sign: NDArray[np.float64]
) -> NDArray[np.float64]:
    """G = y - Kα of the members, in float64, shape (n,)."""
    return sign - exact_margins(kernel, members, members, alpha)
