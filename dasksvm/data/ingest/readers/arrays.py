"""Readers of arrays: NumPy arrays, CSR matrices, Dask arrays and dataframes."""

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import column_or_1d

from dasksvm.data.blocks import BadRow, Part
from dasksvm.data.chunked import is_dask, is_sparse
from dasksvm.data.ingest.readers.reader import RowRanges


def numeric(X: Any) -> Any:
    """Convert rows to a supported numeric type: half precision to single, booleans to bytes; sparse rows to CSR."""
    if X.dtype.kind not in "biuf":
        raise ValueError(f"X must be numeric, but its type is {X.dtype}.")
    if is_sparse(X):
        X = X.tocsr()
        if not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
    odd = {"f2": "f4", "f16": "f8", "b1": "u1"}.get(f"{X.dtype.kind}{X.dtype.itemsize}")
    return X.astype(odd or X.dtype.newbyteorder("="), copy=False)


class ArrayReader(RowRanges):
    """Rows of an array, a memory map or a CSR matrix.

    Parameters
    ----------
    X : ndarray or csr_matrix of shape (n, d)
    y, weight : array of shape (n,)
        y may be False, the weight None.
    origin : str
    names : list of str, optional
    """

    portable = False

    def __init__(self, X: Any, y: Any, weight: Any, origin: str, names: list[str] | None = None) -> None:
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions; it has {X.ndim}.")
        _check_shape(X.shape)
        self.X = numeric(X) if is_sparse(X) else X
        numeric(self.X[:0])
        self.labels, self.weight = columns_of(y, weight, X.shape[0])
        self.origin, self.names = origin, names
        self.shape = X.shape
        self.width: int | None = X.shape[1]
        stored = self.X.data.nbytes + self.X.indices.nbytes if is_sparse(X) else X.nbytes
        self.bytes = int(stored)

    def pieces(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows."""
        return self.ranges()

    def read(self, piece: tuple[int, int]) -> Part:
        """Return a range of rows."""
        rows = slice(*piece)
        X = numeric(self.X[rows])
        return Part(X, self.labels[rows], None if self.weight is None else self.weight[rows])


def no_labels(rows: int) -> NDArray[Any]:
    """Return placeholder labels for rows without labels."""
    return np.zeros(rows, np.uint8)


def columns_of(y: Any, weight: Any, rows: int | None) -> tuple[NDArray[Any], NDArray[np.float64] | None]:
    """Validate labels and weights that are given as arrays; rows without labels get placeholders."""
    if y is False and rows is None and weight is not None:
        rows = len(weight)
    labels = no_labels(rows or 0) if y is False else column_or_1d(y.compute() if is_dask(y) else y)
    if rows is not None and len(labels) != rows:
        raise ValueError(f"X has {rows} rows, but y has {len(labels)}.")
    if weight is None:
        return np.asarray(labels), None
    values = np.asarray(weight.compute() if is_dask(weight) else weight).astype(np.float64)
    if values.shape != labels.shape:
        raise ValueError(f"weight has the shape {values.shape}, but expected {labels.shape}.")
    return np.asarray(labels), values


class DaskArrayReader:
    """Rows of a Dask array; blocks are computed shortly before they are needed.

    Parameters
    ----------
    X : dask.array.Array of shape (n, d)
    y, weight : array of shape (n,)
        y may be False, the weight None.
    """

    origin = "dask"
    names: list[str] | None = None
    portable = False

    def __init__(self, X: Any, y: Any, weight: Any) -> None:
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions; it has {X.ndim}.")
        numeric(X._meta)
        X = X.compute_chunk_sizes() if any(np.isnan(size) for size in X.chunks[0]) else X
        X = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
        _check_shape(X.shape)
        self.labels, self.weight = columns_of(y, weight, X.shape[0])
        self.width: int | None = X.shape[1]
        self.bytes = int(np.prod(X.shape)) * X.dtype.itemsize
        self.count: int | None = sum(size > 0 for size in X.chunks[0])
        self._blocks = list(zip(X.to_delayed().ravel(), np.cumsum((0, *X.chunks[0][:-1])), X.chunks[0], strict=True))

    def pieces(self) -> Iterator[Any]:
        """Yield lazy blocks and their ranges of rows."""
        for block, start, size in self._blocks:
            if size:
                yield block, slice(int(start), int(start + size))

    def read(self, piece: Any) -> Part:
        """Compute a block."""
        block, rows = piece
        return Part(numeric(block.compute()), self.labels[rows], None if self.weight is None else self.weight[rows])


class FrameReader:
    """Columns of a Dask dataframe; partitions are computed shortly before they are needed.

    Parameters
    ----------
    X : dask.dataframe.DataFrame
    y, weight : str
        Columns of the dataframe with labels and weights; y may be False, the weight None.
    """

    origin = "dask"
    portable = False
    # The size is unknown until the partitions are computed; this gives the largest number of buckets, which works for any size.
    bytes = sys.maxsize

    def __init__(self, X: Any, y: str | bool, weight: str | None) -> None:
        for column in (y, weight):
            if column is not None and column is not False and column not in X.columns:
                raise ValueError(f"X has no column {column!r}; it has {', '.join(map(str, X.columns))}.")
        taken = [column for column in (y, weight) if column is not None and column is not False]
        self.columns = [name for name in X.columns if name not in taken]
        self.names = [str(name) for name in self.columns]
        self.width: int | None = len(self.names)
        self.label, self.weight = y, weight
        self._partitions = X.to_delayed()
        self.count: int | None = len(self._partitions)

    def pieces(self) -> Iterator[Any]:
        """Yield lazy partitions."""
        yield from self._partitions

    def read(self, piece: Any) -> Part:
        """Compute a partition."""
        frame = piece.compute()
        weight = None if self.weight is None else frame[self.weight].to_numpy(np.float64)
        labels = no_labels(len(frame)) if self.label is False else frame[self.label].to_numpy()
        return Part(numeric_frame(frame[self.columns]), labels, weight)


def numeric_frame(frame: Any) -> NDArray[Any]:
    """Return the columns of a pandas dataframe as a matrix; ValueError names a column that is not numeric."""
    columns = []
    for name in frame.columns:
        column = frame[name]
        if column.isna().any():
            raise BadRow(int(np.flatnonzero(column.isna())[0]), str(name), "the value is missing")
        if column.dtype.kind not in "biuf":
            raise ValueError(f"column {name} is not numeric but {column.dtype}.")
        columns.append(
            column.to_numpy(column.dtype.str if isinstance(column.dtype, np.dtype) else column.dtype.numpy_dtype)
        )
    return np.asarray(numeric(np.column_stack(columns)))


def _check_shape(shape: tuple[int, ...]) -> None:
    if 0 in shape:
        raise ValueError(f"X has {shape[0]} rows and {shape[1]} features, but must have at least one of each.")
