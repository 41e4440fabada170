"""Kernel rows of the expansion, in pages, within a budget of bytes.

A row holds K(member, every place). It is divided into pages of `PAGE` values, so that it can grow without being moved and so
that any row can use the memory of a dropped one. Between two batches every cached row is complete: at the end of a batch the
values for the new members are added to all rows (`write_columns`). Rows that have not been used for long are dropped, because
keeping them complete costs more than computing them again.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Flags, Floats, Ints
from dasksvm.solver.memory import reserve

PAGE = 1024
# Padding of a page: pages at distances that are multiples of 4096 bytes would compete for a few sets of the CPU's cache.
PAD = 16
LEAST_ROWS = 16
# Fields of RowCache.size
UNUSED, CLOCK = 0, 1


class RowCache(NamedTuple):
    """Arrays of the cache; `place` indexes the working arrays of the expansion.

    Attributes
    ----------
    pages : ndarray of shape (pages, PAGE + PAD)
        Kernel values, and padding.
    table : ndarray of int32, shape (places, blocks)
        Page of each block of a row, -1 if it has none.
    cached, touched : ndarray of bool, shape (places,)
        Whether there is a row; whether it was used since the order of use was last brought up to date.
    used : ndarray of int64, shape (places,)
        The row's last use, as the number of members that had entered by then.
    newer, older : ndarray of int64, shape (places + 1,)
        The order of use, as a doubly linked ring; the last entry is its head.
    free : ndarray of int32, shape (pages,)
        Stack of unused pages.
    size : ndarray of int64, shape (2,)
        Number of unused pages; number of members that have entered so far.
    """

    pages: Floats
    table: NDArray[np.int32]
    cached: Flags
    touched: Flags
    used: Ints
    newer: Ints
    older: Ints
    free: NDArray[np.int32]
    size: Ints


def blocks_of(places: int) -> int:
    """Return the number of blocks that hold a number of places."""
    return -(-places // PAGE)


def empty_cache(budget: int, places: int, dtype: np.dtype[Any]) -> RowCache:
    """Make an empty cache for `budget` bytes; the operating system provides the memory as rows are written."""
    ring = np.full(places + 1, places, np.int64)
    count = max(budget // ((PAGE + PAD) * dtype.itemsize), LEAST_ROWS * blocks_of(places))
    return RowCache(
        pages=reserve((count, PAGE + PAD), dtype),
        table=np.full((places, blocks_of(places)), -1, np.int32),
        cached=np.zeros(places, np.bool_),
        touched=np.zeros(places, np.bool_),
        used=np.zeros(places, np.int64),
        newer=ring,
        older=ring.copy(),
        free=np.arange(count, dtype=np.int32)[::-1].copy(),
        size=np.array([count, 0]),
    )


def _longer(array: NDArray[Any], length: int, fill: int) -> NDArray[Any]:
    longer = np.full((length, *array.shape[1:]), fill, array.dtype)
    longer[: len(array)] = array
    return longer


def widened(cache: RowCache, places: int) -> RowCache:
    """Return the cache with arrays for a larger number of places."""
    old = len(cache.cached)
    if places <= old:
        return cache
    table = np.full((places, blocks_of(places)), -1, np.int32)
    table[:old, : cache.table.shape[1]] = cache.table
    rings = []
    for ring in (cache.newer, cache.older):
        moved = np.where(ring == old, places, ring)
        wide = np.full(places + 1, places, np.int64)
        wide[:old], wide[places] = moved[:old], moved[old]
        rings.append(wide)
    pages, free, size = cache.pages, cache.free, cache.size.copy()
    short = LEAST_ROWS * blocks_of(places) - len(pages)
    if short > 0:
        added = np.arange(len(pages), len(pages) + short, dtype=np.int32)
        free = _longer(np.concatenate([free[: size[UNUSED]], added]), len(pages) + short, 0)
        pages = np.concatenate([pages, np.empty((short, PAGE + PAD), pages.dtype)])
        size[UNUSED] += short
    return cache._replace(
        pages=pages,
        table=table,
        cached=_longer(cache.cached, places, 0),
        touched=_longer(cache.touched, places, 0),
        used=_longer(cache.used, places, 0),
        newer=rings[0],
        older=rings[1],
        free=free,
        size=size,
    )


@njit()
def _unlink(cache: RowCache, place: int) -> None:  # pragma: no cover
    before, after = cache.newer[place], cache.older[place]
    cache.older[before] = after
    cache.newer[after] = before


@njit()
def link_newest(cache: RowCache, place: int) -> None:  # pragma: no cover
    """Add a row to the order of use, as the one used last."""
    cache.used[place] = cache.size[CLOCK]
    head = len(cache.newer) - 1
    after = cache.older[head]
    cache.older[head] = place
    cache.newer[place] = head
    cache.older[place] = after
    cache.newer[after] = place


@njit()
def drop_row(cache: RowCache, place: int) -> None:  # pragma: no cover
    """Drop a row, if it is cached."""
    if not cache.cached[place]:
        return
    for block in range(cache.table.shape[1]):
        page = cache.table[place, block]
        if page >= 0:
            cache.free[cache.size[UNUSED]] = page
            cache.size[UNUSED] += 1
            cache.table[place, block] = -1
    cache.cached[place] = cache.touched[place] = False
    _unlink(cache, place)


@njit()
def drop_rows(cache: RowCache, places: Ints) -> None:  # pragma: no cover
    """Drop the rows of evicted members."""
    for at in range(len(places)):
        drop_row(cache, places[at])


@njit()
def drop_stale(cache: RowCache, limit: int) -> None:  # pragma: no cover
    """Drop the rows that were not used while `limit` members entered: keeping them complete costs more than they save."""
    head = len(cache.newer) - 1
    oldest = cache.newer[head]
    while oldest != head and cache.size[CLOCK] - cache.used[oldest] > limit:
        drop_row(cache, oldest)
        oldest = cache.newer[head]


@njit()
def take_page(cache: RowCache) -> int:  # pragma: no cover
    """Take an unused page; drop the least recently used rows until there is one."""
    head = len(cache.newer) - 1
    while cache.size[UNUSED] == 0:
        drop_row(cache, cache.newer[head])
    cache.size[UNUSED] -= 1
    return int(cache.free[cache.size[UNUSED]])


@njit()
def allocate_pages(cache: RowCache, place: int, places: int) -> None:  # pragma: no cover
    """Allocate the pages that a cached row needs for a number of places."""
    for block in range(-(-places // PAGE)):
        if cache.table[place, block] < 0:
            cache.table[place, block] = take_page(cache)


@njit()
def allocate_rows(cache: RowCache, rows: Ints, places: int) -> None:  # pragma: no cover
    """Allocate rows, as the ones used last; the caller writes their values."""
    for at in range(len(rows)):
        place = rows[at]
        if cache.cached[place]:
            _unlink(cache, place)
        cache.cached[place] = True
        link_newest(cache, place)
        allocate_pages(cache, place, places)


@njit()
def write_rows(cache: RowCache, rows: Ints, values: Floats) -> None:  # pragma: no cover
    """Copy the values of rows into their pages."""
    length = values.shape[1]
    for at in range(len(rows)):
        line = values[at]
        for start in range(0, length, PAGE):
            page = cache.pages[cache.table[rows[at], start // PAGE]]
            for v in range(start, min(start + PAGE, length)):
                page[v - start] = line[v]


@njit()
def write_row(cache: RowCache, place: int, values: Floats, order: Ints) -> None:  # pragma: no cover
    """Write values[order] into the pages of one row; a place whose order is negative keeps its value."""
    for start in range(0, len(order), PAGE):
        page = cache.pages[cache.table[place, start // PAGE]]
        for a in range(min(PAGE, len(order) - start)):
            slot = order[start + a]
            if slot >= 0:
                page[a] = values[slot]


@njit()
def set_values(cache: RowCache, place: int, columns: Ints, values: Floats) -> None:  # pragma: no cover
    """Write some values of one row."""
    pages = cache.table[place]
    for at in range(len(columns)):
        cache.pages[pages[columns[at] // PAGE], columns[at] % PAGE] = values[at]


@njit()
def extend_rows(cache: RowCache, places: int) -> Ints:  # pragma: no cover
    """Allocate pages for a number of places to every cached row; return the rows that are still cached, ascending.

    If the memory does not suffice, the least recently used rows are dropped.
    """
    for place in range(places):
        if cache.cached[place]:
            allocate_pages_or_drop(cache, place, places)
    return np.flatnonzero(cache.cached[:places])


@njit()
def allocate_pages_or_drop(cache: RowCache, place: int, places: int) -> None:  # pragma: no cover
    """Allocate the missing pages of a row; the row itself may be dropped to free pages."""
    for block in range(-(-places // PAGE)):
        if cache.cached[place] and cache.table[place, block] < 0:
            page = take_page(cache)
            if cache.cached[place]:
                cache.table[place, block] = page
            else:
                cache.free[cache.size[UNUSED]] = page
                cache.size[UNUSED] += 1


@njit()
def cache_new_rows(
    cache: RowCache, new: Ints, rows: Floats, mutual: Floats, chosen: Ints, places: int
) -> None:  # pragma: no cover
    """Cache the rows of new members: rows[chosen], and mutual[chosen, chosen] among the new members."""
    for at in range(len(new)):
        allocate_rows(cache, new[at : at + 1], places)
        write_rows(cache, new[at : at + 1], rows[chosen[at] : chosen[at] + 1])
        set_values(cache, new[at], new, mutual[chosen[at]][chosen])


@njit()
def write_columns(cache: RowCache, rows: Ints, places: Ints, columns: Floats, chosen: Ints) -> None:  # pragma: no cover
    """Write the values of some rows at some places: columns[row, chosen]."""
    for at in range(len(rows)):
        pages, line = cache.table[rows[at]], columns[rows[at]]
        for e in range(len(places)):
            cache.pages[pages[places[e] // PAGE], places[e] % PAGE] = line[chosen[e]]


@njit()
def mark_used(cache: RowCache, place: int) -> bool:  # pragma: no cover
    """Mark a member's row as the one used last; return False if it is not cached."""
    if not cache.cached[place]:
        return False
    _unlink(cache, place)
    link_newest(cache, place)
    return True


