"""S2DO on the problem restricted to some patterns, given their kernel matrix (paper 5, algorithm 3, section 5.2.1).

A step changes the scores of at most four classes, so that the extremes of each pattern are updated from step to step. The partner
of a variable (i, p) is chosen among the variables of class p, those of i's own class, and the extremes of each pattern: for the
other classes of a pattern M is the same, so that their gains differ only by the gradient and an extreme has the largest.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Flags, Floats, Ints, Values
from dasksvm.solver.multiclass.gains import FirstVariable, best_extreme, best_partner
from dasksvm.solver.multiclass.moves import load_of, move_pair, update_scores
from dasksvm.solver.multiclass.scan import (
    bases,
    exchanges,
    gradient,
    index_of,
    limits,
    singles,
    steepest,
    variable_extremes,
)
from dasksvm.solver.multiclass.structure import Machine, coupling, nu


class BlockProblem(NamedTuple):
    """The problem of B patterns of d classes; see `solve_block`. `load`, of shape (B,), is that of `moves.load_of`."""

    kernel: Floats
    diagonal: Values
    alpha: Values
    score: Values
    mean: Values
    label: Ints
    bound: Values
    load: Values


class PatternExtremes(NamedTuple):
    """The extreme scores of each pattern, shape (B,).

    `rise` is the class with the largest score among those whose α may rise, `fall` the one with the smallest score among those
    whose α may fall (-1: none); `top` and `bottom` are their scores (-inf and inf if there is none). The pattern's own class,
    which has a variable in `total` machines only, is not included.
    """

    rise: Ints
    top: Values
    fall: Ints
    bottom: Values


@njit()
def solve_block(
    machine: Machine,
    kernel: Floats,
    alpha: Values,
    score: Values,
    mean: Values,
    label: Ints,
    bound: Values,
    target: float,
    limit: int,
) -> int:  # pragma: no cover
    """Make steps in two variables until no `violation` is larger than `target`; α, score and mean are updated in place.

    Parameters
    ----------
    machine : Machine
    kernel : ndarray, shape (B, B)
    alpha, score : ndarray of float64, shape (d, B)
    mean : ndarray of float64, shape (B,)
        Σ_m score_m / d for `zero_sum` machines, else 0.
    label : ndarray of int64, shape (B,)
    bound : ndarray of float64, shape (B,)
    target : float
    limit : int
        Largest number of steps.

    Returns
    -------
    steps : int
    """
    size = len(label)
    load = np.empty(size)
    for a in range(size):
        load[a] = load_of(machine, alpha, bound, a)
    b = BlockProblem(kernel, np.diag(kernel).astype(np.float64), alpha, score, mean, label, bound, load)
    extremes = PatternExtremes(np.empty(size, np.int64), np.empty(size), np.empty(size, np.int64), np.empty(size))
    _recompute_extremes(machine, b, extremes, np.ones(size, np.bool_))
    base, top, bottom = np.empty(size), np.empty(size), np.empty(size)
    single, pair, gained = np.empty(size), np.empty(size), np.empty(size, np.float32)
    for step in range(limit):
        bases(machine, score, mean, label, 0, base)
        _extreme_gradients(machine, b, extremes, base, top, bottom)
        most = singles(machine.shared, top, bottom, load, bound, single)
        along, loose = 0.0, 0.0
        if machine.shared:
            loose = exchanges(top, bottom, load, bound, True, pair)
            along = exchanges(top, bottom, load, bound, False, pair)
        if not max(most, loose) > target:
            return step
        i = index_of(pair, along) if along > most else index_of(single, most)
        found = variable_extremes(machine, alpha, score, mean, label, bound, i, False)
        if along > most:
            p, j, q = found.rise, i, found.fall
        else:
            _, p = steepest(found, machine.shared and load[i] >= bound[i])
            # `most` and `found` compute the same gradients in two ways, which differ by rounding: with a target of 0 there may
            # be no variable left.
            if p < 0:
                return step
            j, q = _partner(machine, b, extremes, base, top, bottom, i, p, gained)
        _step(machine, b, extremes, i, p, j, q)
    return limit


@njit()
def _recompute_extremes(
    machine: Machine, b: BlockProblem, extremes: PatternExtremes, stale: Flags
) -> None:  # pragma: no cover
    """Recompute the extremes of the patterns marked as stale; ties go to the lowest class."""
    alpha, score, label, bound = b.alpha, b.score, b.label, b.bound
    rises, tops, falls, bottoms = extremes.rise, extremes.top, extremes.fall, extremes.bottom
    shared, classes = machine.shared, machine.classes
    for a in range(len(stale)):
        if not stale[a]:
            continue
        rise, top, fall, bottom, limit = -1, -np.inf, -1, np.inf, np.inf if shared else bound[a]
        for c in range(classes):
            value, held = score[c, a], alpha[c, a]
            up = (held < limit) & (c != label[a]) & (value > top)
            rise, top = (c, value) if up else (rise, top)
            down = (held > 0.0) & (c != label[a]) & (value < bottom)
            fall, bottom = (c, value) if down else (fall, bottom)
        rises[a], tops[a], falls[a], bottoms[a] = rise, top, fall, bottom


@njit()
def _update_extremes(
    machine: Machine, b: BlockProblem, extremes: PatternExtremes, c: int, stale: Flags
) -> None:  # pragma: no cover
    """Update the extremes after the scores of a class have changed; mark the patterns whose extremes must be recomputed."""
    alpha, score, label, bound = b.alpha, b.score, b.label, b.bound
    rises, tops, falls, bottoms = extremes.rise, extremes.top, extremes.fall, extremes.bottom
    shared = machine.shared
    for a in range(len(stale)):
        value = score[c, a]
        top, bottom = tops[a], bottoms[a]
        was_top, was_bottom = rises[a] == c, falls[a] == c
        if not (was_top | was_bottom | (value > top) | (value < bottom)) or label[a] == c:
            continue
        held = alpha[c, a]
        if was_top:
            stale[a] = stale[a] or value < top
            tops[a] = value
        elif value > top and (shared or held < bound[a]):
            rises[a], tops[a] = c, value
        if was_bottom:
            stale[a] = stale[a] or value > bottom
            bottoms[a] = value
        elif value < bottom and held > 0.0:
            falls[a], bottoms[a] = c, value


@njit()
def _extreme_gradients(
    machine: Machine, b: BlockProblem, extremes: PatternExtremes, base: Values, top: Values, bottom: Values
) -> None:  # pragma: no cover
    """Write the extreme gradients of each pattern, including its own class.

    These are the largest gradient of a variable that may rise and the smallest of one that may fall.
    """
    slope, tops, bottoms = 0.5 if machine.relative else 1.0, extremes.top, extremes.bottom
    for a in range(len(base)):
        top[a] = base[a] + slope * tops[a]
        bottom[a] = base[a] + slope * bottoms[a]
    if machine.total:
        alpha, score, label, bound = b.alpha, b.score, b.label, b.bound
        for a in range(len(base)):
            y = label[a]
            g, held = 2.0 - base[a] - slope * score[y, a], alpha[y, a]
            top[a] = max(top[a], g) if machine.shared or held < bound[a] else top[a]
            bottom[a] = min(bottom[a], g) if held > 0.0 else bottom[a]


@njit()
def _partner(
    machine: Machine,
    b: BlockProblem,
    extremes: PatternExtremes,
    base: Values,
    top: Values,
    bottom: Values,
    i: int,
    p: int,
    out: NDArray[np.float32],
) -> tuple[int, int]:  # pragma: no cover
    """Choose the variable that adds most to the gain of (i, p). Returns its pattern and class, or i and -1 if none adds to it.

    `top` and `bottom`, the gradients of the extremes, are overwritten.
    """
    y, row, limit = b.label[i], b.kernel[i], np.empty(len(base))
    first = FirstVariable(
        p, y, gradient(machine, b.score, b.mean, b.label, i, p), coupling(machine, y, p, y, p) * b.diagonal[i]
    )
    limits(machine, b.load, b.bound, limit)
    if machine.total:
        classes = np.arange(machine.classes)
    else:
        classes = np.array([p, y]) if machine.relative else np.array([p])
    best, j, q = best_partner(
        machine, first, classes, b.alpha, b.score, base, b.label, limit, 0, row, b.diagonal, False, i, out
    )
    if not machine.total:
        for a in range(len(base)):
            top[a] = top[a] if (top[a] > 0.0) & (limit[a] > 0.0) else 0.0
            bottom[a] = min(bottom[a], 0.0)
        for rising in (True, False):
            of, extreme_classes = (top, extremes.rise) if rising else (bottom, extremes.fall)
            most, a, c = best_extreme(machine, first, i, of, extreme_classes, b.label, row, b.diagonal, out)
            if most > best:
                best, j, q = most, a, c
    return (j, q) if q >= 0 else (i, -1)


@njit()
def _step(
    machine: Machine, b: BlockProblem, extremes: PatternExtremes, i: int, p: int, j: int, q: int
) -> None:  # pragma: no cover
    """Solve the problem in two variables, or in (i, p) alone if q < 0, and update scores and extremes."""
    g_i = gradient(machine, b.score, b.mean, b.label, i, p)
    g_j = gradient(machine, b.score, b.mean, b.label, j, q) if q >= 0 else 0.0
    k_ij = np.float64(b.kernel[i, j])
    y, z, c = b.label[i], b.label[j], max(q, 0)
    mu_i, mu_j, _ = move_pair(
        machine, b.alpha, b.load, b.label, b.bound, i, p, g_i, b.diagonal[i], j, q, g_j, b.diagonal[j], k_ij
    )
    size = len(b.label)
    update_scores(machine, b.score, b.mean, 0, size, b.kernel[i], b.kernel[j], (y, p, mu_i), (z, c, mu_j))
    stale = np.zeros(size, np.bool_)
    stale[i] = stale[j] = True
    for m in range(machine.classes):
        if nu(machine, y, p, m) * mu_i != 0.0 or nu(machine, z, c, m) * mu_j != 0.0:
            _update_extremes(machine, b, extremes, m, stale)
    _recompute_extremes(machine, b, extremes, stale)
