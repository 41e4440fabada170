"""What every kernel classifier of this project shares: validation at the door, prediction, certificates."""

from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import assert_all_finite
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets, type_of_target
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d, validate_data

from dasksvm.estimators.sources import DaskSource, MemorySource, is_dask
from dasksvm.model import CHUNK_ROWS, KernelModel

FLOATS = [np.float64, np.float32]


class KernelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Base of the binary kernel classifiers; a subclass fits and sets `model_` and `classes_`."""

    model_: KernelModel
    classes_: NDArray[Any]

    def __sklearn_tags__(self) -> Any:
        """Declare sparse input, and two classes only."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.classifier_tags.multi_class = False
        return tags

    # Prediction

    def decision_function(self, X: Any) -> Any:
        """Compute the signed distance to the boundary, in kernel units.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d)

        Returns
        -------
        ndarray or dask.array.Array of shape (n,)
            Positive for `classes_[1]`. Lazy for Dask input, with the model as one key of the graph.
        """
        check_is_fitted(self, "model_")
        if is_dask(X):
            return self._lazily(X, _decide, np.float64)
        return self.model_.decision_function(self._check_rows(X))[:, 0]

    def predict(self, X: Any) -> Any:
        """Predict the class of each row.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d)

        Returns
        -------
        ndarray or dask.array.Array of shape (n,)
        """
        check_is_fitted(self, "model_")
        if is_dask(X):
            return self._lazily(X, _predict, self.classes_.dtype)
        return self.classes_[(self.decision_function(X) > 0).astype(np.intp)]

    def _check_rows(self, X: Any) -> Any:
        return validate_data(self, X, accept_sparse="csr", dtype="numeric", reset=False)

    def _lazily(self, X: Any, function: Any, dtype: Any) -> Any:
        from dask.delayed import delayed

        if X.shape[1] != self.n_features_in_:
            raise ValueError(
                f"X has {X.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features as input."
            )
        X = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
        model = delayed(self.model_, pure=True)
        return X.map_blocks(
            function, model, dtype=dtype, drop_axis=1, meta=np.empty(0, dtype), name=function.__name__[1:]
        )

    @property
    def dual_objective_(self) -> float:
        """Dual objective W(α) of paper 1, equation 4, evaluated in float64 from the support vectors."""
        check_is_fitted(self, "model_")
        return float(self.model_.dual_objectives()[0])

    def duality_gap(self, X: Any, y: Any, sample_weight: Any = None) -> tuple[float, float, float]:
        """Compute what separates this model from the optimum on a set, chunk by chunk, in float64.

        Parameters
        ----------
        X : ndarray, csr_matrix or dask.array.Array of shape (n, d)
        y : array of shape (n,)
        sample_weight : array of shape (n,), optional

        Returns
        -------
        primal, dual, gap : float
            ½|w|² + Σ C_i max(0, 1 - y f(x)), the dual objective, and their difference.
        """
        check_is_fitted(self, "model_")
        source = self._source(X, reset=False)
        y = self._check_labels(X, y)
        if not np.all(np.isin(y, self.classes_)):
            raise ValueError(f"y has labels that are not in classes {self.classes_!r}.")
        sign = np.where(y == self.classes_[1], 1.0, -1.0)
        bound = self._bounds(sign, sample_weight)
        losses, start = 0.0, 0
        for part in source.parts():
            for at in range(0, part.shape[0], CHUNK_ROWS):
                rows = part[at : at + CHUNK_ROWS].astype(np.float64)
                here = slice(start + at, start + at + rows.shape[0])
                margin = sign[here] * self.model_.decision_function(rows)[:, 0]
                losses += float(bound[here] @ np.maximum(0.0, 1.0 - margin))
            start += part.shape[0]
        norm = float(self.model_.squared_norms()[0])
        dual = float(np.abs(self.model_.coefficients).sum()) - 0.5 * norm
        primal = 0.5 * norm + losses
        return primal, dual, primal - dual

    # The door

    def _source(self, X: Any, *, reset: bool) -> MemorySource | DaskSource:
        """Validate the rows without copying them."""
        if is_dask(X):
            if not hasattr(X, "blocks") or X.ndim != 2:
                raise ValueError(f"Expected a Dask array with 2 dimensions, got {type(X).__name__}.")
            if reset:
                self.n_features_in_ = X.shape[1]
            elif X.shape[1] != self.n_features_in_:
                raise ValueError(f"X has {X.shape[1]} features, but {self.n_features_in_} were expected.")
            return DaskSource(X, _check_block)
        X = validate_data(self, X, accept_sparse="csr", dtype="numeric", reset=reset)
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

    def _check_classes(self, classes: NDArray[Any], y: NDArray[Any]) -> None:
        if len(classes) > 2:
            raise ValueError(
                f"Only binary classification is supported. The type of the target is {type_of_target(y)}: "
                f"{len(classes)} classes."
            )
        if len(classes) < 2:
            raise ValueError(f"The number of classes has to be greater than one; got {len(classes)} class")

    def _bounds(self, sign: NDArray[np.float64], sample_weight: Any) -> NDArray[np.float64]:
        """Fold C, the weights of the examples and those of the classes into one box C_i an example."""
        bound = np.full(len(sign), float(self.C))
        if self.class_weight is not None:
            labels = self.classes_[(sign > 0).astype(np.intp)]
            weights = compute_class_weight(self.class_weight, classes=self.classes_, y=labels)
            bound *= np.where(sign > 0, weights[1], weights[0])
        if sample_weight is not None:
            weights = np.asarray(sample_weight.compute() if is_dask(sample_weight) else sample_weight, np.float64)
            if weights.ndim == 0:
                weights = np.full(len(sign), float(weights))
            if weights.ndim != 1:
                raise ValueError("Sample weights must be 1D array or scalar")
            if len(weights) != len(sign):
                raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(len(sign),)}!")
            if not np.all(np.isfinite(weights)) or np.any(weights < 0):
                raise ValueError("sample_weight must be finite and not negative.")
            if not np.any(weights > 0):
                raise ValueError("sample_weight is zero for every example.")
            bound *= weights
        return bound

    def _forget(self) -> Self:
        """Leave nothing that was fitted."""
        for name in [name for name in vars(self) if name.endswith("_") and not name.startswith("__")]:
            delattr(self, name)
        return self


def _check_block(block: Any) -> Any:
    return check_array(block, accept_sparse="csr", dtype="numeric")


def _decide(block: Any, model: KernelModel) -> NDArray[np.float64]:
    if not block.shape[0]:
        return np.empty(0)
    return model.decision_function(_check_block(block))[:, 0]


def _predict(block: Any, model: KernelModel) -> NDArray[Any]:
    return model.classes[(_decide(block, model) > 0).astype(np.intp)]
