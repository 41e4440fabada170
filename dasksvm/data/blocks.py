"""Rows while a data set is written: what readers return, and what writers take."""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dasksvm.data.chunked import stacked
from dasksvm.solver.kernels.features import Ints

MOST_CLASSES = 256
# Number of features that indices of 32 bits can address.
MOST_FEATURES = (1 << 31) - 1


class Part(NamedTuple):
    """Some rows as a reader returns them.

    Attributes
    ----------
    X : ndarray or csr_matrix of shape (m, d)
    labels : ndarray of shape (m,)
    weight : ndarray of float64, shape (m,), or None
    lines : int
        Number of lines of text that the rows took; 0 if the source is not text.
    """

    X: Any
    labels: NDArray[Any]
    weight: NDArray[np.float64] | None
    lines: int = 0


class Block(NamedTuple):
    """Some rows as they are written.

    Attributes
    ----------
    X : ndarray or csr_matrix of shape (m, d)
    codes, source : ndarray of shape (m,)
        Class numbers, and row numbers in the source.
    weight : ndarray of shape (m,), or None
    """

    X: Any
    codes: NDArray[np.uint8]
    source: Ints
    weight: NDArray[np.float64] | None

    def __len__(self) -> int:
        return len(self.codes)

    def take(self, rows: Ints | slice) -> "Block":
        """Return some of the rows."""
        weight = None if self.weight is None else self.weight[rows]
        return Block(self.X[rows], self.codes[rows], self.source[rows], weight)


def joined(blocks: list[Block]) -> Block:
    """Concatenate blocks."""
    if len(blocks) == 1:
        return blocks[0]
    rows = [block.X for block in blocks]
    weight = None if blocks[0].weight is None else np.concatenate([block.weight for block in blocks])
    return Block(
        stacked(rows),
        np.concatenate([block.codes for block in blocks]),
        np.concatenate([block.source for block in blocks]),
        weight,
    )


class BadRow(ValueError):
    """A row that cannot be used.

    Parameters
    ----------
    row : int
        Number of the row in its part.
    column : int or str or None
    reason : str
    line : int, optional
        Number of the line in its part, if the source is text.
    """

    def __init__(self, row: int, column: int | str | None, reason: str, line: int | None = None) -> None:
        super().__init__(row, column, reason, line)
        self.row, self.column, self.reason, self.line = row, column, reason, line

    def message(self, origin: str, rows: int, lines: int) -> str:
        """Return the error message, given the number of rows and lines before the part."""
        where = f"row {rows + self.row}"
        if self.line is not None:
            where = f"line {lines + self.line + 1} ({where})"
        if self.column is not None:
            where += f", column {self.column}"
        return f"{origin}: {where}: {self.reason}"


class Classes:
    """The classes found so far, numbered in the order in which they appeared."""

    def __init__(self) -> None:
        self._code_of: dict[Any, int] = {}

    def codes(self, labels: NDArray[Any]) -> NDArray[np.uint8]:
        """Return the class numbers of some labels; BadRow reports one that is not a class label."""
        if labels.dtype.kind not in "biufSUOT":
            raise BadRow(0, "label", f"values of the type {labels.dtype} cannot be class labels")
        if labels.dtype.kind == "O":
            missing = np.flatnonzero([label is None or label != label for label in labels])
            if len(missing):
                raise BadRow(int(missing[0]), "label", "the label is missing")
        found, first, at = np.unique(labels, return_index=True, return_inverse=True)
        table = np.zeros(len(found), np.uint8)
        for number in np.argsort(first, kind="stable"):
            try:
                value = class_of(found[number])
            except ValueError as error:
                raise BadRow(int(first[number]), "label", str(error)) from None
            if value not in self._code_of and len(self._code_of) == MOST_CLASSES:
                raise BadRow(int(first[number]), "label", f"{value!r} would be one more than {MOST_CLASSES} classes")
            table[number] = self._code_of.setdefault(value, len(self._code_of))
        return table[at.ravel()]

    def ordered(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Return the sorted classes, and the place of each class number in them."""
        values = list(self._code_of)
        if any(isinstance(value, str) for value in values):
            values = [str(value) for value in values]
        classes, places = np.unique(np.array(values), return_inverse=True)
        return classes, places.astype(np.uint8)


def _number_or_text(text: str) -> Any:
    try:
        number = float(text) if "_" not in text else None
    except ValueError:
        return text
    if number is None or not number.is_integer():
        return text if number is None else number
    return int(text) if text.lstrip("+-").isdigit() else int(number)


def class_of(label: Any) -> Any:
    """Convert a label to a class. Text from a file that is a whole number becomes that number: 1.0 is 1."""
    if isinstance(label, bytes):
        label = _number_or_text(label.decode("utf-8", "replace").strip())
    if isinstance(label, str):
        if not label:
            raise ValueError("the label is missing")
        return str(label)
    value = label.item() if isinstance(label, np.generic) else label
    if not isinstance(value, bool | int | float):
        raise ValueError(f"{value!r} is not a class label")
    if value != value:
        raise ValueError("the label is missing")
    if isinstance(value, float) and not value.is_integer():
        raise ValueError(f"{value!r} is not a class label. Unknown label type: continuous")
    return value
