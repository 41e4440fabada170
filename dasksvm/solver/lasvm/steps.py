"""LASVM's online iterations: PROCESS and REPROCESS over the candidates of a batch (paper 1, section 3.2).

For one problem, `process_batch` makes one PROCESS and the REPROCESS steps that follow for each example of a batch, in order. If
a kernel row is not cached, it records which one and returns; called again, it continues from there.
"""

from typing import NamedTuple

import numpy as np

from dasksvm.solver.jit import njit
from dasksvm.solver.state.batch import (
    CANDIDATE,
    DONE,
    ENTERED,
    FULL,
    PLACE,
    REPEAT,
    ROW_MISSING,
    SEEN,
    STAGE,
    STEPS,
    Batch,
    block_ends,
    kernel_value,
    row_available,
    row_block,
)
from dasksvm.solver.state.direction_search import (
    best_gain_down,
    best_gain_up,
    block_extremes,
    entry_levels,
    extremes,
    highest,
    lowest,
    shift_block,
    step_length,
)
from dasksvm.solver.state.expansion import SEEDS
from dasksvm.solver.state.row_cache import PAGE, RowCache
from dasksvm.solver.state.working_arrays import Working, blatant, evict, insert, set_alpha

NEW, PROCESS, REPROCESS = 0, 1, 2


class LasvmRules(NamedTuple):
    """The parameters of the solver.

    Attributes
    ----------
    tau : float
    reprocess : int
        REPROCESS steps per example.
    delta_max : float
        REPROCESS continues while δ is larger (paper 1, equation 10); inf: no such rule.
    second_order : bool
        Whether the partner of a pair is chosen by the gain of the step.
    max_support : int
        Largest size of S.
    """

    tau: float
    reprocess: int
    delta_max: float
    second_order: bool
    max_support: int


@njit()
def process_batch(w: Working, cache: RowCache, batch: Batch, rules: LasvmRules, p: int) -> int:  # pragma: no cover
    """Process a batch, or the rest of it, in problem p. Returns DONE, FULL or ROW_MISSING (see progress[p, MISSING])."""
    progress = batch.progress[p]
    while progress[CANDIDATE] < len(batch.row_of):
        if progress[STAGE] == NEW:
            progress[PLACE] = _admit(w, batch, rules, p, progress[CANDIDATE])
            progress[STAGE] = PROCESS
        if progress[STAGE] == PROCESS:
            if progress[PLACE] >= 0 and not _process(w, cache, batch, rules, p, progress[PLACE]):
                return ROW_MISSING
            progress[STAGE], progress[REPEAT] = REPROCESS, 0
        while progress[STAGE] == REPROCESS:
            outcome = _reprocess(w, cache, batch, rules, p)
            if outcome < 0:
                return ROW_MISSING
            progress[REPEAT] += 1
            if outcome == 0 or (progress[REPEAT] >= rules.reprocess and not _exceeds_delta_max(w, rules, p)):
                progress[STAGE] = NEW
        progress[CANDIDATE] += 1
        progress[SEEN] += 1
        if w.counts[p, 0] >= rules.max_support:
            _evict_blatant(w, p)
            if w.counts[p, 0] >= rules.max_support:
                return FULL
    return DONE


@njit()
def uncertainty(w: Working, p: int) -> float:  # pragma: no cover
    """Return δ of paper 1, equation 10; inf while a class is missing."""
    top, bottom = extremes(w.top[p], w.bottom[p])
    return top - bottom if top > -np.inf and bottom < np.inf else np.inf


@njit()
def _exceeds_delta_max(w: Working, rules: LasvmRules, p: int) -> bool:  # pragma: no cover
    return bool(rules.delta_max < np.inf and uncertainty(w, p) > rules.delta_max)


