"""The expansion S: working arrays, features and kernel rows of its members, and which example each of them is."""

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.exact_sums import add_sums_among, blocks_among
from dasksvm.solver.engine.tiles import margins, pair_violations
from dasksvm.solver.kernels.features import Features, FeatureStore, Flags, Floats, Ints
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import CandidateBatch, SumsPlan, TimedPart, View
from dasksvm.solver.multiclass.structure import Machine
from dasksvm.solver.state.capture import Stateful
from dasksvm.solver.state.direction_search import entry_levels, subtract_rows
from dasksvm.solver.state.row_cache import (
    CLOCK,
    PAGE,
    UNUSED,
    RowCache,
    allocate_rows,
    blocks_of,
    drop_rows,
    empty_cache,
    set_values,
    update_use_order,
    write_row,
    write_rows,
)
from dasksvm.solver.state.row_cache import widened as widened_cache
from dasksvm.solver.state.working_arrays import (
    adopt,
    assign_places,
    empty_working,
    find_needed_classes,
    free_places,
    live_places,
)
from dasksvm.solver.state.working_arrays import widened as widened_working

# Examples of each class that S begins with; also the most members with α = 0 kept of one class while the other is missing.
SEEDS = 5
# A second thread is used only if each thread computes at least this many values of a kernel row,
ROW_PART = 8192
# or at least this many rows of a square matrix of kernel values.
SQUARE_PART = 64
# Gradients that are updated from one tile of kernel values.
MOVED_ROWS = 512
RangeMap = Callable[[Callable[[tuple[int, int]], None], Iterable[tuple[int, int]]], Iterable[None]]


def unobserved(part: TimedPart) -> AbstractContextManager[None]:
    """Return a context that measures nothing."""
    return nullcontext()


class Tools(NamedTuple):
    """What the process that runs a learner provides; no result depends on it.

    Attributes
    ----------
    parallel_map : callable
        A `map` that may run in parallel.
    sums_elsewhere : callable, optional
        Computes sums on other processes; returns None if it is better to compute them here.
    observe : callable
        Measures a part of the work, with the context that it returns.
    """

    parallel_map: RangeMap = map
    sums_elsewhere: Callable[[SumsPlan], NDArray[np.float64] | None] | None = None
    observe: Callable[[TimedPart], AbstractContextManager[None]] = unobserved


