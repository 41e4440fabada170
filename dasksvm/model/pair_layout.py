"""The layout of coefficients for pairs of classes in LIBSVM and scikit-learn.

A support vector of class i has a coefficient for each other class j, which belongs to the problem of i and j. The support
vectors are grouped by class, and there are c - 1 rows of coefficients, one for each other class in order. A positive value of
a problem means the first of its two classes; with two classes there is one problem.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import Ints

Values = NDArray[np.float64]


class Layout(NamedTuple):
    """Coefficients grouped by class.

    Attributes
    ----------
    rows : ndarray of int64, shape (m,)
        The support vector at each place.
    counts : ndarray of int64, shape (c,)
        Number of places of each class.
    coefficients : ndarray of float64, shape (c - 1, m)
    """

    rows: Ints
    counts: Ints
    coefficients: Values


def by_class(coefficients: Values, classes: int) -> Layout:
    """Group by class the coefficients of all pairs of classes, which are in lexicographic order, shape (P, S).

    A support vector belongs to the first class of a pair if its coefficient is positive, and to the second if it is negative. A
    support vector that belongs to several classes, which training does not produce, gets a place in each of them; one without
    coefficients gets none.
    """
    first, second = np.triu_indices(classes, 1)
    places, parts = [], []
    for code in range(classes):
        own = (coefficients > 0) & (first == code)[:, None] | (coefficients < 0) & (second == code)[:, None]
        places.append(np.flatnonzero(own.any(axis=0)))
        parts.append(np.where(own, coefficients, 0.0)[_problems_of(code, classes)][:, places[-1]])
    counts = np.array([len(rows) for rows in places], np.int64)
    return Layout(np.concatenate(places), counts, np.concatenate(parts, axis=1))


def by_pair(coefficients: Values, counts: Ints) -> Values:
    """Return the coefficients of each pair of classes, shape (P, m), from the coefficients of a layout."""
    classes = len(counts)
    pairs = np.zeros((classes * (classes - 1) // 2, coefficients.shape[1]))
    ends = np.cumsum(counts)
    for code in range(classes):
        own = slice(ends[code] - counts[code], ends[code])
        pairs[_problems_of(code, classes), own] = coefficients[:, own]
    return pairs


def _problems_of(code: int, classes: int) -> Ints:
    """List the problems of a class, in the order of the other class."""
    first, second = np.triu_indices(classes, 1)
    return np.flatnonzero((first == code) | (second == code))
