"""Dataset: labelled rows in a Zarr v3 group, complete or absent."""

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
from dasksvm.data.schema import described
from dasksvm.data.statistics import Scaling
from dasksvm.data.stored import StoredRows
from dasksvm.solver.kernels.features import Ints


@dataclass(frozen=True, eq=False)
class Dataset:
    """Labelled rows in a Zarr group: `X` in chunks of whole rows, `y`, and perhaps `weight` and `source`.

    Attributes
    ----------
    path : str
    shape : tuple of int
        Rows and features.
    classes : ndarray of shape (c,)
        The labels that `y` holds the numbers of; none where the rows have no labels, and no `y`.
    class_counts : ndarray of int64, shape (c,)
    mean, variance, minimum, maximum : ndarray of float64, shape (d,)
        Of each feature, as it is on disk.
    scaling : Scaling or None
        The map that training applies to the rows and the model carries.
    sparse : bool
        Whether `X` is a CSR matrix, in AnnData's encoding.
    nonzeros : int
        Values that `X` stores.
    names : list of str, or None
        Of the features.
    shuffled : bool
        Whether the rows are in random order; `source` has the row that each was.
    weighted : bool
        Whether the rows have weights.
    origin : str
        Where the rows came from.
    columns : ndarray of int64, shape (d,), or None
        Where each feature is on disk, if the columns have been brought into another order (`with_features`).

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
            If there is nothing, something else, an incomplete or damaged data set, or one of another version.
        """
        return cls(**described(located(path)))

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
        """Write rows and labels to a new Zarr group, in bounded memory, and open it.

        Parameters
        ----------
        path : str or Path
            Of a folder that does not exist yet, or a URL with nothing below it.
        X : array of shape (n, d), dataframe, or path of a file
            NumPy, SciPy CSR and Dask arrays, pandas and Dask dataframes; CSV, svmlight (these also as .gz or .bz2), NPY, NPZ,
            Parquet, AnnData. The numeric type is kept; text becomes float32. CSR and svmlight are stored as CSR.
        y : array of shape (n,), str or False
            Labels of any type that sorts. Of a Dask dataframe, and of a file that has the labels too: their column by name, of
            CSV also by number; None: the one called label, target, class or y, of CSV else the last. Of NPY and NPZ: an
            array, the name of one in the archive (None: "y"), or the path of a file, NPY or a value a line. False: there are no
            labels, as in the pool of an `ActiveLearner`.
        weight : array of shape (n,), or str, optional
            As y.
        shuffle : bool, default=True
            Whether to bring the rows into random order, which online training needs; the source rows are kept.
        scale : {"none", "minmax", "standard"}, default="none"
            The affine map that training applies; the rows on disk stay as they are.
        chunk_rows : int, optional
            Rows of a chunk; from `dasksvm.chunk-bytes` if not given.
        random_state : int, RandomState or None, default=None
            Decides the order.
        client : distributed.Client, optional
            Of a cluster whose workers read the file. Dask collections are computed on the current one.
        watch : callable, optional
            Told "reading" or "writing", the rows so far, and their share of all (None: unknown).
        **reading
            Of files. `format`: "csv", "svmlight", "npy", "npz", "parquet" or "anndata", where the name does not tell;
            `header`: whether a CSV file has one; `features`: number of features of an svmlight file; `zero_based`: whether its
            indices begin with 0; `dtype`: what text becomes.
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
        """Pickle what is known of the data, not the data."""
        return _again, ({name: getattr(self, name) for name in self.__dataclass_fields__},)

    def stored_bytes(self) -> int:
        """Sum up the bytes of all files of the data set."""
        from dasksvm.data.stores import size_at

        return size_at(self.path)

    @property
    def labelled(self) -> bool:
        """Whether the rows have labels."""
        return len(self.classes) > 0

    def needs_labels(self) -> Self:
        """Raise ValueError if the rows have no labels."""
        if not self.labelled:
            raise ValueError(f"{self.path} has no labels: it was ingested without.")
        return self

    def with_features(self, names: Sequence[str] | None) -> Self:
        """Give this data set with its columns in the order of these feature names.

        Nothing is copied: the columns are put in order in each batch of rows that is read.

        Parameters
        ----------
        names : sequence of str, or None
            As a model has them. With None, or where this data set has no names, the columns stay as they are.

        Raises
        ------
        ValueError
            If the data set has other names; it names the difference.
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
        """Give the rows of each chunk."""
        return self._features.chunks

    def rows(self, ids: Ints) -> Any:
        """Read some rows, unscaled, an array or CSR matrix of shape (m, d); the last few chunks are kept."""
        return self._in_order(self._features.raw(np.asarray(ids, np.int64)))

    def part(self, at: int) -> Any:
        """Read a chunk of rows, which is not kept."""
        return self._in_order(self._features.read(at))

    def _in_order(self, rows: Any) -> Any:
        """Bring the columns of some rows from their order on disk into that of the features."""
        if self.columns is None:
            return rows
        if not is_sparse(rows):
            # Not rows[:, columns], which numpy lays out by columns.
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
        """Tell which rows of the source some rows are, shape (m,)."""
        ids = np.asarray(ids, np.int64)
        if not self.shuffled:
            return ids
        rows: Ints = self._column("source").raw(ids)
        if rows.min(initial=0) < 0:
            raise ValueError(f"{self.path} is damaged: the array source has the row {rows.min()}.")
        return rows

    def ids_of(self, source_rows: Ints) -> Ints:
        """Tell which rows here some rows of the source are, shape (m,); -1 where there is none."""
        wanted = np.asarray(source_rows, np.int64)
        if not self.shuffled:
            return np.where((wanted >= 0) & (wanted < len(self)), wanted, -1)
        ids = np.full(len(wanted), -1, np.int64)
        for start in range(0, len(self), self.column_rows):
            found = self.source_rows(np.arange(start, min(start + self.column_rows, len(self))))
            order = np.argsort(found)
            at = np.minimum(np.searchsorted(found[order], wanted), len(found) - 1)
            here = found[order[at]] == wanted
            ids[here] = start + order[at[here]]
        return ids

    def as_dask(self) -> tuple[Any, Any]:
        """Give the rows, as they are on disk, and the labels as lazy Dask arrays; sparse rows as blocks of CSR matrices.

        The labels are None where there are none.
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


def _again(fields: dict[str, Any]) -> Dataset:
    return Dataset(**fields)
