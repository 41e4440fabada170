"""LASVM's online iterations: PROCESS and REPROCESS over the candidates of a batch (paper 1, section 3.2).

`run` takes a batch whose kernel rows were computed against an older version of S, completes each candidate's row to the
present S, and makes one PROCESS and the REPROCESS steps that follow for each example, in order. It stops where a kernel row
is missing from the cache, names it, and goes on from there when it is called again.
"""

from typing import Any, NamedTuple

import numpy as np

from dasksvm.solver.batch import (
    CANDIDATE,
    ENTERED,
    MISSING,
    PLACE,
    PROBLEM,
    REPEAT,
    SEEN,
    STAGE,
    STEPS,
    assemble,
    decision,
    keep,
)
from dasksvm.solver.cache import PAGE, drop_row, present, value
from dasksvm.solver.directions import (
    best_gain_down,
    best_gain_up,
    block_extremes,
    highest,
    lowest,
    shift_block,
    step_length,
)
from dasksvm.solver.jit import njit
from dasksvm.solver.working import blatant, evict, insert, set_alpha, take_place

SEEDS = 5
DONE, ROW_MISSING, FULL = 0, 1, 2
NEW, PROCESS, REPROCESS = 0, 1, 2


class Rules(NamedTuple):
    """What the user set: τ, REPROCESS steps an example, δ_max (inf: none), second order, and the largest S."""

    tau: float
    reprocess: int
    delta_max: float
    second_order: bool
    max_support: int


@njit()
def run(w: Any, cache: Any, batch: Any, rules: Any) -> int:  # pragma: no cover
    """Process a batch, or what is left of it. Returns DONE, ROW_MISSING (at[MISSING] names the place) or FULL."""
    at = batch.at
    problems = len(w.alpha)
    while at[CANDIDATE] < len(batch.row_of):
        if at[STAGE] == NEW:
            _meet(w, cache, batch, rules)
            at[STAGE], at[PROBLEM] = PROCESS, 0
        while at[STAGE] == PROCESS and at[PROBLEM] < problems:
            if not _process(w, cache, batch, rules, at[PROBLEM]):
                return ROW_MISSING
            at[PROBLEM] += 1
        if at[STAGE] == PROCESS:
            at[STAGE], at[PROBLEM], at[REPEAT] = REPROCESS, 0, 0
        while at[PROBLEM] < problems:
            outcome = _reprocess(w, cache, batch, rules, at[PROBLEM])
            if outcome < 0:
                return ROW_MISSING
            at[REPEAT] += 1
            if outcome == 0 or (at[REPEAT] >= rules.reprocess and not _loose(w, rules, at[PROBLEM])):
                at[PROBLEM] += 1
                at[REPEAT] = 0
        at[CANDIDATE] += 1
        at[SEEN] += 1
        at[STAGE] = NEW
        if np.max(w.count[:, 0]) >= rules.max_support:
            return FULL
    return DONE


@njit()
def uncertainty(w: Any, p: int) -> float:  # pragma: no cover
    """δ of paper 1, equation 10; inf where one side is empty."""
    top, bottom = np.max(w.top[p]), np.min(w.bottom[p])
    return top - bottom if top > -np.inf and bottom < np.inf else np.inf


@njit()
def _loose(w: Any, rules: Any, p: int) -> bool:  # pragma: no cover
    return bool(rules.delta_max < np.inf and uncertainty(w, p) > rules.delta_max)


@njit()
def _meet(w: Any, cache: Any, batch: Any, rules: Any) -> None:  # pragma: no cover
    """Steps 1-4 of PROCESS: the candidate's row and gradients; it becomes a member where it makes a violating pair."""
    at = batch.at
    c = at[CANDIDATE]
    k = batch.row_of[c]
    batch.enters[:] = False
    if k < 0:
        return
    known = batch.known[c]
    here = known >= 0 and w.holders[known] > 0 and w.slot[known] == batch.known_slot[c]
    if here and w.holders[known] == len(w.alpha):
        return
    assemble(w, cache, batch, k)
    wanted = False
    for p in range(len(w.alpha)):
        if here and w.member[p, known]:
            continue
        sign = batch.sign[p, c]
        gradient = sign - decision(w, cache, batch, p)
        batch.gradient[p] = gradient
        top, bottom = np.max(w.top[p]), np.min(w.bottom[p])
        excess = gradient - bottom if sign > 0 else top - gradient
        if np.isinf(excess):
            batch.enters[p] = _waiting(w, p, sign) < SEEDS
        else:
            batch.drift[p, k] = excess - batch.scored[p, k]
            batch.margin[p, k] = 1.0 + (top - bottom) / 2 - excess
            batch.enters[p] = excess > rules.tau
        batch.enters[p] = batch.enters[p] and batch.bound[p, c] > 0.0
        wanted = wanted or batch.enters[p]
    if not wanted:
        return
    place = known
    if not here:
        place = take_place(w)
        w.slot[place] = -1
        w.diagonal[place] = batch.self_kernel[k]
        keep(cache, batch, k, place)
    at[PLACE] = place
    at[ENTERED] += 1
    for p in range(len(w.alpha)):
        if batch.enters[p]:
            insert(w, p, place, batch.sign[p, c], batch.bound[p, c], batch.gradient[p])


@njit()
def _waiting(w: Any, p: int, sign: float) -> int:  # pragma: no cover
    """Count the members with α = 0 of one class: with one class only, a few of them wait for the other."""
    count = 0
    for z in range(w.count[p, 1]):
        count += w.sign[p, w.zeros[p, z]] == sign
    return count


