"""Arrays of a data set on Zarr, by rows; opened when they are first read, in whatever process that is."""

import time
from functools import cached_property
from typing import Any

import scipy.sparse as sp

from dasksvm.data.chunked import ChunkedRows

# Seconds to wait before a chunk that could not be read is read again: what a shared disk may need to come back.
RETRIES = (0.1, 0.5)


class StoredRows(ChunkedRows):
    """A Zarr array by rows, or a CSR matrix in AnnData's encoding.

    Parameters
    ----------
    path, name : str
        Of the group, and of the array in it.
    rows, step : int
        Rows in all, and of each chunk.
    width : int, optional
        Number of features of a CSR matrix; None for an array.
    """

    def __init__(self, path: str, name: str, rows: int, step: int, width: int | None = None) -> None:
        super().__init__(tuple(min(step, rows - start) for start in range(0, rows, step)))
        self.path, self.name, self.step, self.width = path, name, step, width

    @cached_property
    def _stored(self) -> Any:
        import zarr

        group = zarr.open_group(self.path, mode="r")
        if self.width is None:
            return group[self.name]
        return tuple(group[f"{self.name}/{part}"] for part in ("data", "indices", "indptr"))

    def read(self, at: int) -> Any:
        """Read a chunk; a few times, if it cannot be read."""
        start = at * self.step
        stop = start + self.chunks[at]
        for wait in (*RETRIES, None):
            try:
                return self._read(start, stop)
            except Exception as error:
                if wait is None:
                    rows = f"rows {start} to {stop - 1}"
                    raise OSError(f"{self.path}: chunk {at} of {self.name} ({rows}) cannot be read: {error}") from error
                time.sleep(wait)
        raise AssertionError

    def _read(self, start: int, stop: int) -> Any:
        if self.width is None:
            return self._stored[start:stop]
        data, indices, indptr = self._stored
        ends = indptr[start : stop + 1]
        arrays = (data[ends[0] : ends[-1]], indices[ends[0] : ends[-1]], ends - ends[0])
        return sp.csr_matrix(arrays, shape=(stop - start, self.width))

    def __getstate__(self) -> dict[str, Any]:
        """Leave what is open behind."""
        return {name: value for name, value in super().__getstate__().items() if name != "_stored"}
