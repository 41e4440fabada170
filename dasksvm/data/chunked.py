"""Access by row to data that are stored in chunks; the most recent chunks are cached."""

from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator
from threading import Lock
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dasksvm.solver.kernels.features import Ints

KEPT_CHUNKS = 3


def is_dask(data: Any) -> bool:
    """Return whether `data` is a Dask collection, without importing Dask."""
    return type(data).__module__.split(".")[0] == "dask"


def is_sparse(data: Any) -> bool:
    """Return whether `data` is a sparse SciPy matrix or array."""
    return bool(sp.issparse(data))


def csr(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], width: int) -> Any:
    """Make a CSR matrix from arrays of a file, after checking them: compiled code reads where they point without checks.

    Parameters
    ----------
    data, indices : ndarray of shape (nonzeros,)
    indptr : ndarray of shape (n + 1,)
    width : int

    Returns
    -------
    csr_matrix of shape (n, width)

    Raises
    ------
    ValueError
        If they are not a CSR matrix in which the features of each row are in order and distinct.
    """
    kinds = {indices.dtype.kind, indptr.dtype.kind}
    if not data.ndim == indices.ndim == indptr.ndim == 1 or kinds != {"i"} or data.dtype == np.float16:
        raise ValueError("its sparse rows have arrays of the wrong type or shape")
    if len(indptr) == 0 or indptr[0] != 0 or np.any(indptr[1:] < indptr[:-1]):
        raise ValueError("the row pointers of its sparse rows are not in order")
    if not indptr[-1] == len(data) == len(indices):
        raise ValueError("its sparse rows do not have the expected number of values")
    if indices.min(initial=0) < 0 or indices.max(initial=-1) >= width:
        raise ValueError(f"its sparse rows have feature numbers outside of 0 to {width - 1}")
    rises = indices[1:] > indices[:-1]
    begins = indptr[1:-1]
    rises[begins[(begins > 0) & (begins < len(indices))] - 1] = True
    if not rises.all():
        raise ValueError("its sparse rows have feature numbers that are not in order")
    return sp.csr_matrix((data, indices, indptr), shape=(len(indptr) - 1, width))


def stacked(rows: list[Any]) -> Any:
    """Stack matrices vertically; sparse ones may differ in width, and the result has the largest width."""
    if not is_sparse(rows[0]):
        return np.concatenate(rows)
    width = max(part.shape[1] for part in rows)
    for part in rows:
        part.resize(part.shape[0], width)
    return sp.vstack(rows, format="csr")


class ChunkedRows(ABC):
    """Rows of chunked data.

    Parameters
    ----------
    chunks : tuple of int
        Number of rows of each chunk.
    """

    def __init__(self, chunks: tuple[int, ...]) -> None:
        self.chunks = chunks
        self._starts = np.concatenate([[0], np.cumsum(chunks)]).astype(np.int64)
        self._kept: OrderedDict[int, Any] = OrderedDict()
        self._lock = Lock()

    @abstractmethod
    def read(self, at: int) -> Any:
        """Read or compute a chunk."""

    def chunk(self, at: int) -> Any:
        """Return a chunk from the cache, or read it."""
        with self._lock:
            if at in self._kept:
                self._kept.move_to_end(at)
                return self._kept[at]
            value = self._kept[at] = self.read(at)
            while len(self._kept) > KEPT_CHUNKS:
                self._kept.popitem(last=False)
            return value

    def raw(self, rows: Ints) -> Any:
        """Return some rows, unscaled, in the order of `rows`."""
        chunk_of = np.searchsorted(self._starts, rows, side="right") - 1
        needed = np.unique(chunk_of)
        if len(needed) == 0:
            return self.chunk(0)[:0]
        if len(needed) == 1:
            return self.chunk(int(needed[0]))[rows - self._starts[needed[0]]]
        parts, places = [], []
        for at in needed:
            place = np.flatnonzero(chunk_of == at)
            parts.append(self.chunk(int(at))[rows[place] - self._starts[at]])
            places.append(place)
        back = np.argsort(np.concatenate(places))
        return stacked(parts)[back]

    def parts(self) -> Iterator[Any]:
        """Yield all rows in order, one chunk at a time."""
        for at, size in enumerate(self.chunks):
            if size:
                yield self.chunk(at)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the cached chunks."""
        state = {name: value for name, value in vars(self).items() if name != "_lock"}
        return state | {"_kept": OrderedDict()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Unpickle with an empty cache."""
        vars(self).update(state)
        self._lock = Lock()
