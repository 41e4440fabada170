"""The working arrays of a multi-class machine's expansion, by place (see `state.working_arrays` for places and slots).

What is kept of a pattern is its d scores f_m(x_i), before the projection of `zero_sum`, and their mean where there is one:
a step in a variable then moves two vectors, and not the gradients of all d classes (paper 5, section 4.2.3).
"""

from typing import Any, NamedTuple

import numpy as np

from dasksvm.solver.jit import njit
from dasksvm.solver.multiclass.structure import Machine, dual, gradients
from dasksvm.solver.state.row_cache import PAGE, blocks_of
from dasksvm.solver.state.working_arrays import take_place


class Working(NamedTuple):
    """Working arrays. d classes, N places (a multiple of PAGE).

    Attributes
    ----------
    alpha, score : ndarray of float64, shape (d, N)
        Coefficient of each variable; f_m before the projection.
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
        Slot of each place; 1 where a member is; stack of free places.
    size : ndarray of int64, shape (2,)
        Places in use or freed; freed places.
    listed, listed_at : ndarray of int64, shape (N,)
        Places of the members, in no order, and where each stands in that list.
    count : ndarray of int64, shape (1,)
        Members.
    """

    alpha: Any
    score: Any
    mean: Any
    label: Any
    bound: Any
    load: Any
    member: Any
    diagonal: Any
    slot: Any
    holders: Any
    free: Any
    size: Any
    listed: Any
    listed_at: Any
    count: Any


def empty_working(classes: int, places: int) -> Working:
    """Make working arrays for so many places, none in use."""
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
        count=np.zeros(1, np.int64),
    )


def widened(working: Working, places: int) -> Working:
    """Copy the arrays into larger ones."""
    wide = empty_working(len(working.alpha), places)
    for new, old in zip(wide, working, strict=True):
        new[tuple(slice(0, length) for length in old.shape)] = old
    return wide


def dual_objective(working: Working, machine: Machine) -> float:
    """D(α) (paper 5, equation 5.4), from α and the scores alone."""
    places = slice(0, int(working.size[0]))
    margins = working.score[:, places] - working.mean[places]
    return dual(working.alpha[:, places], gradients(machine, margins, working.label[places]))


@njit()
def insert(w: Any, machine: Any, place: int, label: int, bound: float, scores: Any) -> None:  # pragma: no cover
    """Make a place, whose slot and diagonal the caller sets, a member with α = 0 and these d scores."""
    w.member[place] = True
    w.label[place] = label
    w.bound[place] = bound
    total = 0.0
    for m in range(machine.classes):
        w.score[m, place] = scores[m]
        total += scores[m]
    w.mean[place] = total / machine.classes if machine.zero_sum else 0.0
    w.listed[w.count[0]] = place
    w.listed_at[place] = w.count[0]
    w.count[0] += 1


@njit()
def evict(w: Any, place: int) -> None:  # pragma: no cover
    """Take a member all of whose α are 0 out of the expansion; the place is freed by `vacate`."""
    w.member[place] = False
    w.bound[place] = 0.0
    w.count[0] -= 1
    last, at = w.listed[w.count[0]], w.listed_at[place]
    w.listed[at] = last
    w.listed_at[last] = at


@njit()
def vacate(w: Any) -> Any:  # pragma: no cover
    """Free the places that hold no member any more, and return them."""
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
def settle(w: Any, base: int, count: int) -> Any:  # pragma: no cover
    """Give places to the members in the first `count` seats from `base` on; return who they are, and their places."""
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
def _move(w: Any, seat: int, place: int) -> None:  # pragma: no cover
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
def random_member(w: Any, number: float) -> int:  # pragma: no cover
    """Give the place of the member that a number in [0, 1) stands for; there must be one."""
    return int(w.listed[int(number * w.count[0])])


@njit()
def may_rise(w: Any, machine: Any, place: int, c: int) -> bool:  # pragma: no cover
    """Tell whether the variable exists, is a member's and is below its bound (or its pattern's load is)."""
    if not w.member[place] or (c == w.label[place] and not machine.total):
        return False
    return bool((w.load[place] if machine.shared else w.alpha[c, place]) < w.bound[place])


@njit()
def may_fall(w: Any, place: int, c: int) -> bool:  # pragma: no cover
    """Tell whether the variable is above 0."""
    return bool(w.alpha[c, place] > 0.0)
