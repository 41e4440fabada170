"""The working arrays of the expansion, by place, for all problems, and the operations that keep them consistent.

A *place* is a position in the working arrays; a *slot* is a row of the feature store. The place of an evicted member is reused
by the next one that enters, but its slot's features remain until a compaction. α, g, the bounds and the membership are
(problems × places) arrays: the problems do not influence each other, and a place is free when it is a member of none of them.

In the signs of paper 1 (equation 5): A = min(0, C y) ≤ α ≤ B = max(0, C y) and g = y - Σ α K.
"""

from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Flags, Ints, Values
from dasksvm.solver.state.direction_search import block_extremes, extremes, snapped
from dasksvm.solver.state.row_cache import PAGE, blocks_of


class Working(NamedTuple):
    """Working arrays. P problems, N places (a multiple of PAGE), B = N / PAGE blocks.

    Attributes
    ----------
    alpha, g, lower, upper, sign : ndarray of float64, shape (P, N)
        Coefficient, gradient, box [A, B] and label ±1.
    member, up, down : ndarray of bool, shape (P, N)
        In S; α < B; α > A (both only for members).
    top, bottom : ndarray of float64, shape (P, B)
        Largest g among `up` and smallest g among `down` of each block.
    zeros, zero_at : ndarray of int64, shape (P, N)
        List of the places of members with α = 0, and the position of each place in that list (-1: not in it).
    counts : ndarray of int64, shape (P, 2)
        Number of members; number of members with α = 0.
    diagonal : ndarray of float64, shape (N,)
        K(x, x).
    slot, holders, free : ndarray of int64, shape (N,)
        Slot of each place; number of problems in which it is a member; stack of free places.
    size : ndarray of int64, shape (2,)
        Number of places that have been used; number of those that are free again.
    """

    alpha: Values
    g: Values
    lower: Values
    upper: Values
    sign: Values
    member: Flags
    up: Flags
    down: Flags
    top: Values
    bottom: Values
    zeros: Ints
    zero_at: Ints
    counts: Ints
    diagonal: Values
    slot: Ints
    holders: Ints
    free: Ints
    size: Ints


class PlaceArrays(Protocol):
    """The arrays that say which places are taken; two-class problems and multi-class machines have them."""

    @property
    def slot(self) -> Ints:
        """See `Working`."""

    @property
    def holders(self) -> Ints:
        """See `Working`."""

    @property
    def free(self) -> Ints:
        """See `Working`."""

    @property
    def size(self) -> Ints:
        """See `Working`."""


