"""Finishing: REPROCESS until no pair of members violates by more than τ (paper 1, section 3.2), in blocks.

In each round the working set consists of the members that violate most and of the newest members of the previous working set.
The round computes the kernel values among them, solves the problem restricted to them with REPROCESS steps, and updates the
gradients of all members once. It is fast because a pass over S is made once per round, and not once per step.

Members at a bound that are part of no violating pair are left out for a while (shrinking). Kernel rows then have values for the
active members only: they are cheaper to compute, and more of them fit the cache. When the active members do not violate any more,
the gradients of the others are updated for all changes made in the meantime, and all members become active again.
"""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.finisher import Outcome
from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Floats, Ints, Values
from dasksvm.solver.state.capture import Stateful
from dasksvm.solver.state.direction_search import block_extremes, find, gains_down, shift_block, snapped, step_length
from dasksvm.solver.state.expansion import SQUARE_PART, Expansion
from dasksvm.solver.state.row_cache import RowCache, empty_cache, mark_used
from dasksvm.solver.state.working_arrays import Working

WORKING_SET = 1024
INNER_SHARE = 0.02
INNER_STEPS = 100
# Finishing is stalled after this many rounds without progress.
STALLED = 50
# Rounding error of a gradient, relative to the terms that it is the sum of.
ROUNDING = 16 * np.finfo(np.float64).eps
# Rows are cached if the cache has room for at least one of this many.
KEPT_SHARE = 8
# Number of rounds between two attempts to shrink; shrinking must leave at most this share of the members active.
SHRINK_ROUNDS, SHRINK_SHARE = 8, 0.75


class StallDetector(Stateful):
    """Detects that finishing makes no more progress, because the remaining violations are rounding errors."""

    STATE = ("violation", "rounds")

    def __init__(self) -> None:
        self.violation, self.rounds = np.inf, 0

    def record_round(self, gained: bool, violation: float) -> bool:
        """Record whether a round increased the dual by more than rounding, and its violation; return whether progress stalled."""
        self.rounds = 0 if gained or violation < self.violation else self.rounds + 1
        self.violation = min(self.violation, violation)
        return self.rounds > STALLED


