"""The steps of LASVM-G, LASVM-NC and LASVM-I, in one coefficient each (paper 2, sections 4 to 7).

After each example, REPROCESS steps are made until the duality gap is at most its target. An example gets its box when it is
processed: that of the hinge loss or, if y f(x) < s, that of the ramp loss (paper 2, equation 17). CLEAN is run after every
example: of the members with α = 0, at most `allowance` with the smallest |g| are kept. An example that CLEAN would remove at once
does not enter, so that its kernel row is not needed, but it still counts as an iteration and is followed by REPROCESS steps.
LASVM-I makes no iteration for the examples that it skips.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import SUMS, njit
from dasksvm.solver.kernels.features import Floats, Values
from dasksvm.solver.state.batch import (
    CANDIDATE,
    DONE,
    ENTERED,
    FULL,
    MISSING,
    PLACE,
    ROW_MISSING,
    SEEN,
    STAGE,
    STEPS,
    Batch,
    row_available,
)
from dasksvm.solver.state.direction_search import LEAST_CURVATURE, Int, find_steepest, shift_gap, snapped, steepest
from dasksvm.solver.state.row_cache import PAGE, RowCache
from dasksvm.solver.state.working_arrays import Working, evict, insert, set_alpha, write_alpha

NEW, PROCESS, REPROCESS = 0, 1, 2
# Instead of a place: the example does not enter but counts as an iteration, or is skipped altogether.
OUTSIDE, SKIPPED = -1, -2
# Fields of a problem's status within a batch: its gap, the target of the gap, whether the target is up to date.
GAP, TARGET, CURRENT, STATUS_FIELDS = range(4)


class GapRules(NamedTuple):
    """The parameters of the solver.

    Attributes
    ----------
    tau : float
        Coefficients with smaller gradients are not moved.
    C : float
        The smallest target of the gap.
    threshold : float
        A fixed target of the gap; nan: the target is computed (see `target`).
    ramp : float
        s, the parameter of the ramp loss; -inf: the hinge loss.
    ignore : bool
        Whether examples with y f(x) outside [s, 1] are skipped (LASVM-I) instead of getting the box of the ramp loss.
    warmup : int
        The ramp loss is used once there are more support vectors than this.
    allowance : int
        Number of members with α = 0 that CLEAN keeps.
    """

    tau: float
    C: float
    threshold: float
    ramp: float
    ignore: bool
    warmup: int
    allowance: int


class Room(NamedTuple):
    """The steps that the boxes allow.

    Attributes
    ----------
    rise, fall : ndarray of float64, shape (N,)
        B - α and A - α of each place.
    best : ndarray of float64, shape (blocks,)
        For each block the largest |g| of a member that can move along its gradient.
    """

    rise: Values
    fall: Values
    best: Values


@njit()
def process_batch(
    w: Working, cache: RowCache, batch: Batch, rules: GapRules, max_support: int, statuses: Values, p: int
) -> int:  # pragma: no cover
    """Process a batch, or the rest of it, in problem p. Returns DONE, FULL or ROW_MISSING (see progress[p, MISSING]).

    `statuses`, of shape (P, STATUS_FIELDS), is zero when the batch begins; S is full at `max_support` support vectors.
    """
    progress, status, room = batch.progress[p], statuses[p], room_of(w, batch, p)
    if progress[CANDIDATE] == 0 and progress[STAGE] == NEW:
        status[GAP] = gap(w, p)
    while progress[CANDIDATE] < len(batch.row_of):
        if progress[STAGE] == NEW:
            if status[CURRENT] == 0.0:
                status[TARGET], status[CURRENT] = target(w, batch, rules, p), 1.0
            progress[PLACE] = _admit(w, batch, rules, p, progress[CANDIDATE], room)
            if progress[PLACE] == SKIPPED:
                progress[CANDIDATE] += 1
                progress[SEEN] += 1
                continue
            if progress[PLACE] >= 0:
                progress[ENTERED] += 1
                status[GAP] += gap_of(w, p, progress[PLACE])
            progress[STAGE] = PROCESS
        if progress[STAGE] == PROCESS:
            if progress[PLACE] >= 0 and not _process(w, cache, batch, p, progress[PLACE], status, room):
                return ROW_MISSING
            progress[STAGE] = REPROCESS
        if status[GAP] > status[TARGET] and not _reprocess(w, cache, batch, rules, p, status, room):
            return ROW_MISSING
        _clean(w, rules.allowance, p, status, room)
        progress[STAGE] = NEW
        progress[CANDIDATE] += 1
        progress[SEEN] += 1
        if w.counts[p, 0] - w.counts[p, 1] >= max_support:
            return FULL
    return DONE


@njit()
def room_of(w: Working, batch: Batch, p: int) -> Room:  # pragma: no cover
    """Compute the steps that the boxes allow in problem p."""
    rise, fall = w.upper[p] - w.alpha[p], w.lower[p] - w.alpha[p]
    best = np.zeros(batch.base // PAGE + 1)
    for b in range(len(best)):
        best[b] = steepest(w.g[p], rise, fall, b * PAGE, (b + 1) * PAGE)
    return Room(rise, fall, best)


@njit()
def gap_of(w: Working, p: int, place: int) -> float:  # pragma: no cover
    """Compute a member's part of the gap: max(A g, B g) - α g.

    This is paper 2, equation 9, with the sign that follows from equation 6.
    """
    g = w.g[p, place]
    return float(max(w.lower[p, place] * g, w.upper[p, place] * g) - w.alpha[p, place] * g)


@njit(fastmath=SUMS)
def gap(w: Working, p: int) -> float:  # pragma: no cover
    """Compute the duality gap, primal minus dual, of the problem restricted to the members (paper 2, equation 9)."""
    alpha, g, lower, upper = w.alpha[p], w.g[p], w.lower[p], w.upper[p]
    total = 0.0
    for a in range(w.size[0]):
        low, high = lower[a] * g[a], upper[a] * g[a]
        total += (low if low > high else high) - alpha[a] * g[a]
    return total


@njit(fastmath=SUMS)
def target(w: Working, batch: Batch, rules: GapRules, p: int) -> float:  # pragma: no cover
    """Compute the target of the gap: max(C, the standard deviation of the terms of the primal) (paper 2, equation 8).

    Both sums of equation 8 are over the support vectors. The radicand can be negative only through rounding.
    """
    if not np.isnan(rules.threshold):
        return float(rules.threshold)
    alpha, g, sign, lower, upper = w.alpha[p], w.g[p], w.sign[p], w.lower[p], w.upper[p]
    total, squares = 0.0, 0.0
    for a in range(batch.base + len(batch.mutual)):
        h = (upper[a] - lower[a]) * sign[a] * g[a] if alpha[a] != 0.0 else 0.0
        total += h
        squares += h * h
    count = max(w.counts[p, 0] - w.counts[p, 1], 1)
    return float(max(rules.C, np.sqrt(max(squares - total * total / count, 0.0))))


@njit()
def band(w: Working, rules: GapRules, p: int) -> tuple[float, float]:  # pragma: no cover
    """Return (low, high): an example enters if -low < 1 - y f < high; with `ignore`, also if it is equal to either end.

    Below -low, α cannot rise and CLEAN would remove the example at once. Above `high` the ramp loss is flat, so that either the
    same holds or the example is skipped.
    """
    worst = np.inf
    if w.counts[p, 1] >= rules.allowance:
        worst = 0.0
        for z in range(w.counts[p, 1]):
            worst = max(worst, abs(w.g[p, w.zeros[p, z]]))
    high = 1.0 - rules.ramp if _uses_ramp(w, rules, p) else np.inf
    return (0.0, high) if rules.ignore else (worst, max(high, worst))


@njit()
def bands(w: Working, rules: GapRules) -> Values:  # pragma: no cover
    """Return the band of each problem, shape (P, 2)."""
    out = np.empty((len(w.alpha), 2))
    for p in range(len(out)):
        out[p, 0], out[p, 1] = band(w, rules, p)
    return out


@njit()
def _uses_ramp(w: Working, rules: GapRules, p: int) -> bool:  # pragma: no cover
    return bool(w.counts[p, 0] - w.counts[p, 1] > rules.warmup)


@njit()
def _admit(w: Working, batch: Batch, rules: GapRules, p: int, c: int, room: Room) -> int:  # pragma: no cover
    """Make a candidate a member with α = 0 and its final box. Returns its place, or OUTSIDE or SKIPPED if it does not enter."""
    k, place = batch.row_of[c], batch.place_of[c]
    if place >= 0 and w.member[p, place]:
        return OUTSIDE
    if k < 0 or batch.bound[p, c] <= 0.0:
        return SKIPPED if rules.ignore else OUTSIDE
    sign, gradient = batch.sign[p, c], w.g[p, batch.base + k]
    low, high = band(w, rules, p)
    shortfall = sign * gradient
    excess = min(shortfall + low, high - shortfall)
    if np.isfinite(excess):
        batch.growth[p, k] = excess - batch.excess[p, batch.chosen[k]]
    if excess < 0.0 or (excess == 0.0 and not rules.ignore):
        return SKIPPED if rules.ignore else OUTSIDE
    if place < 0:
        place = batch.base + k
    # β = C turns the box [0, C y] into [-C y, 0] (paper 2, equation 17).
    flat = _uses_ramp(w, rules, p) and shortfall > 1.0 - rules.ramp
    insert(w, p, place, -sign if flat else sign, batch.bound[p, c], gradient)
    w.sign[p, place] = sign
    room.rise[place], room.fall[place] = w.upper[p, place], w.lower[p, place]
    return int(place)


@njit()
def _process(
    w: Working, cache: RowCache, batch: Batch, p: int, i: int, status: Values, room: Room
) -> bool:  # pragma: no cover
    """Make the step of PROCESS in coefficient i. Returns False if its kernel row is missing."""
    length = free_step(w.g[p], w.alpha[p], w.lower[p], w.upper[p], w.diagonal, i)
    if length == 0.0:
        return True
    if not row_available(cache, batch, p, i):
        return False
    set_alpha(w, p, i, w.alpha[p, i] + length)
    room.rise[i], room.fall[i] = w.upper[p, i] - w.alpha[p, i], w.lower[p, i] - w.alpha[p, i]
    rise, fall, best = room
    pages, table = cache.pages, cache.table
    rows, columns, mutual, base = batch.rows, batch.columns, batch.mutual, batch.base
    status[GAP] = update_gradients(w.g[p], rise, fall, best, pages, table, rows, columns, mutual, base, i, length)
    status[CURRENT] = 0.0
    batch.progress[p, STEPS] += 1
    return True


@njit()
def _reprocess(
    w: Working, cache: RowCache, batch: Batch, rules: GapRules, p: int, status: Values, room: Room
) -> bool:  # pragma: no cover
    """Make REPROCESS steps until the gap is at its target or no gradient is above τ. Returns False if a kernel row is missing.

    Arrays are unpacked from their tuples before the loop, because each access costs two atomic operations, which is much
    compared with a step.
    """
    g, alpha, lower, upper, up, down = w.g[p], w.alpha[p], w.lower[p], w.upper[p], w.up[p], w.down[p]
    zeros, zero_at, count, diagonal, progress = w.zeros[p], w.zero_at[p], w.counts[p], w.diagonal, batch.progress[p]
    rise, fall, best = room
    pages, table, cached, touched = cache.pages, cache.table, cache.cached, cache.touched
    rows, columns, mutual, base = batch.rows, batch.columns, batch.mutual, batch.base
    goal, tau, total = status[TARGET], rules.tau, status[GAP]
    while total > goal:
        block = int(np.argmax(best))
        if not best[block] > tau:
            break
        i = find_steepest(g, rise, fall, block * PAGE, (block + 1) * PAGE, best[block])
        if i < base:
            if not cached[i]:
                progress[MISSING] = i
                status[GAP], status[CURRENT] = total, 0.0
                return False
            touched[i] = True
        length = free_step(g, alpha, lower, upper, diagonal, i)
        if length == 0.0:
            # The step is so short that the coefficient would be snapped back to its bound: no further progress is possible.
            break
        write_alpha(alpha, lower, upper, up, down, zeros, zero_at, count, i, alpha[i] + length)
        rise[i], fall[i] = upper[i] - alpha[i], lower[i] - alpha[i]
        total = update_gradients(g, rise, fall, best, pages, table, rows, columns, mutual, base, i, length)
        progress[STEPS] += 1
        status[CURRENT] = 0.0
    status[GAP] = total
    return True


@njit(inline=True)
def free_step(
    g: Values, alpha: Values, lower: Values, upper: Values, diagonal: Values, i: Int
) -> float:  # pragma: no cover
    """Compute the step in a coefficient to the optimum or to the edge of its box, including the snapping of `write_alpha`."""
    free = alpha[i] + g[i] / max(diagonal[i], LEAST_CURVATURE)
    return float(snapped(free, lower[i], upper[i]) - alpha[i])


@njit()
def update_gradients(
    g: Values,
    rise: Values,
    fall: Values,
    best: Values,
    pages: Floats,
    table: NDArray[np.int32],
    rows: Floats,
    columns: Floats,
    mutual: Floats,
    base: int,
    i: int,
    length: float,
) -> float:  # pragma: no cover
    """Update all gradients for a step in member i, block by block; write each block's largest movable |g| and return the gap."""
    total = 0.0
    for start in range(0, base, PAGE):
        stop, b = min(start + PAGE, rows.shape[1]), start // PAGE
        if i < base:
            best[b], part = shift_gap(g, rise, fall, start, stop, pages, table[i, b], 0, length)
        else:
            best[b], part = shift_gap(g, rise, fall, start, stop, rows, i - base, start, length)
        total += part
    stop, b = base + len(mutual), base // PAGE
    if i < base:
        best[b], part = shift_gap(g, rise, fall, base, stop, columns, i, 0, length)
    else:
        best[b], part = shift_gap(g, rise, fall, base, stop, mutual, i - base, 0, length)
    return float(total + part)


@njit()
def _clean(w: Working, allowance: int, p: int, status: Values, room: Room) -> None:  # pragma: no cover
    """Run CLEAN: evict the members with α = 0 and the largest |g| until `allowance` of them are left (paper 2, section 4)."""
    zeros, g = w.zeros[p], w.g[p]
    rise, fall, best = room
    while w.counts[p, 1] > allowance:
        worst = zeros[0]
        for z in range(1, w.counts[p, 1]):
            worst = zeros[z] if abs(g[zeros[z]]) > abs(g[worst]) else worst
        status[GAP] -= gap_of(w, p, worst)
        evict(w, p, worst)
        w.lower[p, worst] = w.upper[p, worst] = 0.0
        rise[worst] = fall[worst] = 0.0
        b = worst // PAGE
        if abs(g[worst]) == best[b]:
            best[b] = steepest(g, rise, fall, b * PAGE, (b + 1) * PAGE)
