"""Kernel rows of the expansion, in pages, under a byte budget.

A row holds K(member, every place); it is cut into pages of `PAGE` values, so that rows grow without being moved and a
dropped row gives its memory to any other.

Rows are completed lazily. The cache keeps a log of events: event e says which place a new member took. A row that is used
takes in the events since its last use, each from the new member's own row, by symmetry. Rows are dropped in the order
of their last use, so whenever a row is cached, the rows of all members that came since are cached too. A row that lacks
too much is cheaper to compute again, in a tile.
"""

from typing import Any, NamedTuple

import numpy as np

from dasksvm.solver.jit import njit

PAGE = 1024
# Rows a multiple of 4096 bytes apart would share the same few sets of the CPU's cache.
PAD = 16
LEAST_ROWS = 16
# Fields of RowCache.size
UNUSED, EVENTS = 0, 1


class RowCache(NamedTuple):
    """Arrays of the cache; `place` indexes the working arrays of the expansion.

    Attributes
    ----------
    pages : ndarray of shape (pages, PAGE + PAD)
        Kernel values, and padding.
    table : ndarray of int32, shape (places, blocks)
        Page of each block of a row, -1 where it has none.
    applied : ndarray of int64, shape (places,)
        Events that the row has taken in; -1 for a row that is not cached.
    event_of : ndarray of int64, shape (places,)
        The event with which the present member of a place came; -1 for a free place.
    event_place : ndarray of int64, shape (events,)
        Place of each event.
    newer, older : ndarray of int64, shape (places + 1,)
        The order of use as a ring; its last entry is the ring's head.
    free : ndarray of int32, shape (pages,)
        Stack of unused pages.
    size : ndarray of int64, shape (2,)
        Unused pages; events.
    """

    pages: Any
    table: Any
    applied: Any
    event_of: Any
    event_place: Any
    newer: Any
    older: Any
    free: Any
    size: Any


def blocks_of(places: int) -> int:
    """Count the blocks that hold so many places."""
    return -(-places // PAGE)


def empty_cache(budget: int, places: int, dtype: np.dtype[Any]) -> RowCache:
    """Make a cache for `budget` bytes; its memory is touched only as rows come."""
    ring = np.full(places + 1, places, np.int64)
    count = max(budget // ((PAGE + PAD) * dtype.itemsize), LEAST_ROWS * blocks_of(places))
    return RowCache(
        pages=np.empty((count, PAGE + PAD), dtype),
        table=np.full((places, blocks_of(places)), -1, np.int32),
        applied=np.full(places, -1, np.int64),
        event_of=np.full(places, -1, np.int64),
        event_place=np.zeros(0, np.int64),
        newer=ring,
        older=ring.copy(),
        free=np.arange(count, dtype=np.int32)[::-1].copy(),
        size=np.array([count, 0, 0, 0]),
    )


def _longer(array: Any, length: int, fill: int) -> Any:
    longer = np.full((length, *array.shape[1:]), fill, array.dtype)
    longer[: len(array)] = array
    return longer


def widened(cache: RowCache, places: int, events: int) -> RowCache:
    """Make room for so many places, and for so many more events."""
    old = len(cache.applied)
    log = int(cache.size[EVENTS]) + events
    if log > len(cache.event_place):
        cache = cache._replace(event_place=_longer(cache.event_place, 2 * log, 0))
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
        applied=_longer(cache.applied, places, -1),
        event_of=_longer(cache.event_of, places, -1),
        newer=rings[0],
        older=rings[1],
        free=free,
        size=size,
    )


@njit()
def _unlink(cache: Any, place: int) -> None:  # pragma: no cover
    before, after = cache.newer[place], cache.older[place]
    cache.older[before] = after
    cache.newer[after] = before


@njit()
def link_newest(cache: Any, place: int) -> None:  # pragma: no cover
    """Enter a row into the order of use."""
    head = len(cache.newer) - 1
    after = cache.older[head]
    cache.older[head] = place
    cache.newer[place] = head
    cache.older[place] = after
    cache.newer[after] = place


@njit()
def drop_row(cache: Any, place: int) -> None:  # pragma: no cover
    """Forget a row, if it is cached."""
    if cache.applied[place] < 0:
        return
    for block in range(cache.table.shape[1]):
        page = cache.table[place, block]
        if page >= 0:
            cache.free[cache.size[UNUSED]] = page
            cache.size[UNUSED] += 1
            cache.table[place, block] = -1
    cache.applied[place] = -1
    _unlink(cache, place)


@njit()
def drop_rows(cache: Any, places: Any) -> None:  # pragma: no cover
    """Forget the rows of members that have left, and that they ever came."""
    for at in range(len(places)):
        drop_row(cache, places[at])
        cache.event_of[places[at]] = -1


@njit()
def drop_stale(cache: Any, limit: int) -> None:  # pragma: no cover
    """Forget the rows that lack more than `limit` events: their memory serves the rows in use."""
    head = len(cache.newer) - 1
    oldest = cache.newer[head]
    while oldest != head and cache.size[EVENTS] - cache.applied[oldest] > limit:
        drop_row(cache, oldest)
        oldest = cache.newer[head]


@njit()
def spare_page(cache: Any) -> int:  # pragma: no cover
    """Take an unused page, dropping the rows unused for longest until there is one."""
    head = len(cache.newer) - 1
    while cache.size[UNUSED] == 0:
        drop_row(cache, cache.newer[head])
    cache.size[UNUSED] -= 1
    return cache.free[cache.size[UNUSED]]


@njit()
def put_row(cache: Any, place: int, values: Any, events: int) -> None:  # pragma: no cover
    """Store a row that has taken in so many events, as the one used last."""
    if cache.applied[place] >= 0:
        _unlink(cache, place)
    cache.applied[place] = events
    link_newest(cache, place)
    length = len(values)
    for start in range(0, length, PAGE):
        block = start // PAGE
        if cache.table[place, block] < 0:
            cache.table[place, block] = spare_page(cache)
        part = values[start : min(start + PAGE, length)]
        cache.pages[cache.table[place, block]][: len(part)] = part


@njit()
def present(cache: Any, place: int, places: int, limit: int) -> bool:  # pragma: no cover
    """Complete a member's row to the present places and make it the one used last.

    False if it is not cached, or lacks more than `limit` events: then it is to be computed.
    """
    applied, events = cache.applied[place], cache.size[EVENTS]
    if applied < 0 or events - applied > limit:
        return False
    _unlink(cache, place)
    link_newest(cache, place)
    if applied == events:
        return True
    cache.size[2] += events-applied; cache.size[3]+=1
    pages = cache.table[place]
    for block in range(-(-places // PAGE)):
        if pages[block] < 0:
            pages[block] = spare_page(cache)
    block, within = place // PAGE, place % PAGE
    for e in range(applied, events):
        target = cache.event_place[e]
        if cache.event_of[target] == e:
            cache.pages[pages[target // PAGE], target % PAGE] = cache.pages[cache.table[target, block], within]
    cache.applied[place] = events
    return True


@njit()
def value(cache: Any, row: int, column: int) -> float:  # pragma: no cover
    """K between two members; the row must be present."""
    return np.float64(cache.pages[cache.table[row, column // PAGE], column % PAGE])


@njit()
def put_rows(cache: Any, places: Any, values: Any, events: int) -> None:  # pragma: no cover
    """Store rows, one after the other."""
    for at in range(len(places)):
        put_row(cache, places[at], values[at], events)
