"""Steps in pairs on a square matrix of kernel values, which solve the problem restricted to a block."""

import numpy as np

from dasksvm.solver.decomposition.pair_state import (
    FIELDS,
    LEAST,
    MEASURES,
    NO_MEMBER,
    SECOND_ORDER,
    PairChoice,
    make_pair_state,
)
from dasksvm.solver.decomposition.pair_steps import advance
from dasksvm.solver.kernels.features import Floats, Values
from dasksvm.solver.lasvm.finishing import solve_block
from dasksvm.solver.state.row_cache import PAGE, RowCache, blocks_of


def solve_by_pairs(
    kernel: Floats,
    alpha: Values,
    g: Values,
    lower: Values,
    upper: Values,
    target: float,
    limit: int,
    selection: int,
) -> int:
    """Make direction searches until δ ≤ target; return their number.

    Parameters
    ----------
    kernel : ndarray of shape (n, n)
    alpha, g, lower, upper : ndarray of float64, shape (n,)
        The first two are changed in place.
    target : float
    limit : int
        Largest number of searches.
    selection : int
        How pairs are chosen, see `number_of`. MG returns early if it gets stuck (paper 4, section 2.4).
    """
    if selection == SECOND_ORDER:
        return int(solve_block(kernel, alpha, g, lower, upper, target, limit))
    measures = np.zeros(MEASURES)
    measures[LEAST] = np.inf
    state = make_pair_state(
        alpha, g, lower, upper, kernel.diagonal().copy(), np.full(FIELDS, NO_MEMBER, np.int64), measures, PAGE
    )
    _, steps = advance(state, _as_cache(kernel), PairChoice(selection, by_gain=False, rows=2, tau=float(target)), limit)
    return int(steps)


def _as_cache(kernel: Floats) -> RowCache:
    """Return a row cache whose pages are the rows of the matrix, all of them cached."""
    size = len(kernel)
    ring = np.arange(size + 1)
    return RowCache(
        pages=kernel,
        table=np.repeat(np.arange(size, dtype=np.int32)[:, None], blocks_of(size), axis=1),
        cached=np.ones(size, np.bool_),
        touched=np.zeros(size, np.bool_),
        used=np.zeros(size, np.int64),
        newer=np.roll(ring, 1),
        older=np.roll(ring, -1),
        free=np.zeros(0, np.int32),
        size=np.zeros(2, np.int64),
    )
