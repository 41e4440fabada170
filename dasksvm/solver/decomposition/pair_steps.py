"""Steps in pairs: which pair comes next, and the one pass over the gradients that a step takes (paper 4, sections 1.3 and 2).

Of a pair one coefficient rises and the other falls by as much. Maximum gain searches the pairs of which a kernel row is at
hand: those with a member of the pair before. These are the rows that the step before moves the gradients by, so that a block of
them is searched while it is in the CPU's cache.
"""

from typing import Any

import numpy as np

from dasksvm.solver.decomposition.pair_state import (
    AT_REST,
    BOTTOM,
    DUAL,
    EXHAUSTED,
    FALLING,
    FRESH,
    GO,
    HMG,
    IDLE,
    KEPT,
    LEAST,
    MG,
    MISSING,
    MISSING_TOO,
    MVP,
    NEW,
    NOWHERE,
    RISING,
    ROW_MISSING,
    SECOND_ORDER,
    STUCK,
    TOP,
    cornered,
    join,
    kernel_value,
    length_of,
    look,
    write,
)
from dasksvm.solver.jit import njit
from dasksvm.solver.lasvm.finishing import ROUNDING
from dasksvm.solver.state.direction_search import LEAST_CURVATURE, find, gains_down, shift_block
from dasksvm.solver.state.row_cache import PAGE, present

# Steps without gain beyond rounding, after which there is none.
IDLE_STEPS = 1000


@njit()
def advance(play: Any, cache: Any, how: Any, most: int) -> tuple[int, int]:  # pragma: no cover
    """Make steps while their rows are present; return how that ended, and how many."""
    if play.at[RISING] < 0:
        code = _begin(play, cache, how)
        if code != GO:
            return code, 0
    for steps in range(most):
        code = _fetch(play, cache)
        if code == GO:
            code = _step(play, cache, how)
            if code != GO:
                return code, steps + 1
        else:
            return code, steps
    return GO, most


@njit()
def _begin(play: Any, cache: Any, how: Any) -> int:  # pragma: no cover
    """Choose a pair where no step came before: it takes a search of its own."""
    at, now = play.at, play.now
    look(play)
    greedy = _greedy(play, how)
    searched = np.empty(0, np.int64)
    if greedy and (how.by_gain or now[TOP] - now[BOTTOM] > how.tau):
        at[MISSING] = NOWHERE if present(cache, at[KEPT]) else at[KEPT]
        at[MISSING_TOO] = NOWHERE if present(cache, at[NEW]) else at[NEW]
        if at[MISSING] >= 0 or at[MISSING_TOO] >= 0:
            return ROW_MISSING
        searched = _searched(cache, at, how.rows)
    nobody = at[RISING]  # a step of length 0 moves none
    return _pick(play, cache, how, greedy, _move(play, cache, nobody, nobody, 0.0, searched))


@njit()
def _fetch(play: Any, cache: Any) -> int:  # pragma: no cover
    """Make the rows of the next pair the ones used last; by second order its second member needs the first one's row."""
    at = play.at
    at[MISSING] = NOWHERE if present(cache, at[RISING]) else at[RISING]
    at[MISSING_TOO] = NOWHERE
    if at[FALLING] < 0:
        if at[MISSING] >= 0:
            return ROW_MISSING
        at[FALLING] = _partner(play, cache, at[RISING])
    if not present(cache, at[FALLING]):
        at[MISSING_TOO] = at[FALLING]
    return ROW_MISSING if at[MISSING] >= 0 or at[MISSING_TOO] >= 0 else GO


