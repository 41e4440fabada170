"""The working arrays of a multi-class machine's expansion, by place (see `state.working_arrays` for places and slots).

For each pattern the d scores f_m(x_i) before the projection of `zero_sum` are stored, and for `zero_sum` machines their mean. A
step in a variable then changes two vectors instead of the gradients of all d classes (paper 5, section 4.2.3).
"""

from typing import NamedTuple

import numpy as np

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Flags, Ints, Values
from dasksvm.solver.multiclass.structure import Machine, dual, gradients
from dasksvm.solver.state.row_cache import PAGE, blocks_of
from dasksvm.solver.state.working_arrays import take_place


class Working(NamedTuple):
    """Working arrays. d classes, N places (a multiple of PAGE).

    Attributes
    ----------
    alpha, score : ndarray of float64, shape (d, N)
        Coefficient of each variable; score f_m before the projection.
    mean : ndarray of float64, shape (N,)
        Σ_m score_m / d for `zero_sum` machines, else 0.
    label : ndarray of int64, shape (N,)
        Class.
    bound, load : ndarray of float64, shape (N,)
        C_i; Σ_c α.
    member : ndarray of bool, shape (N,)
        In the expansion.
    diagonal : ndarray of float64, shape (N,)
        K(x, x).
    slot, holders, free : ndarray of int64, shape (N,)
        Slot of each place; 1 for places of members, else 0; stack of free places.
    size : ndarray of int64, shape (2,)
        Number of places that have been used; number of those that are free again.
    listed, listed_at : ndarray of int64, shape (N,)
        List of the members' places, in no particular order, and the position of each place in that list.
    counts : ndarray of int64, shape (1,)
        Number of members.
    """

    alpha: Values
    score: Values
    mean: Values
    label: Ints
    bound: Values
    load: Values
    member: Flags
    diagonal: Values
    slot: Ints
    holders: Ints
    free: Ints
    size: Ints
    listed: Ints
    listed_at: Ints
    counts: Ints


def empty_working(classes: int, places: int) -> Working:
    """Make working arrays for a number of places, all of them free."""
    places = blocks_of(places) * PAGE
    return Working(
        alpha=np.zeros((classes, places)),
        score=np.zeros((classes, places)),
        mean=np.zeros(places),
        label=np.zeros(places, np.int64),
        bound=np.zeros(places),
        load=np.zeros(places),
        member=np.zeros(places, np.bool_),
        diagonal=np.zeros(places),
        slot=np.zeros(places, np.int64),
        holders=np.zeros(places, np.int64),
        free=np.zeros(places, np.int64),
        size=np.zeros(2, np.int64),
        listed=np.zeros(places, np.int64),
        listed_at=np.zeros(places, np.int64),
        counts=np.zeros(1, np.int64),
    )


def widened(working: Working, places: int) -> Working:
    """Copy the arrays into larger ones."""
    wide = empty_working(len(working.alpha), places)
    for new, old in zip(wide, working, strict=True):
        new[tuple(slice(0, length) for length in old.shape)] = old
    return wide


def dual_objective(working: Working, machine: Machine) -> float:
    """Compute D(α) (paper 5, equation 5.4) from α and the scores alone."""
    places = slice(0, int(working.size[0]))
    margins = working.score[:, places] - working.mean[places]
    return dual(working.alpha[:, places], gradients(machine, margins, working.label[places]))


@njit()
def insert(
    w: Working, machine: Machine, place: int, label: int, bound: float, scores: Values
) -> None:  # pragma: no cover
    """Make a place a member with α = 0 and the given d scores; the caller sets its slot and diagonal."""
    w.member[place] = True
    w.label[place] = label
    w.bound[place] = bound
    total = 0.0
    for m in range(machine.classes):
        w.score[m, place] = scores[m]
        total += scores[m]
    w.mean[place] = total / machine.classes if machine.zero_sum else 0.0
    w.listed[w.counts[0]] = place
    w.listed_at[place] = w.counts[0]
    w.counts[0] += 1


@njit()
def evict(w: Working, place: int) -> None:  # pragma: no cover
    """Remove a member whose α are all 0 from the expansion; its place is freed by `free_places`."""
    w.member[place] = False
    w.bound[place] = 0.0
    w.counts[0] -= 1
    last, at = w.listed[w.counts[0]], w.listed_at[place]
    w.listed[at] = last
    w.listed_at[last] = at


@njit()
def free_places(w: Working) -> Ints:  # pragma: no cover
    """Free the places of evicted members, and return them."""
    freed = np.empty(w.size[0], np.int64)
    count = 0
    for place in range(w.size[0]):
        if w.holders[place] > 0 and not w.member[place]:
            w.holders[place] = 0
            w.free[w.size[1]] = place
            w.size[1] += 1
            freed[count] = place
            count += 1
    return freed[:count]


@njit()
def assign_places(w: Working, base: int, count: int) -> tuple[Ints, Ints]:  # pragma: no cover
    """Move the members in the first `count` seats from `base` on to places; return their seat numbers and their places."""
    seats, places = np.empty(count, np.int64), np.empty(count, np.int64)
    total = 0
    for k in range(count):
        seat = base + k
        if not w.member[seat]:
            continue
        place = take_place(w)
        if place != seat:
            _move(w, seat, place)
        w.holders[place] = 1
        seats[total], places[total] = k, place
        total += 1
    return seats[:total], places[:total]


@njit()
def _move(w: Working, seat: int, place: int) -> None:  # pragma: no cover
    for m in range(len(w.alpha)):
        w.alpha[m, place], w.score[m, place] = w.alpha[m, seat], w.score[m, seat]
        w.alpha[m, seat] = 0.0
    for array in (w.mean, w.bound, w.load, w.diagonal):
        array[place] = array[seat]
    w.label[place] = w.label[seat]
    w.bound[seat] = w.load[seat] = 0.0
    w.member[place], w.member[seat] = True, False
    w.listed_at[place] = w.listed_at[seat]
    w.listed[w.listed_at[place]] = place


@njit()
def random_member(w: Working, number: float) -> int:  # pragma: no cover
    """Return the place of a random member, chosen by a number in [0, 1); there must be at least one member."""
    return int(w.listed[int(number * w.counts[0])])


@njit()
def may_rise(w: Working, machine: Machine, place: int, c: int) -> bool:  # pragma: no cover
    """Return whether a variable exists, belongs to a member, and is below its bound (with a shared slack: some of it is left)."""
    if not w.member[place] or (c == w.label[place] and not machine.total):
        return False
    return bool((w.load[place] if machine.shared else w.alpha[c, place]) < w.bound[place])


@njit()
def may_fall(w: Working, place: int, c: int) -> bool:  # pragma: no cover
    """Return whether a variable is above 0."""
    return bool(w.alpha[c, place] > 0.0)
