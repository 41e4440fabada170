"""The shuffle of a new data set: rows are put into random buckets on disk, and each bucket is shuffled in memory."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dasksvm.data.blocks import Block
from dasksvm.data.chunked import is_sparse
from dasksvm.solver.kernels.features import Ints

MOST_BUCKETS = 4096


class Buckets:
    """Buckets of rows on disk; each has one file per array.

    The resulting order depends only on the seed and the number of buckets, not on how the rows were divided into blocks.

    Parameters
    ----------
    folder : Path
    count : int
    seed : int
    """

    def __init__(self, folder: Path, count: int, seed: int) -> None:
        self.folder = folder
        self.count = min(max(count, 1), MOST_BUCKETS)
        self._rng = np.random.default_rng(seed)
        self._types: dict[str, np.dtype[Any]] = {}
        self._sparse = False
        self._width = 0

    def deal(self, block: Block) -> None:
        """Append each row to a random bucket."""
        bucket_of = (self._rng.random(len(block)) * self.count).astype(np.int64)
        order = np.argsort(bucket_of, kind="stable")
        dealt = block.take(order)
        ends = np.cumsum(np.bincount(bucket_of, minlength=self.count))
        start = 0
        for bucket, stop in enumerate(ends):
            if stop > start:
                self._append(bucket, dealt.take(slice(start, stop)))
            start = int(stop)

    def _append(self, bucket: int, block: Block) -> None:
        for name, array in self._arrays(block).items():
            self._types[name] = array.dtype
            with self._path(bucket, name).open("ab") as file:
                file.write(np.ascontiguousarray(array).data)

    def _arrays(self, block: Block) -> dict[str, NDArray[Any]]:
        arrays: dict[str, NDArray[Any]] = {"codes": block.codes, "source": block.source}
        if block.weight is not None:
            arrays["weight"] = block.weight
        self._sparse, self._width = is_sparse(block.X), max(self._width, block.X.shape[1])
        if self._sparse:
            return arrays | {"data": block.X.data, "indices": block.X.indices, "counts": np.diff(block.X.indptr)}
        return arrays | {"X": block.X}

    def _path(self, bucket: int, name: str) -> Path:
        return self.folder / f"{bucket}.{name}"

    def shuffled(self) -> Iterator[Block]:
        """Yield the rows in random order, one bucket at a time, and delete the files that have been read."""
        for bucket in range(self.count):
            if self._path(bucket, "source").exists():
                block = self._read(bucket)
                order: Ints = self._rng.permutation(len(block))
                yield block.take(order)

    def _read(self, bucket: int) -> Block:
        arrays: dict[str, Any] = {}
        for name, dtype in self._types.items():
            path = self._path(bucket, name)
            arrays[name] = np.fromfile(path, dtype)
            path.unlink()
        if self._sparse:
            indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(arrays["counts"], dtype=np.int64)])
            shape = (len(indptr) - 1, self._width)
            X: Any = sp.csr_matrix((arrays["data"], arrays["indices"], indptr), shape=shape)
        else:
            X = arrays["X"].reshape(-1, self._width)
        return Block(X, arrays["codes"], arrays["source"], arrays.get("weight"))
