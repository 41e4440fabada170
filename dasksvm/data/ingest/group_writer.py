"""Writes the Zarr group of a data set: rows in whole chunks first, and the description last."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm import config
from dasksvm.data.blocks import Block, joined
from dasksvm.data.chunked import is_sparse
from dasksvm.data.schema import ATTRIBUTE, STATISTICS, VERSION
from dasksvm.data.statistics import FeatureStatistics, Scaling

# Largest number of rows in a chunk of labels, weights and source rows, and about how many bytes of X are written at a time.
COLUMN_ROWS, WRITE_BYTES = 1 << 16, 64 << 20
# Fill values: what other programs read where a chunk is missing, chosen so that they are not mistaken for data (NaN for floating
# point; an integer X has no such value). dasksvm writes all chunks and reports a missing one as an error
# (`stores.CompleteStore`).
NEVER = {"y": 255, "source": -1, "X/indices": -1, "X/indptr": -1}


class GroupWriter:
    """Appends blocks to the arrays of a new group.

    Parameters
    ----------
    store : Store
        An empty Zarr store.
    first : Block
        Determines the layout and the types.
    chunk_rows : int, optional
        Number of rows of a chunk. If not given, it follows from `dasksvm.chunk-bytes`.
    labelled : bool
        Whether the rows have labels.
    shuffled : bool
        Whether the source row of each row is written.
    """

    def __init__(self, store: Any, first: Block, chunk_rows: int | None, labelled: bool, shuffled: bool) -> None:
        import zarr

        self.group = zarr.open_group(store, mode="w-")
        self.group.attrs[ATTRIBUTE] = {"version": VERSION, "complete": False}
        self.sparse = is_sparse(first.X)
        row_bytes = _bytes(first.X) / max(len(first), 1)
        by_bytes = int(config.bytes_of("chunk-bytes") // max(row_bytes, 1))
        self.chunk_rows = chunk_rows or max(by_bytes, 1)
        most = min(COLUMN_ROWS, int(WRITE_BYTES // max(row_bytes, 1)))
        self.column_rows = self.chunk_rows * max(most // self.chunk_rows, 1)
        self.rows = self.width = 0
        self._arrays: dict[str, Any] = {}
        if self.sparse:
            chunk = max(int(config.bytes_of("chunk-bytes")) // first.X.data.itemsize, 1)
            self._add("X/data", first.X.dtype, chunk)
            self._add("X/indices", np.dtype(np.int32), chunk)
            self._add("X/indptr", np.dtype(np.int64), self.column_rows)
            _append(self._arrays["X/indptr"], np.zeros(1, np.int64))
        else:
            self._add("X", first.X.dtype, self.chunk_rows, first.X.shape[1])
        if labelled:
            self._add("y", np.dtype(np.uint8), self.column_rows)
        if first.weight is not None:
            self._add("weight", np.dtype(np.float64), self.column_rows)
        if shuffled:
            self._add("source", np.dtype(np.int64), self.column_rows)

    def _add(self, name: str, dtype: np.dtype[Any], chunk: int, width: int | None = None) -> None:
        wide = () if width is None else (width,)
        self._arrays[name] = self.group.create_array(
            name,
            shape=(0, *wide),
            chunks=(chunk, *wide),
            dtype=dtype,
            compressors=packing(),
            fill_value=np.nan if dtype.kind == "f" else NEVER.get(name, 0),
            config={"write_empty_chunks": True},
        )

    def write(self, blocks: Iterator[Block]) -> None:
        """Write all blocks; each write but the last ends at the end of a chunk of rows."""
        held: list[Block] = []
        size = 0
        for block in blocks:
            held.append(block)
            size += len(block)
            if size >= self.column_rows:
                everything = joined(held)
                whole = size - size % self.column_rows
                self._write(everything.take(slice(0, whole)))
                held, size = [everything.take(slice(whole, None))], size - whole
        if size:
            self._write(joined(held))

    def _write(self, block: Block) -> None:
        arrays: dict[str, Any] = {"y": block.codes, "weight": block.weight, "source": block.source}
        if self.sparse:
            start = self._arrays["X/data"].shape[0]
            arrays |= {"X/data": block.X.data, "X/indices": block.X.indices}
            arrays["X/indptr"] = block.X.indptr[1:].astype(np.int64) + start
        else:
            arrays["X"] = block.X
        for name in self._arrays:
            _append(self._arrays[name], arrays[name])
        self.rows += len(block)
        self.width = max(self.width, block.X.shape[1])

    def renumber(self, table: NDArray[np.uint8]) -> None:
        """Replace each class number by table[number]."""
        if "y" not in self._arrays or np.array_equal(table, np.arange(len(table))):
            return
        import zarr

        from dasksvm.data.stores import CompleteStore

        written: Any = zarr.open_group(CompleteStore(self.group.store), mode="r+", zarr_format=3)
        for start in range(0, self.rows, self.column_rows):
            part = slice(start, min(start + self.column_rows, self.rows))
            self._arrays["y"][part] = table[written["y"][part]]

    def describe(self, statistics: FeatureStatistics, scaling: Scaling | None) -> None:
        """Write the statistics and the scaling of the features."""
        columns = [getattr(statistics, name) for name in STATISTICS]
        columns += [] if scaling is None else [scaling.offset, scaling.factor]
        self.group.create_array("features", data=np.array(columns), compressors=packing(), fill_value=np.nan)

    def conclude(self, about: dict[str, Any]) -> None:
        """Write the description, which marks the group as a complete data set."""
        if self.sparse:
            shape = [self.rows, self.width]
            attributes: dict[str, Any] = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": shape}
            self.group["X"].attrs.update(attributes)
        layout: dict[str, Any] = {
            "shape": [self.rows, self.width],
            "sparse": self.sparse,
            "chunk_rows": min(self.chunk_rows, self.rows),
            "column_rows": self.column_rows,
        }
        self.group.attrs[ATTRIBUTE] = {"version": VERSION, **layout, **about, "complete": True}


def packing() -> Any:
    """Return the codec of all arrays. It has a checksum, so that damage is detected when a chunk is read."""
    from zarr.codecs import ZstdCodec

    return ZstdCodec(level=0, checksum=True)


def _append(array: Any, values: NDArray[Any]) -> None:
    start = array.shape[0]
    array.resize((start + len(values), *array.shape[1:]))
    array[start:] = values


def _bytes(X: Any) -> int:
    return int(X.data.nbytes + X.indices.nbytes if hasattr(X, "indptr") else X.nbytes)
