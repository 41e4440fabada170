"""The examples outside a finished S: how far they violate, and the bias if S alone does not determine it."""

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import Values
from dasksvm.solver.messages import CandidateBatch
from dasksvm.solver.state.capture import Stateful


class Outside(Stateful):
    """The gradients of examples outside S, from the last pass over the training set, after finishing.

    Parameters
    ----------
    problems : int
    count : int
        Number of examples if the gradients of all of them are kept; 0 if only their extremes are.

    Attributes
    ----------
    extremes : ndarray of float64, shape (P, 2)
        The largest gradient of a positive example (its α may rise) and the smallest of a negative one (its α may fall).
    gradient, weight : ndarray of float64, shape (P, count)
        The gradient and the signed C_i of each example; the weight is 0 for members and for examples not in the problem.
    """

    STATE = ("extremes", "gradient", "weight")

    def __init__(self, problems: int, count: int) -> None:
        self.extremes: Values = np.tile([-np.inf, np.inf], (problems, 1))
        self.gradient: Values = np.zeros((problems, count))
        self.weight: Values = np.zeros((problems, count))

    def record(self, result: CandidateBatch, held: NDArray[np.bool_], base: int) -> None:
        """Record the gradients of a batch.

        Parameters
        ----------
        result : CandidateBatch
        held : ndarray of bool, shape (P, m)
            Whether each example of the batch is a member, by problem.
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
    """Find the range of the biases b that minimise Σ C_i max(0, 1 - y_i (f(x_i) + b)).

    With g_i = y_i - f(x_i), the loss of an example is C_i max(0, y_i (g_i - b)). The slope of the total loss in b is the sum of
    C_i over negative examples with g_i < b minus the sum over positive examples with g_i > b, and it increases by C_i at each
    g_i. So the best b is the gradient at which the cumulative sum of C_i, in ascending order of g_i, reaches the sum over all
    positive examples. At the optimum for the whole set this is the range of b in paper 1 (equation 10); before the optimum is
    reached, the extremes of equation 10 may be far from the best b.

    Parameters
    ----------
    gradient, weight : ndarray of float64, shape (n,)
        The weight is C_i with the sign of the label.

    Returns
    -------
    low, high : float
        The ends of the range.
    """
    taken = np.flatnonzero(weight)
    order = taken[np.argsort(gradient[taken], kind="stable")]
    below = np.cumsum(np.abs(weight[order]))
    positive_sum = float(weight[weight > 0].sum())
    # Sums that differ only by rounding count as equal.
    tolerance = 1e-9 * float(below[-1])
    at = min(int(np.searchsorted(below, positive_sum - tolerance)), len(order) - 1)
    low = float(gradient[order[at]])
    last = below[at] > positive_sum + tolerance or at + 1 == len(order)
    return low, low if last else float(gradient[order[at + 1]])