def empty_working(problems: int, places: int) -> Working:
    """Make working arrays for a number of places, all of them free."""
    places = blocks_of(places) * PAGE
    shape = (problems, places)
    return Working(
        alpha=np.zeros(shape),
        g=np.zeros(shape),
        lower=np.zeros(shape),
        upper=np.zeros(shape),
        sign=np.zeros(shape),
        member=np.zeros(shape, np.bool_),
        up=np.zeros(shape, np.bool_),
        down=np.zeros(shape, np.bool_),
        top=np.full((problems, places // PAGE), -np.inf),
        bottom=np.full((problems, places // PAGE), np.inf),
        zeros=np.zeros((problems, places), np.int64),
        zero_at=np.full((problems, places), -1, np.int64),
        counts=np.zeros((problems, 2), np.int64),
        diagonal=np.zeros(places),
        slot=np.zeros(places, np.int64),
        holders=np.zeros(places, np.int64),
        free=np.zeros(places, np.int64),
        size=np.zeros(2, np.int64),
    )


def widened(working: Working, places: int) -> Working:
    """Copy the arrays into larger ones."""
    wide = empty_working(len(working.alpha), places)
    for new, old in zip(wide, working, strict=True):
        new[tuple(slice(0, length) for length in old.shape)] = old
    return wide


def live_places(working: PlaceArrays) -> Ints:
    """Return the places that are members of some problem, ascending."""
    return np.flatnonzero(working.holders[: working.size[0]] > 0)


def dual_objective(working: Working) -> NDArray[np.float64]:
    """Compute W(α) of each problem (paper 1, equation 4) from α and g alone: ½ Σ α (y + g)."""
    total: NDArray[np.float64] = 0.5 * np.einsum("ps,ps->p", working.alpha, working.sign + working.g)
    return total


@njit()
def set_alpha(w: Working, p: int, place: int, value: float) -> None:  # pragma: no cover
    """Write a coefficient, snapped to its box, and update the masks and the list of zeros."""
    write_alpha(
        w.alpha[p], w.lower[p], w.upper[p], w.up[p], w.down[p], w.zeros[p], w.zero_at[p], w.counts[p], place, value
    )


@njit()
def write_alpha(
    alpha: Values,
    lower: Values,
    upper: Values,
    up: Flags,
    down: Flags,
    zeros: Ints,
    zero_at: Ints,
    count: Ints,
    place: int,
    value: float,
) -> None:  # pragma: no cover
    """Do the same as `set_alpha`, given the arrays of one problem."""
    low, high = lower[place], upper[place]
    value = snapped(value, low, high)
    alpha[place] = value
    up[place] = value < high
    down[place] = value > low
    at = zero_at[place]
    if value == 0.0 and at < 0:
        zero_at[place] = count[1]
        zeros[count[1]] = place
        count[1] += 1
    elif value != 0.0 and at >= 0:
        _leave_zeros(zeros, zero_at, count, place)


@njit()
def _leave_zeros(zeros: Ints, zero_at: Ints, count: Ints, place: int) -> None:  # pragma: no cover
    at = zero_at[place]
    count[1] -= 1
    last = zeros[count[1]]
    zeros[at] = last
    zero_at[last] = at
    zero_at[place] = -1


@njit()
def take_place(w: PlaceArrays) -> int:  # pragma: no cover
    """Take a free place: the one freed last, or else a new one."""
    if w.size[1] > 0:
        w.size[1] -= 1
        return int(w.free[w.size[1]])
    w.size[0] += 1
    return int(w.size[0] - 1)


@njit()
def insert(w: Working, p: int, place: int, sign: float, bound: float, gradient: float) -> None:  # pragma: no cover
    """Make a place a member of problem p with α = 0."""
    w.member[p, place] = True
    w.counts[p, 0] += 1
    w.sign[p, place] = sign
    w.lower[p, place] = min(0.0, bound * sign)
    w.upper[p, place] = max(0.0, bound * sign)
    w.g[p, place] = gradient
    set_alpha(w, p, place, 0.0)
    block = place // PAGE
    if w.up[p, place]:
        w.top[p, block] = max(w.top[p, block], gradient)
    if w.down[p, place]:
        w.bottom[p, block] = min(w.bottom[p, block], gradient)


@njit()
def evict(w: Working, p: int, place: int) -> None:  # pragma: no cover
    """Remove a member with α = 0 from problem p.

    The extremes of its block are not updated: if the member may have been one of them, the caller computes them again. The
    place is freed by `free_places`.
    """
    _leave_zeros(w.zeros[p], w.zero_at[p], w.counts[p], place)
    w.member[p, place] = False
    w.up[p, place] = False
    w.down[p, place] = False
    w.counts[p, 0] -= 1


@njit()
def free_places(w: Working, held: Flags) -> Ints:  # pragma: no cover
    """Free the places that are no longer members of any problem, and return them; `held` places, shape (V,), are not freed."""
    places = w.size[0]
    holders = held.astype(np.int64)
    for p in range(len(w.member)):
        for place in range(places):
            holders[place] += w.member[p, place]
    freed = np.empty(places, np.int64)
    count = 0
    for place in range(places):
        if w.holders[place] > 0 and holders[place] == 0:
            w.free[w.size[1]] = place
            w.size[1] += 1
            freed[count] = place
            count += 1
        w.holders[place] = holders[place]
    return freed[:count]


@njit()
def find_needed_classes(w: Working, enough: int) -> Flags:  # pragma: no cover
    """Return, for each problem and for its negative and positive class, whether fewer than `enough` members have α = 0."""
    out = np.empty((len(w.member), 2), np.bool_)
    for p in range(len(w.member)):
        positive = 0
        for z in range(w.counts[p, 1]):
            positive += w.sign[p, w.zeros[p, z]] > 0
        out[p, 0] = w.counts[p, 1] - positive < enough
        out[p, 1] = positive < enough
    return out


@njit()
def assign_places(w: Working, base: int, count: int) -> tuple[Ints, Ints]:  # pragma: no cover
    """Move the members in the first `count` seats from `base` on to places; return their seat numbers and their places."""
    seats, places = np.empty(count, np.int64), np.empty(count, np.int64)
    total = 0
    for k in range(count):
        seat, holders = base + k, 0
        for p in range(len(w.member)):
            holders += w.member[p, seat]
        if holders == 0:
            continue
        place = take_place(w)
        w.holders[place], w.diagonal[place] = holders, w.diagonal[seat]
        if place != seat:
            for p in range(len(w.member)):
                _move(w, p, seat, place)
        seats[total], places[total] = k, place
        total += 1
    for p in range(len(w.member)):
        refresh_extremes(w, p)
    return seats[:total], places[:total]


@njit()
def _move(w: Working, p: int, seat: int, place: int) -> None:  # pragma: no cover
    """Move a member of problem p from its seat to a place; no-op if the seat is empty.

    The seats are moved in ascending order, so that no place overwrites a seat that has not been moved yet.
    """
    for array in (w.alpha[p], w.g[p], w.lower[p], w.upper[p], w.sign[p]):
        array[place] = array[seat]
        array[seat] = 0.0
    for mask in (w.member[p], w.up[p], w.down[p]):
        mask[place] = mask[seat]
        mask[seat] = False
    at = w.zero_at[p, seat]
    w.zero_at[p, place], w.zero_at[p, seat] = at, -1
    if at >= 0:
        w.zeros[p, at] = place


@njit()
def write(w: Working, p: int, alpha: Values, g: Values) -> None:  # pragma: no cover
    """Replace the coefficients and gradients of problem p."""
    for place in range(len(alpha)):
        if w.member[p, place]:
            w.g[p, place] = g[place]
            set_alpha(w, p, place, alpha[place])
    refresh_extremes(w, p)


@njit()
def evict_beyond(w: Working, p: int, upper: float, lower: float) -> None:  # pragma: no cover
    """Evict the members with α = 0 of problem p: positive ones with a gradient below `lower`, negative ones above `upper`."""
    at = 0
    while at < w.counts[p, 1]:
        place = w.zeros[p, at]
        if w.g[p, place] < lower if w.sign[p, place] > 0 else w.g[p, place] > upper:
            evict(w, p, place)
        else:
            at += 1
    refresh_extremes(w, p)


@njit()
def adopt(w: Working, p: int, alpha: Values, g: Values) -> None:  # pragma: no cover
    """Replace the coefficients and gradients of problem p, and evict blatant non-support vectors."""
    places = len(alpha)
    write(w, p, alpha, g)
    top, bottom = extremes(w.top[p], w.bottom[p])
    for place in range(places):
        if w.member[p, place] and w.alpha[p, place] == 0.0 and _useless(w, p, place, top, bottom):
            evict(w, p, place)
    refresh_extremes(w, p)


@njit()
def _useless(w: Working, p: int, place: int, top: float, bottom: float) -> bool:  # pragma: no cover
    """Return whether a member with α = 0 is a blatant non-support vector, and not an extreme itself.

    If no support vector is free, an extreme bounds the range of the bias and is kept, even if it does not violate with any
    member; see `entry_levels`.
    """
    sign, g = w.sign[p, place], w.g[p, place]
    inside = g > bottom if sign < 0 else g < top
    return bool(inside and blatant(sign, g, top, bottom))


@njit()
def blatant(sign: float, g: float, top: float, bottom: float) -> bool:  # pragma: no cover
    """Return whether a member with α = 0 cannot be part of any violating pair (step 4 of REPROCESS, paper 1, section 3.2)."""
    return bool(g >= top) if sign < 0 else bool(g <= bottom)


@njit()
def refresh_extremes(w: Working, p: int) -> None:  # pragma: no cover
    """Recompute the extreme gradients of every block."""
    g, up, down = w.g[p], w.up[p], w.down[p]
    for block in range(w.top.shape[1]):
        w.top[p, block], w.bottom[p, block] = block_extremes(g, up, down, block * PAGE, (block + 1) * PAGE)
