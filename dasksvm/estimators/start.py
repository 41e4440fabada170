"""Where a batch solver begins: the coefficients of a model of the same rows, made feasible."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted

from dasksvm.data.sources import DatasetSource, Examples, Source
from dasksvm.estimators._fitting import LearnedClassifier
from dasksvm.model.scikit_learn import coefficients_of
from dasksvm.solver.kernels.features import Ints

Values = NDArray[np.float64]
# Sums of the two sides that differ by a smaller share are equal but for rounding.
EQUAL = 1e-12


@dataclass(frozen=True)
class Start:
    """The coefficients of a fitted model.

    Attributes
    ----------
    rows : ndarray of int64, shape (S,)
        Numbers of its support vectors for the user.
    alpha : ndarray of float64, shape (P, S)
    classes : ndarray of shape (c,)
    pairwise : bool
        Whether its problems are the pairs of classes.
    """

    rows: Ints
    alpha: Values
    classes: NDArray[Any]
    pairwise: bool

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Take the coefficients of an estimator of this package, or of scikit-learn's SVC, whose several classes are pairs."""
        if not isinstance(estimator, (LearnedClassifier, SVC)):
            raise ValueError(
                f"start must be a fitted estimator of dasksvm or scikit-learn's SVC. Got {type(estimator).__name__} instead."
            )
        check_is_fitted(estimator, "support_")
        own = isinstance(estimator, LearnedClassifier)
        alpha = np.asarray(estimator.dual_coef_, np.float64) if own else coefficients_of(estimator)
        rows = np.asarray(estimator.support_, np.int64)
        pairwise = estimator.model_.pairwise if own else len(estimator.classes_) > 2
        return cls(rows, alpha, estimator.classes_, pairwise)

    def place(self, examples: Examples, classes: NDArray[Any], pairwise: bool) -> tuple[Ints, Values]:
        """Give the examples that have coefficients, and these, made feasible, shape (P, m).

        Parameters
        ----------
        examples : Examples
            Of the run that is to begin.
        classes : ndarray of shape (c,)
            Its classes.
        pairwise : bool
            Whether its problems are the pairs of them.
        """
        if not np.array_equal(self.classes, classes):
            raise ValueError(f"start has the classes {self.classes!r}, expected {classes!r}.")
        if len(self.alpha) != examples.coding.problems or self.pairwise != pairwise:
            shapes = [
                f"{count} problems, {'pairs of classes' if pairs else 'each class against the rest'}"
                for count, pairs in ((len(self.alpha), self.pairwise), (examples.coding.problems, pairwise))
            ]
            raise ValueError(f"start has {shapes[0]}; expected {shapes[1]}.")
        ids = _ids(examples.source, self.rows)
        if len(ids) and not 0 <= ids.min() <= ids.max() < sum(examples.source.chunks):
            raise ValueError(
                "start has support vectors that are no rows of X: it must have been trained on the same rows."
            )
        ids = ids + examples.base
        _, sign, bound = examples.targets(ids)
        alpha = feasible(self.alpha, sign, bound)
        kept = np.flatnonzero(alpha.any(axis=0))
        return ids[kept], alpha[:, kept]


def _ids(source: Source, rows: Ints) -> Ints:
    """Give the places in a source of rows with the numbers that they have for the user; -1 where there is none."""
    return source.data.ids_of(rows) if isinstance(source, DatasetSource) else rows


def feasible(alpha: Values, sign: Values, bound: Values) -> Values:
    """Bring coefficients into their boxes, and their sums to 0 by scaling down the larger side.

    Parameters
    ----------
    alpha : ndarray of float64, shape (P, m)
        With the sign of the label; those of the wrong sign become 0.
    sign, bound : ndarray of float64, shape (P, m)
        Labels and C_i.
    """
    clipped = np.clip(alpha, np.minimum(0.0, sign * bound), np.maximum(0.0, sign * bound))
    rise, fall = np.maximum(clipped, 0.0).sum(axis=1), np.maximum(-clipped, 0.0).sum(axis=1)
    least, most = np.minimum(rise, fall), np.maximum(rise, fall)
    share = np.divide(least, most, out=np.ones_like(most), where=most - least > EQUAL * most)
    larger = np.where((rise > fall)[:, None], clipped > 0.0, clipped < 0.0)
    found: Values = np.where(larger, clipped * share[:, None], clipped)
    return found
