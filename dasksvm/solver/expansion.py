"""The expansion S: working arrays, features, kernel rows, and which example stands where."""

from collections.abc import Callable, Iterable
from copy import copy
from typing import Self

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.batch import FIRST_EVENT, Batch, complete_new
from dasksvm.solver.cache import (
    EVENTS,
    PAGE,
    UNUSED,
    RowCache,
    blocks_of,
    drop_rows,
    drop_stale,
    empty_cache,
    enter_rows,
    lacking,
    live_events,
    set_values,
    take_in,
    write_row,
    write_rows,
)
from dasksvm.solver.cache import widened as widened_cache
from dasksvm.solver.directions import subtract_rows
from dasksvm.solver.features import Features, FeatureStore, Floats, Ints
from dasksvm.solver.kernels import Kernel
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import CandidateBatch, View
from dasksvm.solver.refresh import exact_gradients
from dasksvm.solver.tiles import margins
from dasksvm.solver.working import adopt, empty_working, live_places
from dasksvm.solver.working import widened as widened_working

# Rows unused while S takes in as many members as it has places are dropped.
STALE = 1
# A kernel row of fewer values is not worth a second thread.
ROW_PART = 8192
# Gradients that are moved by one tile.
MOVED_ROWS = 512
Each = Callable[[Callable[[tuple[int, int]], None], Iterable[tuple[int, int]]], Iterable[None]]


