"""Direction searches in one problem: bounds, extreme gradients, steps (paper 1, section 3.1, equations 6-9).

The working arrays are divided into blocks of `PAGE` places. A step updates all gradients in one pass, block by block, and
records for each block the largest gradient among members with α < B and the smallest among those with α > A; the next pair is
found from these. Ties go to the lowest place.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import SUMS, njit
from dasksvm.solver.kernels.features import Flags, Floats, Ints, Values
from dasksvm.solver.state.row_cache import PAGE, RowCache

MANTISSA = np.int64(0x7FFFFFFFFFFFFFFF)
# The keys of -inf and inf.
LEAST_KEY = np.int64(-0x7FF0000000000001)
LARGEST_KEY = np.int64(0x7FF0000000000000)
SNAP = 1e-12
LEAST_CURVATURE = 1e-12
# An index: Python callers pass int, jitted callers int64.
Int = int | np.int64


@njit(inline=True)
def _key(number: float) -> np.int64:  # pragma: no cover
    """Map a float64 to an integer of the same order: LLVM vectorises a maximum of integers, but not one of floats."""
    bits = np.float64(number).view(np.int64)
    return np.int64(bits ^ ((bits >> np.int64(63)) & MANTISSA))


@njit(inline=True)
def _number(key: np.int64) -> float:  # pragma: no cover
    """Return the number of a key: the inverse of `_key`."""
    return np.int64(key ^ ((key >> np.int64(63)) & MANTISSA)).view(np.float64)


@njit(fastmath={"contract"})
def shift_block(
    g: Values,
    up: Flags,
    down: Flags,
    start: Int,
    stop: Int,
    rows_i: Floats,
    i: Int,
    of_i: Int,
    rows_j: Floats,
    j: Int,
    of_j: Int,
    step: float,
) -> tuple[float, float]:  # pragma: no cover
    """Apply g ← g - λ (K_i - K_j) from `start` to `stop`; return the extreme gradients in this range.

    The kernel values are rows_i[i, of_i:] and rows_j[j, of_j:]. Arrays are not sliced, because each view costs two atomic
    operations. Callers pass the indices as int64, so that only one version is compiled.
    """
    top, bottom = LEAST_KEY, LARGEST_KEY
    for a in range(stop - start):
        at = np.uintp(start + a)
        k_i, k_j = np.float64(rows_i[i, np.uintp(of_i + a)]), np.float64(rows_j[j, np.uintp(of_j + a)])
        value = g[at] - step * (k_i - k_j)
        g[at] = value
        key = _key(value)
        top = max(top, key if up[at] else LEAST_KEY)
        bottom = min(bottom, key if down[at] else LARGEST_KEY)
    return _number(top), _number(bottom)


@njit(fastmath=SUMS)
def shift_gap(
    g: Values, rise: Values, fall: Values, start: int, stop: int, rows: Floats, i: int, of: int, step: float
) -> tuple[float, float]:  # pragma: no cover
    """Apply g ← g - λ K_i from `start` to `stop`; return the largest |g| of a movable member, and the range's part of the gap.

    That part is Σ max((B - α) g, (A - α) g); `rise` is B - α and `fall` is A - α. A term is positive if α can move along its
    gradient. The maximum is one of integers: non-negative floats have the same order as their bits.
    """
    best, gap = np.int64(0), 0.0
    for a in range(stop - start):
        at = np.uintp(start + a)
        value = g[at] - step * np.float64(rows[i, np.uintp(of + a)])
        g[at] = value
        above, below = rise[at] * value, fall[at] * value
        part = above if above > below else below
        gap += part
        best = max(best, np.float64(abs(value) if part > 0.0 else 0.0).view(np.int64))
    return np.int64(best).view(np.float64), gap


@njit()
def steepest(g: Values, rise: Values, fall: Values, start: int, stop: int) -> float:  # pragma: no cover
    """Compute the largest |g| of a member that can move along its gradient, from `start` to `stop`."""
    best = np.int64(0)
    for a in range(stop - start):
        at = np.uintp(start + a)
        part = max(rise[at] * g[at], fall[at] * g[at])
        best = max(best, np.float64(abs(g[at]) if part > 0.0 else 0.0).view(np.int64))
    return float(np.int64(best).view(np.float64))


@njit()
def find_steepest(
    g: Values, rise: Values, fall: Values, start: int, stop: int, number: float
) -> int:  # pragma: no cover
    """Find the first place, from `start` to `stop`, that has this |g| and can move along its gradient; -1 if there is none."""
    for first in range(start, stop, 64):
        hits = 0
        for a in range(min(64, stop - first)):
            hits += abs(g[np.uintp(first + a)]) == number
        if hits > 0:
            for place in range(first, min(first + 64, stop)):
                if abs(g[place]) == number and max(rise[place] * g[place], fall[place] * g[place]) > 0.0:
                    return place
    return -1


@njit()
def block_extremes(g: Values, up: Flags, down: Flags, start: int, stop: int) -> tuple[float, float]:  # pragma: no cover
    """Compute the largest gradient where α may rise and the smallest where α may fall, from `start` to `stop`."""
    top, bottom = LEAST_KEY, LARGEST_KEY
    for a in range(stop - start):
        at = np.uintp(start + a)
        key = _key(g[at])
        top = max(top, key if up[at] else LEAST_KEY)
        bottom = min(bottom, key if down[at] else LARGEST_KEY)
    return _number(top), _number(bottom)


@njit()
def find(g: Floats, allowed: Flags, start: int, stop: int, number: float | np.floating[Any]) -> int:  # pragma: no cover
    """Find the first allowed place with this gradient, from `start` to `stop`; -1 if there is none."""
    for first in range(start, stop, 64):
        hits = 0
        for a in range(min(64, stop - first)):
            at = np.uintp(first + a)
            hits += allowed[at] & (g[at] == number)
        if hits > 0:
            for place in range(first, stop):
                if allowed[place] and g[place] == number:
                    return place
    return -1


@njit()
def extremes(top: Values, bottom: Values) -> tuple[float, float]:  # pragma: no cover
    """Find the largest and the smallest gradient of all blocks."""
    largest, smallest = -np.inf, np.inf
    for b in range(len(top)):
        largest, smallest = max(largest, top[b]), min(smallest, bottom[b])
    return largest, smallest


@njit()
def entry_levels(top: float, bottom: float) -> tuple[float, float]:  # pragma: no cover
    """Return the levels (upper, lower): negative examples enter with a gradient below `upper`, positive ones above `lower`.

    Usually these are the extremes themselves: an example beyond them violates with a member. If no support vector is free,
    `top` may be below `bottom`, and every bias between them is optimal for S. A positive and a negative example with gradients
    between them may then violate with each other, although neither violates with a member. So the two extremes are exchanged,
    and every example that narrows the range of the bias enters.
    """
    if -np.inf < top < bottom < np.inf:
        return bottom, top
    return top, bottom


@njit()
def highest(top: Values, g: Values, up: Flags) -> int:  # pragma: no cover
    """Find the member with the largest gradient among those with α < B; -1 if there is none."""
    best, block = -np.inf, -1
    for b in range(len(top)):
        if top[b] > best:
            best, block = top[b], b
    return find(g, up, block * PAGE, (block + 1) * PAGE, best) if block >= 0 else -1


@njit()
def lowest(bottom: Values, g: Values, down: Flags) -> int:  # pragma: no cover
    """Find the member with the smallest gradient among those with α > A; -1 if there is none."""
    best, block = np.inf, -1
    for b in range(len(bottom)):
        if bottom[b] < best:
            best, block = bottom[b], b
    return find(g, down, block * PAGE, (block + 1) * PAGE, best) if block >= 0 else -1


@njit()
def step_length(difference: float, curvature: float, room_up: float, room_down: float) -> float:  # pragma: no cover
    """Compute λ of paper 1, equation 8, for a pair: the step to the optimum or to the edge of the box, whichever is shorter."""
    free = difference / max(curvature, LEAST_CURVATURE)
    return min(free, room_up, room_down)


@njit()
def snapped(alpha: float, lower: float, upper: float) -> float:  # pragma: no cover
    """Return a coefficient, clipped to its box and set to a bound if it is within rounding of it."""
    slack = SNAP * (upper - lower)
    if alpha <= lower + slack:
        return lower
    if alpha >= upper - slack:
        return upper
    return alpha


@njit(fastmath=SUMS)
def weighted_sum(alpha: Values, rows: Floats, row: int, start: int, stop: int) -> float:  # pragma: no cover
    """Compute Σ α_s K_s of a row in float64, from `start` to `stop`."""
    total = 0.0
    for a in range(stop - start):
        at = np.uintp(start + a)
        total += alpha[at] * np.float64(rows[row, at])
    return total


@njit()
def best_gain_down(
    g: Values, down: Flags, row: Floats, diagonal: Values, g_i: float, k_ii: float, tau: float
) -> tuple[float, int]:  # pragma: no cover
    """Within a block, find j that may fall with the largest gain (g_i - g_j)² / (K_ii + K_jj - 2 K_ij), where g_i - g_j > τ."""
    best, where = -1.0, -1
    for a in range(len(g)):
        if down[a]:
            difference = g_i - g[a]
            if difference > tau:
                curvature = max(k_ii + diagonal[a] - 2.0 * np.float64(row[a]), LEAST_CURVATURE)
                gain = difference * difference / curvature
                if gain > best:
                    best, where = gain, a
    return best, where


@njit()
def best_gain_up(
    g: Values, up: Flags, row: Floats, diagonal: Values, g_j: float, k_jj: float, tau: float
) -> tuple[float, int]:  # pragma: no cover
    """Within a block, find i that may rise with the largest gain (g_i - g_j)² / (K_ii + K_jj - 2 K_ij), where g_i - g_j > τ."""
    best, where = -1.0, -1
    for a in range(len(g)):
        if up[a]:
            difference = g[a] - g_j
            if difference > tau:
                curvature = max(k_jj + diagonal[a] - 2.0 * np.float64(row[a]), LEAST_CURVATURE)
                gain = difference * difference / curvature
                if gain > best:
                    best, where = gain, a
    return best, where


@njit(fastmath={"contract"})
def gains_down(
    g: Values,
    down: Flags,
    row: Floats,
    diagonal: Floats,
    g_i: float,
    k_ii: float | np.floating[Any],
    gains: NDArray[np.float32],
) -> np.float32:  # pragma: no cover
    """Write the gain (g_i - g_j)² / (K_ii + K_jj - 2 K_ij) of each j that may fall, in float32; return the largest.

    The maximum is one of integers: non-negative floats have the same order as their bits.
    """
    k_ii, least = np.float32(k_ii), np.float32(LEAST_CURVATURE)
    best = np.int32(-1)
    for a in range(len(g)):
        difference = np.float32(g_i - g[a])
        curvature = diagonal[a] + k_ii - np.float32(2.0) * np.float32(row[a])
        curvature = curvature if curvature > least else least
        able = down[a] and difference > np.float32(0.0)
        gain = difference * difference / curvature if able else np.float32(0.0)
        gains[a] = gain
        best = max(best, np.float32(gain).view(np.int32))
    return np.int32(best).view(np.float32)


@njit(fastmath=SUMS)
def subtract_rows(
    cache: RowCache, places: Ints, amounts: Values, g: Values, first: int, last: int
) -> None:  # pragma: no cover
    """Apply g ← g - Σ amount_s K_s over cached rows, for a range of blocks."""
    for block in range(first, last):
        part = g[block * PAGE : min((block + 1) * PAGE, len(g))]
        for at in range(len(places)):
            page = cache.pages[cache.table[places[at], block]]
            amount = amounts[at]
            for a in range(len(part)):
                part[a] -= amount * np.float64(page[a])
