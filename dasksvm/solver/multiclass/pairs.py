"""Problems in one and two variables: gain and solution (paper 5, algorithms 4, 5 and 11).

The unknown is always the step μ. det Q = 0 means det Q ≤ 1e-12 Q_ii Q_jj; curvatures below 1e-12, including negative ones, are
replaced by 1e-12. If Q is not positive semi-definite, the step may not be optimal, but it is at least as good as that of i alone.
"""

from dasksvm.solver.jit import njit
from dasksvm.solver.state.direction_search import LEAST_CURVATURE

FLAT = 1e-12


@njit()
def gain(g_i: float, g_j: float, q_ii: float, q_ij: float, q_jj: float) -> float:  # pragma: no cover
    """Compute the gain of an unconstrained step in two variables (paper 5, algorithm 4).

    It is the gain of i alone plus what j adds to it, g_i²/2Q_ii + (g_j - g_i Q_ij/Q_ii)²/2(Q_jj - Q_ij²/Q_ii). This equals the
    paper's formula if det Q > 0, and g_i²/2Q_ii if det Q = 0 and the gradient is consistent. Where the paper's gain is ∞, the
    curvature 0 is replaced by a smallest one, so that the gain is finite but larger than all others of the same scale, and the
    steeper of two such directions is preferred.
    """
    if q_ii > LEAST_CURVATURE:
        ratio = q_ij / q_ii
    else:
        q_ii, ratio = LEAST_CURVATURE, 0.0
    rest = g_j - g_i * ratio
    curvature = max(q_jj - q_ij * ratio, FLAT * q_jj, LEAST_CURVATURE)
    return 0.5 * (g_i * g_i / q_ii + rest * rest / curvature)


@njit()
def solve_one(g: float, q: float, low: float, high: float) -> float:  # pragma: no cover
    """Maximise g μ - ½ q μ² over [low, high]."""
    return max(low, min(g / max(q, LEAST_CURVATURE), high))


@njit()
def increase(
    g_i: float, g_j: float, q_ii: float, q_ij: float, q_jj: float, mu_i: float, mu_j: float
) -> float:  # pragma: no cover
    """Compute the increase of the dual by a step."""
    return g_i * mu_i + g_j * mu_j - 0.5 * (q_ii * mu_i * mu_i + q_jj * mu_j * mu_j) - q_ij * mu_i * mu_j


@njit()
def _unconstrained_optimum(
    g_i: float, g_j: float, q_ii: float, q_ij: float, q_jj: float
) -> tuple[bool, float, float]:  # pragma: no cover
    """Return whether the unconstrained optimum is unique, and the optimum."""
    det = q_ii * q_jj - q_ij * q_ij
    if q_ii <= 0.0 or det <= FLAT * q_ii * q_jj:
        return False, 0.0, 0.0
    return True, (q_jj * g_i - q_ij * g_j) / det, (q_ii * g_j - q_ij * g_i) / det


@njit()
def solve_box(
    g_i: float,
    g_j: float,
    q_ii: float,
    q_ij: float,
    q_jj: float,
    low_i: float,
    high_i: float,
    low_j: float,
    high_j: float,
) -> tuple[float, float]:  # pragma: no cover
    """Solve the problem in two variables over a box of steps, low ≤ 0 ≤ high (paper 5, algorithm 5); return μ_i, μ_j."""
    if q_ij == 0.0:
        return solve_one(g_i, q_ii, low_i, high_i), solve_one(g_j, q_jj, low_j, high_j)
    inner, mu_i, mu_j = _unconstrained_optimum(g_i, g_j, q_ii, q_ij, q_jj)
    if inner and low_i <= mu_i <= high_i and low_j <= mu_j <= high_j:
        return mu_i, mu_j
    best_i, best_j = solve_one(g_i, q_ii, low_i, high_i), 0.0
    best = increase(g_i, g_j, q_ii, q_ij, q_jj, best_i, best_j)
    for edge in range(4):
        if edge < 2:
            mu_i = high_i if edge == 0 else low_i
            mu_j = solve_one(g_j - q_ij * mu_i, q_jj, low_j, high_j)
        else:
            mu_j = high_j if edge == 2 else low_j
            mu_i = solve_one(g_i - q_ij * mu_j, q_ii, low_i, high_i)
        value = increase(g_i, g_j, q_ii, q_ij, q_jj, mu_i, mu_j)
        if value > best:
            best, best_i, best_j = value, mu_i, mu_j
    return best_i, best_j


@njit()
def solve_simplex(
    g_i: float, g_j: float, q_ii: float, q_ij: float, q_jj: float, alpha_i: float, alpha_j: float, upper: float
) -> tuple[float, float]:  # pragma: no cover
    """Solve the problem in two variables that share a slack (paper 5, algorithm 11); return μ_i, μ_j.

    Both coefficients stay ≥ 0 and their sum stays ≤ `upper`.
    """
    room = upper - alpha_i - alpha_j
    inner, mu_i, mu_j = _unconstrained_optimum(g_i, g_j, q_ii, q_ij, q_jj)
    if inner and mu_i >= -alpha_i and mu_j >= -alpha_j and mu_i + mu_j <= room:
        return mu_i, mu_j
    best_i, best_j = solve_one(g_i, q_ii, -alpha_i, max(room, 0.0)), 0.0
    best = increase(g_i, g_j, q_ii, q_ij, q_jj, best_i, best_j)
    for edge in range(3):
        if edge == 0:
            mu_i = -alpha_i
            mu_j = solve_one(g_j - q_ij * mu_i, q_jj, -alpha_j, upper - alpha_j)
        elif edge == 1:
            mu_j = -alpha_j
            mu_i = solve_one(g_i - q_ij * mu_j, q_ii, -alpha_i, upper - alpha_i)
        else:
            slope = g_i - g_j + (q_jj - q_ij) * room
            mu_i = solve_one(slope, q_ii - 2.0 * q_ij + q_jj, -alpha_i, alpha_j + room)
            mu_j = room - mu_i
        value = increase(g_i, g_j, q_ii, q_ij, q_jj, mu_i, mu_j)
        if value > best:
            best, best_i, best_j = value, mu_i, mu_j
    return best_i, best_j
