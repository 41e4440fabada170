"""The computations that plans request: pure functions of their arguments, which give the same bits in every executor."""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import SUMS, njit
from dasksvm.solver.kernels.features import Features, Flags, Floats, Ints, Values
from dasksvm.solver.kernels.kernel import Kernel, column_blocks
from dasksvm.solver.kernels.uniform import fill_uniformly
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import CandidateBatch, MemberRows, RowsPlan, ScorePlan, Targets, View
from dasksvm.solver.multiclass.structure import gradients
from dasksvm.solver.state.direction_search import weighted_sum

PIECE = 1024
# The most bytes of rows that a result has because they are useful; several results are in flight.
MOST_BYTES = 128 << 20
# Where the numbers of each row begin that are not 0, their columns, and these numbers.
Nonzeros = tuple[Ints, Ints, Values]
Map = Callable[[Callable[[int], None], Iterable[int]], Iterable[None]]


def score(
    plan: ScorePlan,
    kernel: Kernel,
    features: Features,
    targets: Targets,
    workspace: Workspace,
    near: bool = False,
) -> CandidateBatch:
    """Compute the kernel values of a batch with S, and keep the rows of the examples that may enter S (see `drift`).

    Parameters
    ----------
    plan : ScorePlan
    kernel : Kernel
    features : Features
        Of the plan's m examples, in its order.
    targets : Targets
        Of the same examples.
    workspace : Workspace
        Provides the memory for the rows of the result.
    near : bool
        Whether the result stays on this machine. Then it has rows that are merely useful, unless they are too large.
    """
    view = plan.view
    codes, sign, bound = targets
    if view.kernel_rows != "needed":
        return _score_for_margins(plan, kernel, features, targets, workspace, near)
    rows = workspace.loan((len(features), len(view.order)), features.dtype)
    margins = np.zeros((len(view.alpha), len(features)))
    for left, right in column_blocks(*rows.shape[::-1]):
        assert view.members is not None
        kernel.block(features, view.members.take(view.order[left:right], workspace), rows, left)
        _add_margins(rows, left, right, view.alpha, margins)
    found = excess(view, codes, sign, margins)
    kept, row_of = _likely_to_enter(view, bound, found)
    _compress(rows, kept)
    return CandidateBatch(
        sequence=plan.sequence,
        examples=plan.rows,
        codes=codes,
        sign=sign,
        bound=bound,
        margins=margins,
        row_of=row_of,
        features=features if len(kept) == len(features) else features.take(kept),
        rows=rows[: len(kept)],
        scored=found[:, kept],
        evaluations=rows.size,
    )


def _score_for_margins(
    plan: ScorePlan, kernel: Kernel, features: Features, targets: Targets, workspace: Workspace, near: bool
) -> CandidateBatch:
    """Compute the margins of a batch, and keep the features of the examples that may enter S (see `drift`)."""
    view, (codes, sign, bound) = plan.view, targets
    values, rows = np.zeros_like(sign), np.zeros((len(features), 0), features.dtype)
    if view.members is not None and view.kernel_rows == "useful":
        rows = workspace.loan((len(features), len(view.order)), features.dtype)
        fill_uniformly(kernel, features, view.support(workspace), rows, workspace)
        add_up(rows, *nonzeros_of(view.alpha), bound > 0, values)
        rows = rows if near and rows.nbytes <= MOST_BYTES else rows[:, :0]
    elif view.members is not None:
        exact = features.astype(np.dtype(np.float64)) if view.exact else features
        values = margins(kernel, exact, view.support(workspace), view.alpha, None, workspace)
    found = excess(view, codes, sign, values)
    kept, row_of = _likely_to_enter(view, bound, found)
    if rows.shape[1]:
        _compress(rows, kept)
    return CandidateBatch(
        sequence=plan.sequence,
        examples=plan.rows,
        codes=codes,
        sign=sign,
        bound=bound,
        margins=values,
        row_of=row_of,
        features=features.take(kept),
        rows=rows[: len(kept)],
        scored=found[:, kept],
        evaluations=len(features) * len(view.order),
    )


def _likely_to_enter(view: View, bound: Values, found: Values) -> tuple[Ints, Ints]:
    """Return the examples that may enter S (see `drift`), and the position of each example among them, -1 for the others."""
    kept = np.flatnonzero(((bound > 0) & (found > view.tau - view.slack[:, None])).any(axis=0))
    row_of = np.full(bound.shape[1], -1, np.int64)
    row_of[kept] = np.arange(len(kept))
    return kept, row_of


def excess(view: View, codes: Ints, sign: NDArray[np.float64], margins: NDArray[np.float64]) -> NDArray[np.float64]:
    """Compute by how much examples violate optimality, shape (P, m).

    For a multi-class machine it is the largest gradient of an example, for a solver without a bias its depth within the band
    (see `band_depth`), otherwise the violation of the pair of the example and an extreme member (see `pair_violations`).
    """
    if view.machine is not None:
        worst: NDArray[np.float64] = gradients(view.machine, margins, codes).max(axis=0)[None]
        return worst
    if view.band:
        return band_depth(1.0 - sign * margins, view.top, view.bottom)
    return pair_violations(sign, sign - margins, view.top, view.bottom, view.needed_classes)


