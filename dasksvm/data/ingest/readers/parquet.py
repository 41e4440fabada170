"""A reader of Parquet files."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.data.blocks import BadRow, Part
from dasksvm.data.ingest.readers.arrays import no_labels, numeric
from dasksvm.data.ingest.readers.reader import PIECE_BYTES, FileFormat
from dasksvm.data.ingest.readers.text import LABELS


class ParquetReader:
    """Rows of a Parquet file, or of all Parquet files in a folder; the features are columns, or one column of lists.

    Parameters
    ----------
    path : str
    label : str, optional
        Name of a column. If not given, it is the one called label, target, class or y. False means that there are no labels.
    weight : str, optional
        Name of a column.
    """

    portable = False
    count: int | None = None

    def __init__(self, path: str, label: str | bool | None, weight: str | None) -> None:
        self.path = self.origin = path
        found = sorted(str(file) for file in Path(path).glob("*.parquet")) if Path(path).is_dir() else [path]
        if not found:
            raise ValueError(f"{path} contains no .parquet files.")
        self._files = [(name, _open_file(name)) for name in found]
        schema = self._files[0][1].schema_arrow
        columns = list(schema.names)
        usual = [name for name in columns if name.lower() in LABELS]
        if label is None and len(usual) != 1:
            raise ValueError(f"{path}: set y (--label) to the column that has the labels; it has {', '.join(columns)}.")
        self.label, self.weight = usual[0] if label is None else label, weight
        for column in (self.label, self.weight):
            if isinstance(column, str) and column not in columns:
                raise ValueError(f"{path} has no column {column!r}; it has {', '.join(columns)}.")
        index = [name for name in (schema.pandas_metadata or {}).get("index_columns", []) if isinstance(name, str)]
        self.columns = [name for name in columns if name not in (self.label, self.weight, *index)]
        kinds = [_kinds(name, file.schema_arrow, self.columns) for name, file in self._files]
        self._nested = kinds[0][1]
        self.dtype = np.result_type(*(dtype for dtype, _ in kinds))
        rows = sum(file.metadata.num_rows for _, file in self._files)
        width = self._list_width() if self._nested else len(self.columns)
        self.names: list[str] | None = None if self._nested else self.columns
        self.width: int | None = width
        self.bytes = rows * width * self.dtype.itemsize
        self._step = max(PIECE_BYTES // max(width * self.dtype.itemsize, 1), 1)

    def _list_width(self) -> int:
        file = self._files[0][1]
        first = next(file.iter_batches(batch_size=1, columns=self.columns), None)
        return 0 if first is None or first.num_rows == 0 else len(first.column(0)[0].as_py() or ())

    def pieces(self) -> Iterator[Any]:
        """Yield batches of decoded rows."""
        needed = [*self.columns, *(column for column in (self.label, self.weight) if isinstance(column, str))]
        for name, file in self._files:
            absent = [column for column in needed if column not in file.schema_arrow.names]
            if absent:
                raise ValueError(f"{name} has no column {absent[0]!r}.")
            yield from file.iter_batches(batch_size=self._step, columns=needed)

    def read(self, piece: Any) -> Part:
        """Convert a batch of rows."""
        for column, values in zip(piece.schema.names, piece.columns, strict=True):
            if values.null_count:
                row = int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0])
                raise BadRow(row, column, "the value is missing")
        X = self._lists(piece.column(0)) if self._nested else np.empty((piece.num_rows, len(self.columns)), self.dtype)
        if not self._nested:
            for at in range(len(self.columns)):
                X[:, at] = piece.column(at).to_numpy(zero_copy_only=False)
        labels = no_labels(piece.num_rows) if self.label is False else self._values(piece, self.label)
        weight = None if self.weight is None else self._values(piece, self.weight)
        return Part(numeric(X), labels, None if weight is None else weight.astype(np.float64))

    def _values(self, piece: Any, column: Any) -> NDArray[Any]:
        values: NDArray[Any] = piece.column(piece.schema.get_field_index(column)).to_numpy(zero_copy_only=False)
        return values

    def _lists(self, lists: Any) -> NDArray[Any]:
        import pyarrow.compute as pc

        lengths = pc.list_value_length(lists).to_numpy(zero_copy_only=False)
        wrong = np.flatnonzero(lengths != self.width)
        if len(wrong):
            raise BadRow(
                int(wrong[0]), self.columns[0], f"the list has {lengths[wrong[0]]} values, expected {self.width}"
            )
        values = lists.flatten().to_numpy(zero_copy_only=False).astype(self.dtype, copy=False)
        return np.asarray(values.reshape(len(lists), self.width))


def _open_file(name: str) -> Any:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise ImportError("Parquet files need pyarrow: pip install 'dasksvm[parquet]'.") from None
    try:
        return pq.ParquetFile(name)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{name} is not a complete Parquet file: {str(error).splitlines()[0]}") from None


def _kinds(path: str, schema: Any, columns: list[str]) -> tuple[np.dtype[Any], bool]:
    """Return the common type of the features, and whether they are one column of lists."""
    import pyarrow.types as kinds

    absent = [name for name in columns if name not in schema.names]
    if absent:
        raise ValueError(f"{path} has no column {absent[0]!r}.")
    types = [schema.field(name).type for name in columns]
    listed = (kinds.is_list, kinds.is_fixed_size_list, kinds.is_large_list)
    nested = len(types) == 1 and any(is_kind(types[0]) for is_kind in listed)
    inner = [kind.value_type if nested else kind for kind in types]
    for name, kind in zip(columns, inner, strict=True):
        if not (kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind)):
            raise ValueError(f"{path}: column {name} is not numeric but {kind}.")
    dtypes = [np.dtype(kind.to_pandas_dtype()) for kind in inner]
    return (np.result_type(*dtypes) if dtypes else np.dtype(np.float32)), nested


PARQUET = FileFormat((".parquet", ".pq"), True, lambda path, y, weight, how: ParquetReader(path, y, weight))