class Expansion:
    """The members of S and all that is kept about them.

    Parameters
    ----------
    kernel : Kernel
    problems : int
    cache_bytes : int
        Budget of the kernel rows.
    """

    def __init__(self, kernel: Kernel, problems: int, cache_bytes: int) -> None:
        self.each: Each = map
        self.kernel = kernel
        self.cache_bytes = cache_bytes
        self.working = empty_working(problems, PAGE)
        self.cache = empty_cache(0, PAGE, np.dtype(np.float32))
        self.store: FeatureStore | None = None
        self.example: Ints = np.zeros(PAGE, np.int64)
        self.code: Ints = np.zeros(PAGE, np.int64)
        self.evaluations = self.generation = 0
        self._workspace = Workspace()

    @property
    def places(self) -> int:
        """Places in use or freed."""
        return int(self.working.size[0])

    def members(self) -> Features:
        """Give the feature store, by slot."""
        assert self.store is not None
        return self.store.view()

    def order(self) -> Ints:
        """Slot of each place; a free place shows some slot."""
        slots: Ints = np.maximum(self.working.slot[: self.places], 0)
        return slots

    def examples(self) -> Ints:
        """Ids of the members."""
        ids: Ints = self.example[live_places(self.working)]
        return ids

    def support(self, alpha: NDArray[np.float64]) -> Ints:
        """Places of the support vectors of coefficients of shape (P, V), ordered by class and example."""
        places = np.flatnonzero(np.any(alpha != 0.0, axis=0))
        ordered: Ints = places[np.lexsort((self.example[places], self.code[places]))]
        return ordered

    def arrivals(self) -> Ints:
        """The event with which each place's member came: it tells later whether the member is still the same."""
        events: Ints = self.cache.event_of[: self.places].copy()
        return events

    def view(self, version: int, alpha: NDArray[np.float64] | None, slack: NDArray[np.float64], tau: float) -> View:
        """Publish the state; `alpha`, of shape (P, V), replaces the coefficients."""
        w = self.working
        return View(
            version=version,
            generation=self.generation,
            members=None if self.store is None else self.members(),
            order=self.order(),
            alpha=w.alpha[:, : self.places].copy() if alpha is None else alpha,
            top=w.top.max(axis=1),
            bottom=w.bottom.min(axis=1),
            slack=slack,
            tau=tau,
        )

    def make_room(self, result: CandidateBatch) -> None:
        """Grow the arrays for the candidates of a batch."""
        if self.store is None:
            self.store = FeatureStore(result.features.part(0, 0))
            self.cache = empty_cache(self.cache_bytes, len(self.working.slot), result.rows.dtype)
        need = self.places + len(result.rows)
        if need > len(self.working.slot):
            places = blocks_of(max(need, len(self.working.slot) * 3 // 2)) * PAGE
            self.working = widened_working(self.working, places)
            more = np.zeros(places - len(self.example), np.int64)
            self.example, self.code = np.concatenate([self.example, more]), np.concatenate([self.code, more])
        self.cache = widened_cache(self.cache, len(self.working.slot), len(result.rows))

    def batch(self, result: CandidateBatch, arrivals: Ints, known: Ints) -> Batch:
        """Complete a batch that was scored when the members were `arrivals`, so that it can be processed."""
        w = self.working
        count = len(result.rows)
        changed = np.flatnonzero(self.cache.event_of[: len(arrivals)] != arrivals)
        changed = np.concatenate([changed, np.arange(len(arrivals), self.places)])
        changed = changed[w.holders[changed] > 0]
        fresh = self.kernel.tile(result.features, self.members(), w.slot[changed], workspace=self._workspace)
        mates = self.kernel.tile(result.features, result.features)
        self.evaluations += fresh.size + mates.size
        at = np.zeros(10, np.int64)
        at[FIRST_EVENT] = self.cache.size[EVENTS]
        return Batch(
            rows=result.rows,
            fresh=fresh,
            fresh_places=changed,
            mates=mates,
            row_of=result.row_of,
            known=known,
            known_slot=np.where(known >= 0, w.slot[known], -1),
            sign=result.sign,
            bound=result.bound,
            self_kernel=self.kernel.diagonal(result.features),
            scored=result.scored,
            drift=np.full((len(w.alpha), count), -np.inf),
            margin=np.full((len(w.alpha), count), np.nan),
            gradient=np.zeros(len(w.alpha)),
            enters=np.zeros(len(w.alpha), np.bool_),
            hand=np.full(self.cache.table.shape[1], -1, np.int32),
            event_row=np.zeros(count, np.int64),
            at=at,
        )

    def known(self, examples: Ints, among: Ints | None) -> Ints:
        """Find the places of the examples that are members now, -1 for the others; `among` narrows who can be."""
        known = np.full(len(examples), -1, np.int64)
        live = live_places(self.working)
        if among is not None:
            live = live[np.isin(self.example[live], among)]
        if len(live):
            live = live[np.argsort(self.example[live])]
            ids = self.example[live]
            at = np.minimum(np.searchsorted(ids, examples), len(ids) - 1)
            hit = ids[at] == examples
            known[hit] = live[at[hit]]
        return known

    def _arrived(self, batch: Batch) -> tuple[Ints, Ints]:
        """Places and candidate rows of those who entered in this batch and are still here."""
        first = int(batch.at[FIRST_EVENT])
        events = np.arange(first, int(self.cache.size[EVENTS]))
        places = self.cache.event_place[events]
        here = self.cache.event_of[places] == events
        return places[here], batch.event_row[events - first][here]

    def compute_row(self, mates: Features, batch: Batch, place: int) -> None:
        """Compute the kernel row of a member in the middle of a batch."""
        slots = self.working.slot[: self.places]
        new_places, new_rows = self._arrived(batch)
        new, members = mates.take(new_rows), self.members()
        own = members.take(slots[[place]]) if slots[place] >= 0 else new.take(np.flatnonzero(new_places == place))
        enter_rows(self.cache, np.array([place]), len(slots))
        if len(members):
            write_row(self.cache, place, self._row(own, members), slots)
        set_values(self.cache, place, new_places, self.kernel.tile(own, new)[0])
        set_values(self.cache, place, np.array([place]), self.working.diagonal[[place]])
        self.evaluations += len(members) + len(new)

    def _row(self, own: Features, members: Features) -> Floats:
        row: Floats = self._workspace.array("row", (1, len(members)), own.dtype)

        def fill(part: tuple[int, int]) -> None:
            self.kernel.tile(own, members.part(*part), out=row[:, slice(*part)])

        self._share(fill, len(members), ROW_PART)
        first: Floats = row[0]
        return first

    def _share(self, work: Callable[[tuple[int, int]], None], count: int, least: int) -> None:
        """Do work on [0, count) in two halves, which may run in parallel, where it is worth it."""
        if count < 2 * least:
            work((0, count))
        else:
            for _ in self.each(work, [(0, count // 2), (count // 2, count)]):
                pass

    def put_rows(self, cache: RowCache, places: Ints, rows: Floats) -> None:
        """Cache the complete rows of some members."""
        enter_rows(cache, places, rows.shape[1])

        def write(part: tuple[int, int]) -> None:
            write_rows(cache, places[slice(*part)], rows[slice(*part)])

        self._share(write, len(places), 8)

    def absorb(self, batch: Batch) -> None:
        """End a batch: rows out of use are dropped, all others become complete."""
        drop_stale(self.cache, max(self.places // STALE, PAGE))
        rows = lacking(self.cache, self.places)
        targets = live_events(self.cache, batch.at[FIRST_EVENT])
        complete_new(self.cache, batch)
        rows = rows[self.cache.applied[rows] < self.cache.size[EVENTS]]

        def write(part: tuple[int, int]) -> None:
            take_in(self.cache, rows[slice(*part)], targets)

        self._share(write, len(rows), 1000)

    def shift(self, cache: RowCache, places: Ints, amounts: NDArray[np.float64], g: NDArray[np.float64]) -> None:
        """G ← g - Σ amount_s K_s over members whose rows are present."""

        def subtract(part: tuple[int, int]) -> None:
            subtract_rows(cache, places, amounts, g, *part)

        self._share(subtract, blocks_of(len(g)), 4)

    def move(self, g: NDArray[np.float64], places: Ints, moved: Ints, amounts: NDArray[np.float64]) -> None:
        """G ← g - Σ amount_s K_s at some places, from the features; `moved` are the members s."""
        slots, members = self.order(), self.members()
        support, weights = members.take(slots[moved]), amounts[None]

        def subtract(part: tuple[int, int]) -> None:
            own = Workspace()
            for start in range(*part, MOVED_ROWS):
                at = places[start : min(start + MOVED_ROWS, part[1])]
                g[at] -= margins(self.kernel, members.take(slots[at]), support, weights, None, own)[0]

        self._share(subtract, len(places), MOVED_ROWS)
        self.evaluations += len(places) * len(moved)

    def store_new(self, result: CandidateBatch, batch: Batch) -> None:
        """End a batch: the features of those who entered get slots; the store is compacted when a fifth of it is dead."""
        assert self.store is not None
        places, rows = self._arrived(batch)
        if len(places):
            self.working.slot[places] = self.store.append(result.features.take(rows))
            at = np.flatnonzero(result.row_of >= 0)[rows]
            self.example[places], self.code[places] = result.examples[at], result.codes[at]
        live = live_places(self.working)
        if len(self.store) > max(5 * len(live) // 4, PAGE):
            self.store = FeatureStore(self.members().take(self.working.slot[live]))
            self.generation += 1
            self.working.slot[:] = 0
            self.working.slot[live] = np.arange(len(live))

    def adopt(self, problem: int, alpha: NDArray[np.float64], g: NDArray[np.float64]) -> None:
        """Replace the coefficients of a problem; members that this makes blatantly useless leave."""
        drop_rows(self.cache, adopt(self.working, problem, alpha, g))

    def exact_gradients(self, problem: int, alpha: NDArray[np.float64]) -> NDArray[np.float64]:
        """G = y - Kα at each place, in float64, for given coefficients; 0 where no member of the problem is."""
        live = np.flatnonzero(self.working.member[problem, : self.places])
        gradients = np.zeros(self.places)
        gradients[live] = exact_gradients(
            self.kernel, self.members().take(self.working.slot[live]), alpha[live], self.working.sign[problem, live]
        )
        return gradients

    def widened_extremes(self, extremes: NDArray[np.float64], result: CandidateBatch) -> NDArray[np.float64]:
        """Without free support vectors b lies between gradients of the whole set, not of S alone: take those of a batch in."""
        outside = (self.known(result.examples, None) < 0) & (result.bound > 0)
        gradient = result.sign - result.margins
        rising = np.where(outside & (result.sign > 0), gradient, -np.inf).max(axis=1, initial=-np.inf)
        falling = np.where(outside & (result.sign < 0), gradient, np.inf).min(axis=1, initial=np.inf)
        return np.stack([np.maximum(extremes[:, 0], rising), np.minimum(extremes[:, 1], falling)], axis=1)

    def shadow(self) -> Self:
        """Give an expansion of the same members, which nobody may change, with kernel rows of its own."""
        other = copy(self)
        other.each = map
        other.cache = empty_cache(self.cache_bytes, len(self.working.slot), self.cache.pages.dtype)
        return other

    def release_rows(self) -> None:
        """Forget all kernel rows: they are computed again when they are used."""
        fresh = empty_cache(self.cache_bytes, len(self.working.slot), self.cache.pages.dtype)
        size = np.array([fresh.size[UNUSED], self.cache.size[EVENTS]])
        self.cache = fresh._replace(event_of=self.cache.event_of, event_place=self.cache.event_place, size=size)

    def check(self, tolerance: float) -> None:
        """Raise AssertionError unless box, sum, gradients, masks, counts and cached rows are what they must be."""
        w, places = self.working, self.places
        for p in range(len(w.alpha)):
            alpha, member = w.alpha[p, :places], w.member[p, :places]
            live = np.flatnonzero(member)
            assert np.all(alpha[~member] == 0.0)
            assert np.all((w.lower[p, live] <= alpha[live]) & (alpha[live] <= w.upper[p, live]))
            assert abs(alpha.sum()) <= 1e-9 * max(1.0, np.abs(alpha).sum())
            assert np.array_equal(w.up[p, :places], member & (alpha < w.upper[p, :places]))
            assert np.array_equal(w.down[p, :places], member & (alpha > w.lower[p, :places]))
            assert w.count[p, 0] == len(live)
            assert set(w.zeros[p, : w.count[p, 1]]) == set(live[alpha[live] == 0.0])
            exact = self.exact_gradients(p, alpha)
            assert np.all(np.abs(exact[live] - w.g[p, live]) <= tolerance)
        assert np.array_equal(w.holders[:places], w.member[:, :places].sum(axis=0))
        for place in np.flatnonzero(self.cache.applied[:places] == self.cache.size[EVENTS]):
            row = self.kernel.tile(self.members().take(w.slot[[place]]), self.members(), self.order())[0]
            pages = self.cache.table[place, : blocks_of(places)]
            cached = self.cache.pages[pages, :PAGE].ravel()[:places]
            live = live_places(w)
            assert np.allclose(cached[live], row[live], atol=tolerance)
