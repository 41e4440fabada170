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


@njit()
def _links(machine: Any, first: Any, label: Any, out: Any) -> None:  # pragma: no cover
    """Write the part of M between a variable and each of a run of patterns that depends on the pattern's label."""
    quarter = np.float32(0.25 if machine.relative else 0.0)
    for a in range(len(out)):
        out[a] = quarter * (np.float32(label[a] == first.label) - np.float32(label[a] == first.c))


@njit(fastmath={"contract"})
def _gains(
    alpha: Any,
    score: Any,
    base: Any,
    label: Any,
    bound: Any,
    filled: Any,
    row: Any,
    diagonal: Any,
    link: Any,
    c: int,
    slope: float,
    total: bool,
    supports: bool,
    constant: Any,
    others: Any,
    own: Any,
    per_unit: Any,
    share: Any,
    skip: int,
    out: Any,
) -> Any:  # pragma: no cover
    zero, one, least = np.float32(0.0), np.float32(1.0), np.float32(LEAST_CURVATURE)
    best = np.int32(0)
    for a in range(len(base)):
        g = base[a] + slope * score[a]
        mine = label[a] == c
        held = alpha[a] > 0.0
        g = 2.0 - g if mine else g
        able = ((g > 0.0) & (filled[a] < bound[a])) | ((g < 0.0) & held)
        able = able & (total | (not mine)) & (held | (not supports)) & (a != skip)
        q_ij = (link[a] + constant) * (-one if mine else one) * np.float32(row[a])
        q_jj = (own if mine else others) * np.float32(diagonal[a])
        rest = np.float32(g) - per_unit * q_ij
        curvature = q_jj - share * q_ij * q_ij
        floor = FLAT32 * q_jj
        curvature = curvature if curvature > floor else floor
        curvature = curvature if curvature > least else least
        gain = rest * rest / curvature if able else zero
        out[a] = gain
        best = max(best, np.float32(gain).view(np.int32))
    return np.int32(best).view(np.float32)


@njit()
def _gains_of(
    machine: Any,
    first: Any,
    c: int,
    alpha: Any,
    score: Any,
    base: Any,
    label: Any,
    bound: Any,
    filled: Any,
    row: Any,
    diagonal: Any,
    link: Any,
    supports: bool,
    skip: int,
    out: Any,
) -> Any:  # pragma: no cover
    """Write twice what each variable (pattern, c) of a run adds to the gain of the first, in float32; return the largest.

    As `pairs.gain`, of which the first variable's own part is left out: it is the same for all. It is 0 for variables that
    cannot move along their own gradient, and for the lane `skip`, the first variable itself.
    """
    other = (c + 1) % machine.classes
    # Of a pattern with another label than both, only this is left of M.
    stranger = 0.25 * ((first.c == c) - (first.label == c))
    if not machine.relative:
        stranger = coupling(machine, first.label, first.c, other, c)
    curved = first.curvature > LEAST_CURVATURE
    return _gains(
        alpha,
        score,
        base,
        label,
        bound,
        filled,
        row,
        diagonal,
        link,
        c,
        0.5 if machine.relative else 1.0,
        machine.total,
        supports,
        np.float32(stranger),
        np.float32(coupling(machine, other, c, other, c)),
        np.float32(coupling(machine, c, c, c, c)),
        np.float32(first.gradient / first.curvature if curved else 0.0),
        np.float32(1.0 / first.curvature if curved else 0.0),
        skip,
        out,
    )


@njit()
def best_partner(
    machine: Any,
    first: Any,
    alpha: Any,
    score: Any,
    base: Any,
    label: Any,
    bound: Any,
    load: Any,
    start: int,
    row: Any,
    diagonal: Any,
    supports: bool,
    lane: int,
    link: Any,
    out: Any,
) -> Any:  # pragma: no cover
    """Find the variable of the run from `start` that adds most to the gain of the first, which is in `lane` (or elsewhere).

    Returns the gain, the lane and the class; 0, -1 and -1 where none adds anything. Ties go to the lowest class, then place.
    """
    stop = start + len(base)
    _links(machine, first, label[start:stop], link)
    best, where_best, q = np.float32(0.0), -1, -1
    for c in range(machine.classes):
        coefficients = alpha[c][start:stop]
        most = _gains_of(
            machine,
            first,
            c,
            coefficients,
            score[c][start:stop],
            base,
            label[start:stop],
            bound[start:stop],
            load[start:stop] if machine.shared else coefficients,
            row,
            diagonal[start:stop],
            link,
            supports,
            lane if c == first.c else -1,
            out,
        )
        if most > best:
            best, where_best, q = most, where(out, most), c
    return best, where_best, q
