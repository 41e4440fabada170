"""Weighted sums of kernel values, in pieces of fixed shapes: the result does not depend on how many threads share the pieces."""

from typing import Any

import numpy as np

from dasksvm.solver.jit import SUMS, njit
from dasksvm.solver.kernels.features import Features, Ints, Values
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.uniform import fill_uniformly
from dasksvm.solver.memory import Workspace
from dasksvm.solver.state.expansion import Expansion

# Rows of a piece.
PIECE_ROWS = 512


def sums(
    s: Expansion, features: Features, support: Features, amounts: Values, order: Ints | None = None, uniform: bool = False
) -> Values:
    """Compute Σ_s amount_s K(x, x_s) of each row, shape (P, m), for amounts of shape (P, U).

    Parameters
    ----------
    s : Expansion
    features, support : Features
    amounts : ndarray of float64
    order : ndarray of int64, shape (m,), optional
        The rows are `features[order]`, which are gathered piece by piece; without it, all rows of `features`.
    uniform : bool
        Whether each kernel value has the bits that it has in other tiles (see `kernels.uniform`).
    """
    count = len(features) if order is None else len(order)
    found = np.empty((len(amounts), count))
    columns, weights = _sparse_rows(amounts)

    def fill(part: tuple[int, int]) -> None:
        workspace = s.workspaces[min(part[0], 1)]
        for piece in range(*part):
            start, stop = piece * PIECE_ROWS, min((piece + 1) * PIECE_ROWS, count)
            rows = features.part(start, stop) if order is None else features.take(order[start:stop], workspace)
            values = workspace.array("values", (len(rows), len(support)), rows.dtype)
            if uniform:
                fill_uniformly(s.kernel, rows, support, values, workspace)
            else:
                s.kernel.tile(rows, support, out=values)
            _add_up(values, columns, weights, found[:, start:stop])

    s.in_halves(fill, -(-count // PIECE_ROWS), 1)
    s.evaluations += count * len(support)
    return found


def sums_of_known(values: Any, amounts: Values) -> Values:
    """Compute the same sums from kernel values, shape (m, U), that are known."""
    found = np.empty((len(amounts), len(values)))
    _add_up(values, *_sparse_rows(amounts), found)
    return found


def _sparse_rows(amounts: Values) -> tuple[Ints, Values]:
    """Return the positions and the values of the entries that are not 0 in each row, filled up with -1 and 0."""
    present = amounts != 0.0
    width = int(present.sum(axis=1).max(initial=0))
    columns = np.full((len(amounts), width), -1, np.int64)
    weights = np.zeros((len(amounts), width))
    for p, row in enumerate(present):
        at = np.flatnonzero(row)
        columns[p, : len(at)], weights[p, : len(at)] = at, amounts[p, at]
    return columns, weights


@njit(fastmath=SUMS)
def _add_up(values: Any, columns: Any, weights: Any, found: Any) -> None:  # pragma: no cover
    """Write Σ weight · value over the listed columns of each row, for each problem."""
    width = values.shape[1]
    for p in range(len(columns)):
        own, weight = columns[p], weights[p]
        count = len(own)
        while count > 0 and own[count - 1] < 0:
            count -= 1
        for r in range(len(values)):
            row, total = values[r], 0.0
            if count == width:
                for a in range(width):
                    total += weight[a] * np.float64(row[a])
            else:
                for a in range(count):
                    total += weight[a] * np.float64(row[own[a]])
            found[p, r] = total
