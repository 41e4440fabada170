"""Kernel rows of some members, completed when those that were left out come back."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.row_cache import PAGE, UNUSED, RowCache, blocks_of, drop_rows, empty_cache, present

# Rows that are completed by one tile.
PIECE = 64


def completed(expansion: Expansion, cache: RowCache, active: Ints, wanted: NDArray[np.bool_]) -> RowCache:
    """Give a cache of all members' columns, in the same pages, from one of the active members' columns, which has none left.

    Parameters
    ----------
    expansion : Expansion
    cache : RowCache
    active : ndarray of int64, shape (n,)
        Places of the active members.
    wanted : ndarray of bool, shape (n,)
        Whose rows are to stay; those used last do, as far as there are pages.
    """
    members, order = expansion.members(), expansion.order()
    out = np.setdiff1d(np.arange(len(order)), active)
    others = members.take(order[out])
    rows = newest_rows(cache)
    kept = rows[wanted[rows]]
    drop_rows(cache, rows[~wanted[rows]])
    fresh = empty_cache(0, len(expansion.working.slot), cache.pages.dtype)
    fresh = fresh._replace(pages=cache.pages, free=cache.free, size=cache.size)
    more = max(blocks_of(len(order)) - cache.table.shape[1], 0)
    start = 0
    while start < len(kept):
        fit = PIECE if more == 0 else min(PIECE, int(cache.size[UNUSED]) // more)
        some = kept[start : start + fit]
        if len(some) == 0:
            break
        values = np.empty((len(some), len(order)), cache.pages.dtype)
        values[:, active] = _read(cache, some, len(active))
        values[:, out] = expansion.kernel.tile(members.take(order[active[some]]), others)
        drop_rows(cache, some)
        expansion.put_rows(fresh, active[some], values)
        expansion.evaluations += len(some) * len(out)
        start += len(some)
    drop_rows(cache, kept[start:])
    for place in active[kept[:start]][::-1]:
        present(fresh, place)
    return fresh


@njit()
def newest_rows(cache: Any) -> Any:  # pragma: no cover
    """List the cached rows, those used last first."""
    rows = np.empty(len(cache.cached), np.int64)
    head, count = len(cache.newer) - 1, 0
    place = cache.older[head]
    while place != head:
        rows[count] = place
        count += 1
        place = cache.older[place]
    return rows[:count]


@njit()
def _read(cache: Any, rows: Any, width: int) -> Any:  # pragma: no cover
    """Copy the values of some rows."""
    values = np.empty((len(rows), width), cache.pages.dtype)
    for at in range(len(rows)):
        for start in range(0, width, PAGE):
            page = cache.pages[cache.table[rows[at], start // PAGE]]
            for v in range(start, min(start + PAGE, width)):
                values[at, v] = page[v - start]
    return values
