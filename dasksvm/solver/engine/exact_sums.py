"""Decision values in float64, computed from the features alone, for claims about convergence.

The working gradients accumulate the rounding of float32 kernel values, so that a claim is not based on them.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.tiles import margins
from dasksvm.solver.jit import SUMS, njit
from dasksvm.solver.kernels.features import Features, Floats, Values
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


def blocks_among(count: int) -> int:
    """Return the number of blocks of rows in which `add_sums_among` works."""
    return -(-count // BLOCK)


def add_sums_among(kernel: Kernel, members: Features, alpha: Values, blocks: Iterable[int], out: Values) -> None:
    """Add Σ α K among some members in float64, of the values in some blocks of rows and in front of the diagonal.

    The values behind the diagonal are the same, so that only half of them are computed. Every block must be added once.

    Parameters
    ----------
    kernel : Kernel
    members : Features
        n rows.
    alpha : ndarray of float64, shape (P, n)
    blocks : iterable of int
    out : ndarray of float64, shape (P, n)
    """
    real, columns = np.dtype(np.float64), [slice(b * BLOCK, (b + 1) * BLOCK) for b in range(blocks_among(len(members)))]
    for block in blocks:
        own = columns[block]
        rows = members.part(own.start, min(own.stop, len(members))).astype(real)
        for before in columns[:block]:
            tile = kernel.tile(rows, members.part(before.start, before.stop).astype(real))
            _add_both(tile, alpha[:, own], alpha[:, before], out[:, own], out[:, before])
        out[:, own] += alpha[:, own] @ kernel.tile(rows, rows)


@njit(fastmath=SUMS)
def _add_both(
    tile: Floats, row_weights: Values, column_weights: Values, row_sums: Values, column_sums: Values
) -> None:  # pragma: no cover
    """Add the weighted sums of the rows of a tile, and those of its columns."""
    for r in range(len(tile)):
        values = tile[r]
        for p in range(len(row_weights)):
            weights, sums, weight, total = column_weights[p], column_sums[p], row_weights[p, r], 0.0
            for c in range(len(values)):
                total += weights[c] * values[c]
                sums[c] += weight * values[c]
            row_sums[p, r] += total
