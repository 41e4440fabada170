"""How far a violation may yet move: what was seen of the last batches says which candidates can be left out.

The state moves on between the scoring of a batch and its use. A candidate whose violation is so far below τ that it would have to
rise by more than nearly all violations did lately is left out, and its row need not cross the network. This is a guess: of the
candidates of a batch one in a hundred may move further, and one that would have entered is lost for this pass.
"""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.state.capture import Stateful

QUANTILE, BATCHES = 0.99, 4


class Slack(Stateful):
    """The largest of the last batches' moves, leaving the one candidate in a hundred of each that moved furthest aside.

    Parameters
    ----------
    problems : int
    """

    STATE = ("seen",)

    def __init__(self, problems: int) -> None:
        self.problems = problems
        self.seen: list[NDArray[np.float64]] = []

    def note(self, moves: NDArray[np.float64]) -> None:
        """Take in the moves of a batch's candidates, of shape (P, K); what is not finite is unknown."""
        rows = [row[np.isfinite(row)] for row in moves]
        seen = [max(float(np.quantile(row, QUANTILE)), 0.0) if len(row) else 0.0 for row in rows]
        self.seen = [*self.seen, np.array(seen)][-BATCHES:]

    def now(self) -> NDArray[np.float64]:
        """What a violation may rise by in each problem; inf while little is known."""
        if len(self.seen) < BATCHES:
            return np.full(self.problems, np.inf)
        largest: NDArray[np.float64] = np.max(self.seen, axis=0)
        return largest
