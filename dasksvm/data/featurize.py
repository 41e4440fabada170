"""Rows become features: scaled, centred, converted and made dense here, for training and for prediction alike."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import DenseFeatures, Features, SparseFeatures


def as_features(
    X: Any,
    dtype: np.dtype[Any],
    shift: NDArray[np.float64] | None,
    factor: NDArray[np.float64] | None,
    sparse: bool,
) -> Features:
    """Convert rows for the kernels: mapped and dense, or sparse as they are.

    Parameters
    ----------
    X : ndarray or csr_matrix of shape (n, d)
    dtype : dtype
        float32 or float64.
    shift, factor : ndarray of shape (d,), optional
        Rows become (x - shift) · factor; sparse ones x · factor.
    sparse : bool
        Whether the tiles stay sparse; else CSR rows are made dense.
    """
    if sparse:
        X = X.tocsr()
        data = X.data if factor is None else X.data * factor[X.indices]
        return SparseFeatures.of(data.astype(dtype), X.indices, X.indptr, X.shape[1])
    rows: Any = X.toarray() if hasattr(X, "toarray") else X
    exact = np.result_type(rows, dtype)
    if shift is not None:
        rows = rows - shift.astype(exact)
    if factor is not None:
        rows = rows * factor.astype(exact)
    return DenseFeatures.of(np.ascontiguousarray(rows, dtype))
