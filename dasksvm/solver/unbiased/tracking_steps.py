"""Tracking the optimum: K random coordinate steps after each example (paper 3, algorithms 1 and 2, sections 5.1 and 5.2).

Examples are numbered in the order in which they first arrived. After the t-th example, K picks are drawn uniformly from {1..t},
and each makes the step α_i ← α_i + max(A - α_i, min(B - α_i, g_i / K_ii)), with the signs of paper 1. The picks depend only on
the seed and on the number of examples so far, not on the outcome of the steps, so that the kernel rows they need can be computed
in advance, as one tile.

The variant "support" is cheaper: gradients are kept only for members with α ≠ 0. A member whose α becomes 0 is not moved any
more and is evicted when the next example arrives; until then it is part of the average.

The average of the K iterates of an example is stored as its difference from the last iterate: a change Δ made by the k-th step is
missing in the k - 1 iterates before it, so ᾱ_i = α_i - Σ Δ (k - 1) / K.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.generator import draw, skip
from dasksvm.solver.jit import SUMS, njit
from dasksvm.solver.kernels.features import Ints, Values
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
    Batch,
)
from dasksvm.solver.state.row_cache import RowCache
from dasksvm.solver.state.working_arrays import Working, evict, insert, write_alpha
from dasksvm.solver.unbiased.gap_steps import Room, free_step, gap, gap_of, room_of, update_gradients

NEW, STEP = 0, 1
# Fields of a problem's status: its gap; Σ C_i of its members; the sum over all examples so far of gap / Σ C_i; the number of
# these examples; the dual increase of the process operations (δ of theorem 3).
GAP, BOXES, SUM, COUNT, GAINED, FIELDS = range(6)


class TrackingRules(NamedTuple):
    """The parameters of the solver.

    Attributes
    ----------
    steps : int
        K, the number of steps per example.
    process : bool
        Whether a step in the new example precedes the random ones (algorithm 2).
    support : bool
        Whether gradients are kept only for members with α ≠ 0.
    average : bool
        Whether the model is the mean of the iterates of the last example, instead of the last iterate.
    """

    steps: int
    process: bool
    support: bool
    average: bool


class TrackingState(NamedTuple):
    """The state of the iterations that is not part of the expansion.

    Attributes
    ----------
    status : ndarray of float64, shape (P, FIELDS)
    places, amounts : ndarray of int64 and float64, shape (P, K)
        The places whose average differs from α, and the differences.
    counts : ndarray of int64, shape (P,)
        Number of entries in `places` and `amounts`.
    """

    status: Values
    places: Ints
    amounts: Values
    counts: Ints


def empty_tracking_state(problems: int, steps: int) -> TrackingState:
    """Return the state of the iterations before the first example."""
    return TrackingState(
        status=np.zeros((problems, FIELDS)),
        places=np.zeros((problems, steps), np.int64),
        amounts=np.zeros((problems, steps)),
        counts=np.zeros(problems, np.int64),
    )


@njit()
def draw_picks(seed: int, done: int, arrived: Ints, steps: int, places: Ints) -> Ints:  # pragma: no cover
    """Draw the picks of a batch. Returns their places, shape (m, K), with -1 for examples that have no place.

    Parameters
    ----------
    seed : int
        Seed of the picks.
    done : int
        Number of examples before this batch.
    arrived : ndarray of int64, shape (m,)
        t of each example of the batch.
    steps : int
        K.
    places : ndarray of int64
        Place of each example, by its number.
    """
    out = np.empty((len(arrived), steps), np.int64)
    random = np.empty(1, np.uint64)
    random[0] = np.uint64(seed)
    skip(random, done * steps)
    for c in range(len(arrived)):
        for k in range(steps):
            out[c, k] = places[np.int64(draw(random) * arrived[c])]
    return out


@njit()
def process_batch(
    w: Working,
    cache: RowCache,
    batch: Batch,
    rules: TrackingRules,
    max_support: int,
    picked: Ints,
    tracking: TrackingState,
    p: int,
) -> int:  # pragma: no cover
    """Process a batch, or the rest of it, in problem p. Returns DONE, FULL or ROW_MISSING (see progress[p, MISSING])."""
    progress, status, room = batch.progress[p], tracking.status[p], room_of(w, batch, p)
    if progress[CANDIDATE] == 0 and progress[STAGE] == NEW:
        status[GAP], status[BOXES] = gap(w, p), boxes(w, p)
    while progress[CANDIDATE] < len(batch.row_of):
        if progress[STAGE] == NEW:
            tracking.counts[p] = 0
            if rules.support:
                _evict_zeros(w, p, status, room)
            progress[PLACE] = _admit(w, batch, rules, p, progress[CANDIDATE], status, room)
            progress[REPEAT] = -1 if rules.process and progress[PLACE] >= 0 else 0
            progress[STAGE] = STEP
        if not _make_random_steps(w, cache, batch, rules, picked, tracking, p, room):
            return ROW_MISSING
        status[SUM] += status[GAP] / status[BOXES] if status[BOXES] > 0.0 else 0.0
        status[COUNT] += 1
        progress[STAGE] = NEW
        progress[CANDIDATE] += 1
        progress[SEEN] += 1
        if w.counts[p, 0] - w.counts[p, 1] >= max_support:
            return FULL
    return DONE


@njit(fastmath=SUMS)
def boxes(w: Working, p: int) -> float:  # pragma: no cover
    """Compute Σ C_i of the members."""
    lower, upper = w.lower[p], w.upper[p]
    total = 0.0
    for a in range(len(lower)):
        total += upper[a] - lower[a]
    return total


@njit()
def normalised_gap(w: Working, p: int) -> float:  # pragma: no cover
    """Compute the gap of the members divided by their Σ C_i; 0 if there are no members."""
    total = boxes(w, p)
    return gap(w, p) / total if total > 0.0 else 0.0


@njit()
def _evict_zeros(w: Working, p: int, status: Values, room: Room) -> None:  # pragma: no cover
    """Evict the members whose α has become 0 since the previous example."""
    while w.counts[p, 1] > 0:
        place = w.zeros[p, 0]
        status[GAP] -= gap_of(w, p, place)
        status[BOXES] -= w.upper[p, place] - w.lower[p, place]
        evict(w, p, place)
        w.lower[p, place] = w.upper[p, place] = 0.0
        room.rise[place] = room.fall[place] = 0.0


@njit()
def _admit(
    w: Working, batch: Batch, rules: TrackingRules, p: int, c: int, status: Values, room: Room
) -> int:  # pragma: no cover
    """Make a candidate a member with α = 0, unless its α could not change. Returns its place, or -1 if it does not enter."""
    k, place = batch.row_of[c], batch.place_of[c]
    if place >= 0 and w.member[p, place]:
        return int(place)
    if k < 0 or batch.bound[p, c] <= 0.0:
        return -1
    sign, gradient = batch.sign[p, c], w.g[p, batch.base + k]
    batch.growth[p, k] = sign * gradient - batch.excess[p, batch.chosen[k]]
    if rules.support and not sign * gradient > 0.0:
        return -1
    if place < 0:
        place = batch.base + k
    insert(w, p, place, sign, batch.bound[p, c], gradient)
    room.rise[place], room.fall[place] = w.upper[p, place], w.lower[p, place]
    status[GAP] += gap_of(w, p, place)
    status[BOXES] += batch.bound[p, c]
    batch.progress[p, ENTERED] += 1
    return int(place)


@njit()
def _make_random_steps(
    w: Working,
    cache: RowCache,
    batch: Batch,
    rules: TrackingRules,
    picked: Ints,
    tracking: TrackingState,
    p: int,
    room: Room,
) -> bool:  # pragma: no cover
    """Make the step in the new example and those in the picks. Returns False if a kernel row is missing.

    Arrays are unpacked from their tuples before the loop, because each access costs two atomic operations, which is much
    compared with a step.
    """
    g, alpha, lower, upper, up, down = w.g[p], w.alpha[p], w.lower[p], w.upper[p], w.up[p], w.down[p]
    rise, fall, best = room
    diagonal, member = w.diagonal, w.member[p]
    zeros, zero_at, count = w.zeros[p], w.zero_at[p], w.counts[p]
    pages, table, cached, touched = cache.pages, cache.table, cache.cached, cache.touched
    rows, columns, mutual, base = batch.rows, batch.columns, batch.mutual, batch.base
    status, progress, support, average = tracking.status[p], batch.progress[p], rules.support, rules.average
    places, amounts, entries = tracking.places[p], tracking.amounts[p], tracking.counts
    new, c, steps = progress[PLACE], progress[CANDIDATE], picked.shape[1]
    for k in range(progress[REPEAT], steps):
        i = new if k < 0 else picked[c, k]
        if i < 0 or not member[i] or (support and k >= 0 and alpha[i] == 0.0):
            continue
        length = free_step(g, alpha, lower, upper, diagonal, i)
        if length == 0.0:
            continue
        if i < base:
            if not cached[i]:
                progress[MISSING], progress[REPEAT] = i, k
                return False
            touched[i] = True
        if k < 0:
            status[GAINED] += length * (g[i] - 0.5 * length * diagonal[i])
        elif k > 0 and average:
            places[entries[p]], amounts[entries[p]] = i, length * k / steps
            entries[p] += 1
        write_alpha(alpha, lower, upper, up, down, zeros, zero_at, count, i, alpha[i] + length)
        rise[i], fall[i] = upper[i] - alpha[i], lower[i] - alpha[i]
        status[GAP] = update_gradients(g, rise, fall, best, pages, table, rows, columns, mutual, base, i, length)
        progress[STEPS] += 1
    return True


@njit()
def movable_picks(w: Working, support: bool, picked: Ints, base: int) -> Ints:  # pragma: no cover
    """Return the members that the picks would move in some problem in its current state, in the order of the picks."""
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


def average_alpha(w: Working, tracking: TrackingState, p: int, places: int) -> NDArray[np.float64]:
    """Return ᾱ of the first `places` places of a problem. It is in its box up to rounding, so clipping does not change it."""
    alpha: NDArray[np.float64] = w.alpha[p, :places].copy()
    count = tracking.counts[p]
    np.subtract.at(alpha, tracking.places[p, :count], tracking.amounts[p, :count])
    return np.clip(alpha, w.lower[p, :places], w.upper[p, :places])


def tracking_bound(
    dual: NDArray[np.float64], steps: NDArray[np.float64], C: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute the bound on the mean normalised gap after K T = `steps` steps (paper 3, theorems 2 and 3).

    The bound is μ(D / (K T)) with μ(x) = √(2x) + x / C. D is the increase of the dual by these steps: for algorithm 1 the whole
    dual, for algorithm 2 without the increase by the process operations.
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.maximum(dual, 0.0) / steps
        bound: NDArray[np.float64] = np.sqrt(2.0 * gain) + gain / C
    return bound
