"""Completing the cached kernel rows when the members that shrinking has left out become active again."""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Floats, Ints
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.row_cache import PAGE, UNUSED, RowCache, blocks_of, drop_rows, empty_cache, mark_used

# Number of rows that are completed by one tile.
PIECE = 64


def completed(expansion: Expansion, cache: RowCache, active: Ints, keep: NDArray[np.bool_]) -> RowCache:
    """Return a cache with the columns of all members, given one with those of the active members.

    It takes over the pages of the given cache, which must not be used any more.

    Parameters
    ----------
    expansion : Expansion
    cache : RowCache
    active : ndarray of int64, shape (n,)
        Places of the active members.
    keep : ndarray of bool, shape (n,)
        Members whose rows are kept. If the pages do not suffice for all of them, the rows used last are kept.
    """
    members, order = expansion.members(), expansion.order()
    out = np.setdiff1d(np.arange(len(order)), active)
    others = members.take(order[out])
    rows = newest_rows(cache)
    kept = rows[keep[rows]]
    drop_rows(cache, rows[~keep[rows]])
    fresh = empty_cache(0, len(expansion.working.slot), cache.pages.dtype)
    fresh = fresh._replace(pages=cache.pages, free=cache.free, size=cache.size)
    more = max(blocks_of(len(order)) - cache.table.shape[1], 0)
    start = 0
    while start < len(kept):
        fit = PIECE if more == 0 else min(PIECE, int(cache.size[UNUSED]) // more)
        part = kept[start : start + fit]
        if len(part) == 0:
            break
        values = np.empty((len(part), len(order)), cache.pages.dtype)
        values[:, active] = _read(cache, part, len(active))
        values[:, out] = expansion.kernel.tile(members.take(order[active[part]]), others)
        drop_rows(cache, part)
        expansion.put_rows(fresh, active[part], values)
        expansion.evaluations += len(part) * len(out)
        start += len(part)
    drop_rows(cache, kept[start:])
    for place in active[kept[:start]][::-1]:
        mark_used(fresh, place)
    return fresh


@njit()
def newest_rows(cache: RowCache) -> Ints:  # pragma: no cover
    """Return the cached rows, the most recently used first."""
    rows = np.empty(len(cache.cached), np.int64)
    head, count = len(cache.newer) - 1, 0
    place = cache.older[head]
    while place != head:
        rows[count] = place
        count += 1
        place = cache.older[place]
    return rows[:count]


@njit()
def _read(cache: RowCache, rows: Ints, width: int) -> Floats:  # pragma: no cover
    """Copy the values of some rows."""
    values = np.empty((len(rows), width), cache.pages.dtype)
    for at in range(len(rows)):
        for start in range(0, width, PAGE):
            page = cache.pages[cache.table[rows[at], start // PAGE]]
            for v in range(start, min(start + PAGE, width)):
                values[at, v] = page[v - start]
    return values
