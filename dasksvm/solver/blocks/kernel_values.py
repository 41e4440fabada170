"""The kernel values between members that rounds need: squares among working sets, and weighted sums of rows.

If values are cheap, as those of narrow rows are, they are computed whenever they are needed. If they are expensive, they are
computed in tiles in which each value has the same bits wherever it stands, and kept as far as the budget allows. The budget
changes no bit of the results.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.blocks.keeping import can_keep
from dasksvm.solver.blocks.kept_rows import KeptRows, Pages, complete_rows
from dasksvm.solver.blocks.pieces import sums_at_members
from dasksvm.solver.jit import SUMS, njit
from dasksvm.solver.kernels.features import Features, Flags, Floats, Ints, Values
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.uniform import STRIP, TILE_ROWS, fill_uniformly, shape_of_tiles
from dasksvm.solver.messages import SumsPlan
from dasksvm.solver.state.expansion import SQUARE_PART, Expansion

NONE: Ints = np.zeros(0, np.int64)
# The columns are rearranged when more than this share of them is unused.
UNUSED_SHARE = 0.125


class KnownRows(NamedTuple):
    """Kernel values of some new members that were computed when these were scored.

    Attributes
    ----------
    places, lines : ndarray of int64, shape (m,)
        Of the new members, and the rows of `values` that are theirs.
    columns, arrivals : ndarray of int64, shape (U,)
        Places and arrival numbers of the members that they were scored against.
    values : ndarray of shape (K, U)
    """

    places: Ints
    lines: Ints
    columns: Ints
    arrivals: Ints
    values: Floats


class KernelValues:
    """Computes kernel values between members, and keeps those for which this pays.

    The columns of kept rows are the members in play. Those that are not in play any more remain until they are many.

    Parameters
    ----------
    kernel : Kernel
    budget : int
        Bytes of the values that are kept.
    """

    def __init__(self, kernel: Kernel, budget: int) -> None:
        self.kernel, self.budget = kernel, budget
        self.expensive = False
        self.kept: KeptRows | None = None
        # The places of the columns, and the arrival numbers of their members.
        self.columns = self.arrivals = self._row_arrivals = NONE

    def begin_round(self, s: Expansion, in_play: Flags) -> None:
        """Begin a round with the members in play, for `in_play` of shape (V,)."""
        self._update(s, in_play)
        if self.kept is not None:
            self.kept.round += 1

    def _update(self, s: Expansion, in_play: Flags) -> None:
        """Bring the columns up to date with the members in play."""
        wanted, members = np.flatnonzero(in_play), s.members()
        self.expensive = can_keep(self.kernel, members)
        if not self.expensive:
            self.kept, self.columns = None, wanted
            return
        if self.kept is None:
            self.kept = KeptRows(self.budget, members.dtype)
            self.columns = self.arrivals = self._row_arrivals = NONE
        kept = self.kept
        kept.make_room(s.places, 0)
        kept.drop(np.flatnonzero(self._row_arrivals != s.arrival[: len(self._row_arrivals)]))
        self._row_arrivals = s.arrivals()
        self._arrange_columns(s, in_play, wanted)
        kept.make_room(s.places, -(-len(self.columns) // STRIP))

    def _arrange_columns(self, s: Expansion, in_play: Flags, wanted: Ints) -> None:
        """Append new columns; leave out the unused ones if they are many.

        Columns are sorted by class, as far as they are not there already, so that strips have members of few pairs of classes.
        """
        valid = self._valid(s, in_play)
        present = np.zeros(len(in_play), np.bool_)
        present[self.columns[valid]] = True
        new = wanted[~present[wanted]]
        new = new[np.lexsort((s.working.slot[new], s.code[new]))]
        if np.count_nonzero(~valid) > UNUSED_SHARE * len(valid):
            assert self.kept is not None
            source = np.flatnonzero(valid)
            source = source[np.argsort(s.code[self.columns[source]], kind="stable")]
            self.kept.rearrange(np.concatenate([source, np.full(len(new), -1)]), len(self.columns), s.in_halves)
            self.columns, self.arrivals = self.columns[source], self.arrivals[source]
        self.columns = np.concatenate([self.columns, new])
        self.arrivals = np.concatenate([self.arrivals, s.arrival[new]])

    def _valid(self, s: Expansion, in_play: Flags) -> Flags:
        """Return the columns that are used: that have the member that they had, and one in play."""
        return np.asarray((self.arrivals == s.arrival[self.columns]) & in_play[self.columns])

    def _column_numbers(self, s: Expansion) -> Ints:
        """Return the column of each place, -1 if it has none: the last one, as earlier ones have lost their members."""
        number = np.full(s.places, -1, np.int64)
        number[self.columns] = np.arange(len(self.columns))
        return number

    # Keeping

    def complete(self, s: Expansion, places: Ints) -> None:
        """Compute and keep the rows of some members, as far as they are not kept and the budget allows."""
        if self.kept is None:
            return
        self._copy_strips(s, places)
        given = self.kept.allocate(places, len(self.columns))
        wanted = np.flatnonzero((given >= 0).any(axis=0))
        if len(wanted):
            places, given = places[wanted], given[:, wanted]
            copied = self._copy_columns(s, places, given)
            self._compute_rows(s, places, np.where(copied, -1, given))
            self.kept.mark_filled(given, len(self.columns))

    def _copy_strips(self, s: Expansion, places: Ints) -> None:
        """Copy what rows lack in full strips from the rows of the members that are these columns, as kernels are symmetric.

        The rows of new members have the values that the rows of older ones lack. Reading what one row lacks takes nearly as long
        as reading what all rows of its strip lack. So all of them get it, because most will need it.
        """
        assert self.kept is not None
        kept, full = self.kept, len(self.columns) // STRIP
        columns, numbers = self.columns[: full * STRIP], self._column_numbers(s)[places]
        numbers = numbers[numbers < full * STRIP]
        strips, rows = np.nonzero(kept.find(columns[numbers], full * STRIP) < 0)
        # Strips that some rows lack, and which rows these are, by their own strips.
        lacking, strips = np.unique(strips, return_inverse=True)
        wanted = np.zeros((len(lacking), full), np.bool_)
        wanted[strips, numbers[rows] // STRIP] = True
        live = (self.arrivals[: full * STRIP] == s.arrival[columns]).reshape(full, STRIP)
        sources = kept.find(columns.reshape(full, STRIP)[lacking].ravel(), full * STRIP)
        sources = sources.reshape(full, len(lacking), STRIP)
        wanted &= ((sources >= 0) | ~live[lacking]).all(axis=2).T
        if not wanted.any():
            return
        missing = kept.find(columns, full * STRIP, lacking) < 0
        missing &= np.repeat(wanted, STRIP, axis=1) & live.ravel() & (kept.line[columns] >= 0)
        given = kept.allocate_spare(columns, lacking, missing)

        def copy(part: tuple[int, int]) -> None:
            for which in range(*part):
                for other in np.flatnonzero(wanted[which]):
                    to = given[which, other * STRIP : (other + 1) * STRIP]
                    at = np.flatnonzero(to >= 0)
                    if len(at):
                        _transpose(kept.pages, np.where(live[lacking[which]], sources[other, which], -1), at, to[at])

        s.in_halves(copy, len(lacking), 1)
        kept.mark_filled(given, len(lacking) * STRIP)

    def _copy_columns(self, s: Expansion, places: Ints, given: Pages) -> Flags:
        """Copy what the rows still lack in the same way, one by one; return which pages are filled."""
        assert self.kept is not None
        kept = self.kept
        strip_of, position = np.divmod(self._column_numbers(s)[places], STRIP)
        live = self.arrivals == s.arrival[self.columns]
        copied = np.zeros(given.shape, np.bool_)

        def copy(part: tuple[int, int]) -> None:
            for strip in range(*part):
                lacking = np.flatnonzero(given[strip] >= 0)
                if not len(lacking):
                    continue
                at = slice(strip * STRIP, (strip + 1) * STRIP)
                sources = kept.find(self.columns[at], len(self.columns))
                known = ((sources >= 0) | ~live[at]).all(axis=1)
                for other in np.unique(strip_of[lacking]):
                    if known[other]:
                        some = lacking[strip_of[lacking] == other]
                        from_pages = np.where(live[at], sources[other], -1)
                        _transpose(kept.pages, from_pages, position[some], given[strip, some])
                        copied[strip, some] = True

        s.in_halves(copy, len(given), 1)
        return copied

    def _compute_rows(self, s: Expansion, places: Ints, given: Pages) -> None:
        """Compute the pages `given`, of shape (strips, rows)."""
        assert self.kept is not None
        kept, members, order = self.kept, s.members(), s.order()
        shape, slots = shape_of_tiles(self.kernel, members), order[self.columns]
        own = members.take(order[places], s.workspace, "own rows")

        def fill(part: tuple[int, int]) -> None:
            workspace = s.workspaces[min(part[0], 1)]
            for strip in range(*part):
                at = np.flatnonzero(given[strip] >= 0)
                if len(at):
                    columns = shape.columns(members, slots[strip * STRIP : (strip + 1) * STRIP], workspace)
                for start in range(0, len(at), TILE_ROWS):
                    some = at[start : start + TILE_ROWS]
                    tile = shape.tile(self.kernel, shape.rows(own, some, workspace), columns, workspace)
                    _store(tile, shape.border, given[strip, some], kept.pages)

        s.in_halves(fill, len(given), 1)
        s.evaluations += STRIP * int(np.count_nonzero(given >= 0))

    def keep_known(self, s: Expansion, known: KnownRows) -> None:
        """Keep the rows of new members of which most values are known; the others are computed."""
        self._update(s, s.working.member[:, : s.places].any(axis=0))
        if self.kept is None:
            return
        kept, width = self.kept, len(self.columns)
        given = kept.allocate(known.places, width)
        rows = np.flatnonzero((given >= 0).any(axis=0))
        if not len(rows):
            return
        at = np.where(known.arrivals == s.arrival[known.columns], self._column_numbers(s)[known.columns], -1)
        useful = np.flatnonzero(at >= 0)
        source = np.full(width, -1, np.int64)
        source[at[useful]] = useful
        lacking = np.flatnonzero(source < 0)
        source[lacking] = len(known.columns) + np.arange(len(lacking))
        members, order = s.members(), s.order()
        values = s.workspace.array("lacking values", (len(rows), len(lacking)), members.dtype)
        own = members.take(order[known.places[rows]], s.workspace, "own rows")
        among = members.take(order[self.columns[lacking]], s.workspace, "lacking columns")

        def compute(part: tuple[int, int]) -> None:
            columns = slice(part[0] * STRIP, min(part[1] * STRIP, len(lacking)))
            workspace = s.workspaces[min(part[0], 1)]
            fill_uniformly(self.kernel, own, among.part(columns.start, columns.stop), values[:, columns], workspace)

        def keep(part: tuple[int, int]) -> None:
            some = slice(*part)
            lines = known.lines[rows[some]]
            _assemble(known.values, lines, values[some], source, width, given[:, rows[some]], kept.pages)

        if len(lacking):
            s.in_halves(compute, -(-len(lacking) // STRIP), 1)
        s.in_halves(keep, len(rows), 1)
        kept.mark_filled(given, width)
        s.evaluations += values.size

    # Using

    def squares(self, s: Expansion, chosen: list[Ints]) -> list[Floats]:
        """Compute the kernel values among the members of each of some sets, shape (m, m); the next call overwrites them."""
        dtype = s.members().dtype
        found = [
            s.workspace.array(f"square {number}", (len(places), len(places)), dtype)
            for number, places in enumerate(chosen)
        ]
        lacking = (
            self._gather_squares(s, chosen, found) if self.expensive else [np.arange(len(each)) for each in chosen]
        )
        for places, rows, values in zip(chosen, lacking, found, strict=True):
            if len(rows):
                self._compute_square(s, places, rows, values)
            np.fill_diagonal(values, s.working.diagonal[places])
        return found

    def _compute_square(self, s: Expansion, places: Ints, rows: Ints, values: Floats) -> None:
        """Compute some rows of a square; of a cheap one all of them."""
        among = s.members().take(s.order()[places], s.workspace, "own rows")
        s.evaluations += len(rows) * len(places)
        if not self.expensive:
            s.rows_among(among, rows, values)
            return

        def fill(part: tuple[int, int]) -> None:
            some, workspace = rows[slice(*part)], s.workspaces[min(part[0], 1)]
            computed = workspace.array("rows of a square", (len(some), len(places)), values.dtype)
            fill_uniformly(self.kernel, among.take(some), among, computed, workspace)
            values[some] = computed

        s.in_halves(fill, len(rows), SQUARE_PART)

    def _gather_squares(self, s: Expansion, chosen: list[Ints], found: list[Floats]) -> list[Ints]:
        """Fill the rows of squares whose values are kept; return the other rows of each."""
        assert self.kept is not None
        kept, number = self.kept, self._column_numbers(s)
        lacking = [np.zeros(0, np.int64)] * len(chosen)

        def gather(part: tuple[int, int]) -> None:
            for which in range(*part):
                strips, positions = np.divmod(number[chosen[which]], STRIP)
                pages = kept.find(chosen[which], len(self.columns))
                complete = complete_rows(pages, strips)
                _gather(kept.pages, np.ascontiguousarray(pages.T), strips, positions, complete, found[which])
                lacking[which] = np.flatnonzero(~complete)

        s.in_halves(gather, len(chosen), 1)
        return lacking

    def move_gradients(self, s: Expansion, g: Values, in_play: Flags, changed: Ints, amounts: Values) -> None:
        """Apply g ← g - Σ_s amount_s K_s to the members in play, for g of shape (P, V) and amounts of shape (P, U)."""
        if not len(changed):
            return
        if self.kept is None:
            self.move_others(s, g, self.columns, changed, amounts)
            return
        found = self._sums(s, changed, amounts, self.kept.find(changed, len(self.columns)))
        valid = np.flatnonzero(self._valid(s, in_play))
        g[:, self.columns[valid]] -= found[:, valid]

    def move_others(self, s: Expansion, g: Values, places: Ints, changed: Ints, amounts: Values) -> None:
        """Apply the same to any members, with values that are computed now whether they are kept or not."""
        if len(changed) and len(places):
            order = s.order()
            plan = SumsPlan(s.members(), s.generation, order[places], order[changed], amounts, self.expensive)
            g[:, places] -= sums_at_members(s, plan)

    def _sums(self, s: Expansion, changed: Ints, amounts: Values, pages: Pages) -> Values:
        """Compute Σ_s amount_s K_s at the columns, shape (P, columns), from the pages that are kept and from others."""
        assert self.kept is not None
        members, order, kept = s.members(), s.order(), self.kept.pages
        shape, slots = shape_of_tiles(self.kernel, members), order[self.columns]
        found = np.zeros((len(pages), len(amounts), STRIP))
        concerned = self._problems_of_strips(s, len(pages))
        own = members.take(order[changed], s.workspace, "own rows") if (pages < 0).any() else members.part(0, 0)

        def fill(part: tuple[int, int]) -> None:
            workspace = s.workspaces[min(part[0], 1)]
            for strip in range(*part):
                columns: Features | None = None
                for start in range(0, len(changed), TILE_ROWS):
                    of = pages[strip, start : start + TILE_ROWS]
                    lacking, tile = start + np.flatnonzero(of < 0), kept[:0]
                    if len(lacking):
                        if columns is None:
                            columns = shape.columns(members, slots[strip * STRIP : (strip + 1) * STRIP], workspace)
                        tile = shape.tile(self.kernel, shape.rows(own, lacking, workspace), columns, workspace)
                    weights = amounts[:, start : start + TILE_ROWS]
                    _add_rows(kept, of, tile, shape.border, weights, concerned[strip], found[strip])

        s.in_halves(fill, len(pages), 1)
        s.evaluations += STRIP * int(np.count_nonzero(pages < 0))
        together = found.transpose(1, 0, 2).reshape(len(amounts), -1)
        return together[:, : len(self.columns)]

    def _problems_of_strips(self, s: Expansion, strips: int) -> Flags:
        """Return which problems have members among the columns of each strip, shape (strips, P)."""
        member: Flags = s.working.member[:, self.columns]
        padded = np.zeros((len(member), strips * STRIP), np.bool_)
        padded[:, : len(self.columns)] = member
        return np.ascontiguousarray(padded.reshape(len(member), strips, STRIP).any(axis=2).T)


@njit()
def _store(tile: Floats, border: int, to: NDArray[np.int32], pages: Floats) -> None:  # pragma: no cover
    """Copy the rows of a tile to pages."""
    for r in range(len(to)):
        line, page = tile[r], pages[to[r]]
        for c in range(STRIP):
            page[c] = line[border + c]


@njit()
def _transpose(pages: Floats, source: Pages, at: Ints, to: NDArray[np.int32]) -> None:  # pragma: no cover
    """Fill the pages `to` with column `at` of the pages in `source`, and with 0 where the source is -1."""
    step = 16  # rows and columns of a block that stays in the cache
    for top in range(0, len(to), step):
        for left in range(0, len(source), step):
            for r in range(top, min(top + step, len(to))):
                page, position = pages[to[r]], at[r]
                for c in range(left, min(left + step, len(source))):
                    page[c] = pages[source[c], position] if source[c] >= 0 else 0


@njit()
def _assemble(
    known: Floats, lines: Ints, computed: Floats, source: Ints, width: int, given: Pages, pages: Floats
) -> None:  # pragma: no cover
    """Fill the pages of some rows; `source` has the position of each column in `known`, or behind it in `computed`."""
    first = known.shape[1]
    for r in range(len(lines)):
        for strip in range(len(given)):
            if given[strip, r] < 0:
                continue
            page, start = pages[given[strip, r]], strip * STRIP
            for c in range(start, min(start + STRIP, width)):
                at = source[c]
                page[c - start] = known[lines[r], at] if at < first else computed[r, at - first]


@njit()
def _gather(
    pages: Floats, of: Pages, strips: Ints, positions: Ints, complete: Flags, values: Floats
) -> None:  # pragma: no cover
    """Fill the complete rows of a square, and as it is symmetric their columns, from pages, shape (rows, strips).

    The columns have the given strips and positions within them.
    """
    size, step = len(complete), 64
    for top in range(0, size, step):
        bottom = min(top + step, size)
        for r in range(top, bottom):
            if complete[r]:
                line, own, strip, page = values[r], of[r], np.int64(-1), pages[0]
                for c in range(top, size):
                    if strips[c] != strip:
                        strip = strips[c]
                        page = pages[own[strip]]
                    line[c] = page[positions[c]]
        for left in range(bottom, size, step):
            for c in range(left, min(left + step, size)):
                line = values[c]
                for r in range(top, bottom):
                    if complete[r]:
                        line[r] = values[r, c]
    for r in range(size):
        if complete[r]:
            line, own = values[r], of[r]
            for c in range(r):
                if not complete[c]:
                    line[c] = pages[own[strips[c]], positions[c]]


@njit(fastmath=SUMS)
def _add_rows(
    pages: Floats,
    of: NDArray[np.int32],
    tile: Floats,
    border: int,
    amounts: Values,
    concerned: Flags,
    found: Values,
) -> None:  # pragma: no cover
    """Add amount · row for some rows, in each problem concerned; the rows without a page follow each other in the tile."""
    line = np.empty(len(of), np.int64)
    computed = 0
    for s in range(len(of)):
        line[s] = computed
        computed += of[s] < 0
    used = np.empty(len(of), np.int64)
    for p in range(len(amounts)):
        total, count = found[p], 0
        if not concerned[p]:
            continue
        for s in range(len(of)):
            if amounts[p, s] != 0.0:
                used[count] = s
                count += 1
        for first in range(0, count - count % 4, 4):
            a, b, c, d = used[first], used[first + 1], used[first + 2], used[first + 3]
            row_a = pages[of[a]][0:STRIP] if of[a] >= 0 else tile[line[a]][border : border + STRIP]
            row_b = pages[of[b]][0:STRIP] if of[b] >= 0 else tile[line[b]][border : border + STRIP]
            row_c = pages[of[c]][0:STRIP] if of[c] >= 0 else tile[line[c]][border : border + STRIP]
            row_d = pages[of[d]][0:STRIP] if of[d] >= 0 else tile[line[d]][border : border + STRIP]
            w_a, w_b, w_c, w_d = amounts[p, a], amounts[p, b], amounts[p, c], amounts[p, d]
            for v in range(STRIP):
                total[v] += (w_a * np.float64(row_a[v]) + w_b * np.float64(row_b[v])) + (
                    w_c * np.float64(row_c[v]) + w_d * np.float64(row_d[v])
                )
        for at in range(count - count % 4, count):
            s = used[at]
            row = pages[of[s]][0:STRIP] if of[s] >= 0 else tile[line[s]][border : border + STRIP]
            weight = amounts[p, s]
            for v in range(STRIP):
                total[v] += weight * np.float64(row[v])
