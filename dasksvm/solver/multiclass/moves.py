"""The changes that a step makes: α and the load of its patterns, and the scores of all patterns (paper 5, section 5.2.2)."""

import numpy as np

from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Floats, Ints, Values
from dasksvm.solver.multiclass.pairs import increase, solve_box, solve_one, solve_simplex
from dasksvm.solver.multiclass.structure import Machine, coupling, nu
from dasksvm.solver.state.direction_search import snapped


@njit()
def load_of(machine: Machine, alpha: Values, bound: Values, place: int) -> float:  # pragma: no cover
    """Compute Σ_c α of a pattern. With a shared slack, a sum within rounding of the bound is set to the bound."""
    total = 0.0
    for m in range(machine.classes):
        total += alpha[m, place]
    return float(snapped(total, 0.0, bound[place]) if machine.shared else total)


@njit()
def loads(machine: Machine, alpha: Values, bound: Values) -> Values:  # pragma: no cover
    """Compute Σ_c α of each pattern; see `load_of`."""
    out = np.empty(len(bound))
    for place in range(len(bound)):
        out[place] = load_of(machine, alpha, bound, place)
    return out


@njit()
def set_alpha(
    machine: Machine, alpha: Values, load: Values, bound: Values, place: int, c: int, value: float
) -> float:  # pragma: no cover
    """Write a coefficient, snapped to its bounds, and the pattern's load; return the change of the coefficient."""
    before = alpha[c, place]
    alpha[c, place] = snapped(value, 0.0, bound[place])
    load[place] = load_of(machine, alpha, bound, place)
    return float(alpha[c, place] - before)


@njit()
def move_pair(
    machine: Machine,
    alpha: Values,
    load: Values,
    label: Ints,
    bound: Values,
    i: int,
    p: int,
    g_i: float,
    k_ii: float,
    j: int,
    q: int,
    g_j: float,
    k_jj: float,
    k_ij: float,
) -> tuple[float, float, float]:  # pragma: no cover
    """Solve the problem in the variables (i, p) and (j, q), or in (i, p) alone if q < 0 (paper 5, section 5.2.2).

    Writes α and load; returns the steps μ_i and μ_j and the increase of the dual.
    """
    y = label[i]
    q_ii = coupling(machine, y, p, y, p) * k_ii
    room_i = bound[i] - load[i] if machine.shared else bound[i] - alpha[p, i]
    if q < 0:
        step = solve_one(g_i, q_ii, -alpha[p, i], max(room_i, 0.0))
        step = set_alpha(machine, alpha, load, bound, i, p, alpha[p, i] + step)
        return step, 0.0, increase(g_i, 0.0, q_ii, 0.0, 0.0, step, 0.0)
    z = label[j]
    q_jj = coupling(machine, z, q, z, q) * k_jj
    q_ij = coupling(machine, y, p, z, q) * k_ij
    if machine.shared and i == j:
        upper = alpha[p, i] + alpha[q, i] + room_i
        mu_i, mu_j = solve_simplex(g_i, g_j, q_ii, q_ij, q_jj, alpha[p, i], alpha[q, i], upper)
    else:
        room_j = bound[j] - load[j] if machine.shared else bound[j] - alpha[q, j]
        mu_i, mu_j = solve_box(g_i, g_j, q_ii, q_ij, q_jj, -alpha[p, i], room_i, -alpha[q, j], room_j)
    mu_i = set_alpha(machine, alpha, load, bound, i, p, alpha[p, i] + mu_i)
    mu_j = set_alpha(machine, alpha, load, bound, j, q, alpha[q, j] + mu_j)
    return mu_i, mu_j, increase(g_i, g_j, q_ii, q_ij, q_jj, mu_i, mu_j)


@njit(fastmath={"contract"})
def _shift(target: Values, row_i: Floats, row_j: Floats, by_i: float, by_j: float) -> None:  # pragma: no cover
    for a in range(len(target)):
        target[a] += by_i * np.float64(row_i[a]) + by_j * np.float64(row_j[a])


@njit()
def update_scores(
    machine: Machine,
    score: Values,
    mean: Values,
    start: int,
    stop: int,
    row_i: Floats,
    row_j: Floats,
    i: tuple[int, int, float],
    j: tuple[int, int, float],
) -> int:  # pragma: no cover
    """Update the scores of a range of patterns for steps (label, class, μ) of two patterns; return the number of updates."""
    touched = 0
    sum_i, sum_j = 0.0, 0.0
    for m in range(machine.classes):
        by_i = nu(machine, i[0], i[1], m) * i[2]
        by_j = nu(machine, j[0], j[1], m) * j[2]
        if by_i != 0.0 or by_j != 0.0:
            _shift(score[m][start:stop], row_i, row_j, by_i, by_j)
            touched += stop - start
            sum_i += by_i
            sum_j += by_j
    if machine.zero_sum and touched > 0:
        _shift(mean[start:stop], row_i, row_j, sum_i / machine.classes, sum_j / machine.classes)
        touched += stop - start
    return touched
