"""Writing a data set: blocks of rows in, whole chunks out, a marker last, a rename at the end."""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import column_or_1d

from dasksvm import config
from dasksvm.data.chunked import is_dask
from dasksvm.data.dataset import ATTRIBUTE, VERSION
from dasksvm.data.statistics import SCALES, FeatureStatistics
from dasksvm.solver.features import Ints

# Rows that are in memory at once, in bytes.
BLOCK_BYTES = 64 << 20


class Block(NamedTuple):
    """Some rows on their way to the disk.

    Attributes
    ----------
    X : ndarray of shape (m, d)
    codes, source : ndarray of shape (m,)
        Class numbers; rows of the source.
    weight : ndarray of shape (m,)
    """

    X: NDArray[Any]
    codes: NDArray[Any]
    weight: NDArray[Any]
    source: NDArray[Any]

    def take(self, rows: Ints | slice) -> "Block":
        """Give some of the rows."""
        return Block(*(array[rows] for array in self))


def write(
    path: str,
    X: Any,
    y: Any,
    weight: Any,
    shuffle: bool,
    scale: str,
    chunk_rows: int | None,
    random_state: Any,
) -> None:
    """Write a data set (see `Dataset.create`)."""
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}. Got {scale!r} instead.")
    if chunk_rows is not None and chunk_rows < 1:
        raise ValueError(f"chunk_rows must be at least 1. Got {chunk_rows!r} instead.")
    rows = _Rows(X, y, weight)
    local = "://" not in path
    if local and Path(path).exists():
        raise FileExistsError(f"{path} is there already.")
    target = f"{Path(path).parent}/.{Path(path).name}.{os.getpid()}.part" if local else path
    seed = int(check_random_state(random_state).randint(1 << 31)) if shuffle else 0
    try:
        if local:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=Path(path).parent if local else None, prefix=".dasksvm-") as folder:
            blocks = rows.shuffled(seed, Path(folder)) if shuffle else rows.blocks()
            _write_group(target, rows, blocks, shuffle, scale, chunk_rows)
        if local:
            os.rename(target, path)
    except BaseException:
        if local:
            shutil.rmtree(target, ignore_errors=True)
        raise


