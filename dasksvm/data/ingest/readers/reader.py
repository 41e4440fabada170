"""The interface of readers."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from dasksvm.data.blocks import Part

# Size of a piece in bytes.
PIECE_BYTES = 16 << 20


class Reader(Protocol):
    """Rows of a source, in pieces that can be read in parallel.

    Attributes
    ----------
    origin : str
        Name of the source.
    bytes : int
        Approximate size of all rows in memory.
    width : int or None
        Number of features, if it is known before the rows are read.
    names : list of str, or None
        Names of the features.
    count : int or None
        Number of pieces, if it is known.
    portable : bool
        Whether other processes can read the pieces too.
    """

    @property
    def origin(self) -> str: ...  # noqa: D102

    @property
    def count(self) -> int | None: ...  # noqa: D102

    @property
    def portable(self) -> bool: ...  # noqa: D102

    @property
    def bytes(self) -> int: ...  # noqa: D102

    @property
    def width(self) -> int | None: ...  # noqa: D102

    @property
    def names(self) -> list[str] | None: ...  # noqa: D102

    def pieces(self) -> Iterable[Any]:
        """Yield the pieces in order: small descriptions of what to read, if possible."""
        ...

    def read(self, piece: Any) -> Part:
        """Read a piece; BadRow reports a row that cannot be used."""
        ...


@dataclass(frozen=True)
class Reading:
    """How a file is read, where its name and its content do not tell (see `Dataset.create`)."""

    format: str | None = None
    header: bool | None = None
    features: int | None = None
    zero_based: bool = False
    dtype: str = "float32"


class FileFormat(NamedTuple):
    """What is known of a file format.

    Attributes
    ----------
    suffixes : tuple of str
        Ends of file names that mean this format, in lower case.
    named_columns : bool
        Whether labels and weights are columns of the file that have a name, and cannot be given as arrays.
    open : callable
        Called with the path, y, weight, and a `Reading`; gives the reader.
    """

    suffixes: tuple[str, ...]
    named_columns: bool
    open: Callable[[str, Any, Any, Reading], Reader]


class RowRanges:
    """Pieces of sources that can be divided between any two rows: ranges of about `PIECE_BYTES`."""

    bytes: int
    shape: tuple[int, ...]

    @property
    def step(self) -> int:
        """Number of rows of a piece."""
        return max(PIECE_BYTES * self.shape[0] // max(self.bytes, 1), 1)

    @property
    def count(self) -> int | None:
        """Number of pieces."""
        return -(-self.shape[0] // self.step)

    def ranges(self) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows."""
        for start in range(0, self.shape[0], self.step):
            yield start, min(start + self.step, self.shape[0])
