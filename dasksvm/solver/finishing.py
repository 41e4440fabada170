"""Finishing: REPROCESS until no pair of members violates by more than τ (paper 1, section 3.2), in blocks.

Each round takes the worst violators and the newest of the round before as a working set, solves the problem restricted to
them with their kernel values at hand, and moves the gradients of all members once. The steps are REPROCESS steps on
pairs chosen within the working set; that a round, and not a step, costs a pass over S is what makes it fast. Members at a
bound that no pair violates never enter the working set: that is this solver's shrinking.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.cache import RowCache, present
from dasksvm.solver.directions import block_extremes, find, gains_down, shift_block, snapped, step_length
from dasksvm.solver.expansion import Expansion
from dasksvm.solver.features import Features, Floats, Ints
from dasksvm.solver.jit import njit
from dasksvm.solver.kernels import Kernel
from dasksvm.solver.working import Working

WORKING_SET = 1024
INNER_SHARE = 0.1
INNER_STEPS = 100


class Finishing:
    """The problem restricted to S, on copies of its coefficients and gradients.

    Parameters
    ----------
    working : Working
    problem : int
    tau : float
        Stop when δ ≤ tau.
    """

    def __init__(self, working: Working, problem: int, tau: float) -> None:
        places = int(working.size[0])
        self.problem = problem
        self.tau = tau
        self.alpha = working.alpha[problem, :places].copy()
        self.g = working.g[problem, :places].copy()
        self.lower = working.lower[problem, :places]
        self.upper = working.upper[problem, :places]
        self.member = working.member[problem, :places]
        self.diagonal = working.diagonal[:places]
        self.steps = 0
        self.chosen: Ints = np.zeros(0, np.int64)
        self.newest: Ints = np.zeros(0, np.int64)
        self._known_places: Ints = np.zeros(0, np.int64)
        self._known_values: Floats = np.zeros((0, 0))

    def movable(self) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Tell which members may rise and which may fall."""
        return self.member & (self.alpha < self.upper), self.member & (self.alpha > self.lower)

    def extremes(self) -> tuple[float, float]:
        """g_max and g_min of paper 1, equation 10; -inf and inf where nothing may move."""
        up, down = self.movable()
        return float(np.max(self.g, where=up, initial=-np.inf)), float(np.min(self.g, where=down, initial=np.inf))

    def choose(self, cache: RowCache) -> bool:
        """Choose the next working set; False if no pair violates."""
        up, down = self.movable()
        top, bottom = self.extremes()
        if not top - bottom > self.tau:
            return False
        capacity = len(cache.pages) // cache.table.shape[1]
        size = max(min(WORKING_SET, capacity // 2), 4)
        kept = self.newest[: size // 2]
        up[kept] = down[kept] = False
        half = max((size - len(kept)) // 2, 1)
        rising = _largest(self.g, np.flatnonzero(up & (self.g > bottom + self.tau)), half)
        falling = _largest(-self.g, np.flatnonzero(down & (self.g < top - self.tau)), half)
        self.newest = np.union1d(rising, falling)
        self.chosen = np.union1d(self.newest, kept)
        return True

    def missing(self, cache: RowCache) -> Ints:
        """List the members of the working set whose rows are to be computed; the others are brought up to date."""
        missing: Ints = present_rows(cache, self.chosen, len(self.g))
        return missing

    def solve(self, expansion: Expansion) -> None:
        """Solve the problem of the working set and move all gradients."""
        chosen = self.chosen
        values = self._among(expansion.kernel, expansion.members(), expansion.order())
        before = self.alpha[chosen]
        alpha = before.copy()
        top, bottom = self.extremes()
        self.steps += solve_block(
            values,
            alpha,
            self.g[chosen],
            self.lower[chosen],
            self.upper[chosen],
            max(self.tau, INNER_SHARE * (top - bottom)),
            INNER_STEPS * len(chosen),
        )
        moved = np.flatnonzero(alpha != before)
        self.alpha[chosen] = alpha
        expansion.shift(chosen[moved], alpha[moved] - before[moved], self.g)

    def state(self) -> dict[str, Any]:
        """Give what a snapshot needs beside the working arrays."""
        names = ("problem", "tau", "alpha", "g", "steps", "chosen", "newest", "_known_places", "_known_values")
        return {name: getattr(self, name) for name in names}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken."""
        for name, value in state.items():
            setattr(self, name, value.copy() if isinstance(value, np.ndarray) else value)

    def _among(self, kernel: Kernel, members: Features, slots: Ints) -> Floats:
        """Kernel values of the working set; those among its older half are known from the round before."""
        chosen = self.chosen
        values = np.empty((len(chosen), len(chosen)), members.dtype)
        new = np.flatnonzero(np.isin(chosen, self.newest))
        old = np.flatnonzero(~np.isin(chosen, self.newest))
        among = members.take(slots[chosen])
        _fill_square(values, new, kernel.tile(among.take(new), among))
        if len(old):
            _copy_square(values, old, self._known_values, np.searchsorted(self._known_places, chosen[old]))
        np.fill_diagonal(values, self.diagonal[chosen])
        self._known_places, self._known_values = chosen, values
        return values


def _largest(key: NDArray[np.float64], places: Ints, count: int) -> Ints:
    if len(places) <= count:
        return places
    return places[np.argpartition(-key[places], count - 1)[:count]]


@njit()
def present_rows(cache: Any, places: Any, count: int) -> Any:  # pragma: no cover
    """Complete the rows of some members; return those that must be computed."""
    missing = np.empty(len(places), np.int64)
    total = 0
    for at in range(len(places)):
        if not present(cache, places[at], count):
            missing[total] = places[at]
            total += 1
    return missing[:total]


@njit()
def _fill_square(values: Any, new: Any, rows: Any) -> None:  # pragma: no cover
    """Write some rows of a symmetric matrix, and their columns."""
    for at in range(len(new)):
        values[new[at]] = rows[at]
    for start in range(0, len(values), 16):
        for at in range(len(new)):
            for a in range(start, min(start + 16, len(values))):
                values[a, new[at]] = rows[at, a]


@njit()
def _copy_square(values: Any, to: Any, source: Any, of: Any) -> None:  # pragma: no cover
    for a in range(len(to)):
        for b in range(len(to)):
            values[to[a], to[b]] = source[of[a], of[b]]


@njit()
def solve_block(
    kernel: Any, alpha: Any, g: Any, lower: Any, upper: Any, target: float, limit: int
) -> int:  # pragma: no cover
    """Make second-order direction searches until δ ≤ target; alpha and g are changed in place."""
    size = len(alpha)
    up, down = alpha < upper, alpha > lower
    gains = np.empty(size, np.float32)
    diagonal = np.empty(size, np.float32)
    for a in range(size):
        diagonal[a] = kernel[a, a]
    top, bottom = block_extremes(g, up, down)
    for step in range(limit):
        if not top - bottom > target:
            return step
        i = find(g, up, top)
        row_i = kernel[i]
        j = find(gains, down, gains_down(g, down, row_i, diagonal, top, diagonal[i], gains))
        row_j = kernel[j]
        curvature = np.float64(row_i[i]) + np.float64(row_j[j]) - 2.0 * np.float64(row_i[j])
        length = step_length(top - g[j], curvature, upper[i] - alpha[i], alpha[j] - lower[j])
        alpha[i] = snapped(alpha[i] + length, lower[i], upper[i])
        alpha[j] = snapped(alpha[j] - length, lower[j], upper[j])
        up[i], down[i] = alpha[i] < upper[i], alpha[i] > lower[i]
        up[j], down[j] = alpha[j] < upper[j], alpha[j] > lower[j]
        top, bottom = shift_block(g, up, down, row_i, row_j, length)
    return limit
