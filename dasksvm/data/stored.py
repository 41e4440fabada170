"""Access by row to the arrays of a data set on Zarr; each process opens them on first use."""

import time
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm.data.chunked import ChunkedRows, csr
from dasksvm.data.schema import MOST_BYTES, array_of, open_group

# Seconds to wait before reading a chunk again after an error: a shared disk may be unavailable for a moment.
RETRIES = (0.1, 0.5)


class StoredRows(ChunkedRows):
    """A Zarr array by rows, or a CSR matrix in AnnData's encoding.

    Parameters
    ----------
    path, name : str
        Path of the group, and name of the array in it.
    rows, step : int
        Number of rows in total, and of each chunk.
    width : int, optional
        Number of features of a CSR matrix; None for an array.
    """

    def __init__(self, path: str, name: str, rows: int, step: int, width: int | None = None) -> None:
        super().__init__(tuple(min(step, rows - start) for start in range(0, rows, step)))
        self.path, self.name, self.step, self.width = path, name, step, width

    @cached_property
    def _stored(self) -> Any:
        group = open_group(self.path)
        if self.width is None:
            return array_of(group, self.name)
        return tuple(array_of(group, f"{self.name}/{part}") for part in ("data", "indices", "indptr"))

    def read(self, at: int) -> Any:
        """Read a chunk, with a few attempts, and check its values: compiled code uses them without checks."""
        start = at * self.step
        stop = start + self.chunks[at]
        for wait in (*RETRIES, None):
            try:
                return self._checked(start, stop) if self.width is None else self._sparse(start, stop, self.width)
            except Exception as error:
                if wait is None:
                    rows = f"rows {start} to {stop - 1}"
                    raise OSError(f"{self.path}: chunk {at} of {self.name} ({rows}) cannot be read: {error}") from error
                time.sleep(wait)
        raise AssertionError

    def _checked(self, start: int, stop: int) -> NDArray[Any]:
        values = _finite(self._stored[start:stop])
        if len(values) != stop - start:
            raise ValueError(f"it has {len(values)} rows, expected {stop - start}")
        return values

    def _sparse(self, start: int, stop: int, width: int) -> Any:
        data, indices, indptr = self._stored
        ends = indptr[start : stop + 1]
        if len(ends) != stop - start + 1 or not 0 <= ends[0] <= ends[-1] <= data.shape[0] == indices.shape[0]:
            raise ValueError("its sparse rows do not have the expected number of values")
        if (ends[-1] - ends[0]) * data.dtype.itemsize > MOST_BYTES:
            raise ValueError(f"its sparse rows have {ends[-1] - ends[0]} values, which are too many")
        values = slice(int(ends[0]), int(ends[-1]))
        return csr(_finite(data[values]), indices[values], ends - ends[0], width)

    def __getstate__(self) -> dict[str, Any]:
        """Pickle without the open arrays."""
        return {name: value for name, value in super().__getstate__().items() if name != "_stored"}


def _finite(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise ValueError("it has values that are not finite")
    return values
