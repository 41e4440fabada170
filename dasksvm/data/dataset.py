"""Data sets: labelled rows in a Zarr v3 group. A data set is written completely or not at all."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from dasksvm.data.chunked import is_sparse
from dasksvm.data.feature_names import column_order
from dasksvm.data.paths import located
from dasksvm.data.schema import read_description
from dasksvm.data.statistics import Scaling
from dasksvm.data.stored import StoredRows
from dasksvm.solver.kernels.features import Ints


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled rows in a Zarr group: `X` in chunks of whole rows, `y`, and optionally `weight` and `source`.

    Attributes
    ----------
    path : str
        Folder or URL of the group.
    shape : tuple of int
        Number of rows and number of features.
    classes : ndarray of shape (c,)
        The class labels, in order; `y` stores their numbers. Empty if the rows have no labels; then there is no `y`.
    class_counts : ndarray of int64, shape (c,)
        Number of rows of each class.
    mean, variance, minimum, maximum : ndarray of float64, shape (d,)
        Statistics of each feature, of the unscaled values on disk.
    scaling : Scaling or None
        The scaling that training applies to the rows and stores in the model.
    sparse : bool
        Whether `X` is a CSR matrix, in AnnData's encoding.
    nonzeros : int
        Number of values that `X` stores.
    names : list of str, or None
        Names of the features.
    shuffled : bool
        Whether the rows are in random order; if so, `source` stores the number of each row in the source.
    weighted : bool
        Whether the rows have weights.
    origin : str
        Where the rows came from.
    columns : ndarray of int64, shape (d,), or None
        Column of each feature on disk, if `with_features` has changed the order.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from dasksvm import Dataset
    >>> path = tempfile.mkdtemp() + "/two.zarr"
    >>> data = Dataset.create(path, np.eye(4, dtype="f4"), ["a", "b", "a", "b"], random_state=0)
    >>> data.shape, data.classes.tolist(), len(Dataset.open(path))
    ((4, 4), ['a', 'b'], 4)
    """

    path: str
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    sparse: bool
    nonzeros: int
    chunk_rows: int
    column_rows: int
    names: list[str] | None
    classes: NDArray[Any]
    class_counts: Ints
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]
    minimum: NDArray[np.float64]
    maximum: NDArray[np.float64]
    scaling: Scaling | None
    shuffled: bool
    weighted: bool
    origin: str
    columns: Ints | None = None

    @classmethod
    def open(cls, path: str | Path) -> Self:
        """Open a data set.

        Raises
        ------
        ValueError
            If there is no data set at this path, or if it is incomplete, damaged, or of another version of the format.
        """
        return cls(**read_description(located(path)))

    @classmethod
    def create(
        cls,
        path: str | Path,
        X: Any,
        y: Any = None,
        weight: Any = None,
        *,
        shuffle: bool = True,
        scale: str = "none",
        chunk_rows: int | None = None,
        random_state: Any = None,
        client: Any = None,
        watch: Callable[[str, int, float | None], None] | None = None,
        **reading: Any,
    ) -> Self:
        """Write rows and labels to a new Zarr group and open it. The memory that this needs does not grow with the data.

        Parameters
        ----------
        path : str or Path
            A folder that does not exist yet, or a URL at which nothing exists.
        X : array of shape (n, d), dataframe, or path of a file
            A NumPy, SciPy CSR or Dask array, a pandas or Dask dataframe, or a file: CSV or svmlight (also as .gz or .bz2), NPY,
            NPZ, Parquet or AnnData. The numeric type is kept; text is parsed to float32. CSR and svmlight are stored as CSR.
        y : array of shape (n,), str or False
            Class labels, which can be of any type that can be sorted. For a Dask dataframe, or a file that contains the labels,
            this is the name of their column, or its number in a CSV file. If it is None, the column called label, target, class
            or y is used, and in a CSV file without such a column the last one. For NPY and NPZ files this is an array, the name
            of an array in the archive ("y" if None), or the path of a file: NPY, or text with one label per line. False means
            that there are no labels, as in the pool of an `ActiveLearner`.
        weight : array of shape (n,), or str, optional
            Weights of the rows, given like `y`.
        shuffle : bool, default=True
            Whether to write the rows in random order, which online training needs. The original row numbers are kept.
        scale : {"none", "minmax", "standard"}, default="none"
            The scaling that training applies to the features; the rows are stored unscaled.
        chunk_rows : int, optional
            Number of rows of a chunk. If not given, it follows from `dasksvm.chunk-bytes`.
        random_state : int, RandomState or None, default=None
            Determines the order of the rows.
        client : distributed.Client, optional
            A client of a cluster whose workers read the file. Dask collections are computed on the current cluster.
        watch : callable, optional
            Called with "reading" or "writing", the number of rows so far, and their share of all rows (None if unknown).
        **reading
            Options for files. `format`: "csv", "svmlight", "npy", "npz", "parquet" or "anndata", needed if the file name does
            not show it; `header`: whether a CSV file has a header line; `features`: number of features of an svmlight file;
            `zero_based`: whether the indices of an svmlight file begin with 0; `dtype`: type for values parsed from text.
        """
        from dasksvm.data.ingest.readers.reader import Reading
        from dasksvm.data.ingest.readers.registry import reader_of
        from dasksvm.data.ingest.writer import Writing, write

        seed = int(check_random_state(random_state).randint(1 << 31)) if shuffle else 0
        target = located(path)
        reader = reader_of(X, y, weight, Reading(**reading))
        write(target, reader, Writing(y is not False, shuffle, scale, chunk_rows, seed), client, watch or _ignore)
        return cls.open(target)

    def __len__(self) -> int:
        return self.shape[0]

    @cached_property
    def _features(self) -> StoredRows:
        return StoredRows(self.path, "X", len(self), self.chunk_rows, self.shape[1] if self.sparse else None)

    def _column(self, name: str) -> StoredRows:
        if name not in self._columns:
            self._columns[name] = StoredRows(self.path, name, len(self), self.column_rows)
        return self._columns[name]

    @cached_property
    def _columns(self) -> dict[str, StoredRows]:
        return {}

    def __reduce__(self) -> Any:
        """Pickle the description of the data, not the data."""
        return _unpickled, ({name: getattr(self, name) for name in self.__dataclass_fields__},)

    def stored_bytes(self) -> int:
        """Return the total size in bytes of all files of the data set."""
        from dasksvm.data.stores import size_at

        return size_at(self.path)

    @property
    def labelled(self) -> bool:
        """Whether the rows have labels."""
        return len(self.classes) > 0

    def needs_labels(self) -> Self:
        """Return this data set; raise ValueError if its rows have no labels."""
        if not self.labelled:
            raise ValueError(f"{self.path} has no labels: it was created without them.")
        return self

    def with_features(self, names: Sequence[str] | None) -> Self:
        """Return this data set with its columns in the order of these feature names.

        Nothing is copied: the columns are reordered in each batch of rows that is read.

        Parameters
        ----------
        names : sequence of str, or None
            The feature names of a model. If this is None, or the data set has no names, the order is not changed.

        Raises
        ------
        ValueError
            If the data set has other names; the message lists the differences.
        """
        order = column_order(self.names, names, self.path)
        if order is None:
            return self
        assert names is not None
        scaling = self.scaling
        if scaling is not None:
            scaling = Scaling(scaling.offset[order], scaling.factor[order])
        return replace(
            self,
            names=list(names),
            mean=self.mean[order],
            variance=self.variance[order],
            minimum=self.minimum[order],
            maximum=self.maximum[order],
            scaling=scaling,
            columns=order if self.columns is None else self.columns[order],
        )

    def chunks(self) -> tuple[int, ...]:
        """Return the number of rows of each chunk."""
        return self._features.chunks

    def rows(self, ids: Ints) -> Any:
        """Read some rows, unscaled: an array or CSR matrix of shape (m, d). The most recent chunks are cached."""
        return self._in_order(self._features.raw(np.asarray(ids, np.int64)))

    def part(self, at: int) -> Any:
        """Read a chunk of rows without caching it."""
        return self._in_order(self._features.read(at))

    def _in_order(self, rows: Any) -> Any:
        """Reorder the columns of some rows from their order on disk to the order of the features."""
        if self.columns is None:
            return rows
        if not is_sparse(rows):
            # rows[:, columns] would give an array in column order in memory.
            return np.take(rows, self.columns, axis=1)
        place = np.empty_like(self.columns)
        place[self.columns] = np.arange(len(place))
        ordered = sp.csr_matrix(
            (rows.data.copy(), place[rows.indices].astype(rows.indices.dtype), rows.indptr), shape=rows.shape
        )
        ordered.sort_indices()
        return ordered

    def codes(self, ids: Ints) -> Ints:
        """Read the class numbers of some rows, shape (m,)."""
        codes: Ints = self.needs_labels()._column("y").raw(np.asarray(ids, np.int64)).astype(np.int64)
        if codes.max(initial=0) >= len(self.classes):
            raise ValueError(f"{self.path} is damaged: the array y has the class number {codes.max()}.")
        return codes

    def labels(self, ids: Ints) -> NDArray[Any]:
        """Read the labels of some rows, shape (m,)."""
        labels: NDArray[Any] = self.classes[self.codes(ids)]
        return labels

    def weights(self, ids: Ints) -> NDArray[np.float64]:
        """Read the weights of some rows, shape (m,); 1 if they have none."""
        if not self.weighted:
            return np.ones(len(ids))
        weights: NDArray[np.float64] = self._column("weight").raw(np.asarray(ids, np.int64))
        if weights.min(initial=0.0) < 0.0:
            raise ValueError(f"{self.path} is damaged: the array weight has the value {weights.min()}.")
        return weights

    def source_rows(self, ids: Ints) -> Ints:
        """Return the row numbers of some rows in the source, shape (m,)."""
        ids = np.asarray(ids, np.int64)
        if not self.shuffled:
            return ids
        rows: Ints = self._column("source").raw(ids)
        if rows.min(initial=0) < 0:
            raise ValueError(f"{self.path} is damaged: the array source has the row {rows.min()}.")
        return rows

    def ids_of(self, source_rows: Ints) -> Ints:
        """Return the ids of some rows of the source in this data set, shape (m,); -1 for rows that it does not have."""
        source_rows = np.asarray(source_rows, np.int64)
        if not self.shuffled:
            return np.where((source_rows >= 0) & (source_rows < len(self)), source_rows, -1)
        ids = np.full(len(source_rows), -1, np.int64)
        for start in range(0, len(self), self.column_rows):
            found = self.source_rows(np.arange(start, min(start + self.column_rows, len(self))))
            order = np.argsort(found)
            at = np.minimum(np.searchsorted(found[order], source_rows), len(found) - 1)
            here = found[order[at]] == source_rows
            ids[here] = start + order[at[here]]
        return ids

    def as_dask(self) -> tuple[Any, Any]:
        """Return the unscaled rows and the labels as lazy Dask arrays; the blocks of sparse rows are CSR matrices.

        The labels are None if there are none.
        """
        import dask.array as da

        chunks = self.chunks()
        numbers = da.arange(len(chunks), chunks=1)
        empty = sp.csr_matrix if self.sparse else np.empty
        meta: Any = empty((0, self.shape[1]), dtype=self.dtype)
        wide = {"new_axis": 1, "chunks": (chunks, (self.shape[1],))}
        X = numbers.map_blocks(_part, self, dtype=self.dtype, meta=meta, **wide)
        if not self.labelled:
            return X, None
        first = da.from_array(np.cumsum((0, *chunks[:-1])), chunks=1)
        labels = numbers.map_blocks(_labels, first, self, dtype=self.classes.dtype, chunks=(chunks,))
        return X, labels


def _part(number: NDArray[np.int64], data: Dataset) -> Any:
    return data.part(int(number[0]))


def _labels(number: NDArray[np.int64], first: NDArray[np.int64], data: Dataset) -> NDArray[Any]:
    return data.labels(first[0] + np.arange(data.chunks()[int(number[0])]))


def _ignore(phase: str, rows: int, share: float | None) -> None:
    pass


def _unpickled(fields: dict[str, Any]) -> Dataset:
    return Dataset(**fields)
