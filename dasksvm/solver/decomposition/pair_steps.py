"""Steps in pairs: the choice of the next pair, combined with the update of the gradients (paper 4, sections 1.3 and 2).

In a step one coefficient rises and the other one falls by the same amount. Maximum gain searches the pairs that include a member
of the previous pair. Their kernel rows are those that the previous step updates the gradients with, so both are done in one pass:
each block of the rows is searched while it is in the CPU's cache.
"""

from typing import Any

import numpy as np

from dasksvm.solver.decomposition.pair_state import (
    BOTTOM,
    CONTINUE,
    CONVERGED,
    DUAL,
    EXHAUSTED,
    FALLING,
    FRESH,
    HMG,
    IDLE,
    KEPT,
    LEAST,
    MG,
    MISSING,
    MISSING_TOO,
    MVP,
    NEW,
    NO_MEMBER,
    RISING,
    ROW_MISSING,
    SECOND_ORDER,
    STUCK,
    TOP,
    PairChoice,
    PairState,
    combine_extremes,
    kernel_value,
    near_bound,
    refresh_extremes,
    step_of_pair,
    write_alpha,
)
from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Flags, Floats, Ints, Values
from dasksvm.solver.lasvm.finishing import ROUNDING
from dasksvm.solver.state.direction_search import LEAST_CURVATURE, find, gains_down, shift_block
from dasksvm.solver.state.row_cache import PAGE, RowCache, mark_used

# The solver stops after this many steps in a row without a gain larger than rounding.
IDLE_STEPS = 1000


@njit()
def advance(
    state: PairState, cache: RowCache, rules: PairChoice, max_steps: int
) -> tuple[int, int]:  # pragma: no cover
    """Make steps while their kernel rows are present; return the reason to stop and the number of steps."""
    if state.pair[RISING] < 0:
        code = _choose_first(state, cache, rules)
        if code != CONTINUE:
            return code, 0
    for steps in range(max_steps):
        code = _find_rows(state, cache)
        if code == CONTINUE:
            code = _step(state, cache, rules)
            if code != CONTINUE:
                return code, steps + 1
        else:
            return code, steps
    return CONTINUE, max_steps


@njit()
def _choose_first(state: PairState, cache: RowCache, rules: PairChoice) -> int:  # pragma: no cover
    """Choose the first pair, with a search of its own because there is no step to combine it with."""
    pair, measures = state.pair, state.measures
    refresh_extremes(state)
    by_maximum_gain = _by_maximum_gain(state, rules)
    searched = np.empty(0, np.int64)
    if by_maximum_gain and (rules.by_gain or measures[TOP] - measures[BOTTOM] > rules.tau):
        pair[MISSING] = NO_MEMBER if mark_used(cache, pair[KEPT]) else pair[KEPT]
        pair[MISSING_TOO] = NO_MEMBER if mark_used(cache, pair[NEW]) else pair[NEW]
        if pair[MISSING] >= 0 or pair[MISSING_TOO] >= 0:
            return ROW_MISSING
        searched = _rows_to_search(cache, pair, rules.rows)
    unmoved = pair[RISING]  # any index will do: a step of length 0 does not read the rows
    return _choose_next(state, cache, rules, by_maximum_gain, _move(state, cache, unmoved, unmoved, 0.0, searched))


@njit()
def _find_rows(state: PairState, cache: RowCache) -> int:  # pragma: no cover
    """Mark the rows of the next pair as used, and note which ones are missing.

    With second-order selection the first member's row is needed to choose the second member.
    """
    pair = state.pair
    pair[MISSING] = NO_MEMBER if mark_used(cache, pair[RISING]) else pair[RISING]
    pair[MISSING_TOO] = NO_MEMBER
    if pair[FALLING] < 0:
        if pair[MISSING] >= 0:
            return ROW_MISSING
        pair[FALLING] = _partner(state, cache, pair[RISING])
    if not mark_used(cache, pair[FALLING]):
        pair[MISSING_TOO] = pair[FALLING]
    return ROW_MISSING if pair[MISSING] >= 0 or pair[MISSING_TOO] >= 0 else CONTINUE


@njit()
def _step(state: PairState, cache: RowCache, rules: PairChoice) -> int:  # pragma: no cover
    """Make the step of the next pair and choose the pair after it; returns CONTINUE or the reason to stop."""
    pair, measures, alpha, g = state.pair, state.measures, state.alpha, state.g
    i, j = pair[RISING], pair[FALLING]
    curvature = np.float64(state.diagonal[i]) + np.float64(state.diagonal[j]) - 2.0 * kernel_value(state, cache, i, j)
    length = step_of_pair(state, i, j, curvature)
    gain = length * (g[i] - g[j]) - 0.5 * length * length * curvature
    before_i, before_j = alpha[i], alpha[j]
    write_alpha(state, i, alpha[i] + length)
    write_alpha(state, j, alpha[j] - length)
    if alpha[i] == before_i and alpha[j] == before_j:
        return EXHAUSTED
    measures[DUAL] += gain
    pair[NEW] = j if pair[FRESH] < 0 else pair[FRESH]
    pair[KEPT] = i + j - pair[NEW]
    pair[RISING] = pair[FALLING] = pair[FRESH] = NO_MEMBER
    by_maximum_gain = _by_maximum_gain(state, rules)
    searched = _rows_to_search(cache, pair, rules.rows) if by_maximum_gain else np.empty(0, np.int64)
    found = _move(state, cache, i, j, length, searched)
    violation = measures[TOP] - measures[BOTTOM]
    measures[IDLE] = 0.0 if violation < measures[LEAST] or gain > _rounding_gain(measures) else measures[IDLE] + 1.0
    measures[LEAST] = min(measures[LEAST], violation)
    if measures[IDLE] > IDLE_STEPS:
        return EXHAUSTED
    return _choose_next(state, cache, rules, by_maximum_gain, found)


