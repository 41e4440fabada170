"""Weighted sums of kernel values, in pieces of fixed shapes: the result does not depend on how many threads share the pieces."""

import numpy as np

from dasksvm.solver.engine.tiles import add_up, nonzeros_of
from dasksvm.solver.kernels.features import Features, Flags, Floats, Ints, Values
from dasksvm.solver.kernels.uniform import fill_uniformly
from dasksvm.solver.state.expansion import Expansion

# Rows of a piece, and of a piece of known values, which are few so that they stay in the cache.
PIECE_ROWS, KNOWN_ROWS = 512, 32


def sums(
    s: Expansion,
    features: Features,
    support: Features,
    amounts: Values,
    order: Ints | None = None,
    wanted: Flags | None = None,
    uniform: bool = False,
) -> Values:
    """Compute Σ_s amount_s K(x, x_s) of each row, shape (P, m), for amounts of shape (P, U).

    Parameters
    ----------
    s : Expansion
    features, support : Features
    amounts : ndarray of float64
    order : ndarray of int64, shape (m,), optional
        The rows are `features[order]`, which are gathered piece by piece; without it, all rows of `features`.
    wanted : ndarray of bool, shape (P, m), optional
        Which sums are needed; the others are 0.
    uniform : bool
        Whether each kernel value has the bits that it has in other tiles (see `kernels.uniform`).
    """
    count = len(features) if order is None else len(order)
    found = np.zeros((len(amounts), count))
    chosen = np.ones(found.shape, np.bool_) if wanted is None else wanted
    nonzeros = nonzeros_of(amounts)

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
            add_up(values, *nonzeros, chosen[:, start:stop], found[:, start:stop])

    s.in_halves(fill, -(-count // PIECE_ROWS), 1)
    s.evaluations += count * len(support)
    return found


def sums_of_known(s: Expansion, values: Floats, at: Ints, amounts: Values, wanted: Flags) -> Values:
    """Compute the same sums from kernel values that are known, in the columns `at` of `values`."""
    found = np.zeros((len(amounts), len(values)))
    nonzeros = nonzeros_of(amounts)

    def add(part: tuple[int, int]) -> None:
        for start in range(*part, KNOWN_ROWS):
            rows = slice(start, min(start + KNOWN_ROWS, part[1]))
            add_up(values[rows].take(at, axis=1), *nonzeros, wanted[:, rows], found[:, rows])

    s.in_halves(add, len(values), KNOWN_ROWS)
    return found
