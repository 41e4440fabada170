"""Readers of NPY and NPZ files."""

import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dasksvm.data.blocks import Part
from dasksvm.data.ingest.readers.arrays import ArrayReader, columns_of, no_labels, numeric
from dasksvm.data.ingest.readers.reader import FileFormat, RowRanges

# Errors that reading a damaged archive or array file can raise.
BROKEN = (ValueError, EOFError, zlib.error, zipfile.BadZipFile)
CSR_KEYS = {"data", "indices", "indptr", "shape"}


def _column(given: Any) -> Any:
    """Read labels or weights that are given as a file: NPY, or text with one value per line."""
    if not isinstance(given, (str, Path)):
        return given
    if not str(given).endswith(".npy"):
        lines = Path(given).read_bytes().splitlines()
        return np.array([line.strip() for line in lines if line.strip()])
    try:
        return np.load(given)
    except BROKEN as error:
        raise ValueError(f"{given} is not a complete NPY file: {error}") from None


def npy_reader(path: str, y: Any, weight: Any) -> ArrayReader:
    """Return a reader of an NPY file, which is memory-mapped."""
    try:
        X = np.load(path, mmap_mode="r")
    except (ValueError, EOFError) as error:
        raise ValueError(f"{path} is not a complete NPY file: {error}") from None
    if y is None:
        raise ValueError(f"{path} has no labels: pass y as an array or a file, or y=False if there are none.")
    return ArrayReader(X, _column(y), _column(weight), path)


class NpzReader(RowRanges):
    """Arrays of a zip archive, read as streams: a matrix, or the arrays of a CSR matrix, and the labels.

    Parameters
    ----------
    path : str
    y, weight : array of shape (n,), name of an array in the archive, or path of a file
        If y is None it is "y"; it may be False.
    """

    names: list[str] | None = None
    portable = False

    def __init__(self, path: str, y: Any, weight: Any) -> None:
        self.path = self.origin = path
        try:
            with np.load(path) as archive:
                keys = set(archive.files)
                if "format" in keys and archive["format"].item() not in (b"csr", "csr"):
                    raise ValueError(f"its matrix has the format {archive['format'].item().decode()}, not csr")
                self.sparse = keys >= CSR_KEYS
                if not self.sparse and "X" not in keys:
                    raise ValueError(f"it has the arrays {', '.join(sorted(keys))}, but neither X nor a CSR matrix")
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
            if y is False:
                self.labels = no_labels(self.shape[0])
        except BROKEN as error:
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
            raise ValueError(f"X must be a matrix with at least one row and one feature; it has the shape {shape}")
        return shape, size

    def pieces(self) -> Iterator[Part]:
        """Yield the parts themselves, as streams can only be read one after the other."""
        names = ["data", "indices"] if self.sparse else ["X"]
        try:
            with zipfile.ZipFile(self.path) as archive:
                members = [_Member(archive, name) for name in names]
                for start, stop in self.ranges():
                    weight = None if self.weight is None else self.weight[start:stop]
                    yield Part(self._rows(members, start, stop), self.labels[start:stop], weight)
        except BROKEN as error:
            raise ValueError(f"{self.path} cannot be read: {error}") from None

    def _rows(self, members: list["_Member"], start: int, stop: int) -> Any:
        if not self.sparse:
            return numeric(members[0].take((stop - start) * self.shape[1]).reshape(-1, self.shape[1]))
        ends = self._indptr[start : stop + 1]
        data, indices = (member.take(int(ends[-1] - ends[0])) for member in members)
        matrix = sp.csr_matrix((data, indices, ends - ends[0]), shape=(stop - start, self.shape[1]))
        matrix.check_format(full_check=True)  # SciPy's compiled code uses the indices without checks
        return numeric(matrix)

    def read(self, piece: Part) -> Part:
        """Return the part."""
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


NPY = FileFormat((".npy",), False, lambda path, y, weight, how: npy_reader(path, y, weight))
NPZ = FileFormat((".npz",), False, lambda path, y, weight, how: NpzReader(path, y, weight))