@njit()
def _admit(w: Working, batch: Batch, rules: LasvmRules, p: int, c: int) -> int:  # pragma: no cover
    """Make a candidate a member with α = 0 (steps 1-2 of PROCESS). Returns its place, or -1 if it does not enter.

    Candidates that do not violate with any member enter too, because two of them may violate with each other. Step 4 of
    REPROCESS removes those that are of no use. While S has members of one class only, at most `SEEDS` of them enter.
    """
    k, place = batch.row_of[c], batch.place_of[c]
    if k < 0 or batch.bound[p, c] <= 0.0 or (place >= 0 and w.member[p, place]):
        return -1
    sign = batch.sign[p, c]
    gradient = w.g[p, batch.base + k]
    upper, lower = entry_levels(*extremes(w.top[p], w.bottom[p]))
    excess = gradient - lower if sign > 0 else upper - gradient
    if not np.isinf(excess):
        batch.growth[p, k] = excess - batch.excess[p, batch.chosen[k]]
    elif _zeros_of_class(w, p, sign) >= SEEDS:
        return -1
    batch.progress[p, ENTERED] += excess > rules.tau or np.isinf(excess)
    if place < 0:
        place = batch.base + k
    insert(w, p, place, sign, batch.bound[p, c], gradient)
    return int(place)


@njit()
def _zeros_of_class(w: Working, p: int, sign: float) -> int:  # pragma: no cover
    """Count the members of a class with α = 0."""
    count = 0
    for z in range(w.counts[p, 1]):
        count += w.sign[p, w.zeros[p, z]] == sign
    return count


@njit()
def _search_direction(w: Working, cache: RowCache, batch: Batch, p: int, i: int, j: int) -> None:  # pragma: no cover
    """Search along the direction (i, j) (step 5 of PROCESS, step 3 of REPROCESS) and update every block's extremes."""
    curvature = w.diagonal[i] + w.diagonal[j] - 2.0 * kernel_value(cache, batch, i, j)
    step = step_length(w.g[p, i] - w.g[p, j], curvature, w.upper[p, i] - w.alpha[p, i], w.alpha[p, j] - w.lower[p, j])
    before_i, before_j = w.alpha[p, i], w.alpha[p, j]
    set_alpha(w, p, i, before_i + step)
    set_alpha(w, p, j, before_j - step)
    g, up, down, top, bottom = w.g[p], w.up[p], w.down[p], w.top[p], w.bottom[p]
    pages, table, rows, base, first = cache.pages, cache.table, batch.rows, batch.base, np.int64(0)
    for start in range(0, base, PAGE):
        stop, b = min(start + PAGE, rows.shape[1]), start // PAGE
        if i < base and j < base:
            top[b], bottom[b] = shift_block(
                g, up, down, start, stop, pages, np.int64(table[i, b]), first, pages, np.int64(table[j, b]), first, step
            )
        elif i < base:
            top[b], bottom[b] = shift_block(
                g, up, down, start, stop, pages, np.int64(table[i, b]), first, rows, j - base, start, step
            )
        elif j < base:
            top[b], bottom[b] = shift_block(
                g, up, down, start, stop, rows, i - base, start, pages, np.int64(table[j, b]), first, step
            )
        else:
            top[b], bottom[b] = shift_block(
                g, up, down, start, stop, rows, i - base, start, rows, j - base, start, step
            )
    mutual, columns, stop, b = batch.mutual, batch.columns, base + len(batch.mutual), base // PAGE
    if i < base and j < base:
        top[b], bottom[b] = shift_block(g, up, down, base, stop, columns, i, first, columns, j, first, step)
    elif i < base:
        top[b], bottom[b] = shift_block(g, up, down, base, stop, columns, i, first, mutual, j - base, first, step)
    elif j < base:
        top[b], bottom[b] = shift_block(g, up, down, base, stop, mutual, i - base, first, columns, j, first, step)
    else:
        top[b], bottom[b] = shift_block(g, up, down, base, stop, mutual, i - base, first, mutual, j - base, first, step)
    batch.progress[p, STEPS] += 1