class Expansion(Stateful):
    """The members of S with their working arrays, features and cached kernel rows.

    Parameters
    ----------
    kernel : Kernel
    problems : int
    cache_bytes : int
        Budget of the kernel rows.
    """

    # Whether an example enters if 1 - y f lies within a band (solvers without a bias), instead of if it violates with a member.
    band = False
    # The multi-class machine that the coefficients belong to, with one row per class.
    machine: Machine | None = None
    STATE: ClassVar[tuple[str, ...]] = (
        "working",
        "cache",
        "store",
        "example",
        "code",
        "arrival",
        "evaluations",
        "generation",
    )

    def __init__(self, kernel: Kernel, problems: int, cache_bytes: int) -> None:
        self.tools = Tools()
        self.kernel = kernel
        self.cache_bytes = cache_bytes
        self.working: Any = self._empty(problems)
        self.cache = empty_cache(0, self._places_with_rows(), np.dtype(np.float32))
        self.store: FeatureStore | None = None
        self.example: Ints = np.zeros(PAGE, np.int64)
        self.code: Ints = np.zeros(PAGE, np.int64)
        self.arrival: Ints = np.full(PAGE, -1, np.int64)
        self.evaluations = self.generation = 0
        self.workspace = Workspace()
        # One for each of the two threads that `share` may use.
        self.workspaces = (Workspace(), Workspace())

    def _empty(self, problems: int) -> Any:
        return empty_working(problems, PAGE)

    def _free_places(self) -> Ints:
        freed: Ints = free_places(self.working, self._held_places())
        return freed

    def _held_places(self) -> Flags:
        """Return which places are not freed though they are members of no problem."""
        return np.zeros(self.places, np.bool_)

    def _places_with_rows(self) -> int:
        """Return the number of places whose members can have a cached row."""
        return len(self.working.slot)

    def _widened(self, places: int) -> Any:
        return widened_working(self.working, places)

    @property
    def places(self) -> int:
        """Places in use or freed."""
        return int(self.working.size[0])

    def members(self) -> Features:
        """Return the feature store, by slot."""
        assert self.store is not None
        return self.store.view()

    def order(self) -> Ints:
        """Return the slot of each place; for a free place this is an arbitrary valid slot."""
        slots: Ints = np.maximum(self.working.slot[: self.places], 0)
        return slots

    def examples(self) -> Ints:
        """Return the ids of the members."""
        ids: Ints = self.example[live_places(self.working)]
        return ids

    def support(self, alpha: NDArray[np.float64]) -> Ints:
        """Return the places of the support vectors for coefficients of shape (P, V), ordered by class and example."""
        places = np.flatnonzero(np.any(alpha != 0.0, axis=0))
        ordered: Ints = places[np.lexsort((self.example[places], self.code[places]))]
        return ordered

    def arrivals(self) -> Ints:
        """Return the arrival number of each place's member, -1 for a free place.

        Members are numbered as they enter, so that comparing two such arrays shows which places have changed hands.
        """
        return self.arrival[: self.places].copy()

    def view(self, version: int, alpha: NDArray[np.float64] | None, slack: NDArray[np.float64], tau: float) -> View:
        """Publish the state; `alpha`, of shape (P, V), replaces the coefficients."""
        w = self.working
        top, bottom = self.entry_limits()
        return View(
            version=version,
            generation=self.generation,
            members=None if self.store is None else self.members(),
            order=self.order(),
            alpha=w.alpha[:, : self.places].copy() if alpha is None else alpha,
            top=top,
            bottom=bottom,
            needed_classes=find_needed_classes(w, SEEDS),
            slack=slack,
            tau=tau,
            band=self.band,
        )

    def entry_limits(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the levels of each problem that decide which examples enter; see `entry_levels`."""
        top, bottom = self.working.top.max(axis=1), self.working.bottom.min(axis=1)
        levels = np.array([entry_levels(*pair) for pair in zip(top, bottom, strict=True)])
        return levels[:, 0].copy(), levels[:, 1].copy()

    def has_free(self) -> NDArray[np.bool_]:
        """Return, for each problem, whether some coefficient lies strictly inside its box."""
        w, places = self.working, self.places
        found: NDArray[np.bool_] = np.any(w.up[:, :places] & w.down[:, :places], axis=1)
        return found

    def make_room(self, result: CandidateBatch) -> None:
        """Grow the arrays so that the candidates of a batch get a block of seats of their own."""
        if self.store is None:
            self.store = FeatureStore(result.features.part(0, 0))
            self.cache = empty_cache(self.cache_bytes, self._places_with_rows(), result.rows.dtype)
        blocks = blocks_of(self.places) + blocks_of(max(len(result.features), 1))
        if blocks * PAGE > len(self.working.slot):
            places = max(blocks, blocks_of(len(self.working.slot) * 3 // 2)) * PAGE
            self.working = self._widened(places)
            more = np.zeros(places - len(self.example), np.int64)
            self.example, self.code = np.concatenate([self.example, more]), np.concatenate([self.code, more])
            self.arrival = np.concatenate([self.arrival, more - 1])
        self.cache = widened_cache(self.cache, self._places_with_rows())

    def find_places(self, examples: Ints, among: Ints | None) -> Ints:
        """Find the places of examples, -1 for those that are not members.

        With `among` given, only members with these ids are searched; no other example may be a member.
        """
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

    def compute_row(self, place: int) -> None:
        """Compute and cache the kernel row of a member while a batch is processed."""
        slots, members = self.working.slot[: self.places], self.members()
        update_use_order(self.cache)
        allocate_rows(self.cache, np.array([place]), len(slots))
        write_row(self.cache, place, self._row(members.take(slots[[place]]), members), slots)
        set_values(self.cache, place, np.array([place]), self.working.diagonal[[place]])
        self.evaluations += len(members)

    def _row(self, own: Features, members: Features) -> Floats:
        row: Floats = self.workspace.array("row", (1, len(members)), own.dtype)

        def fill(part: tuple[int, int]) -> None:
            self.kernel.tile(own, members.part(*part), out=row[:, slice(*part)])

        self.in_halves(fill, len(members), ROW_PART)
        first: Floats = row[0]
        return first

    def rows_among(self, among: Features, rows: Ints, out: Floats | None = None) -> Floats:
        """Compute some rows of the kernel matrix of the examples `among`, in two halves."""
        found = np.empty((len(rows), len(among)), among.dtype) if out is None else out

        def fill(part: tuple[int, int]) -> None:
            self.kernel.tile(among.take(rows[slice(*part)]), among, out=found[slice(*part)])

        self.in_halves(fill, len(rows), SQUARE_PART)
        return found

    def in_halves(self, work: Callable[[tuple[int, int]], None], count: int, least: int) -> None:
        """Do work on the range [0, count): in two halves, which may run in parallel, if each has at least `least` elements."""
        if count < 2 * least:
            work((0, count))
        else:
            for _ in self.tools.parallel_map(work, [(0, count // 2), (count // 2, count)]):
                pass

    def put_rows(self, cache: RowCache, places: Ints, rows: Floats) -> None:
        """Cache the complete rows of some members."""
        allocate_rows(cache, places, rows.shape[1])

        def write(part: tuple[int, int]) -> None:
            write_rows(cache, places[slice(*part)], rows[slice(*part)])

        self.in_halves(write, len(places), 8)

    def weights(self) -> NDArray[np.float64]:
        """Return the coefficient of each place in the decision functions, shape (P, V)."""
        alpha: NDArray[np.float64] = self.working.alpha[:, : self.places]
        return alpha

    def violations_and_state(
        self, result: CandidateBatch, at: Ints, found: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return how far the examples `at` of a batch violate, and the state to store for them (here their gradients).

        `found` holds Σ α K of each example, without the bias.
        """
        sign = result.sign[:, at]
        gradient = sign - found
        return pair_violations(sign, gradient, *self.entry_limits(), find_needed_classes(self.working, SEEDS)), gradient

    def scored_violations(self, result: CandidateBatch) -> NDArray[np.float64]:
        """Return the violations of the result's rows at the version that they were scored against."""
        return result.scored

    def is_member(self, known: Ints) -> NDArray[np.bool_]:
        """Return in which problems each place is a member, shape (P, n); a place of -1 is none."""
        held: NDArray[np.bool_] = (known >= 0) & self.working.member[:, known]
        return held

    def fill_seats(self, base: int, state: NDArray[np.float64]) -> None:
        """Store the state of the candidates (see `violations_and_state`) in their seats."""
        self.working.g[:, base : base + state.shape[1]] = state

    def assign_places(self, base: int, count: int) -> tuple[Ints, Ints]:
        """Move the members in the first `count` seats to places; return their seat numbers and their places."""
        seats, places = assign_places(self.working, base, count)
        return seats, places

    def free_evicted(self) -> Ints:
        """Free the places of members that every problem has evicted, and drop their rows; return the ids of these examples."""
        freed = self._free_places()
        drop_rows(self.cache, freed[freed < self._places_with_rows()])
        self.arrival[freed] = -1
        return np.asarray(self.example[freed])

    def compact(self) -> None:
        """Make a new feature store when a fifth of the slots belong to evicted members."""
        assert self.store is not None
        live, w = live_places(self.working), self.working
        if len(self.store) > max(5 * len(live) // 4, PAGE):
            self.store = FeatureStore(self.members().take(w.slot[live]))
            self.generation += 1
            w.slot[:] = 0
            w.slot[live] = np.arange(len(live))

    def subtract_cached(
        self, cache: RowCache, places: Ints, amounts: NDArray[np.float64], g: NDArray[np.float64]
    ) -> None:
        """Apply g ← g - Σ amount_s K_s over members whose rows are cached."""

        def subtract(part: tuple[int, int]) -> None:
            subtract_rows(cache, places, amounts, g, *part)

        self.in_halves(subtract, blocks_of(len(g)), 4)

    def subtract_computed(
        self, g: NDArray[np.float64], places: Ints, moved: Ints, amounts: NDArray[np.float64]
    ) -> None:
        """Apply g ← g - Σ amount_s K_s at some places, with kernel values that are computed here; `moved` are the members s."""
        slots, members = self.order(), self.members()
        support, weights = members.take(slots[moved]), amounts[None]

        def subtract(part: tuple[int, int]) -> None:
            own = Workspace()
            for start in range(*part, MOVED_ROWS):
                at = places[start : min(start + MOVED_ROWS, part[1])]
                g[at] -= margins(self.kernel, members.take(slots[at]), support, weights, None, own)[0]

        self.in_halves(subtract, len(places), MOVED_ROWS)
        self.evaluations += len(places) * len(moved)

    def adopt(self, problem: int, alpha: NDArray[np.float64], g: NDArray[np.float64]) -> None:
        """Replace the coefficients and gradients of a problem; evict blatant non-support vectors (see `working_arrays.adopt`)."""
        adopt(self.working, problem, alpha, g)
        self.free_evicted()

    def exact_gradients(self, problem: int, alpha: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute g = y - Kα at each place, in float64, for given coefficients; 0 at places without a member of the problem."""
        live = np.flatnonzero(self.working.member[problem, : self.places])
        gradients = np.zeros(self.places)
        gradients[live] = self.working.sign[problem, live] - self.exact_sums(live, alpha[live][None])[0]
        return gradients

    def exact_sums(self, places: Ints, weights: NDArray[np.float64]) -> NDArray[np.float64]:
        """Compute Σ α K over some members at the same members, in float64, shape (P, n), for α of that shape."""
        members, blocks = self.members().take(self.working.slot[places]), range(blocks_among(len(places)))
        # Two sums, whether or not there are two threads, so that there is one order of additions.
        found = np.zeros((2, *weights.shape))

        def add(part: tuple[int, int]) -> None:
            for half in range(*part):
                add_sums_among(self.kernel, members, weights, blocks[half::2], found[half])

        self.in_halves(add, 2, 1)
        return np.asarray(found[0] + found[1])

    def with_own_cache(self) -> Self:
        """Return an expansion that shares the members but has a row cache of its own; its members must not be changed."""
        other = copy(self)
        other.tools = Tools()
        other.cache = empty_cache(self.cache_bytes, self._places_with_rows(), self.cache.pages.dtype)
        return other

    def release_rows(self) -> None:
        """Drop all kernel rows; they are computed again when they are used."""
        fresh = empty_cache(self.cache_bytes, self._places_with_rows(), self.cache.pages.dtype)
        self.cache = fresh._replace(size=np.array([fresh.size[UNUSED], self.cache.size[CLOCK]]))
        self.workspace = Workspace()

    def check(self, tolerance: float) -> None:
        """Raise AssertionError unless box, sum, gradients, masks, counts and cached rows are consistent."""
        w, places = self.working, self.places
        for p in range(len(w.alpha)):
            alpha, member = w.alpha[p, :places], w.member[p, :places]
            live = np.flatnonzero(member)
            assert np.all(alpha[~member] == 0.0)
            assert np.all((w.lower[p, live] <= alpha[live]) & (alpha[live] <= w.upper[p, live]))
            assert self.band or abs(alpha.sum()) <= 1e-9 * max(1.0, np.abs(alpha).sum())
            assert np.array_equal(w.up[p, :places], member & (alpha < w.upper[p, :places]))
            assert np.array_equal(w.down[p, :places], member & (alpha > w.lower[p, :places]))
            assert w.counts[p, 0] == len(live)
            assert set(w.zeros[p, : w.counts[p, 1]]) == set(live[alpha[live] == 0.0])
            exact = self.exact_gradients(p, alpha)
            assert np.all(np.abs(exact[live] - w.g[p, live]) <= tolerance)
        more = w.holders[:places] - w.member[:, :places].sum(axis=0)
        assert np.all((more == 0) | (self._held_places() & (more == 1)))
        self._check_rows(tolerance)

    def _check_rows(self, tolerance: float) -> None:
        w, places = self.working, self.places
        for place in np.flatnonzero(self.cache.cached[:places]):
            row = self.kernel.tile(self.members().take(w.slot[[place]]), self.members(), self.order())[0]
            pages = self.cache.table[place, : blocks_of(places)]
            cached = self.cache.pages[pages, :PAGE].ravel()[:places]
            live = live_places(w)
            assert np.allclose(cached[live], row[live], atol=tolerance)
