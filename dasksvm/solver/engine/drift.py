"""How much a violation may grow between scoring and use, estimated from the last batches.

The state changes between the scoring of a batch and its use. A candidate is left out, and its kernel row is not sent, if its
violation is so far below τ that it would have to grow by more than nearly all violations did in the last batches. This is an
estimate: one candidate in a hundred may change by more, and one that would have entered then does not enter in this pass.
"""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.state.capture import Stateful

QUANTILE, BATCHES = 0.99, 4


class GrowthEstimate(Stateful):
    """The largest growth of a violation in the last batches, ignoring the one percent that grew most in each batch.

    Parameters
    ----------
    problems : int
    """

    STATE = ("growths",)

    def __init__(self, problems: int) -> None:
        self.problems = problems
        self.growths: list[NDArray[np.float64]] = []

    def record(self, moves: NDArray[np.float64]) -> None:
        """Record the growth of the candidates' violations in a batch, shape (P, K); values that are not finite are ignored."""
        rows = [row[np.isfinite(row)] for row in moves]
        growths = [max(float(np.quantile(row, QUANTILE)), 0.0) if len(row) else 0.0 for row in rows]
        self.growths = [*self.growths, np.array(growths)][-BATCHES:]

    def current(self) -> NDArray[np.float64]:
        """Return by how much a violation may grow in each problem; inf until enough batches are recorded."""
        if len(self.growths) < BATCHES:
            return np.full(self.problems, np.inf)
        largest: NDArray[np.float64] = np.max(self.growths, axis=0)
        return largest
