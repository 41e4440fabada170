"""The gain of each variable as the partner of a given one, for a range of patterns (paper 5, algorithm 4)."""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Floats, Ints, Values
from dasksvm.solver.multiclass.scan import index_of
from dasksvm.solver.multiclass.structure import Machine, coupling
from dasksvm.solver.state.direction_search import LEAST_CURVATURE

# A determinant in float32, relative to Q_ii Q_jj, that is smaller than this counts as rounding.
FLAT32 = np.float32(1e-6)


class FirstVariable(NamedTuple):
    """The first variable of a pair: its class, its pattern's label, its gradient and Q_ii."""

    c: int
    label: int
    gradient: float
    curvature: float


@njit(inline=True, fastmath={"contract"})
def _added_gain(
    g: float, q_ij: np.float32, q_jj: np.float32, per_unit: np.float32, share: np.float32
) -> np.float32:  # pragma: no cover
    """Compute twice the gain that a variable adds to that of the first one, in float32."""
    least, floor = np.float32(LEAST_CURVATURE), FLAT32 * q_jj
    rest = np.float32(g) - per_unit * q_ij
    curvature = q_jj - share * q_ij * q_ij
    curvature = curvature if curvature > floor else floor
    curvature = curvature if curvature > least else least
    return rest * rest / curvature


@njit(fastmath={"contract"})
def best_partner(
    machine: Machine,
    first: FirstVariable,
    classes: Iterable[int],
    alpha: Values,
    score: Values,
    base: Values,
    label: Ints,
    limit: Values,
    start: int,
    row: Floats,
    diagonal: Values,
    supports: bool,
    lane: int,
    out: NDArray[np.float32],
) -> tuple[np.float32, int, int]:  # pragma: no cover
    """Find the variable that adds most to the gain of the first one, among some classes of the patterns from `start` on.

    The gain is that of `pairs.gain` in float32, without the part of the first variable, which is the same for all, and without
    the factor ½. Only variables that can move along their own gradient are considered. A *lane* is a position within the range
    of patterns; `lane` is that of the first variable, and `base` and `limit` (see `scan.bases` and `scan.limits`) cover the
    range. Returns the gain, the lane and the class, or 0, -1 and -1 if no variable adds to the gain. Ties go to the first class,
    then to the lowest place.
    """
    count, total, slope = len(base), machine.total, 0.5 if machine.relative else 1.0
    zero = np.float32(0.0)
    curved = first.curvature > LEAST_CURVATURE
    per_unit = np.float32(first.gradient / first.curvature if curved else 0.0)
    share = np.float32(1.0 / first.curvature if curved else 0.0)
    link = np.float32(0.25 if machine.relative else 0.0)
    y, p = first.label, first.c
    labels, self_kernel = label[start : start + count], diagonal[start : start + count]
    best, found, q = zero, -1, -1
    for c in classes:
        coefficients, scores = alpha[c][start : start + count], score[c][start : start + count]
        skip = lane if c == p else -1
        other = (c + 1) % machine.classes
        # M for patterns whose label is neither y nor p. For relative margins ¼ is added if the label is y, subtracted if it is p.
        unrelated = 0.25 * ((p == c) - (y == c)) if machine.relative else coupling(machine, y, p, other, c)
        apart = np.float32(unrelated)
        others, own = np.float32(coupling(machine, other, c, other, c)), np.float32(coupling(machine, c, c, c, c))
        most = np.int32(0)
        for a in range(count):
            g = base[a] + slope * scores[a]
            own_class = labels[a] == c
            held = coefficients[a] > 0.0
            g = 2.0 - g if own_class else g
            able = ((g > 0.0) & (coefficients[a] < limit[a])) | ((g < 0.0) & held)
            able = able & (total | (not own_class)) & (held | (not supports)) & (a != skip)
            m = apart + (link if labels[a] == y else zero) - (link if labels[a] == p else zero)
            q_ij = (-m if own_class else m) * np.float32(row[a])
            q_jj = (own if own_class else others) * np.float32(self_kernel[a])
            gain = _added_gain(g, q_ij, q_jj, per_unit, share) if able else zero
            out[a] = gain
            most = max(most, np.float32(gain).view(np.int32))
        largest = np.int32(most).view(np.float32)
        if largest > best:
            best, found, q = largest, index_of(out, largest), c
    return best, found, q


@njit(fastmath={"contract"})
def best_extreme(
    machine: Machine,
    first: FirstVariable,
    lane: int,
    gradients: Values,
    classes: Ints,
    label: Ints,
    row: Floats,
    diagonal: Values,
    out: NDArray[np.float32],
) -> tuple[np.float32, int, int]:  # pragma: no cover
    """Do the same as `best_partner` for one variable per pattern, whose class (not the pattern's own) and gradient are given.

    The gradient of a variable that cannot move along it is given as 0.
    """
    zero = np.float32(0.0)
    curved = first.curvature > LEAST_CURVATURE
    per_unit = np.float32(first.gradient / first.curvature if curved else 0.0)
    share = np.float32(1.0 / first.curvature if curved else 0.0)
    y, p = first.label, first.c
    relative = machine.relative
    link = np.float32(0.25 if relative else 1.0)
    # M for variables that share neither label nor class with the first one.
    apart = np.float32(0.0 if relative or not machine.zero_sum else -1.0 / machine.classes)
    own = np.float32(0.5 if relative else 1.0 + apart)
    most = np.int32(0)
    for a in range(len(out)):
        z, c, g = label[a], classes[a], gradients[a]
        m = apart + (link if c == p else zero)
        m = m + (
            (link if z == y else zero) - (link if c == y else zero) - (link if z == p else zero) if relative else zero
        )
        q_ij, q_jj = m * np.float32(row[a]), own * np.float32(diagonal[a])
        able = (g != 0.0) & ((a != lane) | (c != p))
        gain = _added_gain(g, q_ij, q_jj, per_unit, share) if able else zero
        out[a] = gain
        most = max(most, np.float32(gain).view(np.int32))
    best = np.int32(most).view(np.float32)
    if best == zero:
        return zero, -1, -1
    found = index_of(out, best)
    return best, found, classes[found]
