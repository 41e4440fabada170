"""Certificate: how far a model is from the optimum on a set, and which rows say so; found where they are, chunk by chunk."""

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
# Rows are judged in blocks of CHUNK_ROWS, of fewer where they are so wide that these would take more than this.
BLOCK_BYTES = 64 << 20
# Parts that a task puts together.
TOGETHER = 16


@dataclass(frozen=True, eq=False)
class Certificate:
    """What separates a model from the optimum on a set, in float64.

    Attributes
    ----------
    primal, dual, gap : float
        ½|w|² + Σ C_i loss_i, the dual objective, and their difference; of several problems, their sums.
    violation : ndarray of float64, shape (P,)
        How far the worst row of each problem is from satisfying the conditions of the optimum. A machine of all classes is one
        problem.
    rows : ndarray of int64, shape (k,)
        The rows that violate most, the worst first, with the numbers that `support_` has: rows of X, or source rows of a data
        set. A row may be there for several problems; rows that do not violate are not there.
    violations : ndarray of float64, shape (k,)
        How far each of them does.
    problems : ndarray of int64, shape (k,)
        In which problem each of them does.
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
    """What some rows say, as the parts of a `Certificate`: Σ C_i loss_i, and the violations."""

    loss: float
    violation: Values
    rows: Ints
    violations: Values
    problems: Ints

    def certify(self, dual: float, half_norm: float) -> Certificate:
        """Make the certificate of rows that are the whole set."""
        primal = half_norm + self.loss
        return Certificate(primal, dual, primal - dual, self.violation, self.rows, self.violations, self.problems)


# Given targets, decision values of shape (n, P) and coefficients of shape (V, n): Σ C_i loss_i, and the violations, shape (P, n).
Judge = Callable[[Targets, Values, Values], tuple[float, Values]]


def hinge(targets: Targets, values: Values, alpha: Values) -> tuple[float, Values]:
    """Judge rows of two-class problems; α has the sign of the label.

    With m = y f(x), max(0, 1 - m) is missing at α = 0, max(0, m - 1) at α = C_i and |1 - m| in between.
    """
    sign, bound = targets.sign, targets.bound
    taken, lacking = bound > 0, np.zeros_like(bound)
    lacking[taken] = 1.0 - sign[taken] * values.T[taken]
    loss = float(bound[taken] @ np.maximum(lacking[taken], 0.0))
    share = sign * alpha
    may_rise, may_fall = share < (1.0 - SNAP) * bound, share > SNAP * bound
    return loss, np.maximum(np.where(may_rise, lacking, 0.0), np.where(may_fall, -lacking, 0.0))


@dataclass(frozen=True, eq=False)
class Question:
    """What every chunk of a set is asked: one key of a graph.

    Attributes
    ----------
    model : KernelModel
    coding : Coding
    judge : callable
    support : ndarray of int64, shape (S,)
        Numbers of the rows that have coefficients.
    alpha : ndarray of float64, shape (V, S)
    worst : int
        Violating rows wanted.
    """

    model: KernelModel
    coding: Coding
    judge: Judge
    support: Ints
    alpha: Values
    worst: int

    def ask(self, X: Any, rows: Ints, columns: Labels, ids: Ints) -> Tally:
        """Judge some rows, block by block.

        Parameters
        ----------
        X : ndarray or csr_matrix of shape (n, d)
        rows : ndarray of int64, shape (n,)
            Their numbers for the user.
        columns : Labels
        ids : ndarray of int64, shape (n,)
            Where they are in `columns`.
        """
        step = self.step(X)
        parts = [slice(at, at + step) for at in range(0, X.shape[0], step)]
        return merge([self._judge(X[part], rows[part], columns, ids[part]) for part in parts], self.worst)

    def step(self, X: Any) -> int:
        """Count the rows of a block."""
        if is_sparse(X) and is_sparse(self.model.support_vectors):
            return CHUNK_ROWS
        return min(max(BLOCK_BYTES // (8 * self.model.width), 1), CHUNK_ROWS)

    def _judge(self, X: Any, rows: Ints, columns: Labels, ids: Ints) -> Tally:
        targets = self.coding.targets(columns.codes(ids), columns.weights(ids))
        values = self.model.decision_function(X.astype(np.float64))
        loss, found = self.judge(targets, values, self._alpha_of(rows))
        problems, at = np.nonzero(found > 0.0)
        worst = found.max(axis=1, initial=0.0)
        return _with_the_worst(Tally(loss, worst, rows[at], found[problems, at], problems), self.worst)

    def _alpha_of(self, rows: Ints) -> Values:
        """Give the coefficients of some rows, 0 where they are no support vectors."""
        alpha = np.zeros((len(self.alpha), len(rows)))
        if len(self.support):
            order = np.argsort(self.support)
            at = order[np.searchsorted(self.support, rows, sorter=order).clip(max=len(order) - 1)]
            hit = self.support[at] == rows
            alpha[:, hit] = self.alpha[:, at[hit]]
        return alpha


def merge(tallies: list[Tally], worst: int) -> Tally:
    """Put together what the parts of a set say.

    Parameters
    ----------
    tallies : list of Tally
    worst : int
        Violating rows that are kept.
    """
    losses, violation, *columns = zip(*tallies, strict=True)
    rows, violations, problems = (np.concatenate(column) for column in columns)
    return _with_the_worst(Tally(sum(losses), np.max(violation, axis=0), rows, violations, problems), worst)


def _with_the_worst(tally: Tally, count: int) -> Tally:
    """Keep the rows that violate most, the worst first; of equal ones those with the lowest numbers."""
    rows, violations, problems = tally[2:]
    # All but the worst would be sorted for nothing.
    surplus = len(violations) - count
    least = np.partition(violations, surplus)[surplus] if surplus > 0 and count else 0.0
    near = np.flatnonzero(violations >= least)
    best = near[np.lexsort((problems[near], rows[near], -violations[near]))[:count]]
    return Tally(*tally[:2], rows[best], violations[best], problems[best])


def tally(question: Question, source: Source, columns: Labels, client: Any) -> Tally:
    """Ask all rows of a source, side by side; a few chunks are in memory at a time.

    Parameters
    ----------
    question : Question
    source : MemorySource, DaskSource or DatasetSource
    columns : Labels
    client : distributed.Client or None
        Who asks the chunks of Dask arrays and data sets; None: Dask in this process.
    """
    if not sum(source.chunks):
        raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
    if isinstance(source, MemorySource):
        return _in_memory(question, source.X, columns)
    lazy = _lazily(question, source, columns)
    if client is not None:
        found: Tally = client.compute(lazy, sync=True)
        return found
    from dask.base import compute

    (found,) = compute(lazy)
    return found


def _in_memory(question: Question, X: Any, columns: Labels) -> Tally:
    step = question.step(X)

    def ask(start: int) -> Tally:
        rows = np.arange(start, min(start + step, X.shape[0]))
        return question.ask(X[start : start + step], rows, columns, rows)

    with one_thread(), ThreadPoolExecutor(config.threads(), "dasksvm-certificate") as pool:
        return merge(list(pool.map(ask, range(0, X.shape[0], step))), question.worst)


def _lazily(question: Question, source: DaskSource | DatasetSource, columns: Labels) -> Any:
    """One task a chunk, and a tree of those that put their results together; the question is one key."""
    from dask.delayed import delayed

    shared = delayed(question, pure=False)
    ends = np.cumsum(source.chunks).tolist()
    chunks = [(at, end - size, end) for at, (size, end) in enumerate(zip(source.chunks, ends, strict=True)) if size]
    if isinstance(source, DatasetSource):
        read = delayed(source, pure=False)
        found = [delayed(certify_stored)(shared, read, *chunk) for chunk in chunks]
    else:
        assert isinstance(columns, MemoryLabels)
        found = [
            delayed(certify_block)(shared, _as_it_is(source.checked(at)), start, columns.part(start, end))
            for at, start, end in chunks
        ]
    while len(found) > 1:
        groups = [found[at : at + TOGETHER] for at in range(0, len(found), TOGETHER)]
        found = [delayed(merge)(group, question.worst) for group in groups]
    return found[0]


def _as_it_is(block: Any) -> Any:
    """Give an array of one block as a task whose result is not copied."""
    return block.to_delayed().item()


def certify_stored(question: Question, source: DatasetSource, at: int, start: int, end: int) -> Tally:
    """Ask a chunk of a data set, which is read here."""
    data, ids = source.data, np.arange(start, end)
    return question.ask(data.part(at), data.source_rows(ids), data, ids)


def certify_block(question: Question, block: Any, start: int, columns: Labels) -> Tally:
    """Ask a block of a Dask array, whose first row has the number `start`."""
    ids = np.arange(len(columns))
    return question.ask(block, start + ids, columns, ids)
