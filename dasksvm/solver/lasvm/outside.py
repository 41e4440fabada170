"""What the examples outside a finished S say: how far they violate, and the bias where S alone leaves it open."""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.messages import CandidateBatch
from dasksvm.solver.state.capture import Stateful

Values = NDArray[np.float64]


class Outside(Stateful):
    """The gradients of examples outside S, as a last look at the training set finds them.

    Parameters
    ----------
    problems : int
    count : int
        Examples of the set, where all of their gradients are kept; 0 where their extremes are enough.

    Attributes
    ----------
    extremes : ndarray of float64, shape (P, 2)
        The largest gradient that may rise, and the smallest that may fall.
    gradient, weight : ndarray of float64, shape (P, count)
        The gradient and the signed C_i of each example; 0 for members and for examples that take no part.
    """

    STATE = ("extremes", "gradient", "weight")

    def __init__(self, problems: int, count: int) -> None:
        self.extremes: Values = np.tile([-np.inf, np.inf], (problems, 1))
        self.gradient: Values = np.zeros((problems, count))
        self.weight: Values = np.zeros((problems, count))

    def note(self, result: CandidateBatch, held: NDArray[np.bool_], base: int) -> None:
        """Take in a batch.

        Parameters
        ----------
        result : CandidateBatch
        held : ndarray of bool, shape (P, m)
            Which of its examples are members of which problem.
        base : int
            Id of the first example of the set.
        """
        outside = ~held & (result.bound > 0)
        gradient = result.sign - result.margins
        rising = np.where(outside & (result.sign > 0), gradient, -np.inf).max(axis=1, initial=-np.inf)
        falling = np.where(outside & (result.sign < 0), gradient, np.inf).min(axis=1, initial=np.inf)
        top, bottom = self.extremes.T
        self.extremes = np.stack([np.maximum(top, rising), np.minimum(bottom, falling)], axis=1)
        if self.gradient.shape[1]:
            at = result.examples - base
            self.gradient[:, at] = gradient
            self.weight[:, at] = np.where(outside, result.sign * result.bound, 0.0)


def best_bias(gradient: Values, weight: Values) -> tuple[float, float]:
    """Find the biases b that minimise Σ C_i max(0, 1 - y_i (f(x_i) + b)): the ends of their range.

    With g_i = y_i - f(x_i) the loss of an example is C_i max(0, y_i (g_i - b)). Its slope in b is the weight of the negative
    examples with g_i < b less that of the positive ones with g_i > b, which rises by C_i at each g_i: the best b is the
    gradient at which the sum of all C_i from below reaches the sum over the positive examples. At the optimum of the whole set
    this is the range that paper 1 takes b from (equation 10); short of it, the extremes say little about a good b.

    Parameters
    ----------
    gradient, weight : ndarray of float64, shape (n,)
        The weight is C_i, with the sign of the label.
    """
    taken = np.flatnonzero(weight)
    order = taken[np.argsort(gradient[taken], kind="stable")]
    below = np.cumsum(np.abs(weight[order]))
    wanted = float(weight[weight > 0].sum())
    # Sums that differ by rounding only are equal.
    tolerance = 1e-9 * float(below[-1])
    at = min(int(np.searchsorted(below, wanted - tolerance)), len(order) - 1)
    low = float(gradient[order[at]])
    last = below[at] > wanted + tolerance or at + 1 == len(order)
    return low, low if last else float(gradient[order[at + 1]])
