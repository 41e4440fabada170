"""Readers of text files, CSV and svmlight, also compressed; they read some megabytes of whole lines at a time."""

import bz2
import codecs
import csv
import gzip
import os
import zlib
from collections.abc import Iterator
from functools import partial
from typing import IO, Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dasksvm.data.blocks import BadRow, Part
from dasksvm.data.ingest.readers import parsing
from dasksvm.data.ingest.readers.arrays import no_labels
from dasksvm.data.ingest.readers.reader import PIECE_BYTES, FileFormat, Reader, Reading

OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
# Assumed ratio of compression, from which the number of buckets of a shuffle follows.
COMPRESSED = 8
LABELS = ("label", "target", "class", "y")
REASONS = {
    parsing.NOT_A_NUMBER: "{!r} is not a number",
    parsing.MISSING: "the value is missing",
    parsing.NOT_FINITE: "the value is {!r}",
    parsing.NO_PAIR: "{!r} is not an index:value pair",
    parsing.INDEX_LOW: "{!r}: indices begin with 1, unless zero_based is set",
    parsing.INDEX_ORDER: "{!r}: indices must increase",
    parsing.INDEX_HIGH: "the index of {!r} exceeds the number of features",
}


class _Text:
    """A text file in pieces of whole lines: ranges of bytes, or the bytes themselves if the file is compressed."""

    def __init__(self, path: str) -> None:
        self.path = self.origin = path
        self._opener = next((opener for end, opener in OPENERS.items() if path.endswith(end)), None)
        size = os.path.getsize(path)
        if size == 0:
            raise ValueError(f"{path} is empty.")
        self.portable = self._opener is None
        self.count: int | None = -(-size // PIECE_BYTES) if self._opener is None else None
        self.bytes = size * (1 if self._opener is None else COMPRESSED)

    def open(self) -> IO[bytes]:
        """Open the file, decompressing it if necessary."""
        return open(self.path, "rb") if self._opener is None else self._opener(self.path, "rb")

    def first_lines(self) -> list[bytes]:
        """Read the first two lines that are not blank."""
        lines: list[bytes] = []
        with self.open() as file:
            while len(lines) < 2 and (line := _attempt(self.path, file.readline)):
                lines += [line.rstrip(b"\r\n")] if line.strip() else []
        return lines

    def pieces(self) -> Iterator[Any]:
        """Yield (whether it is the first, piece); a line belongs to the piece in which it begins."""
        if self._opener is None:
            size = os.path.getsize(self.path)
            for at in range(0, size, PIECE_BYTES):
                yield at == 0, (at, min(at + PIECE_BYTES, size))
            return
        with self.open() as file:
            rest, first = b"", True
            while block := _read(self.path, file, PIECE_BYTES):
                end = block.rfind(b"\n") + 1
                if end:
                    yield first, rest + block[:end]
                    rest, first = block[end:], False
                else:
                    rest += block
            if rest:
                yield first, rest

    def text(self, piece: Any) -> NDArray[np.uint8]:
        """Read the text of a piece."""
        first, what = piece
        found = what if isinstance(what, bytes) else self._range(first, *what)
        return np.frombuffer(found.removeprefix(codecs.BOM_UTF8) if first else found, np.uint8)

    def _range(self, first: bool, start: int, stop: int) -> bytes:
        with self.open() as file:
            if not first:
                file.seek(start - 1)
                start += len(file.readline()) - 1
            if start >= stop:
                return b""
            file.seek(start)
            lines = file.read(stop - start)
            return lines if lines.endswith(b"\n") else lines + file.readline()


def _read(path: str, file: IO[bytes], count: int) -> bytes:
    return _attempt(path, partial(file.read, count))


def _attempt(path: str, read: Any) -> bytes:
    """Call a function that reads from a file, which may be compressed and damaged."""
    try:
        found: bytes = read()
        return found
    except (EOFError, zlib.error, OSError) as error:
        raise ValueError(f"{path}: the compressed data end early or are damaged: {error}") from None


def _refuse(text: NDArray[np.uint8], bad: NDArray[np.int64], column: int | str | None, width: int, above: int) -> None:
    """Raise BadRow for a line that a parser could not read; `above` lines of the piece were skipped."""
    code, row, line, found, start, stop = (int(value) for value in bad)
    if code == parsing.RAGGED:
        raise BadRow(row, None, f"the line has {found} columns, expected {width}", above + line)
    reason = REASONS[code].format(text[start:stop].tobytes().decode("utf-8", "replace"))
    raise BadRow(row, column, reason, above + line)


class CsvReader(_Text):
    """Lines of numbers with a class label.

    Parameters
    ----------
    path : str
        Also of a .gz or .bz2 file.
    label, weight : str, optional
        Columns by name or number; -1 is the last. If no label column is given, it is the one called label, target, class or y,
        or else the last. False means that there are no labels.
    header : bool, optional
        Whether the first line has names. If None, it has if one of them is the usual name of a label, if the next line has a
        number where the first has none, or if the first line has no numbers at all.
    dtype : str
    """

    def __init__(
        self, path: str, label: str | bool | None, weight: str | None, header: bool | None, dtype: str
    ) -> None:
        super().__init__(path)
        lines = self.first_lines()
        if not lines:
            raise ValueError(f"{path} is empty.")
        self._delimiter = max(b",", b"\t", b";", key=lines[0].count)
        text = [line.decode("utf-8-sig", "replace") for line in lines]
        fields, *below = (
            [field.strip() for field in row] for row in csv.reader(text, delimiter=self._delimiter.decode())
        )
        if header is None:
            header = _looks_like_names(fields, below[0] if below else [])
        self._header = header
        columns = fields if header else [str(at) for at in range(len(fields))]
        self.roles = np.zeros(len(columns), np.int64)
        self._labelled = label is not False
        if self._labelled:
            label_at = _usual_label(columns, header) if label is None else self._column(columns, str(label))
            self.roles[label_at] = parsing.LABEL
        if weight is not None:
            self.roles[self._column(columns, weight)] = parsing.WEIGHT
        features = np.flatnonzero(self.roles == 0)
        if len(features) == 0:
            raise ValueError(f"{path} has {len(columns)} columns, none of which is left for features.")
        self.roles[features] = np.arange(len(features))
        self.width: int | None = len(features)
        self.names = [columns[at] for at in features] if header else None
        self.dtype = np.dtype(dtype)
        self._weighted = weight is not None

    def _column(self, columns: list[str], name: str) -> int:
        if name in columns:
            return columns.index(name)
        if name.lstrip("-").isdigit() and -len(columns) <= int(name) < len(columns):
            return int(name) % len(columns)
        raise ValueError(f"{self.path} has no column {name!r}; it has {', '.join(columns)}.")

    def read(self, piece: Any) -> Part:
        """Parse a piece, skipping the header."""
        text, above = self.text(piece), 0
        if self._header and piece[0]:
            text, above = parsing.below_first_line(text)
        lines = parsing.count(text, parsing.NEWLINE) + 1
        X = np.empty((lines, self.width or 0), self.dtype)
        spans = np.zeros((lines, 2), np.int64)
        weight = np.empty(lines if self._weighted else 0)
        bad = np.zeros(6, np.int64)
        rows, lines = parsing.parse_csv(text, self._delimiter[0], self.roles, X, spans, weight, bad)
        if bad[parsing.CODE]:
            at = int(bad[parsing.COLUMN])
            role = int(self.roles[at]) if at < len(self.roles) else 0
            _refuse(text, bad, "weight" if role == parsing.WEIGHT else role, len(self.roles), above)
        labels = parsing.tokens(text, spans[:rows]) if self._labelled else no_labels(rows)
        return Part(X[:rows], labels, weight[:rows] if self._weighted else None, lines + above)


def _looks_like_names(first: list[str], second: list[str]) -> bool:
    named = any(name.lower() in LABELS for name in first)
    pairs = zip(first, second, strict=False)
    return (
        named
        or any(_is_number(below) and not _is_number(above) for above, below in pairs)
        or not any(_is_number(field) for field in first)
    )


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _usual_label(columns: list[str], header: bool) -> int:
    usual = [at for at, name in enumerate(columns) if name.lower() in LABELS] if header else []
    return usual[0] if len(usual) == 1 else len(columns) - 1


class SvmlightReader(_Text):
    """Lines of `label index:value ...`; qid and comments are ignored.

    Parameters
    ----------
    path : str
        Also of a .gz or .bz2 file.
    labelled : bool
        Whether the lines begin with labels; if not, the first field is ignored.
    features : int, optional
        Number of features; the largest index if not given.
    zero_based : bool
        Whether indices begin with 0, not 1.
    dtype : str
    """

    names: list[str] | None = None

    def __init__(self, path: str, labelled: bool, features: int | None, zero_based: bool, dtype: str) -> None:
        super().__init__(path)
        self._labelled = labelled
        self.width = features
        self._first = 0 if zero_based else 1
        self.dtype = np.dtype(dtype)

    def read(self, piece: Any) -> Part:
        """Parse a piece."""
        text = self.text(piece)
        lines, pairs = (parsing.count(text, byte) + 1 for byte in (parsing.NEWLINE, parsing.COLON))
        data, indices = np.empty(pairs, self.dtype), np.empty(pairs, np.int32)
        indptr, spans = np.zeros(lines + 1, np.int64), np.zeros((lines, 2), np.int64)
        bad = np.zeros(6, np.int64)
        rows, lines = parsing.parse_svmlight(text, self._first, self.width or 0, data, indices, indptr, spans, bad)
        if bad[parsing.CODE]:
            index = int(bad[parsing.COLUMN])
            _refuse(text, bad, index if index >= 0 else None, 0, 0)
        filled = int(indptr[rows])
        width = self.width or int(indices[:filled].max(initial=-1)) + 1
        X = sp.csr_matrix((data[:filled], indices[:filled], indptr[: rows + 1]), shape=(rows, width))
        labels = parsing.tokens(text, spans[:rows])
        if not self._labelled:
            self._check_beginnings(labels)
        return Part(X, labels if self._labelled else no_labels(rows), None, lines)

    def _check_beginnings(self, first: NDArray[Any]) -> None:
        """Refuse lines that begin with an index:value pair: the first field is ignored, so it must not be a value."""
        pairs = np.flatnonzero(np.char.find(first, b":") >= 0)
        if len(pairs):
            reason = f"{first[pairs[0]].decode()!r} stands where a label is expected: begin lines without labels with 0"
            raise BadRow(int(pairs[0]), None, reason)


def _csv(path: str, y: Any, weight: Any, how: Reading) -> Reader:
    return CsvReader(path, y, weight, how.header, how.dtype)


def _svmlight(path: str, y: Any, weight: Any, how: Reading) -> Reader:
    if isinstance(y, str) or weight is not None:
        raise ValueError(f"y and weight must be None: in {path} each line begins with its label.")
    return SvmlightReader(path, y is None, how.features, how.zero_based, how.dtype)


CSV = FileFormat((".csv", ".tsv"), True, _csv)
SVMLIGHT = FileFormat((".svm", ".svmlight", ".libsvm"), True, _svmlight)
