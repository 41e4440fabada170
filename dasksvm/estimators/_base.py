"""Base class of all kernel classifiers: input validation, prediction and certificates."""

from operator import index
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.metrics import accuracy_score
from sklearn.utils.validation import check_is_fitted, validate_data

from dasksvm.data.array_types import ColumnLike, RowsLike
from dasksvm.data.chunked import is_dask
from dasksvm.data.coding import Coding
from dasksvm.data.dataset import Dataset
from dasksvm.data.sources import Source
from dasksvm.estimators.certificate import Certificate, RowEvaluator, RowLoss, evaluate_source, hinge
from dasksvm.estimators.problem import Problem, open_if_path, read_problem, sum_duplicates
from dasksvm.model.kernel_model import KernelModel


class KernelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the kernel classifiers; a subclass fits and sets `model_` and `classes_`."""

    model_: KernelModel
    classes_: NDArray[Any]
    support_: NDArray[np.int64]
    feature_names_in_: NDArray[Any]

    def __sklearn_tags__(self) -> Any:
        """Declare that sparse input is accepted."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    # Prediction

    def decision_function(self, X: RowsLike) -> Any:
        """Compute the decision values: signed, unnormalized distances to the boundary.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path

        Returns
        -------
        ndarray or dask.array.Array of shape (n,), or (n, P) for more than two classes
            With two classes, the value is positive for the second class. With more classes there is one value for each class,
            or for each pair of classes, positive for the first of the pair. Lazy for Dask arrays and data sets, with the model
            as one key of the graph.
        """
        check_is_fitted(self, "model_")
        X = self._rows_of(X)
        values = self.model_.decision_function(X if is_dask(X) else self._check_rows(X))
        return values[:, 0] if len(self.model_.coefficients) == 1 else values

    def predict(self, X: RowsLike) -> Any:
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

    def score(self, X: RowsLike, y: ColumnLike | None = None, sample_weight: ColumnLike | None = None) -> float:
        """Compute the accuracy.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path
        y : array of shape (n,)
            Must be None for a data set, which has its own labels.
        sample_weight : array of shape (n,), optional
        """
        X = open_if_path(X)
        if isinstance(X, Dataset):
            if y is not None:
                raise ValueError("y must be None: a data set has its own labels.")
            y = X.needs_labels().as_dask()[1]
        arrays = (np.asarray(array) if is_dask(array) else array for array in (y, self.predict(X)))
        return float(accuracy_score(*arrays, sample_weight=sample_weight))

    def _rows_of(self, X: RowsLike) -> Any:
        """Return the rows of a data set or its path as a Dask array, with the columns in the order of the training."""
        X = open_if_path(X)
        return X.with_features(self._names).as_dask()[0] if isinstance(X, Dataset) else X

    def _check_rows(self, X: Any) -> Any:
        return sum_duplicates(validate_data(self, X, accept_sparse="csr", dtype="numeric", reset=False))

    @property
    def dual_objective_(self) -> float:
        """Dual objective, computed in float64 from the support vectors: W(α) of paper 1, equation 4, or D(α) of paper 5, (5.4).

        With several two-class problems, their sum.
        """
        check_is_fitted(self, "model_")
        return self._dual()[0]

    def duality_gap(
        self, X: RowsLike, y: ColumnLike | None = None, sample_weight: ColumnLike | None = None
    ) -> tuple[float, float, float]:
        """Compute the primal objective, the dual objective and their gap: the first three numbers of `certificate`.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path
        y : array of shape (n,)
            Must be None for a data set, which has its own labels.
        sample_weight : array of shape (n,), optional

        Returns
        -------
        primal, dual, gap : float
        """
        found = self.certificate(X, y, sample_weight, worst=0)
        return found.primal, found.dual, found.gap

    def certificate(
        self, X: RowsLike, y: ColumnLike | None = None, sample_weight: ColumnLike | None = None, worst: int = 10
    ) -> Certificate:
        """Compute in float64 how far this model is from the optimum on its training set, and which rows violate it most.

        Chunks of Dask arrays and data sets are evaluated where they are read: on the estimator's client, on the current client,
        or by the threads of this process. Arrays in memory are evaluated by the threads of this process, block by block.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d), Dataset or its path
            The training set, with its rows in the same order as in `fit`: a row has the coefficient of the support vector whose
            number in `support_` is the row's, or 0 if there is none. For any other rows, only the primal objective is meaningful.
        y : array of shape (n,)
            Must be None for a data set, which has its own labels.
        sample_weight : array of shape (n,), optional
            As in `fit`.
        worst : int, default=10
            Largest number of violating rows that are listed.

        Returns
        -------
        Certificate
            The loss is max(0, 1 - y f(x)), or that of the multi-class machine. With m = y f(x), a row violates the optimality
            conditions of a two-class problem by max(0, 1 - m) if its coefficient is 0, by max(0, m - 1) if it is C_i, and by
            |1 - m| if it is in between. In a multi-class machine, the violation of a row is the largest derivative of the dual
            objective along a feasible direction of the row's variables.
        """
        check_is_fitted(self, "model_")
        if index(worst) < 0:
            raise ValueError(f"worst must be a number of rows, 0 or more. Got {worst!r} instead.")
        problem = read_problem(self, X, y, sample_weight, self.classes_, reset=False)
        alpha, row_loss = self._row_loss()
        evaluator = RowEvaluator(self.model_, self._coding(problem), row_loss, self.support_, alpha, index(worst))
        # This comes first because it makes the features that the threads of this process then share.
        dual, half_norm = self._dual()
        with self._cluster(problem.source) as client:
            return evaluate_source(evaluator, problem.source, problem.columns, client).certify(dual, half_norm)

    def _dual(self) -> tuple[float, float]:
        """Return the dual objective, and ½|w|², which occurs in it and in the primal objective."""
        half_norm = 0.5 * float(self.model_.squared_norms().sum())
        return float(np.abs(self.model_.coefficients).sum()) - half_norm, half_norm

    def _row_loss(self) -> tuple[NDArray[np.float64], RowLoss]:
        """Return the dual variables of the support vectors, and the function that evaluates rows with them."""
        return self.model_.coefficients, hinge

    def _cluster(self, source: Source) -> Any:
        """Return a context manager for the client that works on a source; it gives None to work in this process."""
        raise NotImplementedError

    def _coding(self, problem: Problem) -> Coding:
        """Return the two-class problems that this estimator makes of the classes."""
        raise NotImplementedError

    @property
    def _names(self) -> list[str] | None:
        """The feature names of the training rows, or None if they had no names."""
        names = getattr(self, "feature_names_in_", None)
        return None if names is None else names.tolist()