@njit()
def _rounding_gain(measures: Values) -> float:  # pragma: no cover
    """Return the gain below which a step counts as rounding.

    Gradients are sums of the size of the dual, and a gain is the square of a difference of them.
    """
    return float((ROUNDING * measures[DUAL]) ** 2)


@njit()
def _by_maximum_gain(state: PairState, rules: PairChoice) -> bool:  # pragma: no cover
    """Return whether the next pair is chosen by maximum gain."""
    if rules.selection == MVP or rules.selection == SECOND_ORDER:
        return False
    if rules.selection != MG and rules.selection != HMG:
        raise ValueError("unknown working set selection")
    if state.pair[NEW] < 0:
        return False
    return rules.selection == MG or not (near_bound(state, state.pair[KEPT]) and near_bound(state, state.pair[NEW]))


@njit()
def _rows_to_search(cache: RowCache, pair: Ints, rows: int) -> Ints:  # pragma: no cover
    """Return the members whose rows maximum gain searches, ascending or, for one row, just this one."""
    if rows == 0:
        return np.flatnonzero(cache.cached)
    if rows == 1:
        return np.full(1, pair[NEW])
    if rows != 2:
        raise ValueError("maximum gain searches one row, two, or all that are cached")
    searched = np.empty(2, np.int64)
    searched[0], searched[1] = min(pair[KEPT], pair[NEW]), max(pair[KEPT], pair[NEW])
    return searched


@njit()
def _move(
    state: PairState, cache: RowCache, i: int, j: int, length: float, searched: Ints
) -> tuple[float, int, int, float]:  # pragma: no cover
    """Apply g ← g - λ (K_i - K_j), and search the pairs that include one of the members `searched`, block by block.

    Updates the extremes. Returns the largest gain, the searched member of that pair, the block of the other member, and the
    gradient of the searched member.
    """
    g, up, down, diagonal, rise, fall, gains = (
        state.g,
        state.up,
        state.down,
        state.diagonal,
        state.rise,
        state.fall,
        state.gains,
    )
    pages, table = cache.pages, cache.table
    after = g[searched]
    if length != 0.0:
        for r in range(len(searched)):
            s = searched[r]
            after[r] -= length * (kernel_value(state, cache, i, s) - kernel_value(state, cache, j, s))
    best, which, where = 0.0, -1, -1
    for block in range(len(state.tops)):
        start, stop, of = block * PAGE, min((block + 1) * PAGE, len(g)), block * state.stride
        if length != 0.0:
            page_i, page_j = np.int64(table[i, block]), np.int64(table[j, block])
            state.tops[block], state.bottoms[block] = shift_block(
                g, up, down, start, stop, pages, page_i, of, pages, page_j, of, length
            )
        for r in range(len(searched)):
            s = searched[r]
            gain = _gains(g, rise, fall, diagonal, start, stop, pages, table[s, block], of, s, after[r], gains)
            if gain > best:
                best, which, where = gain, r, block
    combine_extremes(state)
    if which < 0:
        return 0.0, -1, -1, 0.0
    return best, searched[which], where, after[which]


@njit()
def _gains(
    g: Values,
    rise: Floats,
    fall: Floats,
    diagonal: Floats,
    start: int,
    stop: int,
    rows: Floats,
    row: int,
    of: int,
    s: int,
    g_s: float,
    gains: Floats,
) -> float:  # pragma: no cover
    """Call `pair_gains`, but exclude the pair of s with itself."""
    rise_s, fall_s, within = rise[s], fall[s], start <= s < stop
    if within:
        rise[s] = fall[s] = 0
    best = pair_gains(g, rise, fall, diagonal, start, stop, rows, row, of, g_s, diagonal[s], rise_s, fall_s, gains)
    if within:
        rise[s], fall[s] = rise_s, fall_s
    return np.float64(best)


