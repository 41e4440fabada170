"""Kernel values among members that are kept in square tiles, within a budget of bytes.

They are those among the first places, as many as the budget allows. Rows and columns are places, which do not move, so a value is
found without a table.

As kernels are symmetric, the lower tiles, those on and below the diagonal, are enough. They are numbered from the beginning of
the memory, row by row. The others, which save the time of exchanging rows and columns, are numbered from its end, column by
column, and exist while the lower tiles do not need their memory.
"""

from math import isqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import SUMS, njit
from dasksvm.solver.kernels.features import Flags, Floats, Ints, Values
from dasksvm.solver.kernels.uniform import STRIP
from dasksvm.solver.memory import reserve

Tiles = NDArray[np.floating[Any]]


class KeptTiles:
    """The tiles that are kept.

    Parameters
    ----------
    budget : int
        Bytes of all tiles.
    dtype : dtype
        Type of the kernel values.

    Attributes
    ----------
    places : int
        The values among the places below this number are kept.
    tiles : ndarray of shape (T, STRIP, STRIP)
    lower : int
        The number of lower tiles that are in use.
    arrival : ndarray of int64, shape (V,)
        The arrival number of the member whose values a place has, -1 if it has none.
    """

    def __init__(self, budget: int, dtype: np.dtype[Any]) -> None:
        count = budget // (STRIP * STRIP * dtype.itemsize)
        self.places = (isqrt(8 * count + 1) - 1) // 2 * STRIP
        self.tiles: Tiles = reserve((count, STRIP, STRIP), dtype)
        self.lower = 0
        self.arrival: Ints = np.zeros(0, np.int64)

    def take_new(self, live: Ints, arrivals: Ints) -> Ints:
        """Return the places whose members are new and whose values can be kept; the caller keeps them.

        Parameters
        ----------
        live : ndarray of int64
            The places to look at, ascending.
        arrivals : ndarray of int64, shape (V,)
            The arrival number of the member of each place.
        """
        live, strips = live[: np.searchsorted(live, self.places)], -(-min(len(arrivals), self.places) // STRIP)
        self.lower = max(self.lower, strips * (strips + 1) // 2)
        more = max(len(arrivals) - len(self.arrival), 0)
        self.arrival = np.concatenate([self.arrival, np.full(more, -1, np.int64)])
        new: Ints = live[self.arrival[live] != arrivals[live]]
        self.arrival[new] = arrivals[new]
        return new


@njit()
def _tile_number(count: int, lower: int, row: int, column: int) -> int:  # pragma: no cover
    """Return the number of the tile of two strips, -1 if it does not exist; see `KeptTiles` for `count` and `lower`."""
    if row >= column:
        return row * (row + 1) // 2 + column
    number = count - 1 - (column * (column - 1) // 2 + row)
    return number if number >= lower else -1


@njit()
def put_rows(
    tiles: Tiles, lower: int, strip: int, places: Ints, values: Floats, border: int
) -> None:  # pragma: no cover
    """Keep values of some members with those of a strip, for values of shape (rows, border + STRIP + border)."""
    step, start = 16, 0  # rows and columns of a block that stays in the cache
    while start < len(places):
        own, stop = places[start] // STRIP, start
        while stop < min(start + step, len(places)) and places[stop] // STRIP == own:
            stop += 1
        at = (places[start:stop] % STRIP).astype(np.uint8)
        number = _tile_number(len(tiles), lower, own, strip)
        if number >= 0:
            for r in range(len(at)):
                line, target = values[start + r], tiles[number, at[r]]
                for c in range(STRIP):
                    target[c] = line[border + c]
        number = _tile_number(len(tiles), lower, strip, own)
        if number >= 0:
            tile = tiles[number]
            for left in range(0, STRIP, step):
                for c in range(left, left + step):
                    target = tile[c]
                    for r in range(len(at)):
                        target[at[r]] = values[start + r, border + c]
        start = stop


@njit()
def assemble(known: Floats, lines: Ints, computed: Floats, source: Ints, values: Floats) -> None:  # pragma: no cover
    """Fill rows of a strip; `source` has the position of each column in `known`, or behind it in `computed`, or -1."""
    first = known.shape[1]
    for r in range(len(lines)):
        own, others, target = known[lines[r]], computed[r], values[r]
        for c in range(len(source)):
            at = source[c]
            if at >= first:
                target[c] = others[at - first]
            elif at >= 0:
                target[c] = own[at]


@njit()
def gather_squares(
    tiles: Tiles, strip: int, places: Ints, bounds: Ints, inside: Ints, offsets: Ints, squares: Floats
) -> None:  # pragma: no cover
    """Fill those rows of some squares that belong to a strip, up to the diagonal and as far as values are kept.

    The tiles are the outer loop, so that all squares read a tile while it is in the cache.

    Parameters
    ----------
    tiles : ndarray of shape (T, STRIP, STRIP)
    strip : int
    places : ndarray of int64
        The places of the squares, one square after the other, ascending in each.
    bounds : ndarray of int64, shape (k + 1,)
        Where the places of each square begin.
    inside : ndarray of int64, shape (k,)
        How many places of each square have kept values.
    offsets : ndarray of int64, shape (k,)
        Where each square begins in `squares`.
    squares : ndarray of shape (n,)
        The rows of the squares, one after the other.
    """
    position = (places % STRIP).astype(np.uint8)
    for other in range(strip + 1):
        tile = tiles[strip * (strip + 1) // 2 + other]
        for k in range(len(inside)):
            size = bounds[k + 1] - bounds[k]
            own, at = places[bounds[k] : bounds[k] + inside[k]], position[bounds[k] : bounds[k] + inside[k]]
            left, right = np.searchsorted(own, other * STRIP), np.searchsorted(own, (other + 1) * STRIP)
            for r in range(np.searchsorted(own, strip * STRIP), np.searchsorted(own, (strip + 1) * STRIP)):
                row, line = tile[at[r]], squares[offsets[k] + r * size : offsets[k] + (r + 1) * size]
                for c in range(left, right):
                    line[c] = row[at[c]]


@njit()
def mirror(square: Floats, size: int) -> None:  # pragma: no cover
    """Copy what is below the diagonal of the upper left part of a square to what is above it."""
    step = 64  # rows and columns of a block that stays in the cache
    for top in range(0, size, step):
        for left in range(0, top + 1, step):
            for c in range(left, min(left + step, size)):
                line = square[c]
                for r in range(max(top, c + 1), min(top + step, size)):
                    line[r] = square[r, c]


@njit(fastmath=SUMS)
def add_rows(
    tiles: Tiles,
    lower: int,
    limit: int,
    strip: int,
    places: Ints,
    amounts: Values,
    computed: Floats,
    border: int,
    concerned: Flags,
    scratch: Floats,
    found: Values,
) -> None:  # pragma: no cover
    """Add amount · row for some members, in the columns of a strip.

    The sums have the same bits whether values are kept or computed: the rows are added in the order of the places, in fours that
    do not go beyond a strip.

    Parameters
    ----------
    tiles : ndarray of shape (T, STRIP, STRIP)
    lower : int
    limit : int
        The rows of the places below this are kept; those of the others are in `computed`, in their order.
    strip : int
        Number of the strip of columns, if some rows are kept.
    places : ndarray of int64, shape (m,)
        Of the members, ascending.
    amounts : ndarray of float64, shape (P, m)
    computed : ndarray of shape (rows, border + STRIP + border)
    border : int
    concerned : ndarray of bool, shape (P,)
        Problems that need the sums.
    scratch : ndarray of shape (STRIP, STRIP)
        Memory for rows that are kept as columns.
    found : ndarray of float64, shape (P, STRIP)
    """
    used, line = np.empty(STRIP, np.int64), np.empty(STRIP, np.int64)
    start = outside = 0
    while start < len(places):
        own, count = places[start] // STRIP, 0
        while start + count < len(places) and places[start + count] // STRIP == own:
            line[count] = count
            count += 1
        rows, shift = scratch, 0
        if places[start] >= limit:
            rows, shift = computed[outside : outside + count], border
            outside += count
        elif _tile_number(len(tiles), lower, own, strip) >= 0:
            rows = tiles[_tile_number(len(tiles), lower, own, strip)]
            for s in range(count):
                line[s] = places[start + s] % STRIP
        else:
            _exchange(tiles[_tile_number(len(tiles), lower, strip, own)], places[start : start + count], scratch)
        for p in range(len(amounts)):
            if not concerned[p]:
                continue
            weights, many = amounts[p, start : start + count], 0
            for s in range(count):
                if weights[s] != 0.0:
                    used[many] = s
                    many += 1
            _add_fours(rows, shift, line, weights, used[:many], found[p])
        start += count


@njit()
def _exchange(tile: Floats, places: Ints, rows: Floats) -> None:  # pragma: no cover
    """Copy the columns of some places to rows."""
    step, at = 16, (places % STRIP).astype(np.uint8)  # rows and columns of a block that stays in the cache
    for top in range(0, len(at), step):
        for left in range(0, STRIP, step):
            for r in range(top, min(top + step, len(at))):
                target = rows[r]
                for c in range(left, left + step):
                    target[c] = tile[c, at[r]]


@njit(fastmath=SUMS)
def _add_fours(
    source: Floats, shift: int, line: Ints, weights: Values, used: Ints, total: Values
) -> None:  # pragma: no cover
    """Add weight · row for the rows in use."""
    fours = len(used) - len(used) % 4
    for first in range(0, fours, 4):
        a, b, c, d = used[first], used[first + 1], used[first + 2], used[first + 3]
        row_a = source[line[a]][shift : shift + STRIP]
        row_b = source[line[b]][shift : shift + STRIP]
        row_c = source[line[c]][shift : shift + STRIP]
        row_d = source[line[d]][shift : shift + STRIP]
        w_a, w_b, w_c, w_d = weights[a], weights[b], weights[c], weights[d]
        for v in range(STRIP):
            total[v] += (w_a * np.float64(row_a[v]) + w_b * np.float64(row_b[v])) + (
                w_c * np.float64(row_c[v]) + w_d * np.float64(row_d[v])
            )
    for at in range(fours, len(used)):
        row, weight = source[line[used[at]]][shift : shift + STRIP], weights[used[at]]
        for v in range(STRIP):
            total[v] += weight * np.float64(row[v])
