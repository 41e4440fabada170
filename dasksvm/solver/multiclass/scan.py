"""Scans of all variables of a range of patterns, class by class, in loops that LLVM vectorises.

Scores are those before the projection of `zero_sum`: f_m = score_m - mean, where mean is 0 for other machines. A gradient is
base + slope·score_c for c ≠ y, and 2 minus that for c = y. A free place has α = 0 and C = 0, so that its variables cannot move.
"""

from typing import Any, NamedTuple

import numpy as np

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Floats, Ints, Values
from dasksvm.solver.multiclass.structure import Machine


class VariableExtremes(NamedTuple):
    """The extremes of a pattern.

    `rise` is the class with the largest gradient among the variables that may rise, `fall` the one with the smallest among those
    that may fall (-1: none); `top` and `bottom` are their gradients.
    """

    rise: int
    top: float
    fall: int
    bottom: float


@njit()
def gradient(
    machine: Machine, score: Values, mean: Values, label: Ints, place: int, c: int
) -> float:  # pragma: no cover
    """Compute the gradient G = 1 - Σ_m ν f_m of one variable (paper 5, equation 5.4)."""
    y = label[place]
    if machine.relative:
        return float(1.0 - 0.5 * (score[y, place] - score[c, place]))
    f = score[c, place] - mean[place]
    return float(1.0 - f if c == y else 1.0 + f)


@njit()
def variable_extremes(
    machine: Machine, alpha: Values, score: Values, mean: Values, label: Ints, bound: Values, place: int, supports: bool
) -> VariableExtremes:  # pragma: no cover
    """Find a pattern's extremes. A shared slack that is used up does not exclude a rise. Ties go to the lowest class."""
    rise, top, fall, bottom = -1, -np.inf, -1, np.inf
    for c in range(machine.classes):
        held = alpha[c, place] > 0.0
        if (c == label[place] and not machine.total) or (supports and not held):
            continue
        g = gradient(machine, score, mean, label, place, c)
        if (machine.shared or alpha[c, place] < bound[place]) and g > top:
            rise, top = c, g
        if held and g < bottom:
            fall, bottom = c, g
    return VariableExtremes(rise, top, fall, bottom)


@njit()
def steepest(found: VariableExtremes, full: bool) -> tuple[float, int]:  # pragma: no cover
    """Return a pattern's largest derivative along a single variable, at least 0, and the class of that variable (-1: none)."""
    up = -np.inf if full else found.top
    if max(up, -found.bottom) <= 0.0:
        return 0.0, -1
    return (up, found.rise) if up >= -found.bottom else (-found.bottom, found.fall)


@njit()
def bases(
    machine: Machine, score: Values, mean: Values, label: Ints, start: int, out: Values
) -> None:  # pragma: no cover
    """Write the part of the gradients that all classes of a pattern share, for a range of patterns."""
    if machine.relative:
        for a in range(len(out)):
            out[a] = 1.0 - 0.5 * score[label[start + a], start + a]
    else:
        for a in range(len(out)):
            out[a] = 1.0 - mean[start + a]


@njit()
def limits(machine: Machine, load: Values, bound: Values, out: Values) -> None:  # pragma: no cover
    """Write the value below which the variables of each pattern may rise.

    This is C_i; with a shared slack it is ∞ if some of the slack is left, else -∞.
    """
    for a in range(len(out)):
        shared = np.inf if load[a] < bound[a] else -np.inf
        out[a] = shared if machine.shared else bound[a]


@njit(fastmath={"contract"})
def extremes(
    machine: Machine,
    alpha: Values,
    score: Values,
    mean: Values,
    label: Ints,
    bound: Values,
    start: int,
    supports: bool,
    base: Values,
    limit: Values,
    top: Values,
    bottom: Values,
) -> None:  # pragma: no cover
    """Write the extreme gradients, as `variable_extremes` finds them, for a range of patterns.

    `base` and `limit` are written too. There are two inner loops because LLVM does not vectorise one with so many arrays, and
    they are not functions of their own because a call with so many arguments costs as much as a short loop.
    """
    count = len(base)
    bases(machine, score, mean, label, start, base)
    slope, total = 0.5 if machine.relative else 1.0, machine.total
    for a in range(count):
        limit[a] = np.inf if machine.shared else bound[start + a]
        top[a] = -np.inf
        bottom[a] = np.inf
    labels = label[start : start + count]
    for c in range(machine.classes):
        coefficients, scores = alpha[c][start : start + count], score[c][start : start + count]
        for a in range(count):
            g = base[a] + slope * scores[a]
            own_class = labels[a] == c
            g = 2.0 - g if own_class else g
            rises = (
                (total | (not own_class)) & (coefficients[a] < limit[a]) & ((coefficients[a] > 0.0) | (not supports))
            )
            up = g if rises else -np.inf
            top[a] = up if up > top[a] else top[a]
        for a in range(count):
            g = base[a] + slope * scores[a]
            g = 2.0 - g if labels[a] == c else g
            down = g if coefficients[a] > 0.0 else np.inf
            bottom[a] = down if down < bottom[a] else bottom[a]


@njit()
def singles(
    shared: bool, top: Values, bottom: Values, load: Values, bound: Values, out: Values
) -> float:  # pragma: no cover
    """Write the largest derivative along a single variable of each pattern, at least 0; return the largest of all."""
    best = np.int64(0)
    for a in range(len(out)):
        up = -np.inf if shared & (load[a] >= bound[a]) else top[a]
        most = max(up, -bottom[a], 0.0)
        out[a] = most
        best = max(best, np.float64(most).view(np.int64))
    return np.int64(best).view(np.float64)


@njit()
def exchanges(
    top: Values, bottom: Values, load: Values, bound: Values, always: bool, out: Values
) -> float:  # pragma: no cover
    """Write the largest derivative along an exchange e_c - e_e within each pattern; return the largest of all.

    Unless `always` is set, it is 0 for patterns whose slack is not used up.
    """
    best = np.int64(0)
    for a in range(len(out)):
        most = max(top[a] - bottom[a], 0.0) if always | (load[a] >= bound[a]) else 0.0
        out[a] = most
        best = max(best, np.float64(most).view(np.int64))
    return np.int64(best).view(np.float64)


@njit()
def index_of(values: Floats, number: float | np.floating[Any]) -> int:  # pragma: no cover
    """Return the index of the first value that equals a number; -1 if none does."""
    for a in range(len(values)):
        if values[a] == number:
            return a
    return -1


@njit()
def violation(
    machine: Machine, alpha: Values, score: Values, mean: Values, label: Ints, bound: Values, load: Values
) -> Values:  # pragma: no cover
    """Return the largest derivative along a feasible direction of each pattern, at least 0.

    The directions are single variables and, with a shared slack, exchanges e_c - e_e of two variables of the pattern, whether or
    not its slack is used up. `load` is that of `moves.load_of`.
    """
    count = len(label)
    base, limit, top, bottom = np.empty(count), np.empty(count), np.empty(count), np.empty(count)
    out, most = np.empty(count), np.empty(count)
    extremes(machine, alpha, score, mean, label, bound, 0, False, base, limit, top, bottom)
    singles(machine.shared, top, bottom, load, bound, out)
    if machine.shared:
        exchanges(top, bottom, load, bound, True, most)
        for a in range(count):
            out[a] = max(out[a], most[a])
    return out