@njit(fastmath={"contract", "nnan", "nsz"})
def pair_gains(
    g: Values,
    rise: Floats,
    fall: Floats,
    diagonal: Floats,
    start: int,
    stop: int,
    rows: Floats,
    row: int,
    of: int,
    g_s: float,
    d_s: np.floating[Any],
    rise_s: np.floating[Any],
    fall_s: np.floating[Any],
    gains: Floats,
) -> np.floating[Any]:  # pragma: no cover
    """Write the gain of each pair with s, from `start` to `stop`, within the box (paper 4, equation 3); return the largest.

    The kernel values are rows[row, of:]. The coefficient with the larger gradient rises.
    """
    number = gains.dtype.type
    zero, half, two, least = number(0.0), number(0.5), number(2.0), number(LEAST_CURVATURE)
    best = zero
    for a in range(stop - start):
        at = np.uintp(start + a)
        difference = number(g_s - g[at])
        above, below = rise[at], fall[at]
        own, other = (rise_s, below) if difference > zero else (fall_s, above)
        room, slope = own if own < other else other, abs(difference)
        curvature = d_s + diagonal[at] - two * rows[row, np.uintp(of + a)]
        curvature = curvature if curvature > least else least
        free = slope / curvature
        length = free if free < room else room
        gain = length * (slope - half * curvature * length)
        gains[a] = gain
        best = gain if gain > best else best
    return best


@njit()
def _choose_next(
    state: PairState, cache: RowCache, rules: PairChoice, by_maximum_gain: bool, found: tuple[float, int, int, float]
) -> int:  # pragma: no cover
    """Choose the next pair; returns CONTINUE or the reason to stop."""
    pair, measures, g = state.pair, state.measures, state.g
    if not (by_maximum_gain and rules.by_gain) and not measures[TOP] - measures[BOTTOM] > rules.tau:
        return CONVERGED
    if by_maximum_gain:
        i, j, fresh, length, gain = -1, -1, -1, 0.0, 0.0
        if found[0] > 0.0:
            i, j, fresh = _pair_of_gain(state, cache, found)
            diagonal = np.float64(state.diagonal[i]) + np.float64(state.diagonal[j])
            curvature = max(diagonal - 2.0 * kernel_value(state, cache, found[1], fresh), LEAST_CURVATURE)
            length = step_of_pair(state, i, j, curvature)
            gain = length * (g[i] - g[j] - 0.5 * length * curvature)
        if rules.by_gain and length < rules.tau:
            return CONVERGED
        if gain > _rounding_gain(measures) and (
            state.alpha[i] + length != state.alpha[i] or state.alpha[j] - length != state.alpha[j]
        ):
            pair[RISING], pair[FALLING], pair[FRESH] = i, j, fresh
            return CONTINUE
        if not measures[TOP] - measures[BOTTOM] > rules.tau:
            return CONVERGED
        if rules.selection == MG:
            return STUCK
    pair[RISING] = _first_with(g, state.up, state.tops, measures[TOP])
    if rules.selection != SECOND_ORDER:
        pair[FALLING] = _first_with(g, state.down, state.bottoms, measures[BOTTOM])
    return CONTINUE


@njit()
def _pair_of_gain(
    state: PairState, cache: RowCache, found: tuple[float, int, int, float]
) -> tuple[int, int, int]:  # pragma: no cover
    """Return the pair with the largest gain: the rising member, the falling one, and which of them was not searched."""
    best, s, block, g_s = found
    start, stop = block * PAGE, min((block + 1) * PAGE, len(state.g))
    row, of, gains = cache.table[s, block], block * state.stride, state.gains
    _gains(state.g, state.rise, state.fall, state.diagonal, start, stop, cache.pages, row, of, s, g_s, gains)
    b = 0
    while np.float64(gains[b]) != best:
        b += 1
    other = start + b
    return (s, other, other) if g_s > state.g[other] else (other, s, other)


@njit()
def _first_with(g: Values, allowed: Flags, extremes: Values, number: float) -> int:  # pragma: no cover
    block = 0
    while extremes[block] != number:
        block += 1
    return find(g, allowed, block * PAGE, min((block + 1) * PAGE, len(g)), number)


@njit()
def _partner(state: PairState, cache: RowCache, i: int) -> int:  # pragma: no cover
    """Find the partner j of i with the largest second-order gain (g_i - g_j)² / (K_ii + K_jj - 2 K_ij), ignoring the box."""
    best, where = np.float32(0.0), 0
    for block in range(len(state.tops)):
        gain = _partner_gains(state, cache, i, block)
        if gain > best:
            best, where = gain, block
    _partner_gains(state, cache, i, where)
    start, stop = where * PAGE, min((where + 1) * PAGE, len(state.g))
    return start + find(state.narrow, state.down[start:stop], 0, stop - start, float(best))


@njit()
def _partner_gains(state: PairState, cache: RowCache, i: int, block: int) -> np.float32:  # pragma: no cover
    start, stop, of = block * PAGE, min((block + 1) * PAGE, len(state.g)), block * state.stride
    row = cache.pages[cache.table[i, block]][of : of + stop - start]
    return gains_down(
        state.g[start:stop],
        state.down[start:stop],
        row,
        state.diagonal[start:stop],
        state.g[i],
        state.diagonal[i],
        state.narrow,
    )
