"""The coefficients that a batch solver begins with."""

import numpy as np

from dasksvm.solver.kernels.features import Ints, Values
from dasksvm.solver.state.capture import Stateful


class StartingPoint(Stateful):
    """Coefficients of some examples, within their boxes and with sum 0 in each problem; those of all others are 0.

    Parameters
    ----------
    examples : ndarray of int64, shape (S,)
    alpha : ndarray of float64, shape (P, S)
    """

    STATE = ("examples", "alpha")

    def __init__(self, examples: Ints, alpha: Values) -> None:
        order = np.argsort(examples)
        self.examples, self.alpha = examples[order], alpha[:, order]

    @classmethod
    def zero(cls, problems: int) -> "StartingPoint":
        """Return the starting point at which all coefficients are 0."""
        return cls(np.zeros(0, np.int64), np.zeros((problems, 0)))

    def __len__(self) -> int:
        return len(self.examples)

    def of(self, examples: Ints) -> Values:
        """Return the coefficients of some examples, shape (P, m)."""
        found = np.zeros((len(self.alpha), len(examples)))
        if len(self):
            at = np.minimum(np.searchsorted(self.examples, examples), len(self) - 1)
            hit = self.examples[at] == examples
            found[:, hit] = self.alpha[:, at[hit]]
        return found
