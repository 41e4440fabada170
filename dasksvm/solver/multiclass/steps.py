"""Steps of the online solver: the choice of two variables (paper 5, algorithms 6 and 8-10) and the step (section 5.2.2).

A step has three parts, between which the caller makes the kernel rows available. `first_variable` chooses the first variable, or
a pair within one pattern. `second_variable`, which needs the row of the first variable's place, chooses the partner with the
largest gain. `apply_pair`, which needs the rows of both places, solves the problem in the two variables and updates the scores.

The paper's algorithms consider every variable; here a variable that cannot move along its own gradient is never chosen. With a
shared slack, a pattern whose slack is used up moves by exchanges e_c - e_e (section 5.2.1).
"""

from typing import NamedTuple

import numpy as np

from dasksvm.solver.jit import njit
from dasksvm.solver.multiclass.gains import FirstVariable, best_partner
from dasksvm.solver.multiclass.moves import move_pair, set_alpha, update_scores
from dasksvm.solver.multiclass.pairs import gain, solve_one
from dasksvm.solver.multiclass.scan import (
    bases,
    exchanges,
    extremes,
    gradient,
    index_of,
    limits,
    singles,
    steepest,
    variable_extremes,
)
from dasksvm.solver.multiclass.structure import Machine, coupling
from dasksvm.solver.multiclass.working_arrays import Working, may_fall, may_rise, random_member
from dasksvm.solver.state.batch import Batch, block_ends, kernel_value, row_block
from dasksvm.solver.state.row_cache import PAGE, RowCache

# Kinds of steps, and strategies for choosing the variables.
TWO_NEWS, TWO_OLD, TWO_OLD_SUPPORTS, ONE_OLD_ONE_NEW = range(4)
S2DO_ALL, RANDOM_PATTERN_S2DO_ALL, RANDOM_PATTERN_S2DO_PATTERN = range(3)
# Instead of the class of a second variable: there is no second variable; it is still to be searched among all patterns.
ALONE, SEARCH = -1, -2
# LaRank's steps.
PROCESS_NEW, PROCESS_OLD, OPTIMIZE = range(3)
# LaRank's variable of the pattern's own class: the slack.
SLACK = -1


class StepChoice(NamedTuple):
    """A chosen step: the derivative along it (0: nothing to gain), the place, and the classes of its two variables.

    `second` is a class of the same pattern, ALONE or SEARCH.
    """

    violation: float
    place: int
    first: int
    second: int


@njit()
def first_variable(
    w: Working, batch: Batch, machine: Machine, kind: int, strategy: int, place: int, number: float
) -> StepChoice:  # pragma: no cover
    """Choose the first variable of a step, or a whole pair within one pattern.

    Parameters
    ----------
    w : Working
    batch : Batch
    machine : Machine
    kind : {TWO_NEWS, TWO_OLD, TWO_OLD_SUPPORTS, ONE_OLD_ONE_NEW}
    strategy : {S2DO_ALL, RANDOM_PATTERN_S2DO_ALL, RANDOM_PATTERN_S2DO_PATTERN}
    place : int
        The new pattern, for TWO_NEWS and ONE_OLD_ONE_NEW.
    number : float
        In [0, 1); determines the pattern if the strategy chooses it at random.

    Returns
    -------
    StepChoice
    """
    supports = kind == TWO_OLD_SUPPORTS
    if kind == TWO_OLD or supports:
        if w.counts[0] == 0:
            return StepChoice(0.0, -1, -1, ALONE)
        if strategy == S2DO_ALL:
            place = _most_violating(w, batch, machine, supports)
        elif strategy in (RANDOM_PATTERN_S2DO_ALL, RANDOM_PATTERN_S2DO_PATTERN):
            place = random_member(w, number)
        else:
            raise ValueError("unknown strategy of choosing")
    elif kind not in (TWO_NEWS, ONE_OLD_ONE_NEW):
        raise ValueError("unknown kind of step")
    if place < 0:
        return StepChoice(0.0, -1, -1, ALONE)
    inside = kind == TWO_NEWS or strategy == RANDOM_PATTERN_S2DO_PATTERN
    return _choose_in_pattern(w, machine, place, supports, inside)


