"""Metrics used in the papers (paper 2, section 8.1) that scikit-learn does not have."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def break_even(positive: ArrayLike, values: ArrayLike) -> float:
    """Compute the break-even point of precision and recall (PRBEP).

    The threshold is chosen so that as many rows are predicted positive as are positive; precision and recall are then equal.

    Parameters
    ----------
    positive : array of bool, shape (n,)
        Whether each row is positive.
    values : array of float, shape (n,)
        Decision values. If several are equal to the threshold, each counts with the share of them that is predicted positive.

    Returns
    -------
    float
        nan if no row is positive.

    Examples
    --------
    >>> break_even([True, False, True, False], [2.0, 1.0, 0.5, -1.0])
    0.5
    """
    truth, value = np.asarray(positive, np.bool_), np.asarray(values, np.float64)
    called = int(np.count_nonzero(truth))
    if called == 0:
        return float("nan")
    threshold = -np.partition(-value, called - 1)[called - 1]
    above, level = value > threshold, value == threshold
    share = (called - np.count_nonzero(above)) / np.count_nonzero(level)
    return float((np.count_nonzero(truth & above) + share * np.count_nonzero(truth & level)) / called)


def geometric_mean(confusion: NDArray[Any]) -> float:
    """Compute g-means, the geometric mean of the accuracies of the classes (of sensitivity and specificity for two classes).

    Parameters
    ----------
    confusion : ndarray of int, shape (c, c)
        Number of rows of each class that were predicted as each class; classes without rows are ignored.

    Examples
    --------
    >>> round(geometric_mean(np.array([[90, 10], [60, 40]])), 6)
    0.6
    """
    counts = confusion.sum(axis=1)
    share = confusion.diagonal()[counts > 0] / counts[counts > 0]
    return float(np.prod(share) ** (1.0 / len(share)))
