"""Features of examples, dense or CSR, and the append-only store of the members' features.

A *slot* is a row of the store. Slots are only ever appended, so a tile that is being computed against the members of an
older version reads rows that nobody writes; a compaction makes a new store and leaves the old one to its readers.
"""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from dasksvm.solver.jit import SUMS, njit
from dasksvm.solver.memory import Workspace

# Kernel values and features, in whatever type they have; sums, coefficients and gradients; indices and counts; masks.
Floats = NDArray[np.floating[Any]]
Values = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, for arrays in messages."""
    view = array.view()
    view.flags.writeable = False
    return view


@dataclass(frozen=True)
class DenseFeatures:
    """Rows of a dense matrix with their squared norms.

    Attributes
    ----------
    values : ndarray of shape (n, d)
    squares : ndarray of shape (n,)
        Squared Euclidean norm of each row.
    """

    values: Floats
    squares: Floats

    @classmethod
    def of(cls, values: Floats) -> Self:
        """Compute the norms of `values`, summed in float64."""
        squares = np.empty(len(values), values.dtype)
        _squares(np.ascontiguousarray(values), squares)
        return cls(values, squares)

    def __len__(self) -> int:
        return len(self.values)

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.values.shape[1])

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values, and of the kernel values made from them."""
        return self.values.dtype

    def take(self, rows: Ints, workspace: Workspace | None = None, name: str = "features") -> Self:
        """Copy some rows, into the array of the workspace with this name, if one is given."""
        if workspace is None:
            return type(self)(self.values.take(rows, axis=0), self.squares.take(rows))
        values = workspace.array(name, (len(rows), self.width), self.dtype)
        self.values.take(rows, axis=0, out=values, mode="clip")
        return type(self)(values, self.squares.take(rows))

    def borrow(self, rows: Ints, workspace: Workspace) -> Self:
        """Copy some rows into memory that the workspace uses again once the copy is garbage-collected."""
        values = workspace.loan((len(rows), self.width), self.dtype)
        self.values.take(rows, axis=0, out=values, mode="clip")
        return type(self)(values, self.squares.take(rows))

    def part(self, start: int, stop: int) -> Self:
        """Return a range of rows, without copying."""
        return type(self)(self.values[start:stop], self.squares[start:stop])

    def astype(self, dtype: np.dtype[Any]) -> Self:
        """Convert the values and recompute the norms."""
        return type(self).of(self.values.astype(dtype))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of these features, for snapshots."""
        return {"values": self.values, "squares": self.squares}


@dataclass(frozen=True)
class SparseFeatures:
    """Rows of a CSR matrix with their squared norms.

    Attributes
    ----------
    data, indices : ndarray of shape (nonzeros,)
    indptr : ndarray of int64, shape (n + 1,)
        Where each row begins in `data`.
    squares : ndarray of shape (n,)
    columns : int
        Number of features.
    """

    data: Floats
    indices: NDArray[np.integer[Any]]
    indptr: Ints
    squares: Floats
    columns: int

    @classmethod
    def of(cls, data: Floats, indices: NDArray[np.integer[Any]], indptr: Ints, columns: int) -> Self:
        """Compute the norms, summed in float64."""
        starts = indptr.astype(np.int64)
        lengths = np.diff(starts)
        squares = np.zeros(len(lengths))
        filled = lengths > 0
        if filled.any():
            squares[filled] = np.add.reduceat(np.square(data, dtype=np.float64), starts[:-1][filled])
        return cls(data, indices.astype(np.int32, copy=False), starts, squares.astype(data.dtype), columns)

    def __len__(self) -> int:
        return len(self.indptr) - 1

    @property
    def width(self) -> int:
        """Number of features."""
        return self.columns

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values, and of the kernel values made from them."""
        return self.data.dtype

    def take(self, rows: Ints, workspace: Workspace | None = None, name: str = "features") -> Self:
        """Copy some rows."""
        starts, lengths = self.indptr[rows], np.diff(self.indptr)[rows]
        indptr = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        where = np.repeat(starts - indptr[:-1], lengths) + np.arange(indptr[-1])
        return type(self)(self.data[where], self.indices[where], indptr, self.squares[rows], self.columns)

    def borrow(self, rows: Ints, workspace: Workspace) -> Self:
        """Copy some rows."""
        return self.take(rows)

    def part(self, start: int, stop: int) -> Self:
        """Return a range of rows, without copying the values."""
        ends = self.indptr[start : stop + 1]
        values = slice(ends[0], ends[-1])
        return type(self)(
            self.data[values], self.indices[values], ends - ends[0], self.squares[start:stop], self.columns
        )

    def compact(self) -> tuple[NDArray[np.int32], Floats]:
        """Return the rows as the columns of a dense matrix with a line for each feature they use, and the line of each feature.

        The line of a feature that no row uses is -1. This is for tiles, not for whole data sets.
        """
        used = np.unique(self.indices)
        line_of = np.full(self.columns, -1, np.int32)
        line_of[used] = np.arange(len(used), dtype=np.int32)
        lines = np.zeros((len(used), len(self)), self.dtype)
        lines[line_of[self.indices], np.repeat(np.arange(len(self)), np.diff(self.indptr))] = self.data
        return line_of, lines

    def astype(self, dtype: np.dtype[Any]) -> Self:
        """Convert the values and recompute the norms."""
        return type(self).of(self.data.astype(dtype), self.indices, self.indptr, self.columns)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays of these features, for snapshots."""
        return {"data": self.data, "indices": self.indices, "indptr": self.indptr, "squares": self.squares}


Features = DenseFeatures | SparseFeatures


@njit(fastmath=SUMS)
def _squares(values: Floats, squares: Floats) -> None:  # pragma: no cover
    for r in range(len(values)):
        row = values[r]
        total = 0.0
        for c in range(len(row)):
            total += np.float64(row[c]) * np.float64(row[c])
        squares[r] = total


class FeatureStore:
    """The members' features by slot; rows are appended, and read through immutable views.

    Parameters
    ----------
    first : Features
        The first rows, with slots from 0; they determine the type, the width and the layout.
    """

    def __init__(self, first: Features) -> None:
        self._kind = type(first)
        self._columns = first.width
        self._arrays = {name: array.copy() for name, array in first.arrays().items()}
        self._filled = {name: len(array) for name, array in self._arrays.items()}
        self._count = len(first)

    def __len__(self) -> int:
        return self._count

    def row_bytes(self) -> float:
        """Return the average number of bytes of a row."""
        return sum(self._filled[name] * array[:1].nbytes for name, array in self._arrays.items()) / max(self._count, 1)

    def append(self, rows: Features) -> Ints:
        """Add rows and return their slots."""
        added = dict(rows.arrays())
        if isinstance(rows, SparseFeatures):
            added["indptr"] = rows.indptr[1:] + self._filled["data"]
        for name, array in added.items():
            self._extend(name, array)
        slots = np.arange(self._count, self._count + len(rows))
        self._count += len(rows)
        return slots

    def _extend(self, name: str, added: NDArray[Any]) -> None:
        old, start = self._arrays[name], self._filled[name]
        stop = start + len(added)
        if stop > len(old):
            grown = np.empty((max(stop, 2 * len(old)), *old.shape[1:]), old.dtype)
            grown[:start] = old[:start]
            self._arrays[name] = grown
        self._arrays[name][start:stop] = added
        self._filled[name] = stop

    def view(self) -> Features:
        """Return the rows so far; they do not change when more are appended."""
        arrays = {name: frozen(array[: self._filled[name]]) for name, array in self._arrays.items()}
        if self._kind is SparseFeatures:
            return SparseFeatures(**arrays, columns=self._columns)
        return DenseFeatures(**arrays)
