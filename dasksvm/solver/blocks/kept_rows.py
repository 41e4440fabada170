"""Kernel rows of members that are kept in pages of `STRIP` values, within a budget of bytes.

The columns of the rows are divided into strips. A page holds the values of a row in a strip, so that a row can be kept in part,
and can grow without being moved. Rows are kept in the order in which they are first used; when the memory is used up, rows that
have not been used for many rounds make room. (If the least recently used row made room at once, a row would seldom be kept until
it is used again.)
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Flags, Floats, Ints
from dasksvm.solver.kernels.uniform import STRIP
from dasksvm.solver.memory import reserve

Pages = NDArray[np.int32]
InHalves = Callable[[Callable[[tuple[int, int]], None], int, int], None]

# A row that has not been used for this many rounds makes room for others.
IDLE_ROUNDS = 8
# Values that nothing has asked for yet are kept only while less than the memory divided by this is taken.
SPARE_PART = 2


class KeptRows:
    """The pages that are kept.

    Parameters
    ----------
    budget : int
        Bytes of all pages.
    dtype : dtype
        Type of the kernel values.
    """

    def __init__(self, budget: int, dtype: np.dtype[Any]) -> None:
        self.capacity = budget // (STRIP * dtype.itemsize)
        self.pages: Floats = reserve((max(self.capacity, 1), STRIP), dtype)
        # Columns that a page has values of.
        self.filled: NDArray[np.int16] = np.zeros(len(self.pages), np.int16)
        self.fresh = 0
        self.free: list[int] = []
        # The line of each place in the table, -1 if it has none. The table has the page of each strip, -1 if none is kept.
        self.line: Ints = np.full(0, -1, np.int64)
        self.table: Pages = np.full((0, 0), -1, np.int32)
        self.place: Ints = np.full(0, -1, np.int64)
        self.used: Ints = np.zeros(0, np.int64)
        self.round = 0

    def make_room(self, places: int, strips: int) -> None:
        """Widen the table for numbers of places and strips."""
        if places > len(self.line):
            self.line = np.concatenate([self.line, np.full(places - len(self.line), -1, np.int64)])
        if strips > self.table.shape[1]:
            wide = np.full((len(self.table), strips + strips // 2), -1, np.int32)
            wide[:, : self.table.shape[1]] = self.table
            self.table = wide

    def find(self, places: Ints, columns: int, strips: Ints | None = None) -> Pages:
        """Return the page of each strip of some rows, shape (strips, rows); -1 where a page lacks values or is not kept.

        Parameters
        ----------
        places : ndarray of int64
        columns : int
            Number of columns.
        strips : ndarray of int64, optional
            The strips to look at; by default all of them.
        """
        wanted = np.arange(-(-columns // STRIP)) if strips is None else strips
        found = np.empty((len(wanted), len(places)), np.int32)
        _find(self.table, self.filled, self.line[places], wanted, columns, found)
        return found

    def allocate(self, places: Ints, columns: int) -> Pages:
        """Provide pages for all strips of some rows, which are used now, as far as the budget allows; `mark_filled` follows.

        Returns
        -------
        ndarray of int32, shape (strips, rows)
            Pages to be filled; -1 where the values are kept already, or where there is no memory for them.
        """
        lines = self.line[places]
        self.used[lines[lines >= 0]] = self.round
        return self._give(places, self.find(places, columns) < 0)

    def allocate_spare(self, places: Ints, strips: Ints, missing: Flags) -> Pages:
        """Provide the pages that are missing in some strips, shape (strips, rows), unless they are too many.

        The rest of the memory remains for values that are asked for.
        """
        spare = self.capacity // SPARE_PART - self.fresh + len(self.free)
        everywhere = np.zeros((int(strips.max()) + 1, len(places)), np.bool_)
        everywhere[strips] = missing & (np.count_nonzero(missing) <= spare)
        return self._give(places, everywhere)[strips]

    def _give(self, places: Ints, missing: Flags) -> Pages:
        """Provide the missing pages as far as there is memory; see `allocate`."""
        strips, wanted = len(missing), np.flatnonzero(missing.any(axis=0))
        given = np.full(missing.shape, -1, np.int32)
        if not len(wanted):
            return given
        lines = self._lines_of(places[wanted])
        pages = self.table[lines, :strips]  # a page that lacks values is filled again
        empty = (pages < 0) & missing[:, wanted].T
        new = self._take_pages(int(np.count_nonzero(empty)))
        at = np.flatnonzero(empty.ravel())[: len(new)]
        pages.ravel()[at] = new
        self.table[lines, :strips] = pages
        given[:, wanted] = np.where(missing[:, wanted], pages.T, -1)
        self.filled[given[given >= 0]] = 0
        return given

    def mark_filled(self, given: Pages, columns: int) -> None:
        """Note that some pages, -1 or from `allocate`, have the values of all columns of their strips."""
        to_fill = given >= 0
        self.filled[given[to_fill]] = np.broadcast_to(_ends(len(given), columns)[:, None], given.shape)[to_fill]

    def _lines_of(self, places: Ints) -> Ints:
        lacking = places[self.line[places] < 0]
        lines = np.flatnonzero(self.place < 0)[: len(lacking)]
        if len(lines) < len(lacking):
            start, more = len(self.place), max(len(lacking), len(self.place) // 2)
            self.table = np.concatenate([self.table, np.full((more, self.table.shape[1]), -1, np.int32)])
            self.place = np.concatenate([self.place, np.full(more, -1, np.int64)])
            self.used = np.concatenate([self.used, np.zeros(more, np.int64)])
            lines = np.concatenate([lines, np.arange(start, start + more)])[: len(lacking)]
        self.line[lacking], self.place[lines], self.used[lines] = lines, lacking, self.round
        return self.line[places]

    def _take_pages(self, count: int) -> Ints:
        """Return up to `count` unused pages; rows that have been idle for long make room."""
        if count > self.capacity - self.fresh + len(self.free):
            idle = (self.place >= 0) & (self.used < self.round - IDLE_ROUNDS)
            self.drop(self.place[idle])
        reused = [self.free.pop() for _ in range(min(count, len(self.free)))]
        start = self.fresh
        self.fresh = min(start + count - len(reused), self.capacity)
        return np.concatenate([np.array(reused, np.int64), np.arange(start, self.fresh)])

    def drop(self, places: Ints) -> None:
        """Drop the rows of some places."""
        lines = self.line[places]
        lines = lines[lines >= 0]
        pages = self.table[lines]
        self.free.extend(pages[pages >= 0].tolist())
        self.table[lines] = -1
        self.line[self.place[lines]] = -1
        self.place[lines] = -1

    def rearrange(self, source: Ints, columns: int, in_halves: InHalves) -> None:
        """Move the values to other columns; strips whose values are not all known are dropped.

        Parameters
        ----------
        source : ndarray of int64
            The old number of each column, -1 for a new column.
        columns : int
            Number of old columns.
        in_halves : callable
            See `Expansion.in_halves`.
        """
        lines = np.flatnonzero(self.place >= 0)
        moved = np.flatnonzero(source != np.arange(len(source)))
        first = int(moved[0]) // STRIP if len(moved) else len(source) // STRIP
        unused = np.full((len(lines), self.table.shape[1]), -1, np.int32)

        def move(part: tuple[int, int]) -> None:
            own = slice(*part)
            _rearrange(self.pages, self.table, self.filled, lines[own], source, columns, first, unused[own])

        in_halves(move, len(lines), 1)
        self.free.extend(unused[unused >= 0].tolist())


@njit()
def _find(
    table: Pages, filled: NDArray[np.int16], lines: Ints, strips: Ints, columns: int, found: Pages
) -> None:  # pragma: no cover
    """Fill `found`, of shape (strips, rows), with the pages of some lines of the table that have all values, -1 elsewhere."""
    for r in range(len(lines)):
        for at in range(len(strips)):
            page = table[lines[r], strips[at]] if lines[r] >= 0 else np.int32(-1)
            complete = page >= 0 and filled[page] >= min(columns - strips[at] * STRIP, STRIP)
            found[at, r] = page if complete else np.int32(-1)


@njit()
def _rearrange(
    pages: Floats,
    table: Pages,
    filled: NDArray[np.int16],
    lines: Ints,
    source: Ints,
    columns: int,
    first: int,
    unused: Pages,
) -> None:  # pragma: no cover
    """Rewrite the pages of some rows from the strip `first` on; pages that are not needed any more go to `unused`."""
    values = np.empty(columns, pages.dtype)
    known = np.empty(columns, np.bool_)
    strips = -(-len(source) // STRIP)
    for row in range(len(lines)):
        line = table[lines[row]]
        known[:] = False
        for strip in range(-(-columns // STRIP)):
            page = line[strip]
            if page >= 0:
                start = strip * STRIP
                for c in range(min(filled[page], columns - start)):
                    values[start + c] = pages[page, c]
                    known[start + c] = True
        count = 0
        for strip in range(first, len(line)):
            if line[strip] >= 0:
                unused[row, count] = line[strip]
                count += 1
                line[strip] = -1
        for strip in range(first, strips):
            start, stop = strip * STRIP, min((strip + 1) * STRIP, len(source))
            complete = count > 0
            for c in range(start, stop):
                complete = complete and source[c] >= 0 and known[source[c]]
            if not complete:
                continue
            count -= 1
            page = unused[row, count]
            unused[row, count] = -1
            line[strip] = page
            filled[page] = stop - start
            for c in range(start, stop):
                pages[page, c - start] = values[source[c]]


def _ends(strips: int, columns: int) -> Ints:
    """Return the number of columns in each strip."""
    return np.minimum(columns - np.arange(strips) * STRIP, STRIP)


def complete_rows(pages: Pages, strips: Ints) -> Flags:
    """Return which rows are kept in all of some strips, for pages of shape (strips, rows)."""
    return np.asarray((pages[np.unique(strips)] >= 0).all(axis=0))
