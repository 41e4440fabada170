"""What every kernel classifier of this project shares: validation at the door, prediction, certificates."""

from operator import index
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data

from dasksvm.data.chunked import is_dask, is_sparse
from dasksvm.data.coding import Coding
from dasksvm.data.dataset import Dataset
from dasksvm.data.sources import DaskSource, DatasetSource, MemorySource, Source
from dasksvm.estimators.certificate import Certificate, Judge, Question, hinge, tally
from dasksvm.estimators.problem import Problem, in_memory
from dasksvm.model.kernel_model import KernelModel

FLOATS = [np.float64, np.float32]


class KernelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the kernel classifiers; a subclass fits and sets `model_` and `classes_`."""

    model_: KernelModel
    classes_: NDArray[Any]
    support_: NDArray[np.int64]
    feature_names_in_: NDArray[Any]

    def __sklearn_tags__(self) -> Any:
        """Declare sparse input."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # Prediction

    def decision_function(self, X: Any) -> Any:
        """Compute the signed distance to the boundary, in kernel units.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path

        Returns
        -------
        ndarray or dask.array.Array of shape (n,), or (n, P) for more than two classes
            Of two classes, positive for the second; else of each class, against the rest or in a machine of them all, or of
            each pair of classes, positive for the first of them. Lazy for Dask arrays and data sets, with the model as one
            key of the graph.
        """
        check_is_fitted(self, "model_")
        X = self._rows_of(X)
        values = self.model_.decision_function(X if is_dask(X) else self._check_rows(X))
        return values[:, 0] if len(self.model_.coefficients) == 1 else values

    def predict(self, X: Any) -> Any:
        """Predict the class of each row.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path

        Returns
        -------
        ndarray or dask.array.Array of shape (n,)
        """
        check_is_fitted(self, "model_")
        X = self._rows_of(X)
        return self.model_.predict(X if is_dask(X) else self._check_rows(X))

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Compute the accuracy.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path
        y : array of shape (n,)
            None for a data set, which has its own.
        sample_weight : array of shape (n,), optional
        """
        X = opened(X)
        if isinstance(X, Dataset):
            if y is not None:
                raise ValueError("y must be None: a data set has its own labels.")
            y = X.needs_labels().as_dask()[1]
        arrays = (np.asarray(array) if is_dask(array) else array for array in (y, self.predict(X)))
        return float(accuracy_score(*arrays, sample_weight=sample_weight))

    def _rows_of(self, X: Any) -> Any:
        """Give the rows of a data set or its path as a Dask array, with the columns as they were in training."""
        X = opened(X)
        return X.with_features(self._names).as_dask()[0] if isinstance(X, Dataset) else X

    def _check_rows(self, X: Any) -> Any:
        return _summed(validate_data(self, X, accept_sparse="csr", dtype="numeric", reset=False))

    @property
    def dual_objective_(self) -> float:
        """Dual objective, evaluated in float64 from the support vectors: W(α) of paper 1, equation 4, or D(α) of paper 5, (5.4).

        Of several problems, their sum.
        """
        check_is_fitted(self, "model_")
        return self._dual()[0]

    def duality_gap(self, X: Any, y: Any = None, sample_weight: Any = None) -> tuple[float, float, float]:
        """Compute what separates this model from the optimum on a set: the first three numbers of `certificate`.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path
        y : array of shape (n,)
            None for a data set, which has its own.
        sample_weight : array of shape (n,), optional

        Returns
        -------
        primal, dual, gap : float
        """
        found = self.certificate(X, y, sample_weight, worst=0)
        return found.primal, found.dual, found.gap

    def certificate(self, X: Any, y: Any = None, sample_weight: Any = None, worst: int = 10) -> Certificate:
        """Compute what separates this model from the optimum on a set, and which rows violate it most, in float64.

        Chunks of Dask arrays and data sets are judged where they are read: on the estimator's client, the current one, or the
        threads of this process, which also judge arrays in memory, block by block.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path
            The training set, its rows in the order in which they were given: a row has the coefficient of the support vector
            with its number in `support_`, and 0 if there is none. Of other rows the primal counts, and nothing else.
        y : array of shape (n,)
            None for a data set, which has its own.
        sample_weight : array of shape (n,), optional
            As in `fit`.
        worst : int, default=10
            Violating rows that are listed, at most.

        Returns
        -------
        Certificate
            Its primal has the loss max(0, 1 - y f(x)), or that of a multi-class machine. With y f(x) = m a row violates a
            two-class problem by max(0, 1 - m) where its coefficient is 0, max(0, m - 1) where it is C_i, and |1 - m| in
            between; a machine by its largest derivative along a feasible direction of the row's variables.
        """
        check_is_fitted(self, "model_")
        if index(worst) < 0:
            raise ValueError(f"worst must be a number of rows, 0 or more. Got {worst!r} instead.")
        problem = self._problem(X, y, sample_weight, self.classes_, reset=False)
        alpha, judge = self._judge()
        question = Question(self.model_, self._coding(problem), judge, self.support_, alpha, index(worst))
        # First, since it makes the features that the threads of this process then share.
        dual, half_norm = self._dual()
        with self._cluster(problem.source) as client:
            return tally(question, problem.source, problem.columns, client).certify(dual, half_norm)

    def _dual(self) -> tuple[float, float]:
        """The dual objective, and the part ½|w|² of it and of the primal."""
        half_norm = 0.5 * float(self.model_.squared_norms().sum())
        return float(np.abs(self.model_.coefficients).sum()) - half_norm, half_norm

    def _judge(self) -> tuple[NDArray[np.float64], Judge]:
        """The dual variables of the support vectors, and how rows are judged by them."""
        return self.model_.coefficients, hinge

    def _cluster(self, source: Source) -> Any:
        """A context with the client that works on a source, or None."""
        raise NotImplementedError

    def _coding(self, problem: Problem) -> Coding:
        """The two-class problems that this estimator makes of the classes."""
        raise NotImplementedError

    # The door

    def _problem(
        self, X: Any, y: Any, sample_weight: Any, classes: NDArray[Any] | None = None, *, reset: bool
    ) -> Problem:
        """Validate rows and labels; the classes are those of the labels if they are not known yet."""
        X = opened(X)
        if isinstance(X, Dataset):
            if y is not None or sample_weight is not None:
                raise ValueError("y and sample_weight must be None: a data set has its own.")
            X = self._check_features(X.needs_labels(), reset)
            self._check_classes(X.classes)
            if classes is not None and not np.array_equal(classes, X.classes):
                raise ValueError(f"{X.path} has the classes {X.classes!r}, expected {classes!r}.")
            return Problem(DatasetSource(X), X, X.classes, X.class_counts)
        y = self._check_labels(X, y)
        source = self._source(X, reset=reset)
        known = np.unique(y) if classes is None else classes
        self._check_classes(known)
        if not np.all(np.isin(y, known)):
            raise ValueError(f"y has labels that are not in classes {known!r}.")
        return in_memory(source, y, known, sample_weight)

    @property
    def _names(self) -> list[str] | None:
        """The feature names of the training rows, where they had some."""
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else names.tolist()

    def _check_features(self, X: Dataset, reset: bool) -> Dataset:
        """Note the features of a data set, or bring its columns into the order of those that were noted."""
        if not reset:
            X = X.with_features(self._names)
        elif X.names is not None:
            self.feature_names_in_ = np.array(X.names, object)
        self._check_width(X.shape[1], reset)
        return X

    def _check_width(self, width: int, reset: bool) -> None:
        if reset:
            self.n_features_in_ = width
        elif width != self.n_features_in_:
            raise ValueError(f"X has {width} features, but {self.n_features_in_} were expected.")

    def _source(self, X: Any, *, reset: bool) -> Source:
        """Validate the rows without copying them."""
        if is_dask(X):
            if not hasattr(X, "blocks") or X.ndim != 2:
                raise ValueError(f"Expected a Dask array with 2 dimensions, got {type(X).__name__}.")
            self._check_width(X.shape[1], reset)
            return DaskSource(X, _check_block)
        X = _summed(validate_data(self, X, accept_sparse="csr", dtype="numeric", reset=reset))
        return MemorySource(X.astype(np.float64) if X.dtype == np.bool_ else X)

    def _check_labels(self, X: Any, y: Any) -> NDArray[Any]:
        """Validate labels that come with X."""
        if y is None:
            raise ValueError(f"requires y to be passed, but the target y is None: {type(self).__name__} needs labels.")
        if is_dask(y):
            y = y.compute()
        if sp.issparse(y):
            raise ValueError("y must be a dense array of labels.")
        y = column_or_1d(y, warn=True)
        if y.dtype.kind == "f":
            assert_all_finite(y, input_name="y")
        check_classification_targets(y)
        if not is_dask(X):
            check_consistent_length(X, y)
        return np.asarray(y)

    def _check_classes(self, classes: NDArray[Any]) -> None:
        if len(classes) < 2:
            raise ValueError(f"The number of classes has to be greater than one; got {len(classes)} class")

    def _forget(self) -> Self:
        """Leave nothing that was fitted."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("__")]:
            delattr(self, name)
        return self


def opened(X: Any) -> Any:
    """Open a data set where X is its path."""
    return Dataset.open(X) if isinstance(X, (str, Path)) else X


def _check_block(block: Any) -> Any:
    return _summed(check_array(block, accept_sparse="csr", dtype="numeric"))


def _summed(X: Any) -> Any:
    """Give sparse rows with one entry a feature: SciPy allows several, which count together."""
    if is_sparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X
