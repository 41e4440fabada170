"""Tracking the optimum: after each example K coordinate steps at random (paper 3, algorithms 1 and 2, sections 5.1 and 5.2).

Examples have numbers in the order in which they came first. After the t-th, K picks are drawn uniformly from {1..t}, and each
makes the step α_i ← α_i + max(A - α_i, min(B - α_i, g_i / K_ii)), in the signs of paper 1. The picks are a function of the seed
and of how many examples came, not of what the steps did, so that the kernel rows they need can be computed ahead, as a tile.

"support" is the cheap variant: only members with α ≠ 0 have a gradient. Who reaches 0 is passed over from then on, and leaves
when the next example comes: until then it is part of the average.

The average of an example's K iterates is kept as what differs from the last one: a change Δ by the k-th step is missing in the
k - 1 iterates before, so ᾱ_i = α_i - Σ Δ (k - 1) / K.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.generator import draw, skip
from dasksvm.solver.jit import SUMS, njit
from dasksvm.solver.state.batch import (
    CANDIDATE,
    DONE,
    ENTERED,
    FULL,
    MISSING,
    PLACE,
    REPEAT,
    ROW_MISSING,
    SEEN,
    STAGE,
    STEPS,
)
from dasksvm.solver.state.working_arrays import evict, insert, write_alpha
from dasksvm.solver.unbiased.gap_steps import free_step, gap, gap_of, room_of, shift

NEW, ASCEND = 0, 1
# Of a problem: its gap and Σ C_i of its members now; the sum over the examples of the first divided by the second, and their
# number; what the process operations gained (δ of theorem 3).
GAP, BOXES, SUM, COUNT, GAINED, FIELDS = range(6)


class TrackingRules(NamedTuple):
    """What the user set.

    Attributes
    ----------
    steps : int
        K.
    process : bool
        Whether a step in the new example comes first (algorithm 2).
    support : bool
        Whether members with α ≠ 0 alone have a gradient.
    average : bool
        Whether the mean of the last example's iterates is given out.
    batch : bool
        Whether all examples are taken in before the first step.
    """

    steps: int
    process: bool
    support: bool
    average: bool
    batch: bool


class Tracks(NamedTuple):
    """What the iterations leave beside the expansion.

    Attributes
    ----------
    now : ndarray of float64, shape (P, FIELDS)
    places, amounts : ndarray of int64 and float64, shape (P, K)
        Places whose average differs from α, and by how much.
    count : ndarray of int64, shape (P,)
        Entries of these.
    """

    now: Any
    places: Any
    amounts: Any
    count: Any


def empty_tracks(problems: int, steps: int) -> Tracks:
    """Make the tracks of a run that has not begun."""
    return Tracks(
        now=np.zeros((problems, FIELDS)),
        places=np.zeros((problems, steps), np.int64),
        amounts=np.zeros((problems, steps)),
        count=np.zeros(problems, np.int64),
    )


@njit()
def pick(seed: int, done: int, known: Any, steps: int, places: Any) -> Any:  # pragma: no cover
    """Draw the picks of a batch, and look up where they stand; shape (m, K), -1 for nowhere.

    Parameters
    ----------
    seed, done : int
        Of the picks; how many examples came before the batch.
    known : ndarray of int64, shape (m,)
        t at each example of the batch.
    steps : int
        K.
    places : ndarray of int64
        Place of each number.
    """
    out = np.empty((len(known), steps), np.int64)
    random = np.empty(1, np.uint64)
    random[0] = np.uint64(seed)
    skip(random, done * steps)
    for c in range(len(known)):
        for k in range(steps):
            out[c, k] = places[np.int64(draw(random) * known[c])]
    return out


@njit()
def run(
    w: Any, cache: Any, batch: Any, rules: Any, most: int, picked: Any, tracks: Any, p: int
) -> int:  # pragma: no cover
    """Process a batch, or what is left of it, in problem p. Returns DONE, ROW_MISSING (at[p, MISSING] says whose) or FULL."""
    at, now, room = batch.at[p], tracks.now[p], room_of(w, batch, p)
    if at[CANDIDATE] == 0 and at[STAGE] == NEW:
        now[GAP], now[BOXES] = gap(w, p), boxes(w, p)
    while at[CANDIDATE] < len(batch.row_of):
        if at[STAGE] == NEW:
            tracks.count[p] = 0
            if rules.support:
                _let_go(w, p, now, room)
            at[PLACE] = _meet(w, batch, rules, p, at[CANDIDATE], now, room)
            at[REPEAT] = -1 if rules.process and at[PLACE] >= 0 else 0
            at[STAGE] = ASCEND
        if not _ascend(w, cache, batch, rules, picked, tracks, p, room):
            return ROW_MISSING
        now[SUM] += now[GAP] / now[BOXES] if now[BOXES] > 0.0 else 0.0
        now[COUNT] += 1
        at[STAGE] = NEW
        at[CANDIDATE] += 1
        at[SEEN] += 1
        if w.count[p, 0] - w.count[p, 1] >= most:
            return FULL
    return DONE


@njit(fastmath=SUMS)
def boxes(w: Any, p: int) -> float:  # pragma: no cover
    """Σ C_i of the members."""
    lower, upper = w.lower[p], w.upper[p]
    total = 0.0
    for a in range(len(lower)):
        total += upper[a] - lower[a]
    return total


@njit()
def standing(w: Any, p: int) -> float:  # pragma: no cover
    """Give the gap of the members, divided by Σ C_i of theirs; 0 without members."""
    total = boxes(w, p)
    return gap(w, p) / total if total > 0.0 else 0.0


@njit()
def _let_go(w: Any, p: int, now: Any, room: Any) -> None:  # pragma: no cover
    """Evict the members whose α became 0 since the example before."""
    while w.count[p, 1] > 0:
        place = w.zeros[p, 0]
        now[GAP] -= gap_of(w, p, place)
        now[BOXES] -= w.upper[p, place] - w.lower[p, place]
        evict(w, p, place)
        w.lower[p, place] = w.upper[p, place] = 0.0
        room.rise[place] = room.fall[place] = 0.0


@njit()
def _meet(w: Any, batch: Any, rules: Any, p: int, c: int, now: Any, room: Any) -> int:  # pragma: no cover
    """Take a candidate in with α = 0, if it can have another one; returns its place, or -1 where it stays out."""
    k, place = batch.row_of[c], batch.known[c]
    if place >= 0 and w.member[p, place]:
        return int(place)
    if k < 0 or batch.bound[p, c] <= 0.0:
        return -1
    sign, gradient = batch.sign[p, c], w.g[p, batch.base + k]
    batch.moved[p, k] = sign * gradient - batch.excess[p, batch.chosen[k]]
    if rules.support and not sign * gradient > 0.0:
        return -1
    if place < 0:
        place = batch.base + k
    insert(w, p, place, sign, batch.bound[p, c], gradient)
    room.rise[place], room.fall[place] = w.upper[p, place], w.lower[p, place]
    now[GAP] += gap_of(w, p, place)
    now[BOXES] += batch.bound[p, c]
    batch.at[p, ENTERED] += 1
    return int(place)


@njit()
def _ascend(
    w: Any, cache: Any, batch: Any, rules: Any, picked: Any, tracks: Any, p: int, room: Any
) -> bool:  # pragma: no cover
    """Make the step in the new example, and those in the picks; False if a kernel row is missing.

    The arrays are taken out of their tuples once: each time costs two atomic operations, and a step has little else to do.
    """
    g, alpha, lower, upper, up, down = w.g[p], w.alpha[p], w.lower[p], w.upper[p], w.up[p], w.down[p]
    rise, fall, best = room
    diagonal, member = w.diagonal, w.member[p]
    zeros, zero_at, count = w.zeros[p], w.zero_at[p], w.count[p]
    pages, table, cached, touched = cache.pages, cache.table, cache.cached, cache.touched
    rows, columns, mates, base = batch.rows, batch.columns, batch.mates, batch.base
    now, at, support, average = tracks.now[p], batch.at[p], rules.support, rules.average
    places, amounts, entries = tracks.places[p], tracks.amounts[p], tracks.count
    new, c, steps = at[PLACE], at[CANDIDATE], picked.shape[1]
    for k in range(at[REPEAT], steps):
        i = new if k < 0 else picked[c, k]
        if i < 0 or not member[i] or (support and k >= 0 and alpha[i] == 0.0):
            continue
        length = free_step(g, alpha, lower, upper, diagonal, i)
        if length == 0.0:
            continue
        if i < base:
            if not cached[i]:
                at[MISSING], at[REPEAT] = i, k
                return False
            touched[i] = True
        if k < 0:
            now[GAINED] += length * (g[i] - 0.5 * length * diagonal[i])
        elif k > 0 and average:
            places[entries[p]], amounts[entries[p]] = i, length * k / steps
            entries[p] += 1
        write_alpha(alpha, lower, upper, up, down, zeros, zero_at, count, i, alpha[i] + length)
        rise[i], fall[i] = upper[i] - alpha[i], lower[i] - alpha[i]
        now[GAP] = shift(g, rise, fall, best, pages, table, rows, columns, mates, base, i, length)
        at[STEPS] += 1
    return True


@njit()
def wanted(w: Any, support: bool, picked: Any, base: int) -> Any:  # pragma: no cover
    """List the members that picks would move now in some problem, in the order of the picks."""
    out, listed = np.empty(base, np.int64), np.zeros(base, np.bool_)
    total = 0
    for i in picked.ravel():
        if i < 0 or i >= base or listed[i]:
            continue
        moves = False
        for p in range(len(w.alpha)):
            if w.member[p, i] and not (support and w.alpha[p, i] == 0.0):
                moves |= free_step(w.g[p], w.alpha[p], w.lower[p], w.upper[p], w.diagonal, i) != 0.0
        if moves:
            listed[i] = True
            out[total] = i
            total += 1
    return out[:total]


def averaged(w: Any, tracks: Tracks, p: int, places: int) -> NDArray[np.float64]:
    """Give ᾱ of the first places of a problem; within its box, but for rounding, by its nature."""
    alpha: NDArray[np.float64] = w.alpha[p, :places].copy()
    count = tracks.count[p]
    np.subtract.at(alpha, tracks.places[p, :count], tracks.amounts[p, :count])
    return np.clip(alpha, w.lower[p, :places], w.upper[p, :places])


def tracking_bound(
    dual: NDArray[np.float64], steps: NDArray[np.float64], C: NDArray[np.float64]
) -> NDArray[np.float64]:
    """μ(D / (K T)), μ(x) = √(2x) + x / C: what theorems 2 and 3 bound the mean normalised gap by, after K T = `steps` steps.

    D is the dual that those steps gained: all of it, or, of algorithm 2, what the process operations did not.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.maximum(dual, 0.0) / steps
        bound: NDArray[np.float64] = np.sqrt(2.0 * gain) + gain / C
    return bound
