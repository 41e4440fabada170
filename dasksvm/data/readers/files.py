"""Readers of binary files: NPY, NPZ, Parquet, AnnData."""

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dasksvm.data.blocks import Part
from dasksvm.data.readers.arrays import ArrayReader, columns_of, numeric
from dasksvm.data.readers.reader import RowRanges

CSR_KEYS = {"data", "indices", "indptr", "shape"}


def _column(given: Any) -> Any:
    """Read labels or weights that are given as a file: NPY, or text with one value a line."""
    if not isinstance(given, (str, Path)):
        return given
    try:
        return np.load(given) if str(given).endswith(".npy") else np.loadtxt(given, dtype=np.str_, ndmin=1)
    except ValueError as error:
        raise ValueError(f"{given}: {error}") from None


def npy_reader(path: str, y: Any, weight: Any) -> ArrayReader:
    """Make a reader of an array file, which is mapped and not read at once."""
    try:
        X = np.load(path, mmap_mode="r")
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is no whole array file: {error}") from None
    if y is None:
        raise ValueError(f"{path} has no labels: they are an array or a file of their own.")
    return ArrayReader(X, _column(y), _column(weight), path)


class NpzReader(RowRanges):
    """Arrays of a zip archive, read as streams: a matrix, or the arrays of a CSR matrix, and labels.

    Parameters
    ----------
    path : str
    y, weight : array of shape (n,), name of an array in the archive, or path of a file
        y is "y" if not given.
    """

    names: list[str] | None = None
    portable = False

    def __init__(self, path: str, y: Any, weight: Any) -> None:
        self.path = self.origin = path
        try:
            with np.load(path) as archive:
                keys = set(archive.files)
                self.sparse = keys >= CSR_KEYS
                if not self.sparse and "X" not in keys:
                    raise ValueError(f"it has the arrays {', '.join(sorted(keys))}, but no X and no CSR matrix")
                y = "y" if y is None else y
                if isinstance(y, str) and y not in keys and not Path(y).exists():
                    raise ValueError(f"it has the arrays {', '.join(sorted(keys))}, but no {y!r} of labels")
                y, weight = (
                    archive[key] if isinstance(key, str) and key in keys else _column(key) for key in (y, weight)
                )
                self.labels, self.weight = columns_of(y, weight, None)
                self._indptr = archive["indptr"].astype(np.int64) if self.sparse else np.zeros(0, np.int64)
                shape = tuple(int(size) for size in archive["shape"]) if self.sparse else None
            self.shape, self.bytes = self._measure(shape)
        except (ValueError, EOFError, zipfile.BadZipFile) as error:
            raise ValueError(f"{path} cannot be read: {error}") from None
        if len(self.labels) != self.shape[0]:
            raise ValueError(f"{path}: X has {self.shape[0]} rows, but there are {len(self.labels)} labels.")
        self.width: int | None = self.shape[1]

    def _measure(self, shape: tuple[int, ...] | None) -> tuple[tuple[int, ...], int]:
        with zipfile.ZipFile(self.path) as archive, _Member(archive, "data" if self.sparse else "X") as member:
            shape = member.shape if shape is None else shape
            numeric(np.empty(0, member.dtype))
            stored = int(self._indptr[-1]) if self.sparse else int(np.prod(shape))
            size = stored * (member.dtype.itemsize + (4 if self.sparse else 0))
        if len(shape) != 2 or 0 in shape:
            raise ValueError(f"X has the shape {shape}: there is nothing to write.")
        return shape, size

    def pieces(self) -> Iterator[Part]:
        """Yield the parts themselves: a stream is read in one place."""
        names = ["data", "indices"] if self.sparse else ["X"]
        try:
            with zipfile.ZipFile(self.path) as archive:
                members = [_Member(archive, name) for name in names]
                for start, stop in self.ranges():
                    weight = None if self.weight is None else self.weight[start:stop]
                    yield Part(self._rows(members, start, stop), self.labels[start:stop], weight)
        except (EOFError, zipfile.BadZipFile, ValueError) as error:
            raise ValueError(f"{self.path} cannot be read: {error}") from None

    def _rows(self, members: list["_Member"], start: int, stop: int) -> Any:
        if not self.sparse:
            return numeric(members[0].take((stop - start) * self.shape[1]).reshape(-1, self.shape[1]))
        ends = self._indptr[start : stop + 1]
        data, indices = (member.take(int(ends[-1] - ends[0])) for member in members)
        return numeric(sp.csr_matrix((data, indices, ends - ends[0]), shape=(stop - start, self.shape[1])))

    def read(self, piece: Part) -> Part:
        """Give the part."""
        return piece