@njit()
def update_use_order(cache: RowCache) -> None:  # pragma: no cover
    """Mark the touched rows as the ones used last."""
    for place in np.flatnonzero(cache.touched):
        cache.touched[place] = False
        mark_used(cache, int(place))


def narrowed(cache: RowCache, kept: Ints) -> RowCache:
    """Return a cache with the rows and columns of some places only, ascending.

    It takes over the pages of the old cache, which must not be used any more.
    """
    places = len(kept)
    fresh = empty_cache(0, places, cache.pages.dtype)._replace(pages=cache.pages, free=cache.free, size=cache.size)
    _narrow(cache, fresh, kept)
    return fresh


@njit()
def _narrow(cache: RowCache, fresh: RowCache, kept: Ints) -> None:  # pragma: no cover
    position = np.full(len(cache.cached), -1)
    position[kept] = np.arange(len(kept))
    head = len(cache.newer) - 1
    place = cache.newer[head]
    while place != head:
        after, to = cache.newer[place], position[place]
        if to < 0:
            drop_row(cache, place)
        else:
            pages = cache.table[place]
            for c in range(len(kept)):
                value = cache.pages[pages[kept[c] // PAGE], kept[c] % PAGE]
                cache.pages[pages[c // PAGE], c % PAGE] = value
            for block in range(len(pages)):
                if block < fresh.table.shape[1]:
                    fresh.table[to, block] = pages[block]
                elif pages[block] >= 0:
                    cache.free[cache.size[UNUSED]] = pages[block]
                    cache.size[UNUSED] += 1
            fresh.cached[to] = True
            link_newest(fresh, to)
        place = after