class _Rows:
    """Rows, labels and weights, validated, and given in blocks."""

    def __init__(self, X: Any, y: Any, weight: Any) -> None:
        if is_dask(X) and not hasattr(X, "blocks"):
            raise ValueError(f"X must be an array; got {type(X).__name__}: its to_dask_array(lengths=True) is one.")
        X = X if is_dask(X) else np.asarray(X)
        if X.ndim != 2:
            raise ValueError(f"X must have 2 dimensions; it has {X.ndim}.")
        if is_dask(X):
            X = X.compute_chunk_sizes() if any(np.isnan(size) for size in X.chunks[0]) else X
            X = X.rechunk({1: -1}) if len(X.chunks[1]) > 1 else X
        if X.dtype.kind not in "biuf":
            raise ValueError(f"X must be numeric; its type is {X.dtype}.")
        if X.shape[0] == 0 or X.shape[1] == 0:
            raise ValueError(f"X has {X.shape[0]} rows and {X.shape[1]} features: there is nothing to write.")
        labels = column_or_1d(y.compute() if is_dask(y) else y)
        check_classification_targets(labels)
        if len(labels) != X.shape[0]:
            raise ValueError(f"X has {X.shape[0]} rows, but y has {len(labels)}.")
        self.X = X
        self.dtype = np.dtype(np.uint8) if X.dtype == np.bool_ else X.dtype
        self.classes, codes = np.unique(labels, return_inverse=True)
        self.classes = self.classes.astype(str) if self.classes.dtype == object else self.classes
        self.codes = codes.astype(np.min_scalar_type(len(self.classes) - 1))
        self.weighted = weight is not None
        self.weight = self._check_weight(weight)
        self.origin = "dask" if is_dask(X) else "memory"

    def _check_weight(self, weight: Any) -> NDArray[np.float64]:
        if weight is None:
            return np.broadcast_to(np.float64(1.0), (len(self.codes),))
        values = np.asarray(weight.compute() if is_dask(weight) else weight, np.float64)
        if values.shape != self.codes.shape:
            raise ValueError(f"weight has the shape {values.shape}, expected {self.codes.shape}.")
        if not np.all(np.isfinite(values) & (values >= 0)):
            raise ValueError("weight must be finite and not negative.")
        return values

    def _block(self, start: int, stop: int, X: NDArray[Any]) -> Block:
        if hasattr(X, "toarray"):
            raise ValueError("X has sparse blocks: data sets are dense for now.")
        X = np.asarray(X, self.dtype)
        if X.dtype.kind == "f" and not np.all(np.isfinite(X)):
            row, column = np.argwhere(~np.isfinite(X))[0]
            raise ValueError(f"X has {X[row, column]} in row {start + row}, column {column}.")
        part = slice(start, stop)
        return Block(X, self.codes[part], self.weight[part], np.arange(start, stop))

    def blocks(self) -> Iterator[Block]:
        """Yield the rows in order."""
        if is_dask(self.X):
            start = 0
            for at, size in enumerate(self.X.chunks[0]):
                if size:
                    yield self._block(start, start + size, self.X.blocks[at].compute())
                start += size
            return
        step = max(BLOCK_BYTES // (self.X.shape[1] * self.dtype.itemsize), 1)
        for start in range(0, len(self.X), step):
            stop = min(start + step, len(self.X))
            yield self._block(start, stop, self.X[start:stop])

    def shuffled(self, seed: int, folder: Path) -> Iterator[Block]:
        """Yield the rows in random order: dealt at random to buckets on disk, each of which is then shuffled in memory.

        The order depends on the seed and the size of the data alone, not on the blocks they come in.
        """
        rng = np.random.default_rng(seed)
        count = -(-self.X.shape[0] * self.X.shape[1] * self.dtype.itemsize // BLOCK_BYTES)
        bucket_of = rng.integers(count, size=self.X.shape[0]).astype(np.uint32)
        spilled = _Buckets(folder, self.dtype, self.X.shape[1], self.codes.dtype)
        for block in self.blocks():
            mine = bucket_of[block.source]
            for bucket in np.unique(mine):
                spilled.add(int(bucket), block.take(np.flatnonzero(mine == bucket)))
        for bucket in range(count):
            block = spilled.read(bucket)
            yield block.take(rng.permutation(len(block.X)))


class _Buckets:
    """Blocks appended to files, one set a bucket."""

    def __init__(self, folder: Path, dtype: np.dtype[Any], width: int, codes: np.dtype[Any]) -> None:
        self.folder = folder
        types = (dtype, codes, np.dtype(np.float64), np.dtype(np.int64))
        self.types = dict(zip(Block._fields, types, strict=True))
        self.width = width

    def _path(self, bucket: int, name: str) -> Path:
        return self.folder / f"{bucket}.{name}"

    def add(self, bucket: int, block: Block) -> None:
        for name, array in block._asdict().items():
            with self._path(bucket, name).open("ab") as file:
                np.ascontiguousarray(array).tofile(file)

    def read(self, bucket: int) -> Block:
        arrays = []
        for name, dtype in self.types.items():
            path = self._path(bucket, name)
            arrays.append(np.fromfile(path, dtype) if path.exists() else np.empty(0, dtype))
            path.unlink(missing_ok=True)
        arrays[0] = arrays[0].reshape(-1, self.width)
        return Block(*arrays)


def _write_group(
    target: str, rows: _Rows, blocks: Iterator[Block], shuffle: bool, scale: str, chunk_rows: int | None
) -> None:
    import zarr

    count, width = rows.X.shape
    if chunk_rows is None:
        chunk_rows = max(config.bytes_of("chunk-bytes") // (width * rows.dtype.itemsize), 1)
    chunk_rows = int(min(chunk_rows, count))
    group = zarr.open_group(target, mode="w")
    arrays = {"X": group.create_array("X", shape=(count, width), chunks=(chunk_rows, width), dtype=rows.dtype)}
    columns = {"codes": ("y", rows.codes.dtype)}
    columns |= {"weight": ("weight", np.dtype(np.float64))} if rows.weighted else {}
    columns |= {"source": ("source", np.dtype(np.int64))} if shuffle else {}
    for field, (name, dtype) in columns.items():
        arrays[field] = group.create_array(name, shape=(count,), chunks=(chunk_rows,), dtype=dtype)
    about: dict[str, Any] = {"version": VERSION, "complete": False}
    group.attrs[ATTRIBUTE] = about
    statistics = FeatureStatistics.empty(width)
    at = 0
    for block in _whole_chunks(blocks, chunk_rows):
        statistics.add(block.X)
        for field, array in arrays.items():
            array[at : at + len(block.X)] = getattr(block, field)
        at += len(block.X)
    scaling = statistics.scaling(scale)
    about |= {
        "shape": [count, width],
        "classes": rows.classes.tolist(),
        "class_type": rows.classes.dtype.str,
        "class_counts": np.bincount(rows.codes, minlength=len(rows.classes)).tolist(),
        "features": {name: getattr(statistics, name).tolist() for name in ("mean", "variance", "minimum", "maximum")},
        "scaling": None
        if scaling is None
        else {name: getattr(scaling, name).tolist() for name in ("offset", "factor")},
        "shuffled": shuffle,
        "weighted": rows.weighted,
        "origin": rows.origin,
        "complete": True,
    }
    group.attrs[ATTRIBUTE] = about


def _whole_chunks(blocks: Iterator[Block], chunk_rows: int) -> Iterator[Block]:
    """Cut and join blocks so that each ends where a chunk ends; the last one excepted."""
    held: list[Block] = []
    size = 0
    for block in blocks:
        held.append(block)
        size += len(block.X)
        if size >= chunk_rows:
            joined = Block(*(np.concatenate(arrays) for arrays in zip(*held, strict=True)))
            whole = size - size % chunk_rows
            yield joined.take(slice(0, whole))
            held, size = [joined.take(slice(whole, None))], size - whole
    if size:
        yield Block(*(np.concatenate(arrays) for arrays in zip(*held, strict=True)))
