"""A reader of AnnData files in Zarr or HDF5: `X` may be dense or CSR, and labels are a column of `obs`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dasksvm.data.blocks import Part
from dasksvm.data.ingest.readers.arrays import no_labels, numeric
from dasksvm.data.ingest.readers.reader import FileFormat, RowRanges

ALL = slice(None)
CODECS = (
    *("bytes", "zstd", "gzip", "crc32c", "blosc", "zlib", "lz4", "bz2", "lzma"),
    *("delta", "shuffle", "transpose", "sharding_indexed", "vlen-utf8", "vlen-bytes"),
)


class AnnDataReader(RowRanges):
    """Rows of an AnnData store.

    Parameters
    ----------
    path : str
        A Zarr group, or a file ending in .h5ad.
    label, weight : str
        Columns of `obs`; the label may be False, the weight None.
    """

    portable = True

    def __init__(self, path: str, label: str | bool | None, weight: str | None) -> None:
        self.path = self.origin = path
        if label is None:
            raise ValueError(f"{path}: set y (--label) to the column of obs that has the labels.")
        store = self._store()
        if "X" not in store or "obs" not in store:
            raise ValueError(f"{path} is not an AnnData file: X or obs is missing.")
        X = store["X"]
        kind = X.attrs.get("encoding-type", "array")
        self.sparse = kind == "csr_matrix"
        if kind not in ("csr_matrix", "array"):
            raise ValueError(f"{path}: X is a {kind}, which cannot be read row by row.")
        self.shape = tuple(int(size) for size in (X.attrs["shape"] if self.sparse else X.shape))
        self._indptr = values_of(X["indptr"]).astype(np.int64) if self.sparse else np.zeros(0, np.int64)
        dtype = X["data"].dtype if self.sparse else X.dtype
        stored = int(self._indptr[-1]) if self.sparse else int(np.prod(self.shape))
        self.bytes = stored * (dtype.itemsize + (4 if self.sparse else 0))
        self.width: int | None = self.shape[1]
        chunks = None if self.sparse else X.chunks
        self._chunk_rows = 1 if chunks is None else int(chunks[0])
        self.labels = no_labels(self.shape[0]) if label is False else self._column(store["obs"], str(label))
        self.weight = None if weight is None else self._column(store["obs"], weight).astype(np.float64)
        self.names = self._names(store)
        if 0 in self.shape or len(self.labels) != self.shape[0]:
            raise ValueError(f"{path}: X has the shape {self.shape}, and obs has {len(self.labels)} rows.")

    def _store(self) -> Any:
        if Path(self.path).is_dir():
            import zarr

            return zarr.open_group(self.path, mode="r")
        try:
            import h5py
        except ImportError:
            raise ImportError("HDF5 files need h5py: pip install 'dasksvm[anndata]'.") from None
        try:
            return h5py.File(self.path, "r")
        except OSError as error:
            raise ValueError(f"{self.path} is not a complete HDF5 file: {error}") from None

    def _column(self, obs: Any, name: str) -> NDArray[Any]:
        if name not in obs:
            raise ValueError(f"{self.path}: obs has no column {name!r}; it has {', '.join(sorted(obs))}.")
        column = obs[name]
        if hasattr(column, "keys"):
            if "categories" not in column:
                kind = column.attrs.get("encoding-type", "group")
                raise ValueError(f"{self.path}: column {name} of obs is a {kind}, which is not supported.")
            codes = values_of(column["codes"])
            if np.any(codes < 0):
                row = int(np.flatnonzero(codes < 0)[0])
                raise ValueError(f"{self.path}: row {row}, column {name}: the label is missing")
            labels: NDArray[Any] = values_of(column["categories"])[codes]
            return labels
        return values_of(column)

    def _names(self, store: Any) -> list[str] | None:
        if "var" not in store:
            return None
        var = store["var"]
        index = var.attrs.get("_index", "_index")
        if index not in var:
            return None
        return [name.decode() if isinstance(name, bytes) else str(name) for name in values_of(var[index])]

    @property
    def step(self) -> int:
        """Number of rows of a piece: whole chunks, so that none is read twice."""
        return -(-super().step // self._chunk_rows) * self._chunk_rows

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the columns: the pieces contain the parts of them that they need."""
        left = {"labels": None, "weight": None, "_indptr": None}
        return vars(self) | left

    def pieces(self) -> Iterator[Any]:
        """Yield ranges of rows with their row pointers, labels and weights."""
        for start, stop in self.ranges():
            rows = slice(start, stop)
            ends = self._indptr[start : stop + 1] if self.sparse else None
            yield rows, ends, self.labels[rows], None if self.weight is None else self.weight[rows]

    def read(self, piece: Any) -> Part:
        """Read a range of rows."""
        rows, ends, labels, weight = piece
        X = self._store()["X"]
        if ends is None:
            return Part(numeric(values_of(X, rows)), labels, weight)
        data, indices = (values_of(X[name], slice(ends[0], ends[-1])) for name in ("data", "indices"))
        matrix = sp.csr_matrix((data, indices, ends - ends[0]), shape=(rows.stop - rows.start, self.shape[1]))
        matrix.check_format(full_check=True)  # SciPy's compiled code uses the indices without checks
        return Part(numeric(matrix), labels, weight)


def values_of(array: Any, rows: slice = ALL) -> NDArray[Any]:
    """Read some rows of an array of Zarr or HDF5; codecs that could run code, such as pickle, are refused."""
    about = getattr(array, "metadata", None)
    used = (*(getattr(about, "filters", None) or ()), getattr(about, "compressor", None), *getattr(about, "codecs", ()))
    names = [codec.codec_id if hasattr(codec, "codec_id") else codec.to_dict()["name"] for codec in used if codec]
    unknown = [name for name in names if name.removeprefix("numcodecs.") not in CODECS]
    if unknown:
        raise ValueError(f"an array has the codec {unknown[0]!r}, but only {', '.join(CODECS)} are supported")
    return np.asarray(array[rows])


ANNDATA = FileFormat((".h5ad", ".zarr"), True, lambda path, y, weight, how: AnnDataReader(path, y, weight))
