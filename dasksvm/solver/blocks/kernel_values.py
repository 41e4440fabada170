"""The kernel values between members that rounds need: squares among working sets, and weighted sums of rows.

If values are cheap, as those of narrow rows are, they are computed whenever they are needed. If they are expensive, they are
computed in tiles in which each value has the same bits wherever it stands, and kept as far as the budget allows. The budget
changes no bit of the results.
"""

from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np

from dasksvm.solver.blocks.keeping import can_keep
from dasksvm.solver.blocks.kept_tiles import KeptTiles, add_rows, assemble, gather_squares, mirror, put_rows
from dasksvm.solver.blocks.pieces import sums_at_members
from dasksvm.solver.kernels.features import Flags, Floats, Ints, Values
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.kernels.uniform import STRIP, TILE_ROWS, fill_uniformly, shape_of_tiles
from dasksvm.solver.messages import SumsPlan
from dasksvm.solver.state.expansion import SQUARE_PART, Expansion
from dasksvm.solver.state.working_arrays import live_places

Strip = TypeVar("Strip")


class KnownRows(NamedTuple):
    """Kernel values of some new members that were computed when these were scored.

    Attributes
    ----------
    places, lines : ndarray of int64, shape (m,)
        Of the new members, ascending, and the rows of `values` that are theirs.
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

    Parameters
    ----------
    kernel : Kernel
    budget : int
        Bytes of the values that are kept.
    """

    def __init__(self, kernel: Kernel, budget: int) -> None:
        self.kernel, self.budget = kernel, budget
        self.kept: KeptTiles | None = None

    # Keeping

    def _store(self, s: Expansion) -> KeptTiles | None:
        """Return the values that are kept, or None if they are cheap."""
        members = s.members()
        if not can_keep(self.kernel, members):
            self.kept = None
        elif self.kept is None:
            self.kept = KeptTiles(self.budget, members.dtype)
        return self.kept

    def begin_round(self, s: Expansion) -> None:
        """Keep the values of the members that are new since the last round, as far as the budget allows."""
        kept = self._store(s)
        if kept is not None:
            new = kept.take_new(live_places(s.working), s.arrivals())
            if len(new):
                self._keep(s, new)

    def _keep(self, s: Expansion, new: Ints) -> None:
        """Compute and keep the values of some members with all members."""
        assert self.kept is not None
        tiles, lower, members, order = self.kept.tiles, self.kept.lower, s.members(), s.order()
        inside = order[: self.kept.places]
        own, shape = members.take(order[new], s.workspace, "own rows"), shape_of_tiles(self.kernel, members)

        def keep(part: tuple[int, int]) -> None:
            workspace = s.workspaces[min(part[0], 1)]
            for strip in range(*part):
                columns = shape.columns(members, inside[strip * STRIP : (strip + 1) * STRIP], workspace)
                for start in range(0, len(new), TILE_ROWS):
                    at = np.arange(start, min(start + TILE_ROWS, len(new)))
                    tile = shape.tile(self.kernel, shape.rows(own, at, workspace), columns, workspace)
                    put_rows(tiles, lower, strip, new[at], tile, shape.border)

        s.in_halves(keep, -(-len(inside) // STRIP), 1)
        s.evaluations += len(new) * len(inside)

    def keep_known(self, s: Expansion, known: KnownRows) -> None:
        """Keep the values of new members of which most are known; the others are computed."""
        kept = self._store(s)
        if kept is None:
            return
        new, live = kept.take_new(known.places, s.arrivals()), live_places(s.working)
        live = live[: np.searchsorted(live, kept.places)]
        if not len(new):
            return
        lines = known.lines[np.isin(known.places, new)]
        # Where the values of each place are: in `known`, or behind them among those that are computed.
        source = np.full(-(-s.places // STRIP) * STRIP, -1, np.int64)
        same = np.flatnonzero(known.arrivals == s.arrival[known.columns])
        source[known.columns[same]] = same
        lacking = live[source[live] < 0]
        source[lacking] = len(known.columns) + np.arange(len(lacking))
        members, order = s.members(), s.order()
        computed = s.workspace.array("lacking values", (len(new), len(lacking)), members.dtype)
        own = members.take(order[new], s.workspace, "own rows")
        among = members.take(order[lacking], s.workspace, "lacking columns")

        def compute(part: tuple[int, int]) -> None:
            columns = slice(part[0] * STRIP, min(part[1] * STRIP, len(lacking)))
            workspace = s.workspaces[min(part[0], 1)]
            fill_uniformly(self.kernel, own, among.part(columns.start, columns.stop), computed[:, columns], workspace)

        def keep(part: tuple[int, int]) -> None:
            scratch = s.workspaces[min(part[0], 1)].array("rows of a strip", (len(new), STRIP), members.dtype)
            for strip in range(*part):
                assemble(known.values, lines, computed, source[strip * STRIP : (strip + 1) * STRIP], scratch)
                put_rows(kept.tiles, kept.lower, strip, new, scratch, 0)

        if len(lacking):
            s.in_halves(compute, -(-len(lacking) // STRIP), 1)
        s.in_halves(keep, -(-int(live[-1] + 1) // STRIP), 1)
        s.evaluations += computed.size

    # Using

    def squares(self, s: Expansion, chosen: list[Ints]) -> list[Floats]:
        """Compute the kernel values among the members of each of some sets, shape (m, m); the next call overwrites them."""
        sizes = [len(places) for places in chosen]
        offsets = np.concatenate([[0], np.cumsum(np.square(sizes))])
        flat = s.workspace.array("squares", (int(offsets[-1]),), s.members().dtype)
        found = [flat[offsets[k] : offsets[k + 1]].reshape(size, size) for k, size in enumerate(sizes)]
        if self.kept is not None:
            self._gather_squares(s, chosen, found, offsets, flat)
        for places, values in zip(chosen, found, strict=True):
            self._compute_square(s, places, values)
            np.fill_diagonal(values, s.working.diagonal[places])
        return found

    def _gather_squares(
        self, s: Expansion, chosen: list[Ints], found: list[Floats], offsets: Ints, flat: Floats
    ) -> None:
        """Fill the parts of squares whose values are kept; `flat` has one square after the other, from the offsets on."""
        assert self.kept is not None
        tiles, limit = self.kept.tiles, self.kept.places
        places, bounds = np.concatenate(chosen), np.concatenate([[0], np.cumsum([len(each) for each in chosen])])
        inside = np.array([np.searchsorted(each, limit) for each in chosen])
        strips = _in_fair_halves(list(range(-(-min(s.places, limit) // STRIP))))

        def gather(part: tuple[int, int]) -> None:
            for strip in strips[slice(*part)]:
                gather_squares(tiles, strip, places, bounds, inside, offsets, flat)

        def complete(part: tuple[int, int]) -> None:
            for k in range(*part):
                mirror(found[k], inside[k])

        s.in_halves(gather, len(strips), 1)
        s.in_halves(complete, len(found), 1)

    def _compute_square(self, s: Expansion, places: Ints, values: Floats) -> None:
        """Compute the part of a square whose values are not kept."""
        inside = 0 if self.kept is None else int(np.searchsorted(places, self.kept.places))
        if inside == len(places):
            return
        rows = np.arange(inside, len(places))
        among = s.members().take(s.order()[places], s.workspace, "own rows")
        s.evaluations += len(rows) * len(places)
        if self.kept is None:
            s.rows_among(among, rows, values)
            return

        def fill(part: tuple[int, int]) -> None:
            some, workspace = rows[slice(*part)], s.workspaces[min(part[0], 1)]
            fill_uniformly(self.kernel, among.take(some), among, values[some[0] : some[-1] + 1], workspace)

        s.in_halves(fill, len(rows), SQUARE_PART)
        values[:inside, inside:] = values[inside:, :inside].T

    def move_gradients(self, s: Expansion, g: Values, at: Flags, changed: Ints, amounts: Values) -> None:
        """Apply g ← g - Σ_s amount_s K_s to some members.

        Parameters
        ----------
        s : Expansion
        g : ndarray of float64, shape (P, V)
        at : ndarray of bool, shape (V,)
            Places of the members whose gradients move.
        changed : ndarray of int64, shape (U,)
            Places of the members s, ascending.
        amounts : ndarray of float64, shape (P, U)
        """
        places = np.flatnonzero(at)
        if not len(changed) or not len(places):
            return
        if self.kept is None:
            order = s.order()
            plan = SumsPlan(s.members(), s.generation, order[places], order[changed], amounts)
            g[:, places] -= sums_at_members(s, plan)
        else:
            self._subtract(s, g, places, changed, amounts)

    def _subtract(self, s: Expansion, g: Values, places: Ints, changed: Ints, amounts: Values) -> None:
        """Do this strip by strip, with the values that are kept and others that are computed in tiles of the same bits."""
        assert self.kept is not None
        kept, limit, members, order = self.kept, self.kept.places, s.members(), s.order()
        shape, inside = shape_of_tiles(self.kernel, members), int(np.searchsorted(changed, limit))
        # What is computed for the strips whose values are kept, and for the others.
        some, every = _tiles_of(changed, inside), _tiles_of(changed, 0)
        needed = changed if places[-1] >= limit else changed[inside:]
        own, first = members.take(order[needed], s.workspace, "own rows"), len(changed) - len(needed)
        strips = _in_fair_halves(_strips_of(places, limit))

        def subtract(part: tuple[int, int]) -> None:
            workspace = s.workspaces[min(part[0], 1)]
            for at in strips[slice(*part)]:
                concerned, found = s.working.member[:, at].any(axis=1), np.zeros((len(g), STRIP))
                scratch = workspace.array("columns as rows", (STRIP, STRIP), members.dtype)
                add = partial(add_rows, kept.tiles, kept.lower)
                columns, lacking, strip = at, every, int(at[0]) // STRIP
                if at[0] < limit:
                    columns = np.arange(strip * STRIP, min((strip + 1) * STRIP, s.places))
                    lacking, none = some, np.empty((0, STRIP), members.dtype)
                    add(limit, strip, changed[:inside], amounts[:, :inside], none, 0, concerned, scratch, found)
                if lacking:
                    features = shape.columns(members, order[columns], workspace)
                for rows in lacking:
                    tile = shape.tile(self.kernel, shape.rows(own, rows - first, workspace), features, workspace)
                    add(0, strip, changed[rows], amounts[:, rows], tile, shape.border, concerned, scratch, found)
                g[:, at] -= found[:, np.searchsorted(columns, at)]

        s.in_halves(subtract, len(strips), 1)
        s.evaluations += sum(len(at) * (len(changed) - (inside if at[0] < limit else 0)) for at in strips)


def _strips_of(places: Ints, limit: int) -> list[Ints]:
    """Cut some places into strips: those below the limit into the strips of the tiles that are kept."""
    inside = int(np.searchsorted(places, limit))
    numbers = places[:inside] // STRIP
    strips = np.split(places[:inside], np.flatnonzero(np.diff(numbers)) + 1) if inside else []
    return [*strips, *(places[start : start + STRIP] for start in range(inside, len(places), STRIP))]


def _in_fair_halves(strips: list[Strip]) -> list[Strip]:
    """Order strips so that both halves of the list have earlier and later ones, which take more time."""
    return strips[::2] + strips[1::2]


def _tiles_of(places: Ints, first: int) -> list[Ints]:
    """Cut the positions of some places, from the first one on, into tiles that have all rows of the strips that they touch."""
    bounds = np.flatnonzero(np.diff(places[first:] // STRIP)) + first + 1
    found, start, stop = [], first, first
    for bound in [*bounds.tolist(), len(places)]:
        if bound - start > TILE_ROWS:
            found.append(np.arange(start, stop))
            start = stop
        stop = bound
    return [*found, np.arange(start, stop)] if stop > start else found
