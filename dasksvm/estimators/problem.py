"""The input of a fit or a certificate, validated: rows, class numbers and weights."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import assert_all_finite
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, column_or_1d, validate_data

from dasksvm.data.array_types import ClassWeights, ColumnLike, RowsLike
from dasksvm.data.chunked import is_dask, is_sparse
from dasksvm.data.dataset import Dataset
from dasksvm.data.sources import DaskSource, DatasetSource, Labels, MemoryLabels, MemorySource, Source


@dataclass(frozen=True)
class Problem:
    """Rows and labels of a training set.

    Attributes
    ----------
    source : Source
    columns : Labels
        Class numbers and weights.
    classes : ndarray of shape (c,)
    counts : ndarray of int64, shape (c,)
        Number of rows of each class.
    """

    source: Source
    columns: Labels
    classes: NDArray[Any]
    counts: NDArray[np.int64]

    def boxes(self, C: float, class_weight: ClassWeights) -> NDArray[np.float64]:
        """Return the bound of the coefficients for each class: C times its weight."""
        if isinstance(class_weight, str) and class_weight == "balanced":
            return float(C) * np.asarray(
                self.counts.sum() / (len(self.classes) * np.maximum(self.counts, 1.0)), np.float64
            )
        return boxes_of(self.classes, C, class_weight)


def read_problem(
    estimator: Any,
    X: RowsLike,
    y: ColumnLike | None,
    sample_weight: ColumnLike | None,
    classes: NDArray[Any] | None = None,
    *,
    reset: bool,
) -> Problem:
    """Validate rows, labels and weights.

    Parameters
    ----------
    estimator : KernelClassifier
        Gets `n_features_in_` and `feature_names_in_`, or has them.
    X, y, sample_weight
        As given to `fit`.
    classes : ndarray of shape (c,), optional
        The classes that there may be; if not given, they are taken from the labels.
    reset : bool
        Whether the features are those of a new fit; otherwise they must be those of the last one.
    """
    X = open_if_path(X)
    if isinstance(X, Dataset):
        if y is not None or sample_weight is not None:
            raise ValueError("y and sample_weight must be None: a data set has its own.")
        X = check_features(estimator, X.needs_labels(), reset)
        _check_classes(X.classes)
        if classes is not None and not np.array_equal(classes, X.classes):
            raise ValueError(f"{X.path} has the classes {X.classes!r}, expected {classes!r}.")
        return Problem(DatasetSource(X), X, X.classes, X.class_counts)
    y = _check_labels(estimator, X, y)
    source = array_source(estimator, X, reset=reset)
    known = np.unique(y) if classes is None else classes
    _check_classes(known)
    if not np.all(np.isin(y, known)):
        raise ValueError(f"y has labels that are not in classes {known!r}.")
    if len(y) != sum(source.chunks):
        raise ValueError(f"X has {sum(source.chunks)} rows, but y has {len(y)}.")
    codes = np.searchsorted(known, y)
    weight = None if sample_weight is None else _check_weights(sample_weight, len(y))
    return Problem(source, MemoryLabels(codes, weight), known, np.bincount(codes, minlength=len(known)))


def open_if_path(X: RowsLike) -> Any:
    """Open the data set if X is a path; return other input as it is."""
    return Dataset.open(X) if isinstance(X, (str, Path)) else X


def check_features(estimator: Any, X: Dataset, reset: bool) -> Dataset:
    """Store the feature names of a data set, or bring its columns into the order of the stored names."""
    if not reset:
        X = X.with_features(estimator._names)
    elif X.names is not None:
        estimator.feature_names_in_ = np.array(X.names, object)
    _check_width(estimator, X.shape[1], reset)
    return X


def array_source(estimator: Any, X: Any, *, reset: bool) -> Source:
    """Validate the rows of an array without copying them."""
    if is_dask(X):
        if not hasattr(X, "blocks") or X.ndim != 2:
            raise ValueError(f"Expected a Dask array with 2 dimensions, got {type(X).__name__}.")
        _check_width(estimator, X.shape[1], reset)
        return DaskSource(X, _check_block)
    X = sum_duplicates(validate_data(estimator, X, accept_sparse="csr", dtype="numeric", reset=reset))
    return MemorySource(X.astype(np.float64) if X.dtype == np.bool_ else X)


def sum_duplicates(X: Any) -> Any:
    """Sum duplicate entries of sparse rows, which SciPy allows."""
    if is_sparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def _check_block(block: Any) -> Any:
    return sum_duplicates(check_array(block, accept_sparse="csr", dtype="numeric"))


def _check_width(estimator: Any, width: int, reset: bool) -> None:
    if reset:
        estimator.n_features_in_ = width
    elif width != estimator.n_features_in_:
        raise ValueError(f"X has {width} features, but {estimator.n_features_in_} were expected.")


def _check_labels(estimator: Any, X: RowsLike, y: Any) -> NDArray[Any]:
    """Validate labels that are given with X."""
    if y is None:
        name = type(estimator).__name__
        raise ValueError(f"requires y to be passed, but the target y is None: {name} needs labels.")
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


def _check_classes(classes: NDArray[Any]) -> None:
    if len(classes) < 2:
        raise ValueError(f"The number of classes has to be greater than one; got {len(classes)} class")


def _check_weights(sample_weight: Any, count: int) -> NDArray[np.float64]:
    weights = np.asarray(sample_weight.compute() if is_dask(sample_weight) else sample_weight, np.float64)
    if weights.ndim == 0:
        weights = np.full(count, float(weights))
    if weights.ndim != 1:
        raise ValueError("Sample weights must be 1D array or scalar")
    if len(weights) != count:
        raise ValueError(f"sample_weight.shape == {weights.shape}, expected {(count,)}!")
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise ValueError("sample_weight must be finite and not negative.")
    if not np.any(weights > 0):
        raise ValueError("sample_weight is zero for every example.")
    return weights


def boxes_of(classes: NDArray[Any], C: float, class_weight: ClassWeights) -> NDArray[np.float64]:
    """Return the bound of the coefficients for each class: C times its weight."""
    if class_weight is None:
        return np.full(len(classes), float(C))
    if not isinstance(class_weight, Mapping):
        raise ValueError(f"class_weight must be a dict, 'balanced' or None. Got {class_weight!r} instead.")
    # scikit-learn's `compute_class_weight` is not used here because it takes the label "1" for the number 1.
    known = classes.tolist()
    missing = [label for label in known if label not in class_weight]
    unknown = [label for label in class_weight if label not in known]
    if missing and unknown:
        raise ValueError(f"The classes {missing!r} are not in class_weight, which has {unknown!r}.")
    weights = np.array([class_weight.get(label, 1.0) for label in known], np.float64)
    if not np.all(np.isfinite(weights)) or np.any(weights < 0):
        raise ValueError(f"class_weight must be finite and not negative. Got {class_weight!r} instead.")
    return float(C) * weights