@njit()
def _step(play: Any, cache: Any, how: Any) -> int:  # pragma: no cover
    """Make the step of the next pair, and choose the one after it; tells when that is not to be made."""
    at, now, alpha, g = play.at, play.now, play.alpha, play.g
    i, j = at[RISING], at[FALLING]
    curvature = np.float64(play.diagonal[i]) + np.float64(play.diagonal[j]) - 2.0 * kernel_value(play, cache, i, j)
    length = length_of(play, i, j, curvature)
    gain = length * (g[i] - g[j]) - 0.5 * length * length * curvature
    before_i, before_j = alpha[i], alpha[j]
    write(play, i, alpha[i] + length)
    write(play, j, alpha[j] - length)
    if alpha[i] == before_i and alpha[j] == before_j:
        return EXHAUSTED
    now[DUAL] += gain
    at[NEW] = j if at[FRESH] < 0 else at[FRESH]
    at[KEPT] = i + j - at[NEW]
    at[RISING] = at[FALLING] = at[FRESH] = NOWHERE
    greedy = _greedy(play, how)
    searched = _searched(cache, at, how.rows) if greedy else np.empty(0, np.int64)
    found = _move(play, cache, i, j, length, searched)
    violation = now[TOP] - now[BOTTOM]
    now[IDLE] = 0.0 if violation < now[LEAST] or gain > _floor(now) else now[IDLE] + 1.0
    now[LEAST] = min(now[LEAST], violation)
    if now[IDLE] > IDLE_STEPS:
        return EXHAUSTED
    return _pick(play, cache, how, greedy, found)


@njit()
def _floor(now: Any) -> float:  # pragma: no cover
    """What rounding seems to gain: gradients are sums as large as the dual is, and a gain is the square of their difference."""
    return float((ROUNDING * now[DUAL]) ** 2)


@njit()
def _greedy(play: Any, how: Any) -> bool:  # pragma: no cover
    """Tell whether the next pair is the one of maximum gain."""
    if how.selection == MVP or how.selection == SECOND_ORDER:
        return False
    if how.selection != MG and how.selection != HMG:
        raise ValueError("unknown working set selection")
    if play.at[NEW] < 0:
        return False
    return how.selection == MG or not (cornered(play, play.at[KEPT]) and cornered(play, play.at[NEW]))


@njit()
def _searched(cache: Any, at: Any, rows: int) -> Any:  # pragma: no cover
    """List the members whose rows are searched."""
    if rows == 0:
        return np.flatnonzero(cache.cached)
    if rows == 1:
        return np.full(1, at[NEW])
    if rows != 2:
        raise ValueError("maximum gain searches one row, two, or all that are cached")
    searched = np.empty(2, np.int64)
    searched[0], searched[1] = min(at[KEPT], at[NEW]), max(at[KEPT], at[NEW])
    return searched


@njit()
def _move(
    play: Any, cache: Any, i: int, j: int, length: float, searched: Any
) -> tuple[float, int, int, float]:  # pragma: no cover
    """Apply g ← g - λ (K_i - K_j), and search the pairs of some members, block by block.

    Leaves the extremes. Returns the largest gain, the member that it is with, the block where the other one is, and the
    gradient of the first.
    """
    g, up, down, diagonal, rise, fall, gains = (
        play.g,
        play.up,
        play.down,
        play.diagonal,
        play.rise,
        play.fall,
        play.gains,
    )
    pages, table = cache.pages, cache.table
    after = g[searched]
    if length != 0.0:
        for r in range(len(searched)):
            s = searched[r]
            after[r] -= length * (kernel_value(play, cache, i, s) - kernel_value(play, cache, j, s))
    best, which, where = 0.0, -1, -1
    for block in range(len(play.tops)):
        start, stop, of = block * PAGE, min((block + 1) * PAGE, len(g)), block * play.stride
        if length != 0.0:
            page_i, page_j = np.int64(table[i, block]), np.int64(table[j, block])
            play.tops[block], play.bottoms[block] = shift_block(
                g, up, down, start, stop, pages, page_i, of, pages, page_j, of, length
            )
        for r in range(len(searched)):
            s = searched[r]
            gain = _gains(g, rise, fall, diagonal, start, stop, pages, table[s, block], of, s, after[r], gains)
            if gain > best:
                best, which, where = gain, r, block
    join(play)
    if which < 0:
        return 0.0, -1, -1, 0.0
    return best, searched[which], where, after[which]


@njit()
def _gains(
    g: Any,
    rise: Any,
    fall: Any,
    diagonal: Any,
    start: int,
    stop: int,
    rows: Any,
    row: int,
    of: int,
    s: int,
    g_s: float,
    gains: Any,
) -> float:  # pragma: no cover
    """`pair_gains`, without the pair of s and itself."""
    rise_s, fall_s, within = rise[s], fall[s], start <= s < stop
    if within:
        rise[s] = fall[s] = 0
    best = pair_gains(g, rise, fall, diagonal, start, stop, rows, row, of, g_s, diagonal[s], rise_s, fall_s, gains)
    if within:
        rise[s], fall[s] = rise_s, fall_s
    return np.float64(best)


