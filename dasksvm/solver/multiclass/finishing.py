"""S2DO on the whole expansion until nothing violates by more than ε, in blocks (paper 5, algorithm 3).

In each round the block consists of the patterns that violate most and of the newest patterns of the previous block. The round
solves the problem restricted to the block from its kernel values, and updates the scores of all patterns once. Patterns that do
not violate never enter a block.
"""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.engine.finisher import Outcome
from dasksvm.solver.jit import njit
from dasksvm.solver.kernels.features import Floats, Ints
from dasksvm.solver.lasvm.finishing import StallDetector, find_missing_rows
from dasksvm.solver.multiclass.block import solve_block
from dasksvm.solver.multiclass.expansion import PatternExpansion
from dasksvm.solver.multiclass.moves import loads
from dasksvm.solver.multiclass.scan import violation
from dasksvm.solver.multiclass.structure import coefficients, dual, gradients
from dasksvm.solver.state.capture import Stateful
from dasksvm.solver.state.expansion import Expansion
from dasksvm.solver.state.row_cache import PAGE, RowCache

WORKING_SET = 256
INNER_SHARE = 0.3
INNER_STEPS = 100


class MachineFinisher(Stateful):
    """The finisher of a machine: it solves the problem restricted to the expansion, on copies of its α and scores.

    Parameters
    ----------
    expansion : Patterns
    tau : float
        Stop when no violation is larger.
    """

    problem = 0
    STATE = ("alpha", "score", "steps", "rounds", "best", "stall", "chosen", "newest", "_missing_rows")

    def __init__(self, expansion: PatternExpansion, tau: float) -> None:
        w, places = expansion.working, expansion.places
        self.machine, self.tau = expansion.machine, tau
        self.alpha: NDArray[np.float64] = w.alpha[:, :places].copy()
        self.score: NDArray[np.float64] = w.score[:, :places].copy()
        self.label, self.bound = w.label[:places], w.bound[:places]
        self.steps = self.rounds = 0
        self.best = -np.inf
        self.stall = StallDetector()
        self.chosen: Ints = np.zeros(0, np.int64)
        self.newest: Ints = np.zeros(0, np.int64)
        self._missing_rows: Ints = np.zeros(0, np.int64)

    def violations(self) -> NDArray[np.float64]:
        """Return the largest derivative along a feasible direction of each pattern, at least 0."""
        load = loads(self.machine, self.alpha, self.bound)
        found: NDArray[np.float64] = violation(
            self.machine, self.alpha, self.score, self._mean(), self.label, self.bound, load
        )
        return found

    def _mean(self) -> NDArray[np.float64]:
        return self.score.mean(axis=0) if self.machine.zero_sum else np.zeros(len(self.label))

    def dual(self) -> float:
        """Compute D(α) (paper 5, equation 5.4) from α and the scores alone."""
        return dual(self.alpha, gradients(self.machine, self.score - self._mean(), self.label))

    def choose(self, expansion: Expansion) -> bool:
        """Choose the next block; return False if nothing violates."""
        found = self.violations()
        if not found.max(initial=0.0) > self.tau:
            return False
        dual = self.dual()
        gained, self.best = dual > self.best, max(dual, self.best)
        if self.stall.record_round(gained, float(found.max())):
            return False
        self.rounds += 1
        capacity = len(expansion.cache.pages) // expansion.cache.table.shape[1]
        size = max(min(WORKING_SET, capacity // 2), 4)
        kept = self.newest[: size // 2]
        found[kept] = 0.0
        worst = np.flatnonzero(found > self.tau)
        count = size - len(kept)
        if len(worst) > count:
            worst = worst[np.argpartition(-found[worst], count - 1)[:count]]
        self.newest = np.sort(worst)
        self.chosen = np.union1d(worst, kept)
        return True

    def order(self, expansion: Expansion) -> Ints:
        """Return the slots of all places."""
        return expansion.order()

    def missing(self, expansion: Expansion) -> Ints:
        """Return the slots of the block's patterns whose rows are not cached; the other rows are marked as used."""
        self._missing_rows = find_missing_rows(expansion.cache, self.chosen)
        return expansion.order()[self._missing_rows]

    def put(self, expansion: Expansion, rows: Floats) -> None:
        """Cache the rows that were missing."""
        expansion.put_rows(expansion.cache, self._missing_rows, rows)

    def solve(self, expansion: Expansion) -> None:
        """Solve the problem of the block, and update the scores of all patterns."""
        chosen, plain = self.chosen, self.machine._replace(zero_sum=False)
        values = gather_values(expansion.cache, chosen)
        np.fill_diagonal(values, expansion.working.diagonal[chosen])
        # Indexing columns gives arrays that are not C-contiguous, for which LLVM does not vectorise.
        before, alpha = self.alpha[:, chosen], np.ascontiguousarray(self.alpha[:, chosen])
        worst = self.violations()[chosen].max(initial=0.0)
        self.steps += solve_block(
            self.machine,
            values,
            alpha,
            np.ascontiguousarray(self.score[:, chosen]),
            self._mean()[chosen],
            self.label[chosen],
            self.bound[chosen],
            max(self.tau, INNER_SHARE * worst),
            INNER_STEPS * len(chosen),
        )
        self.alpha[:, chosen] = alpha
        amounts = coefficients(plain, alpha - before, self.label[chosen])
        for m in range(len(amounts)):
            moved = np.flatnonzero(amounts[m])
            expansion.subtract_cached(expansion.cache, chosen[moved], -amounts[m, moved], self.score[m])

    def outcome(self) -> Outcome:
        """Return the result so far; there is no bias."""
        return Outcome(
            coefficients(self.machine, self.alpha, self.label),
            np.zeros((self.machine.classes, 2)),
            np.array([self.violations().max(initial=0.0)]),
            np.array([self.dual()]),
        )


@njit()
def gather_values(cache: RowCache, places: Ints) -> Floats:  # pragma: no cover
    """Return the kernel values among some members, from their cached rows.

    For a small block this is cheaper than computing a tile; for the larger blocks of LASVM's finishing it would not be.
    """
    values = np.empty((len(places), len(places)), cache.pages.dtype)
    pages, table = cache.pages, cache.table
    block, offset = places // PAGE, places % PAGE
    for a in range(len(places)):
        place = places[a]
        for b in range(len(places)):
            values[a, b] = pages[table[place, block[b]], offset[b]]
    return values
