"""Looks at all variables of a run of patterns, class by class: loops that LLVM vectorises.

Scores are those before the projection of `zero_sum`: f_m = score_m - mean, and mean is 0 for other machines. A gradient is
then base + slope·score_c for c ≠ y, and 2 less that for c = y. A place that nobody holds has α = 0 and C = 0, so that nothing
in it may move.
"""

from typing import Any, NamedTuple

import numpy as np

from dasksvm.solver.jit import njit


class Pattern(NamedTuple):
    """A pattern's class with the largest gradient that may rise, its smallest that may fall (-1: none), and the gradients."""

    rise: int
    top: float
    fall: int
    bottom: float


@njit()
def gradient(machine: Any, score: Any, mean: Any, label: Any, place: int, c: int) -> float:  # pragma: no cover
    """G = 1 - Σ_m ν f_m of one variable."""
    y = label[place]
    if machine.relative:
        return float(1.0 - 0.5 * (score[y, place] - score[c, place]))
    f = score[c, place] - mean[place]
    return float(1.0 - f if c == y else 1.0 + f)


@njit()
def pattern(
    machine: Any, alpha: Any, score: Any, mean: Any, label: Any, bound: Any, place: int, supports: bool
) -> Any:  # pragma: no cover
    """Find a pattern's extremes; whether a shared slack has room for a rise is not asked. Ties go to the lowest class."""
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
    return Pattern(rise, top, fall, bottom)


@njit()
def steepest(found: Any, full: bool) -> Any:  # pragma: no cover
    """Give a pattern's largest derivative along a single variable, at least 0, and that variable's class (-1: none)."""
    up = -np.inf if full else found.top
    if max(up, -found.bottom) <= 0.0:
        return 0.0, -1
    return (up, found.rise) if up >= -found.bottom else (-found.bottom, found.fall)


@njit()
def bases(machine: Any, score: Any, mean: Any, label: Any, start: int, out: Any) -> None:  # pragma: no cover
    """Write what the gradients of a pattern have in common, for a run of patterns."""
    if machine.relative:
        for a in range(len(out)):
            out[a] = 1.0 - 0.5 * score[label[start + a], start + a]
    else:
        for a in range(len(out)):
            out[a] = 1.0 - mean[start + a]


@njit()
def limits(machine: Any, load: Any, bound: Any, out: Any) -> None:  # pragma: no cover
    """Write below what each variable of a pattern must be to rise: C_i, or ∞ or -∞ by whether a shared slack is left."""
    for a in range(len(out)):
        shared = np.inf if load[a] < bound[a] else -np.inf
        out[a] = shared if machine.shared else bound[a]


@njit(fastmath={"contract"})
def extremes(
    machine: Any,
    alpha: Any,
    score: Any,
    mean: Any,
    label: Any,
    bound: Any,
    start: int,
    supports: bool,
    base: Any,
    limit: Any,
    top: Any,
    bottom: Any,
) -> None:  # pragma: no cover
    """Write the largest gradient that may rise and the smallest that may fall, as `pattern`, for a run of patterns.

    `base` and `limit` are written too. The inner loops are two, since LLVM vectorises none with so many arrays, and stand
    here, since a call of so many arguments costs as much as a short loop.
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
            mine = labels[a] == c
            g = 2.0 - g if mine else g
            rises = (total | (not mine)) & (coefficients[a] < limit[a]) & ((coefficients[a] > 0.0) | (not supports))
            up = g if rises else -np.inf
            top[a] = up if up > top[a] else top[a]
        for a in range(count):
            g = base[a] + slope * scores[a]
            g = 2.0 - g if labels[a] == c else g
            down = g if coefficients[a] > 0.0 else np.inf
            bottom[a] = down if down < bottom[a] else bottom[a]


@njit()
def singles(shared: bool, top: Any, bottom: Any, load: Any, bound: Any, out: Any) -> float:  # pragma: no cover
    """Write the largest derivative along a single variable of each pattern, at least 0; return the largest of all."""
    best = np.int64(0)
    for a in range(len(out)):
        up = -np.inf if shared & (load[a] >= bound[a]) else top[a]
        most = max(up, -bottom[a], 0.0)
        out[a] = most
        best = max(best, np.float64(most).view(np.int64))
    return np.int64(best).view(np.float64)


@njit()
def exchanges(top: Any, bottom: Any, load: Any, bound: Any, always: bool, out: Any) -> float:  # pragma: no cover
    """Write the largest derivative along e_c - e_e within each pattern that is full, or in all; return the largest of all."""
    best = np.int64(0)
    for a in range(len(out)):
        most = max(top[a] - bottom[a], 0.0) if always | (load[a] >= bound[a]) else 0.0
        out[a] = most
        best = max(best, np.float64(most).view(np.int64))
    return np.int64(best).view(np.float64)


@njit()
def where(values: Any, number: Any) -> int:  # pragma: no cover
    """Find the first of some values that equals a number; -1 if none does."""
    for a in range(len(values)):
        if values[a] == number:
            return a
    return -1


@njit()
def violation(
    machine: Any, alpha: Any, score: Any, mean: Any, label: Any, bound: Any, load: Any
) -> Any:  # pragma: no cover
    """Give the largest derivative along a feasible direction of each pattern, at least 0.

    Directions are single variables and, for a shared slack, exchanges e_c - e_e of two variables of the pattern, full or not.
    `load` is that of `moves.load_of`.
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