@njit(fastmath={"contract", "nnan", "nsz"})
def pair_gains(
    g: Any,
    rise: Any,
    fall: Any,
    diagonal: Any,
    start: int,
    stop: int,
    rows: Any,
    row: int,
    of: int,
    g_s: float,
    d_s: Any,
    rise_s: Any,
    fall_s: Any,
    gains: Any,
) -> Any:  # pragma: no cover
    """Write the gain of each pair with s, from `start` to `stop`, within the box (paper 4, equation 3); return the largest.

    The values are rows[row, of:]. Whoever has the larger gradient rises.
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
def _pick(
    play: Any, cache: Any, how: Any, greedy: bool, found: tuple[float, int, int, float]
) -> int:  # pragma: no cover
    """Choose the next pair; tells when there is none."""
    at, now, g = play.at, play.now, play.g
    if not (greedy and how.by_gain) and not now[TOP] - now[BOTTOM] > how.tau:
        return AT_REST
    if greedy:
        i, j, fresh, length, gain = -1, -1, -1, 0.0, 0.0
        if found[0] > 0.0:
            i, j, fresh = _pair(play, cache, found)
            diagonal = np.float64(play.diagonal[i]) + np.float64(play.diagonal[j])
            curvature = max(diagonal - 2.0 * kernel_value(play, cache, found[1], fresh), LEAST_CURVATURE)
            length = length_of(play, i, j, curvature)
            gain = length * (g[i] - g[j] - 0.5 * length * curvature)
        if how.by_gain and length < how.tau:
            return AT_REST
        if gain > _floor(now) and (play.alpha[i] + length != play.alpha[i] or play.alpha[j] - length != play.alpha[j]):
            at[RISING], at[FALLING], at[FRESH] = i, j, fresh
            return GO
        if not now[TOP] - now[BOTTOM] > how.tau:
            return AT_REST
        if how.selection == MG:
            return STUCK
    at[RISING] = _first(g, play.up, play.tops, now[TOP])
    if how.selection != SECOND_ORDER:
        at[FALLING] = _first(g, play.down, play.bottoms, now[BOTTOM])
    return GO


@njit()
def _pair(play: Any, cache: Any, found: tuple[float, int, int, float]) -> tuple[int, int, int]:  # pragma: no cover
    """Find the pair of the largest gain: who rises, who falls, and who of them is not the member searched with."""
    best, s, block, g_s = found
    start, stop = block * PAGE, min((block + 1) * PAGE, len(play.g))
    row, of, gains = cache.table[s, block], block * play.stride, play.gains
    _gains(play.g, play.rise, play.fall, play.diagonal, start, stop, cache.pages, row, of, s, g_s, gains)
    b = 0
    while np.float64(gains[b]) != best:
        b += 1
    other = start + b
    return (s, other, other) if g_s > play.g[other] else (other, s, other)


@njit()
def _first(g: Any, allowed: Any, extremes: Any, number: float) -> int:  # pragma: no cover
    block = 0
    while extremes[block] != number:
        block += 1
    return find(g, allowed, block * PAGE, min((block + 1) * PAGE, len(g)), number)


@njit()
def _partner(play: Any, cache: Any, i: int) -> int:  # pragma: no cover
    """Find who falls with i by second order: the largest gain (g_i - g_j)² / (K_ii + K_jj - 2 K_ij), whatever the box."""
    best, where = np.float32(0.0), 0
    for block in range(len(play.tops)):
        gain = _partner_gains(play, cache, i, block)
        if gain > best:
            best, where = gain, block
    _partner_gains(play, cache, i, where)
    start, stop = where * PAGE, min((where + 1) * PAGE, len(play.g))
    return start + find(play.narrow, play.down[start:stop], 0, stop - start, float(best))


@njit()
def _partner_gains(play: Any, cache: Any, i: int, block: int) -> Any:  # pragma: no cover
    start, stop, of = block * PAGE, min((block + 1) * PAGE, len(play.g)), block * play.stride
    row = cache.pages[cache.table[i, block]][of : of + stop - start]
    return gains_down(
        play.g[start:stop],
        play.down[start:stop],
        row,
        play.diagonal[start:stop],
        play.g[i],
        play.diagonal[i],
        play.narrow,
    )
