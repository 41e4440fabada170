"""What scikit-learn does not have of the figures that this field reports (paper 2, section 8.1)."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def break_even(positive: ArrayLike, values: ArrayLike) -> float:
    """Compute the break-even point of precision and recall, PRBEP.

    As many rows are called positive as are: then precision and recall are one number.

    Parameters
    ----------
    positive : array of bool, shape (n,)
    values : array of float, shape (n,)
        Decision values. Of equal ones at the threshold each counts with the share of them that is called positive.

    Returns
    -------
    float
        nan where no row is positive.

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
    """Compute g-means: the geometric mean of the classes' accuracies, of two classes of sensitivity and specificity.

    Parameters
    ----------
    confusion : ndarray of int, shape (c, c)
        Rows of each class that were predicted as each class; classes without rows do not count.

    Examples
    --------
    >>> round(geometric_mean(np.array([[90, 10], [60, 40]])), 6)
    0.6
    """
    counts = confusion.sum(axis=1)
    share = confusion.diagonal()[counts > 0] / counts[counts > 0]
    return float(np.prod(share) ** (1.0 / len(share)))
