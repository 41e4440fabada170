"""Where the examples of a fit come from: arrays in memory, or Dask arrays computed chunk by chunk."""

from collections import OrderedDict
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dasksvm.model import as_features
from dasksvm.solver.features import Features, Ints
from dasksvm.solver.selection import RandomOrder

# From this share of non-zeros on, a dense tile is cheaper than one of CSR members.
DENSE_SHARE = 0.05
# Features up to which members are made dense.
DENSE_WIDTH = 4096
MOMENT_BYTES = 8 << 20
KEPT_CHUNKS = 3


def is_dask(data: Any) -> bool:
    """Tell whether `data` is a Dask collection, without importing Dask."""
    return type(data).__module__.split(".")[0] == "dask"


class MemorySource:
    """Rows of an array or of a CSR matrix.

    Parameters
    ----------
    X : ndarray or csr_matrix of shape (n, d)
    """

    def __init__(self, X: Any) -> None:
        self.X = X
        self.chunks: tuple[int, ...] = (X.shape[0],)
        self.sparse = sp.issparse(X)

    def raw(self, rows: Ints) -> Any:
        """Give some rows as they are."""
        return self.X[rows]

    def parts(self) -> Any:
        """Yield all rows in order, in parts of bounded size."""
        step = max(1, MOMENT_BYTES // max(8 * self.X.shape[1], 1))
        for start in range(0, self.X.shape[0], step):
            yield self.X[start : start + step]


class DaskSource:
    """Rows of a Dask array; a chunk is computed when it is first needed, and the last few are kept.

    Parameters
    ----------
    X : dask.array.Array of shape (n, d)
    check : callable
        Validates a computed chunk and returns it.
    """

    def __init__(self, X: Any, check: Any) -> None:
        if any(np.isnan(size) for size in X.chunks[0]):
            X = X.compute_chunk_sizes()
        self.X = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
        self.chunks: tuple[int, ...] = tuple(int(size) for size in self.X.chunks[0])
        self._starts = np.concatenate([[0], np.cumsum(self.chunks)])
        self._check = check
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._lock = Lock()
        filled = np.flatnonzero(self.chunks)
        self.sparse = len(filled) > 0 and sp.issparse(self.chunk(int(filled[0])))

    def chunk(self, at: int) -> Any:
        """Compute a chunk, or give it if it is still here."""
        with self._lock:
            if at in self._kept:
                self._kept.move_to_end(at)
                return self._kept[at]
            block = self.X.blocks[at].compute()
            value = self._check(block) if len(self.chunks) and self.chunks[at] else block
            self._kept[at] = value
            while len(self._kept) > KEPT_CHUNKS:
                self._kept.popitem(last=False)
            return value

    def raw(self, rows: Ints) -> Any:
        """Give some rows as they are."""
        if not len(rows):
            return next(self.parts())[:0]
        of = np.searchsorted(self._starts, rows, side="right") - 1
        parts, places = [], []
        for at in np.unique(of):
            mine = np.flatnonzero(of == at)
            parts.append(self.chunk(int(at))[rows[mine] - self._starts[at]])
            places.append(mine)
        back = np.argsort(np.concatenate(places))
        stacked = sp.vstack(parts, format="csr") if self.sparse else np.concatenate(parts)
        return stacked[back]

    def parts(self) -> Any:
        """Yield all rows in order, a chunk at a time."""
        for at, size in enumerate(self.chunks):
            if size:
                yield self.chunk(at)


def moments(source: MemorySource | DaskSource) -> tuple[NDArray[np.float64], float, float]:
    """Compute the mean of each feature, the variance over all values, and the share of non-zeros, in one pass."""
    count, total, squares, nonzeros = 0, None, 0.0, 0
    part: Any
    for part in source.parts():
        sparse = sp.issparse(part)
        values = part.data if sparse else part
        sums = np.asarray(part.sum(axis=0, dtype=np.float64)).ravel()
        total = sums if total is None else total + sums
        squares += float(np.sum(np.square(values, dtype=np.float64)))
        nonzeros += part.nnz if sparse else part.size
        count += part.shape[0]
    if total is None:
        raise ValueError("Found array with 0 sample(s) while a minimum of 1 is required.")
    size = count * len(total)
    mean = float(total.sum() / size)
    return total / count, max(squares / size - mean * mean, 0.0), nonzeros / size


@dataclass(frozen=True)
class Form:
    """How features go into tiles.

    Attributes
    ----------
    dtype : dtype
        float32 or float64.
    centre : ndarray of shape (d,), or None
        Subtracted from dense rows.
    sparse : bool
        Whether tiles stay sparse.
    """

    dtype: np.dtype[Any]
    centre: NDArray[np.float64] | None
    sparse: bool


class Examples:
    """What the executor asks: features ready for the kernel, signs and boxes.

    Parameters
    ----------
    source : MemorySource or DaskSource, optional
    form : Form
    sign, bound : ndarray of float64, shape (n,)
        Label ±1 and C_i.
    base : int
        Id of the first row; ids go on from one `partial_fit` to the next.
    """

    def __init__(
        self,
        source: MemorySource | DaskSource | None,
        form: Form,
        sign: NDArray[np.float64],
        bound: NDArray[np.float64],
        base: int,
    ) -> None:
        self._source = source
        self.form = form
        self.sign = sign
        self.bound = bound
        self.base = base

    @property
    def source(self) -> MemorySource | DaskSource:
        """The rows."""
        assert self._source is not None
        return self._source

    def without_source(self) -> "Examples":
        """What a later block needs to know: no data is kept."""
        none = np.zeros(0)
        return Examples(None, self.form, none, none, self.base + len(self.sign))

    def followed_by(
        self, source: MemorySource | DaskSource, sign: NDArray[np.float64], bound: NDArray[np.float64]
    ) -> "Examples":
        """Give the next block of the same stream."""
        return Examples(source, self.form, sign, bound, self.base + len(self.sign))

    def features(self, rows: Ints) -> Features:
        """Give the features of some rows."""
        return as_features(self.source.raw(rows - self.base), self.form.dtype, self.form.centre, self.form.sparse)

    def labels(self, rows: Ints) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Give the signs and boxes of some rows, each of shape (1, m)."""
        return self.sign[rows - self.base][None], self.bound[rows - self.base][None]


def first_of_each_class(order: RandomOrder, examples: Examples, count: int) -> Ints:
    """List the first few examples of each class in the order of the first epoch."""
    found: list[Ints] = [np.zeros(0, np.int64), np.zeros(0, np.int64)]
    step, start = 4096, 0
    while start < len(order) and min(len(found[0]), len(found[1])) < count:
        rows = order.rows(0, start, min(start + step, len(order)))
        sign, bound = examples.labels(rows)
        for side, label in enumerate((-1.0, 1.0)):
            mine = rows[(sign[0] == label) & (bound[0] > 0)]
            found[side] = np.concatenate([found[side], mine])[:count]
        start += step
    return np.concatenate(found)