def pair_violations(
    sign: NDArray[np.float64],
    gradient: NDArray[np.float64],
    top: NDArray[np.float64],
    bottom: NDArray[np.float64],
    needed_classes: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """Compute by how much examples violate with the extreme members, shape (P, m).

    While S lacks one class, the violation is inf for examples of a class in `needed_classes` and -inf for the others.
    """
    found = np.where(sign > 0, gradient - bottom[:, None], top[:, None] - gradient)
    if np.isfinite(found).all():
        return found
    requested = np.where(sign > 0, needed_classes[:, 1:], needed_classes[:, :1])
    return np.where(np.isinf(found), np.where(requested, np.inf, -np.inf), found)


def band_depth(
    shortfall: NDArray[np.float64], top: NDArray[np.float64], bottom: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Compute how far inside the band from `bottom` to `top` the values 1 - y f of examples are, shape (P, m)."""
    found: NDArray[np.float64] = np.minimum(shortfall - bottom[:, None], top[:, None] - shortfall)
    return found


def member_rows(plan: RowsPlan, kernel: Kernel, workspace: Workspace, parallel_map: Map = map) -> MemberRows:
    """Compute the kernel rows of some members with all members, in pieces that `parallel_map` may compute in parallel.

    Parameters
    ----------
    plan : RowsPlan
    kernel : Kernel
    workspace : Workspace
        Provides the memory for the rows of the result.
    parallel_map : callable
        `map`, or a parallel version of it; the pieces, and so the results, do not depend on it.
    """
    width = len(plan.order)
    out = workspace.loan((len(plan.slots), width), plan.members.dtype)
    rows = plan.members.take(plan.slots)
    in_place = bool(np.all(np.diff(plan.order) == 1))

    def fill(left: int) -> None:
        part = plan.order[left : left + PIECE]
        columns = plan.members.part(int(part[0]), int(part[-1]) + 1) if in_place else plan.members.take(part)
        kernel.block(rows, columns, out, left)

    for _ in parallel_map(fill, range(0, width if len(rows) else 0, PIECE)):
        pass
    return MemberRows(plan.sequence, out)


def margins(
    kernel: Kernel,
    features: Features,
    members: Features,
    alpha: NDArray[np.float64],
    order: Ints | None = None,
    workspace: Workspace | None = None,
) -> NDArray[np.float64]:
    """Compute Σ_s α_s K(x, x_s) of each row, shape (P, m), for α of shape (P, S).

    Kernel values have the type of the rows; they are summed in float64.
    """
    total = np.zeros((len(alpha), len(features)))
    width = len(members) if order is None else len(order)
    own = Workspace() if workspace is None else workspace
    for left, right in column_blocks(width, len(features)):
        block = members.part(left, right) if order is None else members.take(order[left:right], own)
        block = block if block.dtype == features.dtype else block.astype(features.dtype)
        values = own.array("values", (len(features), right - left), features.dtype)
        kernel.block(features, block, values, 0)
        _add_margins(values, 0, right - left, np.ascontiguousarray(alpha[:, left:right]), total)
    return total


def nonzeros_of(amounts: Values) -> Nonzeros:
    """Return the numbers that are not 0."""
    rows, columns = np.nonzero(amounts)
    return np.searchsorted(rows, np.arange(len(amounts) + 1)), columns, amounts[rows, columns]


@njit(fastmath=SUMS)
def add_up(
    values: Floats, starts: Ints, columns: Ints, weights: Values, wanted: Flags, found: Values
) -> None:  # pragma: no cover
    """Write Σ weight · value over some columns of each row, for each problem that wants it; see `nonzeros_of`."""
    width = values.shape[1]
    for r in range(len(values)):  # the outer loop, so that all problems read a row while it is in the cache
        row = values[r]
        for p in range(len(found)):
            if not wanted[p, r]:
                continue
            own, weight, total = columns[starts[p] : starts[p + 1]], weights[starts[p] : starts[p + 1]], 0.0
            if len(own) == width:
                for a in range(width):
                    total += weight[a] * np.float64(row[a])
            else:
                for a in range(len(own)):
                    total += weight[a] * np.float64(row[own[a]])
            found[p, r] = total


@njit()
def _add_margins(rows: Floats, left: int, right: int, alpha: Values, margins: Values) -> None:  # pragma: no cover
    for p in range(alpha.shape[0]):
        weights, total = alpha[p], margins[p]
        for r in range(rows.shape[0]):
            total[r] += weighted_sum(weights, rows, r, left, right)


@njit()
def _compress(rows: Floats, kept: Ints) -> None:  # pragma: no cover
    """Move the kept rows to the front."""
    for to in range(len(kept)):
        if kept[to] != to:
            target, source = rows[to], rows[kept[to]]
            for v in range(len(target)):
                target[v] = source[v]
