"""Starting point of a batch solver: the coefficients of a model trained on the same rows, made feasible."""

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
# The sums of positive and negative coefficients are taken as equal if they differ by a smaller share: that is rounding.
EQUAL = 1e-12


@dataclass(frozen=True)
class Start:
    """The coefficients of a fitted model.

    Attributes
    ----------
    rows : ndarray of int64, shape (S,)
        Row numbers of its support vectors, as in `support_`.
    alpha : ndarray of float64, shape (P, S)
    classes : ndarray of shape (c,)
    pairwise : bool
        Whether there is a problem for each pair of classes.
    """

    rows: Ints
    alpha: Values
    classes: NDArray[Any]
    pairwise: bool

    @classmethod
    def of(cls, estimator: Any) -> Self:
        """Take the coefficients of an estimator of this package or of scikit-learn's SVC, which trains pairs of classes."""
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
        """Return the ids of the examples with coefficients, and these coefficients, made feasible, shape (P, m).

        Parameters
        ----------
        examples : Examples
            The examples of the run.
        classes : ndarray of shape (c,)
            The classes of the run.
        pairwise : bool
            Whether the run has a problem for each pair of classes.
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
                "start has support vectors that are not rows of X: it must have been trained on the same rows."
            )
        ids = ids + examples.base
        _, sign, bound = examples.targets(ids)
        alpha = feasible(self.alpha, sign, bound)
        kept = np.flatnonzero(alpha.any(axis=0))
        return ids[kept], alpha[:, kept]


def _ids(source: Source, rows: Ints) -> Ints:
    """Return the places in a source of rows that are numbered as in `support_`; -1 if there is no such row."""
    return source.data.ids_of(rows) if isinstance(source, DatasetSource) else rows


def feasible(alpha: Values, sign: Values, bound: Values) -> Values:
    """Clip coefficients to their bounds and make each sum 0 by scaling down the positive or the negative ones.

    Parameters
    ----------
    alpha : ndarray of float64, shape (P, m)
        Coefficients with the sign of the label; those with the wrong sign become 0.
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