@njit()
def _most_violating(w: Working, batch: Batch, machine: Machine, supports: bool) -> int:  # pragma: no cover
    """Find the pattern with the largest derivative along a variable, or along an exchange if its slack is used up."""
    base, limit, out = np.empty(PAGE), np.empty(PAGE), np.empty(PAGE)
    top, bottom = np.empty(PAGE), np.empty(PAGE)
    best, place = 0.0, -1
    for block in range(batch.base // PAGE + 1):
        start, stop = block_ends(batch, block)
        n = stop - start
        load, bound, of = w.load[start:stop], w.bound[start:stop], out[:n]
        extremes(
            machine,
            w.alpha,
            w.score,
            w.mean,
            w.label,
            w.bound,
            start,
            supports,
            base[:n],
            limit[:n],
            top[:n],
            bottom[:n],
        )
        most = singles(machine.shared, top[:n], bottom[:n], load, bound, of)
        if most > best:
            best, place = most, start + index_of(of, most)
        if machine.shared:
            most = exchanges(top[:n], bottom[:n], load, bound, False, of)
            if most > best:
                best, place = most, start + index_of(of, most)
    return place


@njit()
def _choose_in_pattern(
    w: Working, machine: Machine, place: int, supports: bool, inside: bool
) -> StepChoice:  # pragma: no cover
    """Choose a pattern's variable with the largest derivative, or an exchange if its derivative is larger.

    With `inside` the second variable is chosen too, from the same pattern.
    """
    found = variable_extremes(machine, w.alpha, w.score, w.mean, w.label, w.bound, place, supports)
    full = machine.shared and w.load[place] >= w.bound[place]
    single, p = steepest(found, full)
    if (full or (machine.shared and inside)) and found.top - found.bottom > single:
        return StepChoice(found.top - found.bottom, place, found.rise, found.fall)
    if p < 0:
        return StepChoice(0.0, place, -1, ALONE)
    return StepChoice(single, place, p, _partner_in_pattern(w, machine, place, p, supports) if inside else SEARCH)


@njit()
def _partner_in_pattern(w: Working, machine: Machine, place: int, p: int, supports: bool) -> int:  # pragma: no cover
    """Choose the class of the same pattern that has the largest gain together with p; ALONE if none exceeds that of p alone."""
    y, k = w.label[place], w.diagonal[place]
    g_p = gradient(machine, w.score, w.mean, w.label, place, p)
    q_pp = coupling(machine, y, p, y, p) * k
    best, where = gain(g_p, 0.0, q_pp, 0.0, 0.0), ALONE
    for c in range(machine.classes):
        if c == p or (supports and not may_fall(w, place, c)):
            continue
        g = gradient(machine, w.score, w.mean, w.label, place, c)
        if (g > 0.0 and may_rise(w, machine, place, c)) or (g < 0.0 and may_fall(w, place, c)):
            most = gain(g_p, g, q_pp, coupling(machine, y, p, y, c) * k, coupling(machine, y, c, y, c) * k)
            if most > best:
                best, where = most, c
    return where


@njit()
def second_variable(
    w: Working, cache: RowCache, batch: Batch, machine: Machine, supports: bool, place: int, p: int
) -> tuple[int, int]:  # pragma: no cover
    """Choose the variable with the largest gain together with (place, p) (paper 5, algorithm 6, lines 11-17).

    The row of `place` must be present. Returns the place and class, or -1 and ALONE if no variable adds to the gain.
    """
    y = w.label[place]
    first = FirstVariable(
        p,
        y,
        gradient(machine, w.score, w.mean, w.label, place, p),
        coupling(machine, y, p, y, p) * w.diagonal[place],
    )
    base, limit, out = np.empty(PAGE), np.empty(PAGE), np.empty(PAGE, np.float32)
    best, j, q = np.float32(0.0), -1, ALONE
    for block in range(batch.base // PAGE + 1):
        start, stop = block_ends(batch, block)
        n = stop - start
        bases(machine, w.score, w.mean, w.label, start, base[:n])
        limits(machine, w.load[start:stop], w.bound[start:stop], limit[:n])
        most, lane, c = best_partner(
            machine,
            first,
            range(machine.classes),
            w.alpha,
            w.score,
            base[:n],
            w.label,
            limit[:n],
            start,
            row_block(cache, batch, place, block),
            w.diagonal,
            supports,
            place - start,
            out[:n],
        )
        if most > best:
            best, j, q = most, start + lane, c
    return j, q


@njit()
def apply_pair(
    w: Working, cache: RowCache, batch: Batch, machine: Machine, i: int, p: int, j: int, q: int
) -> tuple[float, int]:  # pragma: no cover
    """Solve the problem in the variables (i, p) and (j, q), or in (i, p) alone if q = ALONE, and update the scores.

    The rows of both places must be present. Returns the increase of the dual and the number of values changed.
    """
    g_i = gradient(machine, w.score, w.mean, w.label, i, p)
    g_j = k_jj = k_ij = 0.0
    if q != ALONE:
        g_j, k_jj = gradient(machine, w.score, w.mean, w.label, j, q), w.diagonal[j]
        k_ij = k_jj if i == j else kernel_value(cache, batch, i, j)
    mu_i, mu_j, raised = move_pair(
        machine,
        w.alpha,
        w.load,
        w.label,
        w.bound,
        i,
        p,
        g_i,
        w.diagonal[i],
        j,
        q,
        g_j,
        k_jj,
        k_ij,
    )
    return raised, _move(w, cache, batch, machine, (i, p, mu_i), (i if q == ALONE else j, max(q, 0), mu_j))


@njit()
def _move(
    w: Working,
    cache: RowCache,
    batch: Batch,
    machine: Machine,
    one: tuple[int, int, float],
    two: tuple[int, int, float],
) -> int:  # pragma: no cover
    """Update all scores for two steps (place, class, μ); return the number of values changed."""
    touched = 0
    i, j = one[0], two[0]
    of_i, of_j = (w.label[i], one[1], one[2]), (w.label[j], two[1], two[2])
    for block in range(batch.base // PAGE + 1):
        start, stop = block_ends(batch, block)
        row_i, row_j = row_block(cache, batch, i, block), row_block(cache, batch, j, block)
        touched += update_scores(machine, w.score, w.mean, start, stop, row_i, row_j, of_i, of_j)
    return touched


@njit()
def selection_cost(w: Working, machine: Machine, kind: int, strategy: int, searched: bool) -> int:  # pragma: no cover
    """Return the number of values that the choice of a step has read."""
    scan = machine.classes * w.counts[0]
    every = strategy == S2DO_ALL and kind in (TWO_OLD, TWO_OLD_SUPPORTS)
    return int((scan if every else machine.classes) + (scan if searched else 0))


@njit()
def larank_pair(w: Working, machine: Machine, step: int, place: int) -> StepChoice:  # pragma: no cover
    """Choose a direction of LaRank within one pattern of the CS machine (paper 5, section 2.2.8).

    In terms of the α used here, the coefficients of LaRank are β_y = ¼ Σ_c α_c and β_c = -¼ α_c; its C and its dual are a
    quarter of those used here. Its variable of the pattern's own class corresponds to the slack: a pair of this variable and
    class c is a step in α_c alone, and a pair (e_e, e_c) of two other classes raises α_c and lowers α_e.

    Parameters
    ----------
    w : Working
    machine : Machine
    step : {PROCESS_NEW, PROCESS_OLD, OPTIMIZE}
        PROCESS_NEW uses the slack and the class that violates most, PROCESS_OLD the most violating pair, and OPTIMIZE the most
        violating pair of support vectors.
    place : int

    Returns
    -------
    StepChoice
        `first` is the class that rises and `second` the one that falls; either may be SLACK.
    """
    if step not in (PROCESS_NEW, PROCESS_OLD, OPTIMIZE):
        raise ValueError("unknown kind of step")
    supports = step == OPTIMIZE
    found = variable_extremes(machine, w.alpha, w.score, w.mean, w.label, w.bound, place, supports)
    rise, top, fall, bottom = found.rise, found.top, found.fall, found.bottom
    room = w.load[place] < w.bound[place] and (w.load[place] > 0.0 or not supports)
    if (w.load[place] > 0.0 or not supports) and top < 0.0:
        rise, top = SLACK, 0.0
    if step == PROCESS_NEW or (room and bottom > 0.0):
        fall, bottom = SLACK, 0.0
    if (fall == SLACK and not room) or rise == fall or not top - bottom > 0.0:
        return StepChoice(0.0, place, SLACK, SLACK)
    return StepChoice(top - bottom, place, rise, fall)


@njit()
def apply_line(
    w: Working, cache: RowCache, batch: Batch, machine: Machine, place: int, rise: int, fall: int
) -> tuple[float, int]:  # pragma: no cover
    """Search along the direction in which one variable of a pattern rises and another one falls; either may be SLACK.

    The pattern's row must be present. Returns the increase of the dual and the number of values changed.
    """
    y = w.label[place]
    slope, curvature, limit = 0.0, 0.0, w.bound[place] - w.load[place]
    if rise != SLACK:
        slope += gradient(machine, w.score, w.mean, w.label, place, rise)
        curvature += coupling(machine, y, rise, y, rise)
    if fall != SLACK:
        slope -= gradient(machine, w.score, w.mean, w.label, place, fall)
        curvature += coupling(machine, y, fall, y, fall)
        limit = w.alpha[fall, place]
    if rise != SLACK and fall != SLACK:
        curvature -= 2.0 * coupling(machine, y, rise, y, fall)
    curvature *= w.diagonal[place]
    length = solve_one(slope, curvature, 0.0, limit)
    up = down = 0.0
    if fall != SLACK:
        down = set_alpha(machine, w.alpha, w.load, w.bound, place, fall, w.alpha[fall, place] - length)
    if rise != SLACK:
        up = set_alpha(machine, w.alpha, w.load, w.bound, place, rise, w.alpha[rise, place] + length)
    raised = length * (slope - 0.5 * curvature * length)
    return raised, _move(w, cache, batch, machine, (place, max(rise, 0), up), (place, max(fall, 0), down))
