"""The gain of each variable as the partner of a given one, for a run of patterns, class by class (paper 5, algorithm 4)."""

from typing import Any, NamedTuple

import numpy as np

from dasksvm.solver.directions import LEAST_CURVATURE
from dasksvm.solver.jit import njit
from dasksvm.solver.multiclass.scan import where
from dasksvm.solver.multiclass.structure import coupling

# Below it a determinant in float32, relative to Q_ii Q_jj, is rounding.
FLAT32 = np.float32(1e-6)


class First(NamedTuple):
    """The first variable of a pair: its class, its pattern's label, its gradient and Q_ii."""

    c: int
    label: int
    gradient: float
    curvature: float


@njit(fastmath={"contract"})
def best_partner(
    machine: Any,
    first: Any,
    alpha: Any,
    score: Any,
    base: Any,
    label: Any,
    limit: Any,
    start: int,
    row: Any,
    diagonal: Any,
    supports: bool,
    lane: int,
    out: Any,
) -> Any:  # pragma: no cover
    """Find the variable of the run from `start` that adds most to the gain of the first, which is in `lane` (or elsewhere).

    The gain is that of `pairs.gain`, in float32, without the first one's own part, which is the same for all, and without
    the factor ½; only variables that may move along their own gradient count. `base` and `limit` (see `scan.bases` and
    `scan.limits`) are the run's. Returns the gain, the lane and the class; 0, -1 and -1 where none adds anything. Ties go to
    the lowest class, then to the lowest place.
    """
    count, total, slope = len(base), machine.total, 0.5 if machine.relative else 1.0
    zero, least = np.float32(0.0), np.float32(LEAST_CURVATURE)
    curved = first.curvature > LEAST_CURVATURE
    per_unit = np.float32(first.gradient / first.curvature if curved else 0.0)
    share = np.float32(1.0 / first.curvature if curved else 0.0)
    link = np.float32(0.25 if machine.relative else 0.0)
    y, p = first.label, first.c
    labels, self_kernel = label[start : start + count], diagonal[start : start + count]
    best, found, q = zero, -1, -1
    for c in range(machine.classes):
        coefficients, scores = alpha[c][start : start + count], score[c][start : start + count]
        skip = lane if c == p else -1
        other = (c + 1) % machine.classes
        # M, where the label is neither y nor p; a label that is adds ¼ to it or takes it away.
        stranger = 0.25 * ((p == c) - (y == c)) if machine.relative else coupling(machine, y, p, other, c)
        apart = np.float32(stranger)
        others, own = np.float32(coupling(machine, other, c, other, c)), np.float32(coupling(machine, c, c, c, c))
        most = np.int32(0)
        for a in range(count):
            g = base[a] + slope * scores[a]
            mine = labels[a] == c
            held = coefficients[a] > 0.0
            g = 2.0 - g if mine else g
            able = ((g > 0.0) & (coefficients[a] < limit[a])) | ((g < 0.0) & held)
            able = able & (total | (not mine)) & (held | (not supports)) & (a != skip)
            m = apart + (link if labels[a] == y else zero) - (link if labels[a] == p else zero)
            q_ij = (-m if mine else m) * np.float32(row[a])
            q_jj = (own if mine else others) * np.float32(self_kernel[a])
            rest = np.float32(g) - per_unit * q_ij
            curvature = q_jj - share * q_ij * q_ij
            floor = FLAT32 * q_jj
            curvature = curvature if curvature > floor else floor
            curvature = curvature if curvature > least else least
            gain = rest * rest / curvature if able else zero
            out[a] = gain
            most = max(most, np.float32(gain).view(np.int32))
        largest = np.int32(most).view(np.float32)
        if largest > best:
            best, found, q = largest, where(out, largest), c
    return best, found, q
