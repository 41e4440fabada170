"""What users may pass to the public methods of estimators, as types: rows, labels and seeds."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, Union

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

if TYPE_CHECKING:
    from dask.array import Array as DaskArray
    from pandas import DataFrame

    from dasksvm.data.dataset import Dataset

# The rows that `fit` accepts, n rows with d features: what NumPy takes for an array of shape (n, d), a sparse matrix or array of
# SciPy, a Dask array, a dataframe, a data set or its path. Dask arrays and data sets need not fit in memory.
RowsLike: TypeAlias = Union[npt.ArrayLike, sp.spmatrix, sp.sparray, str, Path, "DaskArray", "DataFrame", "Dataset"]
# One value for each row, such as labels or weights: what NumPy takes for an array of shape (n,), or a Dask array.
ColumnLike: TypeAlias = Union[npt.ArrayLike, "DaskArray"]
# Weights of classes: of each class, "balanced", or None for 1.
ClassWeights: TypeAlias = Mapping[Any, float] | str | None
# What scikit-learn takes for a random number generator.
RandomState: TypeAlias = int | np.random.RandomState | None
