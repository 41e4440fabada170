"""The kernel values of a round, in pieces of fixed shapes: the result does not depend on how many threads share the pieces."""

from typing import Any

import numpy as np

from dasksvm.solver.jit import SUMS, njit
from dasksvm.solver.kernels.features import Features, Floats, Ints, Values
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.memory import Workspace
from dasksvm.solver.state.expansion import Expansion

# Rows of a piece.
PIECE_ROWS = 512


def square(expansion: Expansion, places: Ints) -> Floats:
    """Compute the kernel values among some members, shape (m, m)."""
    among = expansion.members().take(expansion.order()[places])
    values = expansion.rows_among(among, np.arange(len(places)))
    np.fill_diagonal(values, expansion.working.diagonal[places])
    expansion.evaluations += values.size
    return values


def move_gradients(expansion: Expansion, g: Values, places: Ints, changed: Ints, amounts: Values) -> None:
    """Apply g ← g - Σ_s amount_s K_s at some places, for g of shape (P, V) and amounts of shape (P, U) of U changed members."""
    if len(changed):
        slots, members = expansion.order(), expansion.members()
        g[:, places] -= sums(expansion, members, members.take(slots[changed]), amounts, slots[places])


def sums(
    expansion: Expansion, features: Features, support: Features, amounts: Values, order: Ints | None = None
) -> Values:
    """Compute Σ_s amount_s K(x, x_s) of each row, shape (P, m), for amounts of shape (P, U).

    The rows are `features[order]`, which are gathered piece by piece; without `order` all rows of `features`.
    """
    count = len(features) if order is None else len(order)
    found = np.empty((len(amounts), count))
    columns, weights = _sparse_rows(amounts)

    def fill(part: tuple[int, int]) -> None:
        workspace = expansion.workspaces[min(part[0], 1)]
        for piece in range(*part):
            start, stop = piece * PIECE_ROWS, min((piece + 1) * PIECE_ROWS, count)
            rows = features.part(start, stop) if order is None else features.take(order[start:stop], workspace)
            found[:, start:stop] = piece_sums(expansion.kernel, rows, support, columns, weights, workspace)

    expansion.in_halves(fill, -(-count // PIECE_ROWS), 1)
    expansion.evaluations += count * len(support)
    return found


def piece_sums(
    kernel: Kernel, rows: Features, support: Features, columns: Ints, weights: Values, workspace: Workspace
) -> Values:
    """Compute Σ_s amount_s K(x, x_s) of the rows of a piece, shape (P, m); `columns` and `weights` are of `_sparse_rows`.

    Kernel values have the type of the features; they are summed in float64.
    """
    values = workspace.array("values", (len(rows), len(support)), rows.dtype)
    kernel.tile(rows, support, out=values)
    found = np.empty((len(columns), len(rows)))
    _add_up(values, columns, weights, found)
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
