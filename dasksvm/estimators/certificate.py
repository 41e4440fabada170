"""Certificate: how far a model is from the optimum, and which rows violate it, computed chunk by chunk where the rows are."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm import config
from dasksvm.config.blas import one_thread
from dasksvm.data.chunked import is_sparse
from dasksvm.data.coding import Coding
from dasksvm.data.sources import DaskSource, DatasetSource, Labels, MemoryLabels, MemorySource, Source
from dasksvm.model.kernel_model import CHUNK_ROWS, KernelModel
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.messages import Targets
from dasksvm.solver.state.direction_search import SNAP

Values = NDArray[np.float64]
# Rows are evaluated in blocks of CHUNK_ROWS, or of fewer rows if a block would need more memory than this.
BLOCK_BYTES = 64 << 20
# Number of partial results that one task merges.
MERGED_AT_ONCE = 16


@dataclass(frozen=True, eq=False)
class Certificate:
    """How far a model is from the optimum on its training set, in float64.

    Attributes
    ----------
    primal, dual, gap : float
        ½|w|² + Σ C_i loss_i, the dual objective, and their difference; with several problems, the sums over the problems.
    violation : ndarray of float64, shape (P,)
        The largest violation of the optimality conditions in each problem. A multi-class machine is one problem.
    rows : ndarray of int64, shape (k,)
        The rows with the largest violations, the worst first, numbered as in `support_`: rows of X, or source rows of a data
        set. A row can be listed for several problems; rows that do not violate are not listed.
    violations : ndarray of float64, shape (k,)
        The violation of each of these rows.
    problems : ndarray of int64, shape (k,)
        The problem that each of them violates.
    """

    primal: float
    dual: float
    gap: float
    violation: Values
    rows: Ints
    violations: Values
    problems: Ints

    @property
    def relative_gap(self) -> float:
        """The gap as a share of the primal."""
        return 1.0 - self.dual / self.primal if self.primal else 0.0


class Tally(NamedTuple):
    """The contribution of some rows to a `Certificate`: Σ C_i loss_i, and the violations."""

    loss: float
    violation: Values
    rows: Ints
    violations: Values
    problems: Ints

    def certify(self, dual: float, half_norm: float) -> Certificate:
        """Make the certificate, if the rows of this tally are the whole set."""
        primal = half_norm + self.loss
        return Certificate(primal, dual, primal - dual, self.violation, self.rows, self.violations, self.problems)


# Takes targets, decision values (n, P) and coefficients (V, n); returns Σ C_i loss_i, and the violations, shape (P, n).
RowLoss = Callable[[Targets, Values, Values], tuple[float, Values]]


def hinge(targets: Targets, values: Values, alpha: Values) -> tuple[float, Values]:
    """Compute the hinge loss and the violations of rows in two-class problems; α has the sign of the label.

    With m = y f(x), the violation is max(0, 1 - m) at α = 0, max(0, m - 1) at α = C_i, and |1 - m| in between.
    """
    sign, bound = targets.sign, targets.bound
    taken, lacking = bound > 0, np.zeros_like(bound)
    lacking[taken] = 1.0 - sign[taken] * values.T[taken]
    loss = float(bound[taken] @ np.maximum(lacking[taken], 0.0))
    share = sign * alpha
    may_rise, may_fall = share < (1.0 - SNAP) * bound, share > SNAP * bound
    return loss, np.maximum(np.where(may_rise, lacking, 0.0), np.where(may_fall, -lacking, 0.0))


@dataclass(frozen=True, eq=False)
class RowEvaluator:
    """Everything that is needed to evaluate a chunk; it is one shared key of the Dask graph.

    Attributes
    ----------
    model : KernelModel
    coding : Coding
    row_loss : callable
    support : ndarray of int64, shape (S,)
        Numbers of the rows that have coefficients.
    alpha : ndarray of float64, shape (V, S)
    worst : int
        Largest number of violating rows to list.
    """

    model: KernelModel
    coding: Coding
    row_loss: RowLoss
    support: Ints
    alpha: Values
    worst: int

    def evaluate(self, X: Any, rows: Ints, columns: Labels, ids: Ints) -> Tally:
        """Evaluate some rows, block by block.

        Parameters
        ----------
        X : ndarray or csr_matrix of shape (n, d)
        rows : ndarray of int64, shape (n,)
            Their numbers, as in `support_`.
        columns : Labels
        ids : ndarray of int64, shape (n,)
            Their places in `columns`.
        """
        step = self.step(X)
        parts = [slice(at, at + step) for at in range(0, X.shape[0], step)]
        return merge([self._row_loss(X[part], rows[part], columns, ids[part]) for part in parts], self.worst)

    def step(self, X: Any) -> int:
        """Return the number of rows of a block."""
        if is_sparse(X) and is_sparse(self.model.support_vectors):
            return CHUNK_ROWS
        return min(max(BLOCK_BYTES // (8 * self.model.width), 1), CHUNK_ROWS)

    def _row_loss(self, X: Any, rows: Ints, columns: Labels, ids: Ints) -> Tally:
        targets = self.coding.targets(columns.codes(ids), columns.weights(ids))
        values = self.model.decision_function(X.astype(np.float64))
        loss, found = self.row_loss(targets, values, self._alpha_of(rows))
        problems, at = np.nonzero(found > 0.0)
        worst = found.max(axis=1, initial=0.0)
        return _with_the_worst(Tally(loss, worst, rows[at], found[problems, at], problems), self.worst)

    def _alpha_of(self, rows: Ints) -> Values:
        """Return the coefficients of some rows; 0 for rows that are not support vectors."""
        alpha = np.zeros((len(self.alpha), len(rows)))
        if len(self.support):
            order = np.argsort(self.support)
            at = order[np.searchsorted(self.support, rows, sorter=order).clip(max=len(order) - 1)]
            hit = self.support[at] == rows
            alpha[:, hit] = self.alpha[:, at[hit]]
        return alpha


def merge(tallies: list[Tally], worst: int) -> Tally:
    """Merge the tallies of parts of a set.

    Parameters
    ----------
    tallies : list of Tally
    worst : int
        Largest number of violating rows to keep.
    """
    losses, violation, *columns = zip(*tallies, strict=True)
    rows, violations, problems = (np.concatenate(column) for column in columns)
    return _with_the_worst(Tally(sum(losses), np.max(violation, axis=0), rows, violations, problems), worst)


def _with_the_worst(tally: Tally, count: int) -> Tally:
    """Keep the rows with the largest violations, the worst first; among equal ones, those with the lowest numbers."""
    rows, violations, problems = tally[2:]
    # Select the worst before sorting, since sorting the others would be wasted.
    surplus = len(violations) - count
    least = np.partition(violations, surplus)[surplus] if surplus > 0 and count else 0.0
    near = np.flatnonzero(violations >= least)
    best = near[np.lexsort((problems[near], rows[near], -violations[near]))[:count]]
    return Tally(*tally[:2], rows[best], violations[best], problems[best])


def evaluate_source(evaluator: RowEvaluator, source: Source, columns: Labels, client: Any) -> Tally:
    """Evaluate all rows of a source in parallel, with a few chunks in memory at a time.

    Parameters
    ----------
    evaluator : RowEvaluator
    source : MemorySource, DaskSource or DatasetSource
    columns : Labels
    client : distributed.Client or None
        Evaluates the chunks of Dask arrays and data sets; with None, Dask does so in this process.
    """
    if not sum(source.chunks):
        raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
    if isinstance(source, MemorySource):
        return _in_memory(evaluator, source.X, columns)
    lazy = _lazily(evaluator, source, columns)
    if client is not None:
        found: Tally = client.compute(lazy, sync=True)
        return found
    from dask.base import compute

    (found,) = compute(lazy)
    return found


def _in_memory(evaluator: RowEvaluator, X: Any, columns: Labels) -> Tally:
    step = evaluator.step(X)

    def evaluate_rows(start: int) -> Tally:
        rows = np.arange(start, min(start + step, X.shape[0]))
        return evaluator.evaluate(X[start : start + step], rows, columns, rows)

    with one_thread(), ThreadPoolExecutor(config.threads(), "dasksvm-certificate") as pool:
        return merge(list(pool.map(evaluate_rows, range(0, X.shape[0], step))), evaluator.worst)


def _lazily(evaluator: RowEvaluator, source: DaskSource | DatasetSource, columns: Labels) -> Any:
    """Make a task for each chunk, and a tree of tasks that merge their results; the evaluator is one shared key."""
    from dask.delayed import delayed

    shared = delayed(evaluator, pure=False)
    ends = np.cumsum(source.chunks).tolist()
    chunks = [(at, end - size, end) for at, (size, end) in enumerate(zip(source.chunks, ends, strict=True)) if size]
    if isinstance(source, DatasetSource):
        read = delayed(source, pure=False)
        found = [delayed(certify_stored)(shared, read, *chunk) for chunk in chunks]
    else:
        assert isinstance(columns, MemoryLabels)
        found = [
            delayed(certify_block)(shared, _task_of(source.checked(at)), start, columns.part(start, end))
            for at, start, end in chunks
        ]
    while len(found) > 1:
        groups = [found[at : at + MERGED_AT_ONCE] for at in range(0, len(found), MERGED_AT_ONCE)]
        found = [delayed(merge)(group, evaluator.worst) for group in groups]
    return found[0]


def _task_of(block: Any) -> Any:
    """Return the task behind an array of one block, so that the block is not copied."""
    return block.to_delayed().item()


def certify_stored(evaluator: RowEvaluator, source: DatasetSource, at: int, start: int, end: int) -> Tally:
    """Read and evaluate a chunk of a data set."""
    data, ids = source.data, np.arange(start, end)
    return evaluator.evaluate(data.part(at), data.source_rows(ids), data, ids)


def certify_block(evaluator: RowEvaluator, block: Any, start: int, columns: Labels) -> Tally:
    """Evaluate a block of a Dask array, whose first row has the number `start`."""
    ids = np.arange(len(columns))
    return evaluator.evaluate(block, start + ids, columns, ids)