@njit()
def _partner_down(
    w: Working, cache: RowCache, batch: Batch, rules: LasvmRules, p: int, i: int
) -> int:  # pragma: no cover
    """Choose j for a given i: the smallest gradient, or with `second_order` the largest gain."""
    if not rules.second_order:
        return lowest(w.bottom[p], w.g[p], w.down[p])
    best, place = -1.0, -1
    for block in range(batch.base // PAGE + 1):
        start, stop = block_ends(batch, block)
        row = row_block(cache, batch, i, block)
        gain, a = best_gain_down(
            w.g[p][start:stop], w.down[p][start:stop], row, w.diagonal[start:stop], w.g[p, i], w.diagonal[i], rules.tau
        )
        if gain > best:
            best, place = gain, start + a
    return place


@njit()
def _partner_up(
    w: Working, cache: RowCache, batch: Batch, rules: LasvmRules, p: int, j: int
) -> int:  # pragma: no cover
    """Choose i for a given j: the largest gradient, or with `second_order` the largest gain."""
    if not rules.second_order:
        return highest(w.top[p], w.g[p], w.up[p])
    best, place = -1.0, -1
    for block in range(batch.base // PAGE + 1):
        start, stop = block_ends(batch, block)
        row = row_block(cache, batch, j, block)
        gain, a = best_gain_up(
            w.g[p][start:stop], w.up[p][start:stop], row, w.diagonal[start:stop], w.g[p, j], w.diagonal[j], rules.tau
        )
        if gain > best:
            best, place = gain, start + a
    return place


@njit()
def _process(w: Working, cache: RowCache, batch: Batch, rules: LasvmRules, p: int, k: int) -> bool:  # pragma: no cover
    """Make steps 3-5 of PROCESS for the newest member, at place k. Returns False if a kernel row is missing."""
    if not row_available(cache, batch, p, k):
        return False
    if w.sign[p, k] > 0:
        i, j = k, _partner_down(w, cache, batch, rules, p, k)
        partner = j
    else:
        i, j = _partner_up(w, cache, batch, rules, p, k), k
        partner = i
    if partner < 0 or w.g[p, i] - w.g[p, j] <= rules.tau:
        return True
    if not row_available(cache, batch, p, partner):
        return False
    _search_direction(w, cache, batch, p, i, j)
    return True


@njit()
def _reprocess(w: Working, cache: RowCache, batch: Batch, rules: LasvmRules, p: int) -> int:  # pragma: no cover
    """Make a REPROCESS step. Returns 1 if it was made, 0 if there is no violating pair, -1 if a kernel row is missing."""
    i = highest(w.top[p], w.g[p], w.up[p])
    j = lowest(w.bottom[p], w.g[p], w.down[p])
    if i < 0 or j < 0 or w.g[p, i] - w.g[p, j] <= rules.tau:
        return 0
    if not row_available(cache, batch, p, i):
        return -1
    if rules.second_order:
        j = _partner_down(w, cache, batch, rules, p, i)
    if not row_available(cache, batch, p, j):
        return -1
    _search_direction(w, cache, batch, p, i, j)
    _evict_blatant(w, p)
    return 1


@njit()
def _evict_blatant(w: Working, p: int) -> None:  # pragma: no cover
    """Evict the members with α = 0 that cannot be part of any violating pair (step 4 of REPROCESS)."""
    tops, bottoms, zeros, g, up, down, sign = w.top[p], w.bottom[p], w.zeros[p], w.g[p], w.up[p], w.down[p], w.sign[p]
    top, bottom = extremes(tops, bottoms)
    z = 0
    while z < w.counts[p, 1]:
        s = zeros[z]
        value = g[s]
        if not blatant(sign[s], value, top, bottom):
            z += 1
            continue
        evict(w, p, s)
        b = s // PAGE
        if value == tops[b] or value == bottoms[b]:
            tops[b], bottoms[b] = block_extremes(g, up, down, b * PAGE, (b + 1) * PAGE)
