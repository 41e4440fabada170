"""S2DO on the problem restricted to some patterns, with their kernel matrix at hand (paper 5, algorithm 3, section 5.2.1)."""

from typing import Any

import numpy as np

from dasksvm.solver.jit import njit
from dasksvm.solver.multiclass.gains import First, best_partner
from dasksvm.solver.multiclass.moves import load_of, move_pair, shift
from dasksvm.solver.multiclass.scan import exchanges, extremes, gradient, limits, pattern, singles, steepest, where
from dasksvm.solver.multiclass.structure import coupling


@njit()
def solve_block(
    machine: Any,
    kernel: Any,
    alpha: Any,
    score: Any,
    mean: Any,
    label: Any,
    bound: Any,
    target: float,
    limit: int,
) -> int:  # pragma: no cover
    """Make steps in two variables until no `violation` is larger than `target`; α, score and mean are changed in place.

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
        Steps at most.

    Returns
    -------
    steps : int
    """
    size = len(label)
    load = np.empty(size)
    for a in range(size):
        load[a] = load_of(machine, alpha, bound, a)
    diagonal = np.diag(kernel).astype(np.float64)
    base, limit_of, top, bottom = np.empty(size), np.empty(size), np.empty(size), np.empty(size)
    single, pair, gained = np.empty(size), np.empty(size), np.empty(size, np.float32)
    for step in range(limit):
        extremes(machine, alpha, score, mean, label, bound, 0, False, base, limit_of, top, bottom)
        most = singles(machine.shared, top, bottom, load, bound, single)
        along, loose = 0.0, 0.0
        if machine.shared:
            loose = exchanges(top, bottom, load, bound, True, pair)
            along = exchanges(top, bottom, load, bound, False, pair)
        if not max(most, loose) > target:
            return step
        i = where(pair, along) if along > most else where(single, most)
        found = pattern(machine, alpha, score, mean, label, bound, i, False)
        if along > most:
            p, j, q = found.rise, i, found.fall
        else:
            _, p = steepest(found, machine.shared and load[i] >= bound[i])
            # Vectorised and plain gradients differ by rounding: at a target of 0 nothing may be left.
            if p < 0:
                return step
            y = label[i]
            g = gradient(machine, score, mean, label, i, p)
            first = First(p, y, g, coupling(machine, y, p, y, p) * diagonal[i])
            limits(machine, load, bound, limit_of)
            _, j, q = best_partner(
                machine,
                first,
                alpha,
                score,
                base,
                label,
                limit_of,
                0,
                kernel[i],
                diagonal,
                False,
                i,
                gained,
            )
            j = max(j, 0)
        _step(machine, kernel, alpha, score, mean, label, bound, load, i, p, j, q)
    return limit


@njit()
def _step(
    machine: Any,
    kernel: Any,
    alpha: Any,
    score: Any,
    mean: Any,
    label: Any,
    bound: Any,
    load: Any,
    i: int,
    p: int,
    j: int,
    q: int,
) -> None:  # pragma: no cover
    g_i = gradient(machine, score, mean, label, i, p)
    g_j = gradient(machine, score, mean, label, j, q) if q >= 0 else 0.0
    k_ii, k_jj, k_ij = np.float64(kernel[i, i]), np.float64(kernel[j, j]), np.float64(kernel[i, j])
    mu_i, mu_j, _ = move_pair(machine, alpha, load, label, bound, i, p, g_i, k_ii, j, q, g_j, k_jj, k_ij)
    shift(
        machine,
        score,
        mean,
        0,
        len(label),
        kernel[i],
        kernel[j],
        (label[i], p, mu_i),
        (label[j], max(q, 0), mu_j),
    )
