"""The examples of a fit: from arrays in memory, Dask arrays (computed chunk by chunk), or data sets."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dasksvm.data.chunked import KEPT_CHUNKS, ChunkedRows, is_sparse, stacked
from dasksvm.data.coding import Coding
from dasksvm.data.dataset import Dataset
from dasksvm.data.featurize import as_features
from dasksvm.data.statistics import LEAST_ROWS, Scaling, Spread
from dasksvm.solver.engine.selection import RandomOrder
from dasksvm.solver.kernels.features import Features, Ints, SparseFeatures
from dasksvm.solver.messages import Targets

MOMENT_BYTES = 8 << 20
# Number of rows of the sample from which the ranges of features are estimated.
SAMPLE_ROWS = 1000


class MemorySource:
    """Rows of an array or of a CSR matrix.

    Parameters
    ----------
    X : ndarray or csr_matrix of shape (n, d)
    """

    scaling: Scaling | None = None

    def __init__(self, X: Any) -> None:
        self.X = X
        self.chunks: tuple[int, ...] = (X.shape[0],)
        self.sparse = is_sparse(X)

    def raw(self, rows: Ints) -> Any:
        """Return some rows, unscaled."""
        return self.X[rows]

    def spread(self) -> Spread:
        """Return the ranges and variances of the features in a sample of rows."""
        return Spread.of(_sample(self.X))

    def parts(self) -> Iterator[Any]:
        """Yield all rows in order, in parts of bounded size."""
        step = _rows_of_size(self.X)
        for start in range(0, self.X.shape[0], step):
            yield self.X[start : start + step]


class DaskSource(ChunkedRows):
    """Rows of a Dask array; a chunk is computed when it is first needed, and the most recent ones are cached.

    Parameters
    ----------
    X : dask.array.Array of shape (n, d)
    check : callable
        Validates a computed chunk and returns it.
    """

    scaling: Scaling | None = None

    def __init__(self, X: Any, check: Any) -> None:
        if any(np.isnan(size) for size in X.chunks[0]):
            X = X.compute_chunk_sizes()
        self.X = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
        super().__init__(tuple(int(size) for size in self.X.chunks[0]))
        self._check = check
        filled = np.flatnonzero(self.chunks)
        self.sparse = len(filled) > 0 and is_sparse(self.chunk(int(filled[0])))

    def checked(self, at: int) -> Any:
        """Return a chunk as a lazy array that is validated when it is computed."""
        block = self.X.blocks[at]
        return block.map_blocks(self._check, dtype=block.dtype, meta=block._meta) if self.chunks[at] else block

    def chunks_of(self, rows: Ints) -> Ints:
        """Return the numbers of the chunks that hold some rows."""
        return np.unique(np.searchsorted(self._starts, rows, side="right") - 1)

    def read(self, at: int) -> Any:
        """Compute a chunk."""
        return self.checked(at).compute()

    def spread(self) -> Spread:
        """Return the ranges and variances of the features in a sample of rows of the first chunk."""
        filled = np.flatnonzero(self.chunks)
        return Spread.of(_sample(self.chunk(int(filled[0]) if len(filled) else 0)))

    def sums(self) -> list[tuple[int, NDArray[np.float64], float, int]]:
        """Compute the sums of each chunk where the chunk is computed."""
        return self._map_chunks(_sums, [(at,) for at in np.flatnonzero(self.chunks)])

    def deviations(self, centre: float) -> list[float]:
        """Sum up how far the values of each chunk are from a number, where the chunk is computed."""
        return self._map_chunks(_deviations, [(at, centre, None) for at in np.flatnonzero(self.chunks)])

    def raw(self, rows: Ints) -> Any:
        """Return some rows, unscaled, in the order of `rows`; if they are in many chunks, these are computed in parallel."""
        chunk_of = np.searchsorted(self._starts, rows, side="right") - 1
        needed = np.unique(chunk_of)
        if len(needed) <= KEPT_CHUNKS:
            return super().raw(rows)
        places = [np.flatnonzero(chunk_of == at) for at in needed]
        calls = [(at, rows[place] - self._starts[at]) for at, place in zip(needed, places, strict=True)]
        parts = self._map_chunks(_take, calls)
        return stacked(parts)[np.argsort(np.concatenate(places))]

    def _map_chunks(self, function: Any, calls: list[Any]) -> list[Any]:
        """Call a function with chunks; this uses the current cluster if there is one."""
        from dask.base import compute
        from dask.delayed import delayed

        lazy = [delayed(function)(self.checked(int(at)), *arguments) for at, *arguments in calls]
        results: list[Any] = list(compute(*lazy))
        return results


class DatasetSource:
    """Rows of a data set on Zarr.

    Parameters
    ----------
    data : Dataset
    """

    def __init__(self, data: Dataset) -> None:
        self.data = data
        self.sparse = data.sparse
        self.chunks = data.chunks()
        self.scaling = data.scaling

    def spread(self) -> Spread:
        """Return the ranges and variances of the features over all rows."""
        data = self.data
        return Spread(len(data), data.minimum, data.maximum, data.variance, data.sparse)

    def raw(self, rows: Ints) -> Any:
        """Return some rows, unscaled."""
        return self.data.rows(rows)

    def parts(self) -> Iterator[Any]:
        """Yield all rows in order, a chunk at a time."""
        for at in range(len(self.chunks)):
            yield self.data.part(at)


Source = MemorySource | DaskSource | DatasetSource


def _rows_of_size(X: Any) -> int:
    """Return how many rows of a matrix make a part of about `MOMENT_BYTES`."""
    width = X.nnz // max(X.shape[0], 1) if is_sparse(X) else X.shape[1]
    return int(max(1, MOMENT_BYTES // max(8 * width, 1)))


def _sample(X: Any) -> Any:
    """Take evenly spaced rows of a matrix, few enough to be processed quickly."""
    most = max(min(SAMPLE_ROWS, _rows_of_size(X)), LEAST_ROWS)
    return X[:: -(-X.shape[0] // most)] if X.shape[0] > most else X


def moments(source: Source) -> tuple[NDArray[np.float64], float, float]:
    """Compute the mean of each feature, the variance over all scaled values, and the share of non-zeros.

    This takes one pass over the rows; for a data set it uses the stored statistics.
    """
    if isinstance(source, DatasetSource):
        data, scaling = source.data, source.scaling
        centres, spread = data.mean, data.variance
        if scaling is not None:
            centres, spread = (centres - scaling.offset) * scaling.factor, spread * np.square(scaling.factor)
        share = data.nonzeros / (len(data) * data.shape[1])
        return data.mean, float(np.mean(spread + np.square(centres - centres.mean()))), share
    parts = source.sums() if isinstance(source, DaskSource) else (_sums(part) for part in source.parts())
    count, squares, nonzeros = 0, 0.0, 0
    total: Any = 0.0
    for rows, sums, square, stored in parts:
        count, total, squares, nonzeros = count + rows, total + sums, squares + square, nonzeros + stored
    if not count:
        raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
    size = count * len(total)
    mean = float(total.sum() / size)
    return total / count, max(squares / size - mean * mean, 0.0), nonzeros / size


def _sums(part: Any) -> tuple[int, NDArray[np.float64], float, int]:
    """Return the number of rows, the sum of each feature, the sum of all squares, and the number of non-zeros."""
    if is_sparse(part):
        values = part.data
        total = np.bincount(part.indices, part.data, part.shape[1]).astype(np.float64)
    else:
        values, total = part, part.sum(axis=0, dtype=np.float64)
    return part.shape[0], total, float(np.sum(np.square(values, dtype=np.float64))), int(values.size)


def deviation(source: Source, mean: NDArray[np.float64], variance: float, order: int) -> float:
    """Compute the mean of |v - m|^order over all values v of all features as they are scaled, whose mean is m.

    The zeros that sparse rows do not store count. The variance is known from `moments`; for the mean absolute deviation all rows
    are read once more, a part of bounded size or a chunk at a time.

    Parameters
    ----------
    source : Source
    mean : ndarray of shape (d,)
        Of each feature as it is stored.
    variance : float
        Of all values as they are scaled.
    order : {1, 2}
        1 for the mean absolute deviation, 2 for the variance.
    """
    match order:
        case 1:
            scaling = source.scaling
            centre = float(np.mean(mean if scaling is None else (mean - scaling.offset) * scaling.factor))
            if isinstance(source, DaskSource):
                parts: Iterable[float] = source.deviations(centre)
            else:
                parts = (_deviations(part, centre, scaling) for part in source.parts())
            return float(sum(parts)) / (sum(source.chunks) * len(mean))
        case 2:
            return variance
        case _:
            raise ValueError(f"unknown order of deviation {order!r}: it must be 1 or 2.")


def _deviations(part: Any, centre: float, scaling: Scaling | None) -> float:
    """Sum |v - centre| over all values of some rows as they are scaled."""
    if is_sparse(part):
        values = part.data.astype(np.float64)
        if scaling is not None:
            values *= scaling.factor[part.indices]
        zeros = part.shape[0] * part.shape[1] - len(values)
    else:
        values, zeros = part.astype(np.float64), 0
        if scaling is not None:
            values = (values - scaling.offset) * scaling.factor
    return float(np.sum(np.abs(values - centre)) + zeros * abs(centre))


def _take(part: Any, rows: Ints) -> Any:
    return part[rows]


@dataclass(frozen=True)
class Form:
    """How rows become features.

    Attributes
    ----------
    dtype : dtype
        float32 or float64.
    scaling : Scaling or None
        The scaling of the data set.
    centre : ndarray of shape (d,), or None
        The point that is moved to 0 in dense rows, in unscaled units.
    sparse : bool
        Whether the features stay sparse.
    """

    dtype: np.dtype[Any]
    scaling: Scaling | None
    centre: NDArray[np.float64] | None
    sparse: bool

    @property
    def _map(self) -> tuple[NDArray[np.float64] | None, NDArray[np.float64] | None]:
        shift, factor = (None, None) if self.scaling is None else (self.scaling.offset, self.scaling.factor)
        return shift if self.centre is None else self.centre, factor

    def apply(self, X: Any) -> Features:
        """Convert rows to features."""
        return as_features(X, self.dtype, *self._map, self.sparse)

    def invert(self, features: Features) -> Any:
        """Convert features back to rows, in float64; they are as precise as the features."""
        if isinstance(features, SparseFeatures):
            shape = (len(features), features.width)
            factor = self._map[1]
            data = features.data if factor is None else features.data / factor[features.indices]
            return sp.csr_matrix((data, features.indices, features.indptr), shape=shape)
        shift, factor = self._map
        rows = features.values if factor is None else features.values / factor
        return rows if shift is None else rows + shift


class Labels(Protocol):
    """Class numbers and weights by row."""

    def __len__(self) -> int: ...

    def codes(self, ids: Ints) -> Ints:
        """Return the class numbers of some rows."""
        ...

    def weights(self, ids: Ints) -> NDArray[np.float64]:
        """Return the weights of some rows."""
        ...


class MemoryLabels:
    """Labels in memory, one byte per row for up to 256 classes, and the weights if there are any.

    Parameters
    ----------
    codes : ndarray of shape (n,)
    weight : ndarray of shape (n,), optional
    """

    def __init__(self, codes: NDArray[Any], weight: NDArray[np.float64] | None) -> None:
        self._codes = codes.astype(np.min_scalar_type(int(codes.max(initial=0))))
        self._weight = weight

    def __len__(self) -> int:
        return len(self._codes)

    def codes(self, ids: Ints) -> Ints:
        """Return the class numbers of some rows."""
        return self._codes[ids].astype(np.int64)

    def weights(self, ids: Ints) -> NDArray[np.float64]:
        """Return the weights of some rows."""
        return np.ones(len(ids)) if self._weight is None else self._weight[ids]

    def part(self, start: int, stop: int) -> "MemoryLabels":
        """Return the labels of consecutive rows."""
        return MemoryLabels(self._codes[start:stop], None if self._weight is None else self._weight[start:stop])


class Examples:
    """The examples of a run as executors need them: features ready for the kernel, labels and bounds.

    Parameters
    ----------
    source : MemorySource, DaskSource or DatasetSource
    form : Form
    columns : Labels
    coding : Coding
    base : int
        Id of the first row; the ids of a `partial_fit` continue those of the previous one.
    """

    def __init__(self, source: Source, form: Form, columns: Labels, coding: Coding, base: int) -> None:
        self.source = source
        self.form = form
        self.columns = columns
        self.coding = coding
        self.base = base

    def features(self, rows: Ints) -> Features:
        """Return the features of some rows."""
        return self.form.apply(self.source.raw(rows - self.base))

    def targets(self, rows: Ints) -> Targets:
        """Return the labels and bounds of some rows in each problem."""
        at = rows - self.base
        return self.coding.targets(self.columns.codes(at), self.columns.weights(at))


def first_of_each_class(order: RandomOrder, examples: Examples, count: int) -> Ints:
    """List the first few examples of each class in the order of the first epoch."""
    classes = examples.coding.signs.shape[1]
    found: Ints = np.zeros(0, np.int64)
    of: Ints = np.zeros(0, np.int64)
    step, start = 4096, 0
    while start < len(order) and len(found) < count * classes:
        rows = order.rows(0, start, min(start + step, len(order)))
        codes, _, bound = examples.targets(rows)
        usable = bound.max(axis=0) > 0
        found, of = np.concatenate([found, rows[usable]]), np.concatenate([of, codes[usable]])
        place = np.argsort(of, kind="stable")
        ends = np.cumsum(np.bincount(of, minlength=classes))
        within = np.arange(len(of)) - np.concatenate([np.zeros(1, np.int64), ends])[of[place]]
        found, of = found[place][within < count], of[place][within < count]
        start += step
    return found
