"""Choosing examples by their decision values (paper 1, sections 4.1 to 4.4): the best of each group of candidates."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.criteria import CRITERIA
from dasksvm.solver.engine.selection import NEAR_ENOUGH, measure_of
from dasksvm.solver.engine.tiles import margins, score
from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Features, Flags, Ints
from dasksvm.solver.kernels.kernel import BLOCK_ROWS, Kernel
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import CandidateBatch, ScorePlan, Targets, View

# If pools may be closed early, candidates are scored in portions: AT_ONCE for each example to choose, at least LEAST_AT_ONCE.
AT_ONCE, LEAST_AT_ONCE = 8, 32


def execute(
    plan: ScorePlan,
    kernel: Kernel,
    features: Features,
    targets: Targets,
    workspace: Workspace,
    near: bool = False,
) -> CandidateBatch:
    """Execute a plan: select examples if it has a choice, and score them. The arguments are those of `score`."""
    if plan.choice is None:
        return score(plan, kernel, features, targets, workspace, near)
    chosen, sampled, scored = best_of_groups(plan, kernel, features, targets, workspace)
    few = replace(plan, rows=plan.rows[chosen], choice=None)
    batch = score(few, kernel, features.take(chosen), targets.take(chosen), workspace, near)
    return replace(batch, evaluations=batch.evaluations + scored, sampled=sampled)


def best_of_groups(
    plan: ScorePlan, kernel: Kernel, features: Features, targets: Targets, workspace: Workspace
) -> tuple[Ints, int, int]:
    """Choose the best candidate of each group.

    With an adaptive criterion an incomplete last group is not used, unless it is the only one. Without an expansion the first
    candidates are taken.

    Returns
    -------
    chosen : ndarray of int64
        Positions in the plan.
    sampled : int
        Number of candidates in the groups.
    scored : int
        Number of kernel values computed.
    """
    view, choice = plan.view, plan.choice
    assert choice is not None
    adaptive, measure = CRITERIA.find(choice.criterion).adaptive, measure_of(choice.criterion)
    if view.members is None:
        first = np.arange(min(choice.groups, len(features)))
        return first, len(first), 0
    near = near_boundary(view)
    step = min(max(AT_ONCE * choice.groups, LEAST_AT_ONCE), BLOCK_ROWS) if adaptive else BLOCK_ROWS
    values, close = np.zeros(0), np.zeros(0, np.bool_)
    # Solvers without a bias have many members with α = 0, which do not contribute to decision values.
    used = np.flatnonzero(view.alpha.any(axis=0)) if view.band else np.arange(len(view.order))
    alpha, order = np.ascontiguousarray(view.alpha[:, used]), view.order[used]
    ends: Ints = np.zeros(0, np.int64)
    for start in range(0, len(features), step):
        part = slice(start, min(start + step, len(features)))
        rows = features.part(part.start, part.stop)
        found = margins(kernel, rows, view.members, alpha, order, workspace)
        decision = found + bias(view)[:, None]
        values = np.concatenate([values, measure(decision, targets.sign[:, part]).min(axis=0)])
        close = np.concatenate([close, (np.abs(decision) < near[:, None]).any(axis=0)])
        ends = group_ends(close, choice.size, NEAR_ENOUGH if adaptive else choice.size, choice.groups)
        if len(ends) == choice.groups:
            break
    if len(ends) == 0 or (not adaptive and len(ends) < choice.groups and ends[-1] < len(values)):
        ends = np.append(ends, len(values))
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    chosen = np.array([a + np.argmin(values[a:b]) for a, b in zip(starts, ends, strict=True)], np.int64)
    return chosen, int(ends[-1]), len(values) * len(used)


def bias(view: View) -> NDArray[np.float64]:
    """Return the bias b of each problem (paper 1, equation 10); 0 while a class is missing."""
    known = np.isfinite(view.top) & np.isfinite(view.bottom) & (not view.band)
    return np.where(known, (np.where(known, view.top, 0.0) + np.where(known, view.bottom, 0.0)) / 2, 0.0)


def near_boundary(view: View) -> NDArray[np.float64]:
    """Return the distance |f(x)| beyond which no example can enter S; examples within it count as near the boundary.

    It is 1 + δ/2 for problems with a bias (inf while a class is missing), else 1 - `bottom`; where that is infinite, because
    every example enters, it is 1.
    """
    if view.band:
        return np.where(np.isfinite(view.bottom), 1.0 - view.bottom, 1.0)
    known = np.isfinite(view.top) & np.isfinite(view.bottom)
    return np.where(known, 1.0 + (np.where(known, view.top, 0.0) - np.where(known, view.bottom, 0.0)) / 2, np.inf)


@njit()
def group_ends(close: Flags, size: int, enough: int, groups: int) -> Ints:  # pragma: no cover
    """Return where each complete group ends: after `size` candidates, or after `enough` close ones."""
    ends = np.empty(groups, np.int64)
    found = start = near = 0
    for at in range(len(close)):
        near += close[at]
        if at + 1 - start == size or near == enough:
            ends[found] = at + 1
            found, start, near = found + 1, at + 1, 0
            if found == groups:
                break
    return ends[:found]