class _Member:
    """An array in a zip archive, as a stream of its values."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self._file: IO[bytes] = archive.open(f"{name}.npy")
        version = np.lib.format.read_magic(self._file)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        self.shape, fortran, self.dtype = read(self._file)
        if fortran and len(self.shape) > 1:
            raise ValueError(f"{name} is in Fortran order, which cannot be read row by row: save it in C order")

    def __enter__(self) -> "_Member":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def take(self, count: int) -> NDArray[Any]:
        """Read the next values."""
        size = count * self.dtype.itemsize
        found = self._file.read(size)
        if len(found) != size:
            raise EOFError("the data end early")
        return np.frombuffer(found, self.dtype)


class ParquetReader:
    """Row groups of a Parquet file, or of the files of a folder; the features are columns, or one column of lists.

    Parameters
    ----------
    path : str
    label : str, optional
        A column; the one called label, target, class or y if not given.
    weight : str, optional
    """

    portable = True

    def __init__(self, path: str, label: str | None, weight: str | None) -> None:
        self.path = self.origin = path
        files = sorted(str(file) for file in Path(path).glob("*.parquet")) if Path(path).is_dir() else [path]
        if not files:
            raise ValueError(f"{path} has no Parquet files.")
        self._groups: list[tuple[str, int]] = []
        self.bytes = 0
        for name in files:
            metadata = self._opened(name).metadata
            groups = range(metadata.num_row_groups)
            self._groups += [(name, group) for group in groups]
            self.bytes += sum(metadata.row_group(group).total_byte_size for group in groups)
        self.count: int | None = len(self._groups)
        schema = self._opened(files[0]).schema_arrow
        columns = list(schema.names)
        usual = [name for name in columns if name.lower() in ("label", "target", "class", "y")]
        if label is None and len(usual) != 1:
            raise ValueError(f"{path}: which column is the label? There are {', '.join(columns)}.")
        self.label, self.weight = usual[0] if label is None else label, weight
        for column in (self.label, self.weight):
            if column is not None and column not in columns:
                raise ValueError(f"{path} has no column {column!r}; it has {', '.join(columns)}.")
        self.columns = [name for name in columns if name not in (self.label, self.weight)]
        self._check_columns(schema)

    def _opened(self, name: str) -> Any:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise ImportError("Parquet files need pyarrow: pip install 'dasksvm[parquet]'.") from None
        try:
            return pq.ParquetFile(name)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"{name} is no whole Parquet file: {str(error).splitlines()[0]}") from None

    def _check_columns(self, schema: Any) -> None:
        import pyarrow.types as kinds

        types = [schema.field(name).type for name in self.columns]
        self._nested = len(types) == 1 and (kinds.is_list(types[0]) or kinds.is_fixed_size_list(types[0]))
        for name, kind in zip(self.columns, types, strict=True):
            inner = kind.value_type if self._nested else kind
            if not (kinds.is_integer(inner) or kinds.is_floating(inner) or kinds.is_boolean(inner)):
                raise ValueError(f"{self.path}: column {name} is no number but {kind}.")
        self.names: list[str] | None = None if self._nested else self.columns
        self.width: int | None = None if self._nested else len(self.columns)
        dtypes = [np.dtype((kind.value_type if self._nested else kind).to_pandas_dtype()) for kind in types]
        self.dtype = np.result_type(*dtypes) if dtypes else np.dtype(np.float32)

    def pieces(self) -> Iterator[tuple[str, int]]:
        """Yield files and row groups."""
        yield from self._groups

    def read(self, piece: tuple[str, int]) -> Part:
        """Read a row group."""
        name, group = piece
        table = self._opened(name).read_row_group(group, use_threads=False)
        missing = [column for column in table.column_names if table[column].null_count]
        if missing:
            raise _missing(table, missing[0])
        X = self._nested_rows(table) if self._nested else np.empty((table.num_rows, len(self.columns)), self.dtype)
        if not self._nested:
            for at, column in enumerate(self.columns):
                X[:, at] = table[column].to_numpy()
        weight = None if self.weight is None else table[self.weight].to_numpy().astype(np.float64)
        return Part(numeric(X), table[self.label].to_numpy(), weight)

    def _nested_rows(self, table: Any) -> NDArray[Any]:
        lists = table[self.columns[0]].combine_chunks()
        values = lists.flatten().to_numpy(zero_copy_only=False)
        if len(lists) and len(values) % len(lists):
            raise ValueError(f"{self.path}: the lists of column {self.columns[0]} differ in length.")
        return np.asarray(values.reshape(len(lists), -1))


def _missing(table: Any, column: str) -> Exception:
    from dasksvm.data.blocks import BadRow

    row = int(np.flatnonzero(table[column].is_null().to_numpy())[0])
    return BadRow(row, column, "the value is missing")
