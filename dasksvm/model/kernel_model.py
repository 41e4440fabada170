"""KernelModel: a trained model with what prediction needs and nothing else."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dasksvm.config import threads, workspaces
from dasksvm.config.blas import one_thread
from dasksvm.data.chunked import is_dask
from dasksvm.data.dataset import Dataset
from dasksvm.data.feature_names import column_order, names_of_frame
from dasksvm.data.featurize import as_features
from dasksvm.data.statistics import Scaling
from dasksvm.model.formats import FORMATS
from dasksvm.solver.engine.exact_sums import exact_margins
from dasksvm.solver.engine.tiles import margins
from dasksvm.solver.kernels.features import Features
from dasksvm.solver.kernels.kernel import Kernel

CHUNK_ROWS = 1000
# With fewer multiplications than this, one thread is done before a second one has started.
SMALL = 1 << 22


@dataclass(frozen=True, eq=False)
class KernelModel:
    """The decision functions of P problems, which share one set of support vectors.

    Attributes
    ----------
    kernel : Kernel
    support_vectors : ndarray or csr_matrix of shape (S, d)
        In the units of the data, before scaling.
    coefficients : ndarray of shape (P, S)
        α with the sign of the label.
    intercepts : ndarray of shape (P,)
    classes : ndarray of shape (c,)
    scaling : Scaling, optional
        The scaling of the features, which is applied before the kernel.
    pairwise : bool
        With more than two classes, whether there is a problem for each pair of classes, in lexicographic order, or one for each
        class.
    feature_names : tuple of str, optional
        Names of the columns of the training rows, if they had names. Dataframes and data sets whose columns have the same names
        in another order are matched by name; other names raise an error. Arrays have no names, and only their number of
        features is checked.
    """

    kernel: Kernel
    support_vectors: Any
    coefficients: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    classes: NDArray[Any]
    scaling: Scaling | None = None
    pairwise: bool = False
    feature_names: tuple[str, ...] | None = None

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.support_vectors.shape[1])

    def deciders(self) -> list[str]:
        """Describe what a positive decision value means in each problem."""
        names = [str(label) for label in self.classes]
        if self.pairwise:
            return [f"{names[a]} not {names[b]}" for a, b in zip(*np.triu_indices(len(names), 1), strict=True)]
        return names[1:] if len(names) == 2 else names

    def decision_function(self, X: Any) -> Any:
        """Compute Σ α K(x, s) + b; kernel values are float32 if X has float32 or small integers, otherwise float64.

        Parameters
        ----------
        X : ndarray, csr_matrix, dask.array.Array, pandas or Dask dataframe of shape (n, d), or Dataset
            Columns with names are matched by name.

        Returns
        -------
        ndarray or dask.array.Array of float64, shape (n, P)
            Lazy for Dask collections and data sets, with the model as one key of the graph.
        """
        X = self._rows(X)
        if is_dask(X):
            return self._lazily(X, _decide, np.float64, len(self.coefficients))
        return self._decide(X, threads())

    def predict(self, X: Any) -> Any:
        """Predict the class of each row: the one with the largest decision value or, with `pairwise`, the most votes.

        Parameters
        ----------
        X : ndarray, csr_matrix, dask.array.Array, pandas or Dask dataframe of shape (n, d), or Dataset
            Columns with names are matched by name.

        Returns
        -------
        ndarray or dask.array.Array of shape (n,)
        """
        X = self._rows(X)
        if is_dask(X):
            return self._lazily(X, _predict, self.classes.dtype, None)
        return self.classes[self.codes(self.decision_function(X))]

    def codes(self, values: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the class numbers that decision values of shape (n, P) predict."""
        count = len(self.classes)
        if count == 2:
            return (values[:, 0] > 0).astype(np.intp)
        if self.pairwise:
            first, second = np.triu_indices(count, 1)
            # Sums of decision values, mapped to (-1/2, 1/2), break ties between votes.
            sums = np.clip(values, -1e6, 1e6) @ (np.eye(count)[first] - np.eye(count)[second])
            wins = (values > 0) @ np.eye(count)[first] + (values <= 0) @ np.eye(count)[second]
            values = wins + sums / (2.0 * (np.abs(sums) + 1.0))
        best: NDArray[np.intp] = values.argmax(axis=1)
        return best

    def _rows(self, X: Any) -> Any:
        """Return the rows of a data set or dataframe as an array with the model's order of columns; lazy for lazy input."""
        if isinstance(X, Dataset):
            return X.with_features(self.feature_names).as_dask()[0]
        if not hasattr(X, "columns"):
            return X
        order = column_order(names_of_frame(X), self.feature_names, "X")
        if order is not None:
            assert self.feature_names is not None
            X = X[list(self.feature_names)]
        return X.to_dask_array() if is_dask(X) else _checked(X)

    def _lazily(self, X: Any, function: Any, dtype: Any, columns: int | None) -> Any:
        from dask.delayed import delayed

        self._check_width(X)
        X = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
        wide = {"drop_axis": 1} if columns is None else {"chunks": (X.chunks[0], (columns,))}
        meta = np.empty((0,) if columns is None else (0, columns), dtype)
        model = delayed(self, pure=True)
        return X.map_blocks(function, model, dtype=dtype, meta=meta, token=f"dasksvm-{function.__name__[1:]}", **wide)

    def _check_width(self, X: Any) -> None:
        """Raise ValueError for another number of features; sparse kernels use feature numbers without a bounds check."""
        if X.ndim != 2 or X.shape[1] != self.width:
            found = f"{X.shape[1]} features" if X.ndim == 2 else f"{X.ndim} dimensions"
            raise ValueError(f"X has {found}, but the model is expecting {self.width} features as input.")

    def _decide(self, X: Any, pool_size: int) -> NDArray[np.float64]:
        self._check_width(X)
        dtype = np.dtype(np.float64 if np.result_type(X.dtype, np.float32) == np.float64 else np.float32)
        sparse = self._sparse_tiles(X)
        shift, factor = self._map
        members = self._members(dtype, sparse)
        out = np.empty((X.shape[0], len(self.coefficients)))

        def fill(start: int) -> None:
            rows = as_features(X[start : start + CHUNK_ROWS], dtype, shift, factor, sparse)
            out[start : start + CHUNK_ROWS] = margins(
                self.kernel, rows, members, self.coefficients, None, workspaces.of_this_thread()
            ).T

        starts = range(0, X.shape[0], CHUNK_ROWS)
        with one_thread():
            if pool_size > 1 and len(starts) > 1 and X.shape[0] * self.support_vectors.shape[0] * X.shape[1] > SMALL:
                with ThreadPoolExecutor(pool_size) as pool:
                    _drain(pool.map(fill, starts))
            else:
                _drain(map(fill, starts))
        decided: NDArray[np.float64] = out + self.intercepts
        return decided

    def _members(self, dtype: np.dtype[Any], sparse: bool) -> Features:
        """Return the support vectors as features, which are kept for the next block."""
        if (dtype, sparse) not in self._kept:
            self._kept[dtype, sparse] = as_features(self.support_vectors, dtype, *self._map, sparse)
        return self._kept[dtype, sparse]

    @cached_property
    def _kept(self) -> dict[Any, Features]:
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """Pickle the fields of the model, without the cached features."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}

    def _sparse_tiles(self, X: Any) -> bool:
        return sp.issparse(self.support_vectors) and sp.issparse(X)

    @cached_property
    def _map(self) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
        """The shift and the factor that are applied to rows: the scaling, or for dense rows a shift of the mean to 0.

        The shift of the mean avoids cancellation. It is used only with kernels whose values it does not change.
        """
        shift, factor = (None, None) if self.scaling is None else (self.scaling.offset, self.scaling.factor)
        if (
            self.kernel.formula.shift_invariant
            and not sp.issparse(self.support_vectors)
            and self.support_vectors.shape[0]
        ):
            shift = np.asarray(self.support_vectors.mean(axis=0, dtype=np.float64))
        return shift, factor

    def save(self, path: str | Path) -> None:
        """Write the model to a file that `dasksvm.load` reads."""
        FORMATS.find("native").write(self, path)

    def to_libsvm(self, path: str | Path) -> None:
        """Write the model as text that LIBSVM's `svm-predict` reads, with 17 digits.

        Labels must be integers, and more than two classes must be trained as pairs (`decision_function_shape="ovo"`). A scaling
        is included in the support vectors, the intercepts or γ if the kernel allows this without loss. The decision values are
        the same, and so are the predicted labels, except for ties: if several classes have the most votes, LIBSVM takes the first
        of them, a KernelModel the one with the largest sum of decision values.

        Raises
        ------
        ValueError
            If LIBSVM's format cannot represent the model.
        """
        FORMATS.find("libsvm").write(self, path)

    @classmethod
    def from_libsvm(cls, path: str | Path, features: int | None = None) -> "KernelModel":
        """Read a classifier that LIBSVM has written, without its probability estimates.

        Parameters
        ----------
        path : str or Path
        features : int, optional
            Number of features, which the file does not contain. By default the largest feature number of a support vector.

        Raises
        ------
        ValueError
            If the file is damaged or contains a model of another type; the message names the line.
        """
        model: KernelModel = FORMATS.find("libsvm").read(path, features)
        return model

    def to_sklearn(self) -> Any:
        """Make a fitted estimator of scikit-learn with the same decision values, in float64.

        Returns
        -------
        SVC, OneVsRestClassifier or Pipeline
            An SVC for two classes or pairs of classes; a OneVsRestClassifier of SVCs if there is one problem for each class,
            which includes the multi-class machines; with a scaling, a Pipeline of a StandardScaler and one of these. An SVC
            breaks ties between votes as LIBSVM does; after `set_params(decision_function_shape="ovr", break_ties=True)` it
            breaks them as a KernelModel does.
        """
        return FORMATS.find("sklearn").write(self)

    @classmethod
    def from_sklearn(cls, estimator: Any) -> "KernelModel":
        """Make a model from a fitted estimator of scikit-learn.

        Parameters
        ----------
        estimator : SVC, NuSVC, OneVsRestClassifier or Pipeline
            A OneVsRestClassifier of SVCs with the same kernel; a Pipeline of a StandardScaler or MinMaxScaler and one of the
            others.
        """
        model: KernelModel = FORMATS.find("sklearn").read(estimator)
        return model

    def squared_norms(self) -> NDArray[np.float64]:
        """Compute |w|² = α'Kα of each problem, in float64."""
        norms: NDArray[np.float64] = np.einsum("ps,ps->p", self.coefficients, self._products())
        return norms

    def dual_objectives(self) -> NDArray[np.float64]:
        """Compute W(α) = Σ α y - ½ α'Kα of each problem (paper 1, equation 4), in float64."""
        linear: NDArray[np.float64] = np.abs(self.coefficients).sum(axis=1)
        return linear - 0.5 * self.squared_norms()

    def _products(self) -> NDArray[np.float64]:
        """Compute Σ α K for each support vector and problem, in one pass over the kernel values."""
        vectors = self.support_vectors
        members = self._members(np.dtype(np.float64), self._sparse_tiles(vectors))
        out = np.empty(self.coefficients.shape)

        def fill(start: int) -> None:
            stop = min(start + CHUNK_ROWS, len(members))
            out[:, start:stop] = exact_margins(self.kernel, members.part(start, stop), members, self.coefficients)

        with one_thread(), ThreadPoolExecutor(threads()) as pool:
            _drain(pool.map(fill, range(0, len(members), CHUNK_ROWS)))
        return out


def _checked(block: Any) -> Any:
    from sklearn.utils.validation import check_array

    return check_array(block, accept_sparse="csr", dtype="numeric", ensure_min_samples=0)


def _decide(block: Any, model: KernelModel) -> NDArray[np.float64]:
    """Compute the decision values of a block of a Dask array, in one thread since blocks run in parallel."""
    return model._decide(_checked(block), 1)


def _predict(block: Any, model: KernelModel) -> NDArray[Any]:
    predicted: NDArray[Any] = model.classes[model.codes(_decide(block, model))]
    return predicted


def _drain(results: Iterable[None]) -> None:
    for _ in results:
        pass
