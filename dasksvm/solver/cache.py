"""Kernel rows of the expansion, in pages, under a byte budget.

A row holds K(member, every place); it is cut into pages of `PAGE` values, so that rows grow without being moved and a
dropped row gives its memory to any other.

The cache keeps a log of events: event e says which place a new member took. A row that is used in the middle of a batch
takes in the events that it lacks, each from the new member's own row, by symmetry (`present`). At the end of a batch all
cached rows take in what they lack, in strips of events, a cache line of each source at a time: a value then costs a few
nanoseconds, and not a miss of the CPU's cache (`take_in`). Rows that nobody used for long are dropped first: to compute
them again is cheaper. Rows are dropped in the order of their last use, so whenever a row is cached, the rows of all members
that came since are cached too.
"""

from typing import Any, NamedTuple

import numpy as np

from dasksvm.solver.jit import njit
from dasksvm.solver.memory import reserve

PAGE = 1024
# Rows a multiple of 4096 bytes apart would share the same few sets of the CPU's cache.
PAD = 16
LEAST_ROWS = 16
# New columns written at once, and the places that share a cache line of them.
STRIP, LINE = 256, 16
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
    used : ndarray of int64, shape (places,)
        Events at the row's last use.
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
    used: Any
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
        pages=reserve((count, PAGE + PAD), dtype),
        table=np.full((places, blocks_of(places)), -1, np.int32),
        applied=np.full(places, -1, np.int64),
        used=np.zeros(places, np.int64),
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
        used=_longer(cache.used, places, 0),
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
    cache.used[place] = cache.size[EVENTS]
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
    """Forget the rows that were not used for `limit` events: to keep them complete costs more than they are worth."""
    head = len(cache.newer) - 1
    oldest = cache.newer[head]
    while oldest != head and cache.size[EVENTS] - cache.used[oldest] > limit:
        drop_row(cache, oldest)
        oldest = cache.newer[head]


@njit()
def spare_page(cache: Any) -> int:  # pragma: no cover
    """Take an unused page, dropping the rows unused for longest until there is one."""
    head = len(cache.newer) - 1
    while cache.size[UNUSED] == 0:
        drop_row(cache, cache.newer[head])
    cache.size[UNUSED] -= 1
    return int(cache.free[cache.size[UNUSED]])