class LasvmFinisher(Stateful):
    """The problem restricted to S, on copies of its coefficients and gradients.

    Parameters
    ----------
    working : Working
    problem : int
    tau : float
        Stop when δ ≤ tau.
    """

    STATE = (
        "problem",
        "tau",
        "alpha",
        "g",
        "dual",
        "gain",
        "steps",
        "rounds",
        "stall",
        "active",
        "cache",
        "shrink_round",
        "alpha_before",
        "unshrunk",
        "chosen",
        "newest",
        "_missing_rows",
        "_moved",
        "_amounts",
        "_solved",
        "_known_places",
        "_known_values",
    )

    def __init__(self, working: Working, problem: int, tau: float) -> None:
        places = int(working.size[0])
        self.problem = problem
        self.tau = tau
        self.alpha = working.alpha[problem, :places].copy()
        self.g = working.g[problem, :places].copy()
        self.lower = working.lower[problem, :places]
        self.upper = working.upper[problem, :places]
        self.member = working.member[problem, :places]
        self.steps = self.rounds = 0
        self.gain = 0.0
        self.stall = StallDetector()
        self.set_gradients(self.g, working.sign[problem, :places])
        # Places of the active members, and their row cache while others are left out. For each place, the number of the shrinking
        # that left it out (-1: none), and α before each shrinking.
        self.active: Ints = np.arange(places)
        self.cache: RowCache | None = None
        self.shrink_round: Ints = np.full(places, -1, np.int64)
        self.alpha_before: list[NDArray[np.float64]] = []
        self.unshrunk = False
        self._missing_rows: Ints = np.zeros(0, np.int64)
        self.chosen: Ints = np.zeros(0, np.int64)
        self.newest: Ints = np.zeros(0, np.int64)
        self._moved: Ints = np.zeros(0, np.int64)
        self._amounts: NDArray[np.float64] = np.zeros(0)
        self._solved: NDArray[np.float64] = np.zeros(0)
        self._known_places: Ints = np.zeros(0, np.int64)
        self._known_values: Floats = np.zeros((0, 0))

    def movable(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Return which coefficients may rise and which may fall."""
        return self.member & (self.alpha < self.upper), self.member & (self.alpha > self.lower)

    def extremes(self) -> tuple[float, float]:
        """Return g_max and g_min of paper 1, equation 10; -inf and inf if no coefficient may move."""
        up, down = (side[self.active] for side in self.movable())
        g = self.g[self.active]
        return float(np.max(g, where=up, initial=-np.inf)), float(np.min(g, where=down, initial=np.inf))

    def choose(self, expansion: Expansion) -> bool:
        """Choose the next working set; return False if no pair violates."""
        if self.rounds > 0 and self.rounds % SHRINK_ROUNDS == 0:
            self._shrink(expansion)
        top, bottom = self.extremes()
        # Gradients are sums of the size of the dual, and a gain is the square of a difference of them.
        gained = bool(self.gain > (ROUNDING * self.dual) ** 2)
        ended = self.stall.record_round(gained, top - bottom) or not top - bottom > self.tau
        if ended and self.cache is not None:
            self._unshrink(expansion)
            self.stall = StallDetector()
            top, bottom = self.extremes()
            ended = not top - bottom > self.tau
        if ended:
            return False
        self.rounds += 1
        cache = self._row_cache(expansion)
        capacity = len(cache.pages) // cache.table.shape[1]
        size = max(min(WORKING_SET, capacity // 2), 4)
        kept = self.newest[: size // 2]
        selectable = np.zeros(len(self.g), np.bool_)
        selectable[self.active] = True
        selectable[kept] = False
        up, down = (side & selectable for side in self.movable())
        half = max((size - len(kept)) // 2, 1)
        rising = largest(self.g, np.flatnonzero(up & (self.g > bottom + self.tau)), half)
        falling = largest(-self.g, np.flatnonzero(down & (self.g < top - self.tau)), half)
        self.newest = np.union1d(rising, falling)
        self.chosen = np.union1d(self.newest, kept)
        return True

    def _row_cache(self, expansion: Expansion) -> RowCache:
        """Return the cache of the active members' rows, or the expansion's if no member is left out."""
        return expansion.cache if self.cache is None else self.cache

    def order(self, expansion: Expansion) -> Ints:
        """Return the slots of the active places."""
        return expansion.order()[self.active]

    def missing(self, expansion: Expansion) -> Ints:
        """Solve the problem of the working set; return the slots of the members that moved and whose rows are not cached."""
        chosen = self.chosen
        values = working_set_values(expansion, chosen, self.newest, self._known_places, self._known_values)
        self._known_places, self._known_values = chosen, values
        alpha = self.alpha[chosen]
        top, bottom = self.extremes()
        target, limit = max(self.tau, INNER_SHARE * (top - bottom)), INNER_STEPS * len(alpha)
        g, lower, upper = self.g[chosen], self.lower[chosen], self.upper[chosen]
        self.steps += int(solve_block(values, alpha, g, lower, upper, target, limit))
        moved = np.flatnonzero(alpha != self.alpha[chosen])
        self._moved, self._amounts = chosen[moved], alpha[moved] - self.alpha[chosen[moved]]
        self._solved = alpha[moved]
        self._missing_rows = np.zeros(0, np.int64)
        if self._rows_worth_caching(expansion):
            self._missing_rows = find_missing_rows(
                self._row_cache(expansion), np.searchsorted(self.active, self._moved)
            )
        return self.order(expansion)[self._missing_rows]

    def _rows_worth_caching(self, expansion: Expansion) -> bool:
        """Return whether enough rows fit the cache for some to be used again; otherwise caching them costs more than it saves."""
        cache = self._row_cache(expansion)
        return bool(KEPT_SHARE * len(cache.pages) >= cache.table.shape[1] * len(self.active))

    def put(self, expansion: Expansion, rows: Floats) -> None:
        """Cache the rows that were missing."""
        expansion.put_rows(self._row_cache(expansion), self._missing_rows, rows)

    def solve(self, expansion: Expansion) -> None:
        """Adopt the solution of the working set, and update the gradients of the active members."""
        moved, amounts = self._moved, self._amounts
        gradients = self.g[moved]
        self.alpha[moved] = self._solved
        if self._rows_worth_caching(expansion):
            g = self.g[self.active]
            expansion.subtract_cached(self._row_cache(expansion), np.searchsorted(self.active, moved), amounts, g)
            self.g[self.active] = g
        else:
            expansion.subtract_computed(self.g, self.active, moved, amounts)
        self.gain = 0.5 * float(amounts @ (gradients + self.g[moved]))
        self.dual += self.gain

    def _shrink(self, expansion: Expansion) -> None:
        """Leave out the members at a bound that violate with neither extreme, if they are enough to make a difference."""
        cache, count = self._row_cache(expansion), len(self.active)
        all_fit = len(cache.pages) // cache.table.shape[1] >= count
        if all_fit or self.unshrunk:
            return
        up, down = self.movable()
        top, bottom = self.extremes()
        idle = ~(up & down) & ~(up & (self.g >= bottom)) & ~(down & (self.g <= top))
        stay = self.active[~idle[self.active]]
        if len(stay) > SHRINK_SHARE * count:
            return
        if self.cache is None:
            expansion.release_rows()
        self.shrink_round[np.setdiff1d(self.active, stay)] = len(self.alpha_before)
        self.alpha_before.append(self.alpha.copy())
        self.active, self.newest = stay, np.intersect1d(self.newest, stay)
        self.cache = None  # frees its memory before the new cache is allocated
        self.cache = empty_cache(expansion.cache_bytes, len(stay), expansion.members().dtype)

    def _unshrink(self, expansion: Expansion) -> None:
        """Update the gradients of the members that were left out, and make all members active for good."""
        for number, before in enumerate(self.alpha_before):
            moved = np.flatnonzero(self.alpha != before)
            out = np.flatnonzero(self.member & (self.shrink_round == number))
            expansion.subtract_computed(self.g, out, moved, self.alpha[moved] - before[moved])
        self.cache, self.alpha_before, self.unshrunk = None, [], True
        self.active = np.arange(len(self.g))

    def set_gradients(self, g: NDArray[np.float64], sign: NDArray[np.float64]) -> None:
        """Replace the gradients, and the dual that follows from them (paper 1, equation 4): ½ Σ α (y + g)."""
        self.g = g
        self.dual = 0.5 * float(self.alpha @ (sign + g))

    def outcome(self) -> Outcome:
        """Return the result so far."""
        top, bottom = self.extremes()
        return Outcome.of_problem(self.alpha, (top, bottom), top - bottom, self.dual)


def working_set_values(
    expansion: Expansion, chosen: Ints, newest: Ints, known_places: Ints, known_values: Floats
) -> Floats:
    """Return the kernel values of a working set; those among its older half are known from the previous round."""
    members, slots = expansion.members(), expansion.order()
    values = np.empty((len(chosen), len(chosen)), members.dtype)
    new = np.flatnonzero(np.isin(chosen, newest))
    old = np.flatnonzero(~np.isin(chosen, newest))
    among = members.take(slots[chosen])
    rows = expansion.rows_among(among, new)
    expansion.in_halves(lambda part: _fill_symmetric(values, new, rows, *part), len(chosen), SQUARE_PART)
    if len(old):
        _copy_values(values, old, known_values, np.searchsorted(known_places, chosen[old]))
    np.fill_diagonal(values, expansion.working.diagonal[chosen])
    return values


def largest(key: NDArray[np.float64], places: Ints, count: int) -> Ints:
    """Return the `count` places with the largest keys among some places."""
    if len(places) <= count:
        return places
    return places[np.argpartition(-key[places], count - 1)[:count]]


@njit()
def find_missing_rows(cache: RowCache, places: Ints) -> Ints:  # pragma: no cover
    """Make the rows of some members the ones used last; return those that must be computed."""
    missing = np.empty(len(places), np.int64)
    total = 0
    for at in range(len(places)):
        if not mark_used(cache, places[at]):
            missing[total] = places[at]
            total += 1
    return missing[:total]


@njit()
def _fill_symmetric(values: Floats, new: Ints, rows: Floats, first: int, last: int) -> None:  # pragma: no cover
    """Write some rows and columns of a symmetric matrix, as far as they lie in the lines from `first` to `last`."""
    for at in range(len(new)):
        if first <= new[at] < last:
            line, row = values[new[at]], rows[at]
            for a in range(len(line)):
                line[a] = row[a]
    for start in range(first, last, 16):
        for at in range(len(new)):
            for a in range(start, min(start + 16, last)):
                values[a, new[at]] = rows[at, a]


@njit()
def _copy_values(values: Floats, to: Ints, source: Floats, of: Ints) -> None:  # pragma: no cover
    for a in range(len(to)):
        for b in range(len(to)):
            values[to[a], to[b]] = source[of[a], of[b]]


@njit()
def solve_block(
    kernel: Floats, alpha: Values, g: Values, lower: Values, upper: Values, target: float, limit: int
) -> int:  # pragma: no cover
    """Make second-order direction searches until δ ≤ target; alpha and g are changed in place."""
    size, first = len(alpha), np.int64(0)
    up, down = alpha < upper, alpha > lower
    gains = np.empty(size, np.float32)
    diagonal = np.empty(size, np.float32)
    for a in range(size):
        diagonal[a] = kernel[a, a]
    top, bottom = block_extremes(g, up, down, 0, size)
    for step in range(limit):
        if not top - bottom > target:
            return step
        i = find(g, up, 0, size, top)
        row_i = kernel[i]
        j = find(gains, down, 0, size, gains_down(g, down, row_i, diagonal, top, diagonal[i], gains))
        curvature = np.float64(kernel[i, i]) + np.float64(kernel[j, j]) - 2.0 * np.float64(kernel[i, j])
        length = step_length(top - g[j], curvature, upper[i] - alpha[i], alpha[j] - lower[j])
        alpha[i] = snapped(alpha[i] + length, lower[i], upper[i])
        alpha[j] = snapped(alpha[j] - length, lower[j], upper[j])
        up[i], down[i] = alpha[i] < upper[i], alpha[i] > lower[i]
        up[j], down[j] = alpha[j] < upper[j], alpha[j] > lower[j]
        top, bottom = shift_block(g, up, down, first, size, kernel, i, first, kernel, j, first, length)
    return limit
