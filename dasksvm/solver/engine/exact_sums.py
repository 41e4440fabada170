"""Decision values in float64, computed from the features alone, for claims about convergence.

The working gradients accumulate the rounding of float32 kernel values, so that a claim is not based on them.
"""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.tiles import margins
from dasksvm.solver.kernels.features import Features
from dasksvm.solver.kernels.kernel import Kernel

BLOCK = 512


def exact_margins(kernel: Kernel, rows: Features, members: Features, alpha: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute Σ α K of each row in float64, shape (P, n), for α of shape (P, S), skipping members whose α are all 0."""
    real = np.dtype(np.float64)
    active = np.flatnonzero(alpha.any(axis=0))
    support = members.take(active).astype(real)
    weights = np.ascontiguousarray(alpha[:, active])
    out = np.zeros((len(alpha), len(rows)))
    for start in range(0, len(rows), BLOCK):
        stop = min(start + BLOCK, len(rows))
        out[:, start:stop] = margins(kernel, rows.part(start, stop).astype(real), support, weights)
    return out