@njit()
def give_pages(cache: Any, place: int, places: int) -> None:  # pragma: no cover
    """Give a cached row the pages that it needs for so many places."""
    for block in range(-(-places // PAGE)):
        if cache.table[place, block] < 0:
            cache.table[place, block] = spare_page(cache)


@njit()
def enter_rows(cache: Any, rows: Any, places: int) -> None:  # pragma: no cover
    """Make rows, whose values follow, the ones used last."""
    for at in range(len(rows)):
        place = rows[at]
        if cache.applied[place] >= 0:
            _unlink(cache, place)
        cache.applied[place] = cache.size[EVENTS]
        link_newest(cache, place)
        give_pages(cache, place, places)


@njit()
def write_rows(cache: Any, rows: Any, values: Any) -> None:  # pragma: no cover
    """Copy the values of rows into their pages."""
    length = values.shape[1]
    for at in range(len(rows)):
        line = values[at]
        for start in range(0, length, PAGE):
            part = line[start : min(start + PAGE, length)]
            cache.pages[cache.table[rows[at], start // PAGE]][: len(part)] = part


@njit()
def write_row(cache: Any, place: int, values: Any, order: Any) -> None:  # pragma: no cover
    """Write values[order] into the pages of one row; a place whose order is negative keeps what it has."""
    for start in range(0, len(order), PAGE):
        page = cache.pages[cache.table[place, start // PAGE]]
        for a in range(min(PAGE, len(order) - start)):
            slot = order[start + a]
            if slot >= 0:
                page[a] = values[slot]


@njit()
def set_values(cache: Any, place: int, columns: Any, values: Any) -> None:  # pragma: no cover
    """Write some values of one row."""
    pages = cache.table[place]
    for at in range(len(columns)):
        cache.pages[pages[columns[at] // PAGE], columns[at] % PAGE] = values[at]


@njit()
def lacking(cache: Any, places: int) -> Any:  # pragma: no cover
    """List the cached rows that lack events, ascending, with pages for all places: oldest rows make room."""
    for place in range(places):
        if cache.applied[place] >= 0:
            give_pages_or_drop(cache, place, places)
    rows = np.empty(places, np.int64)
    count = 0
    for place in range(places):
        if 0 <= cache.applied[place] < cache.size[EVENTS]:
            rows[count] = place
            count += 1
    return rows[:count]


@njit()
def give_pages_or_drop(cache: Any, place: int, places: int) -> None:  # pragma: no cover
    """Give a row its pages; it may be the one that has to go."""
    for block in range(-(-places // PAGE)):
        if cache.applied[place] >= 0 and cache.table[place, block] < 0:
            page = spare_page(cache)
            if cache.applied[place] >= 0:
                cache.table[place, block] = page
            else:
                cache.free[cache.size[UNUSED]] = page
                cache.size[UNUSED] += 1


@njit()
def live_events(cache: Any, first: int) -> Any:  # pragma: no cover
    """List the places of the members that came with event `first` or later and whose rows are cached."""
    out = np.empty(cache.size[EVENTS] - first, np.int64)
    count = 0
    for e in range(first, cache.size[EVENTS]):
        place = cache.event_place[e]
        if cache.event_of[place] == e and cache.applied[place] >= 0:
            out[count] = place
            count += 1
    return out[:count]


@njit()
def take_in(cache: Any, rows: Any, targets: Any) -> None:  # pragma: no cover
    """Write the columns of the new members `targets`, whose rows are complete, into other rows (ascending places).

    Targets that took neighbouring places are written as a run.
    """
    lines = np.empty((LINE, STRIP), cache.pages.dtype)
    for first in range(0, len(targets), STRIP):
        strip = targets[first : first + STRIP]
        count = len(strip)
        ends = np.empty(count, np.int64)
        for e in range(count - 1, -1, -1):
            joined = e + 1 < count and strip[e + 1] == strip[e] + 1 and strip[e + 1] % PAGE != 0
            ends[e] = ends[e + 1] if joined else e + 1
        at = 0
        while at < len(rows):
            start = rows[at] // LINE * LINE
            block, within = start // PAGE, start % PAGE
            for e in range(count):
                source = cache.pages[cache.table[strip[e], block]]
                for a in range(LINE):
                    lines[a, e] = source[within + a]
            while at < len(rows) and rows[at] < start + LINE:
                pages, line = cache.table[rows[at]], lines[rows[at] - start]
                e = 0
                while e < count:
                    stop, offset = ends[e], strip[e] % PAGE - e
                    page = cache.pages[pages[strip[e] // PAGE]]
                    for k in range(e, stop):
                        page[offset + k] = line[k]
                    e = stop
                at += 1
    cache.applied[rows] = cache.size[EVENTS]


@njit()
def _take_in(cache: Any, place: int) -> None:  # pragma: no cover
    pages = cache.table[place]
    block, within = place // PAGE, place % PAGE
    for e in range(cache.applied[place], cache.size[EVENTS]):
        target = cache.event_place[e]
        if cache.event_of[target] == e:
            cache.pages[pages[target // PAGE], target % PAGE] = cache.pages[cache.table[target, block], within]
    cache.applied[place] = cache.size[EVENTS]


@njit()
def present(cache: Any, place: int, places: int) -> bool:  # pragma: no cover
    """Complete a member's row to the present places and make it the one used last; False if it is not cached."""
    if cache.applied[place] >= 0 and cache.applied[place] < cache.size[EVENTS]:
        # Before the row counts as used: should pages run short, it goes first, and not the rows that it needs.
        give_pages_or_drop(cache, place, places)
        if cache.applied[place] >= 0:
            _take_in(cache, place)
    if cache.applied[place] < 0:
        return False
    _unlink(cache, place)
    link_newest(cache, place)
    return True


@njit()
def value(cache: Any, row: int, column: int) -> float:  # pragma: no cover
    """K between two members; the row must be present."""
    return np.float64(cache.pages[cache.table[row, column // PAGE], column % PAGE])