@njit()
def _usable(w: Any, cache: Any, batch: Any, place: int) -> bool:  # pragma: no cover
    """Bring a row up to the present places; False, and at[MISSING] names it, if it must be computed."""
    batch.at[MISSING] = place
    return present(cache, place, w.size[0])


@njit()
def _search(w: Any, cache: Any, batch: Any, p: int, i: int, j: int) -> None:  # pragma: no cover
    """Step 5 of PROCESS, step 3 of REPROCESS: the direction search along (i, j), and every block's extremes after it."""
    curvature = w.diagonal[i] + w.diagonal[j] - 2.0 * value(cache, i, j)
    step = step_length(w.g[p, i] - w.g[p, j], curvature, w.upper[p, i] - w.alpha[p, i], w.alpha[p, j] - w.lower[p, j])
    before_i, before_j = w.alpha[p, i], w.alpha[p, j]
    set_alpha(w, p, i, before_i + step)
    set_alpha(w, p, j, before_j - step)
    g, up, down = w.g[p], w.up[p], w.down[p]
    for block in range(-(-w.size[0] // PAGE)):
        start, stop = block * PAGE, (block + 1) * PAGE
        w.top[p, block], w.bottom[p, block] = shift_block(
            g[start:stop],
            up[start:stop],
            down[start:stop],
            cache.pages[cache.table[i, block]],
            cache.pages[cache.table[j, block]],
            step,
        )
    batch.at[STEPS] += 1


@njit()
def _partner_down(w: Any, cache: Any, batch: Any, rules: Any, p: int, i: int) -> int:  # pragma: no cover
    """Choose j for a given i: the smallest gradient, or the largest gain where `second_order` asks for it."""
    if not rules.second_order:
        return lowest(w.bottom[p], w.g[p], w.down[p])
    best, where = -1.0, -1
    for block in range(-(-w.size[0] // PAGE)):
        start, stop = block * PAGE, (block + 1) * PAGE
        row = cache.pages[cache.table[i, block]]
        gain, a = best_gain_down(
            w.g[p][start:stop], w.down[p][start:stop], row, w.diagonal[start:stop], w.g[p, i], w.diagonal[i]
        )
        if gain > best:
            best, where = gain, start + a
    return where


@njit()
def _partner_up(w: Any, cache: Any, batch: Any, rules: Any, p: int, j: int) -> int:  # pragma: no cover
    """Choose i for a given j."""
    if not rules.second_order:
        return highest(w.top[p], w.g[p], w.up[p])
    best, where = -1.0, -1
    for block in range(-(-w.size[0] // PAGE)):
        start, stop = block * PAGE, (block + 1) * PAGE
        row = cache.pages[cache.table[j, block]]
        gain, a = best_gain_up(
            w.g[p][start:stop], w.up[p][start:stop], row, w.diagonal[start:stop], w.g[p, j], w.diagonal[j]
        )
        if gain > best:
            best, where = gain, start + a
    return where


@njit()
def _process(w: Any, cache: Any, batch: Any, rules: Any, p: int) -> bool:  # pragma: no cover
    """Steps 3-5 of PROCESS for the candidate that entered last. False if a kernel row is missing."""
    if not batch.enters[p]:
        return True
    k = batch.at[PLACE]
    if not _usable(w, cache, batch, k):
        return False
    if w.sign[p, k] > 0:
        i, j = k, _partner_down(w, cache, batch, rules, p, k)
        partner = j
    else:
        i, j = _partner_up(w, cache, batch, rules, p, k), k
        partner = i
    if partner < 0 or w.g[p, i] - w.g[p, j] <= rules.tau:
        return True
    if not _usable(w, cache, batch, partner):
        return False
    _search(w, cache, batch, p, i, j)
    return True


@njit()
def _reprocess(w: Any, cache: Any, batch: Any, rules: Any, p: int) -> int:  # pragma: no cover
    """REPROCESS: 1 if it made a step, 0 if there was no violating pair, -1 if a kernel row is missing."""
    i = highest(w.top[p], w.g[p], w.up[p])
    j = lowest(w.bottom[p], w.g[p], w.down[p])
    if i < 0 or j < 0 or w.g[p, i] - w.g[p, j] <= rules.tau:
        return 0
    if not _usable(w, cache, batch, i):
        return -1
    if rules.second_order:
        j = _partner_down(w, cache, batch, rules, p, i)
    if not _usable(w, cache, batch, j):
        return -1
    _search(w, cache, batch, p, i, j)
    _evict_blatant(w, cache, batch, p)
    return 1


@njit()
def _evict_blatant(w: Any, cache: Any, batch: Any, p: int) -> None:  # pragma: no cover
    """Step 4 of REPROCESS: members with α = 0 that no pair can violate leave S."""
    top, bottom = np.max(w.top[p]), np.min(w.bottom[p])
    z = 0
    while z < w.count[p, 1]:
        s = w.zeros[p, z]
        g = w.g[p, s]
        if blatant(w, p, s, top, bottom):
            if evict(w, p, s):
                drop_row(cache, s)
                cache.event_of[s] = -1
            block = s // PAGE
            if g == w.top[p, block] or g == w.bottom[p, block]:
                start, stop = block * PAGE, (block + 1) * PAGE
                w.top[p, block], w.bottom[p, block] = block_extremes(
                    w.g[p][start:stop], w.up[p][start:stop], w.down[p][start:stop]
                )
        else:
            z += 1
