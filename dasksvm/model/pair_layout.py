"""How LIBSVM, and scikit-learn with it, lay out the coefficients of pairs of classes.

A support vector belongs to a class i and has a coefficient for each other class j: its part in the problem of i and j. So the
support vectors of a class follow each other, and there are c - 1 rows of coefficients, one for each other class in order. The
value of a problem speaks for the first of its two classes where it is positive; of two classes there is one problem.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import Ints

Values = NDArray[np.float64]


class Layout(NamedTuple):
    """Coefficients by class.

    Attributes
    ----------
    rows : ndarray of int64, shape (m,)
        The support vector at each place.
    counts : ndarray of int64, shape (c,)
        Places of each class.
    coefficients : ndarray of float64, shape (c - 1, m)
    """

    rows: Ints
    counts: Ints
    coefficients: Values


def by_class(coefficients: Values, classes: int) -> Layout:
    """Lay out the coefficients of all pairs of classes, in lexicographic order, shape (P, S).

    A support vector is of the first class of a pair where its coefficient is positive, else of the second; one that is
    of several classes, which training does not leave, takes a place in each, and one without coefficients takes none.
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
    """Give the coefficients of each pair of classes, shape (P, m), of a layout's."""
    classes = len(counts)
    pairs = np.zeros((classes * (classes - 1) // 2, coefficients.shape[1]))
    ends = np.cumsum(counts)
    for code in range(classes):
        own = slice(ends[code] - counts[code], ends[code])
        pairs[_problems_of(code, classes), own] = coefficients[:, own]
    return pairs


def _problems_of(code: int, classes: int) -> Ints:
    """List the problems of a class, by the other class."""
    first, second = np.triu_indices(classes, 1)
    return np.flatnonzero((first == code) | (second == code))
