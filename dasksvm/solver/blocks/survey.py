"""Surveys: the decision values of all examples, brought up to date by what has changed since the last survey.

A pass that looks at all examples for violations computes n · |S| kernel values. If the decision values of the last such pass are
remembered, only the members whose coefficients have changed since then are needed, and these soon are few.
"""

import numpy as np

from dasksvm.solver.kernels.features import Flags, Ints, Values
from dasksvm.solver.state.capture import Stateful

# A survey is made instead of a pass over some examples if it computes at most this many times as many kernel values, because it
# makes the next one cheaper.
WORTH = 2.0


class Survey(Stateful):
    """What is known about all examples.

    Parameters
    ----------
    problems, count : int
        Number of problems and of examples.

    Attributes
    ----------
    margins : ndarray of float64, shape (P, n)
        Decision values without the bias, for the coefficients `alpha`.
    alpha : ndarray of float64, shape (P, V)
        Coefficients by place at the time of the last survey. Their members must keep their places until the next one.
    squares : float
        Σ (change of a coefficient)² over all surveys, the largest of the problems: rounding errors grow with its root.
    """

    STATE = ("margins", "alpha", "squares")

    def __init__(self, problems: int, count: int) -> None:
        self.margins: Values = np.zeros((problems, count))
        self.alpha: Values = np.zeros((problems, 0))
        self.squares = 0.0

    def change(self, weights: Values) -> Values:
        """Return by how much the coefficients, of shape (P, V), have changed since the last survey."""
        change = weights.copy()
        change[:, : self.alpha.shape[1]] -= self.alpha
        return change

    def pays(self, weights: Values, outside: int, rows: int | None) -> bool:
        """Decide whether to survey `outside` examples instead of scoring some examples, or all of them if `rows` is None."""
        if rows is None:
            return True
        changed, used = (np.count_nonzero(each.any(axis=0)) for each in (self.change(weights), weights))
        return bool(outside * min(changed, used) <= WORTH * rows * used)

    def begin(self, weights: Values) -> None:
        """Begin a survey for some coefficients: from nothing, if more of them have changed than are not 0."""
        change = self.change(weights)
        if np.count_nonzero(change.any(axis=0)) >= np.count_nonzero(weights.any(axis=0)):
            self.margins[:] = 0.0
            self.alpha, self.squares, change = self.alpha[:, :0], 0.0, weights
        self.squares += float((change**2).sum(axis=1).max(initial=0.0))

    def record(self, at: Ints, change: Values) -> Values:
        """Record by how much the decision values of some examples have changed; return what they are now, shape (P, m)."""
        self.margins[:, at] += change
        return np.asarray(self.margins[:, at])

    def end(self, weights: Values, members: Flags, examples: Ints, gradients: Values, sign: Values) -> None:
        """End a survey.

        Parameters
        ----------
        weights : ndarray of float64, shape (P, V)
            The coefficients that `begin` was called with.
        members : ndarray of bool, shape (P, V)
            Which places are members of which problem; their decision values follow from their gradients.
        examples : ndarray of int64, shape (V,)
            The examples that the members are, -1 for others than those of the survey.
        gradients, sign : ndarray of float64, shape (P, V)
        """
        for margins, own, g, y in zip(self.margins, members & (examples >= 0), gradients, sign, strict=True):
            margins[examples[own]] = y[own] - g[own]
        self.alpha = weights.copy()

    def held_places(self, count: int) -> Flags:
        """Return which of `count` places must keep their members until the next survey."""
        held = np.zeros(count, np.bool_)
        held[: self.alpha.shape[1]] = self.alpha.any(axis=0)
        return held
