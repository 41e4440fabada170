"""Writes data sets: reads rows in parts, writes whole chunks, then the description, and finally renames the folder."""

import errno
import os
import tempfile
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dasksvm.config import threads
from dasksvm.data.blocks import MOST_CLASSES, BadRow, Block, Classes, Part
from dasksvm.data.chunked import is_sparse
from dasksvm.data.ingest.group_writer import GroupWriter
from dasksvm.data.ingest.readers.reader import Reader
from dasksvm.data.ingest.shuffle import Buckets
from dasksvm.data.paths import created, is_url
from dasksvm.data.scales import SCALES
from dasksvm.data.statistics import FeatureStatistics

# Size in bytes of the rows that are shuffled in memory at once.
BUCKET_BYTES = 64 << 20
# Prefix of the temporary folders, next to a new data set, that hold rows to be shuffled.
SPILLED = ".dasksvm-"
# No space left, the user's quota is exceeded, the file is too large, the file system is read-only.
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS)
# What to do about columns on very different scales. The rows may be for training or for prediction.
ADVICE = (
    "If you train on these rows, use scale='standard' or 'minmax'. If you only predict them, you need neither: "
    "a model scales them like its training data."
)


# Called with what is being done ("reading" or "writing"), the number of rows so far, and their share of all rows if known.
Watch = Callable[[str, int, float | None], None]


class Writing(NamedTuple):
    """How a data set is written (see `Dataset.create`)."""

    labelled: bool
    shuffle: bool
    scale: str
    chunk_rows: int | None
    seed: int


def write(path: str, reader: Reader, how: Writing, client: Any, watch: Watch) -> None:
    """Write the rows of a reader to a new data set.

    Parameters
    ----------
    path : str
        A folder or a URL at which nothing exists; this is checked before anything is read or written.
    reader : Reader
    how : Writing
    client : distributed.Client or None
        A client of a cluster whose workers read the parts; if None, threads of this process read them.
    watch : callable
        See `Watch`.
    """
    if how.scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}. Got {how.scale!r} instead.")
    if how.chunk_rows is not None and how.chunk_rows < 1:
        raise ValueError(f"chunk_rows must be at least 1. Got {how.chunk_rows!r} instead.")
    try:
        with _new_store(path) as store:
            _write_group(store, None if is_url(path) else Path(path).parent, reader, how, client, watch)
    except OSError as error:
        if _in_writing(error, path):
            raise OSError(f"{path} cannot be written: {error.strerror or error}.") from error
        raise


@contextmanager
def _new_store(path: str) -> Iterator[Any]:
    """Yield an empty store for a new data set, which is removed if writing it fails."""
    from zarr.storage import LocalStore

    from dasksvm.data.stores import created_at

    if is_url(path):
        with created_at(path) as store:
            yield store
    else:
        with created(Path(path)) as part:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            yield LocalStore(part)


def _in_writing(error: OSError, path: str) -> bool:
    """Return whether an error comes from writing to the target or its folder, and not from reading the source."""
    if error.filename is None:
        return error.errno in NO_ROOM
    whole, at = os.path.abspath(path), f"{os.path.abspath(error.filename)}/"
    parent, name = os.path.split(whole)
    return at.startswith((f"{whole}/", f"{parent}/.{name}.", f"{parent}/{SPILLED}")) or f"{parent}/".startswith(at)


def _write_group(store: Any, folder: Path | None, reader: Reader, how: Writing, client: Any, watch: Watch) -> None:
    intake = _Intake(reader, watch)
    blocks = intake.blocks(client)
    with ExitStack() as stack:
        if how.shuffle:
            spilled = stack.enter_context(tempfile.TemporaryDirectory(dir=folder, prefix=SPILLED))
            buckets = Buckets(Path(spilled), -(-reader.bytes // BUCKET_BYTES), how.seed)
            for block in blocks:
                buckets.deal(block)
            blocks = buckets.shuffled()
        first = next(blocks, None)
        if first is None:
            raise ValueError(f"{reader.origin}: there are no rows.")
        group = GroupWriter(store, first, how.chunk_rows, how.labelled, how.shuffle)
        group.write(chain([first], _counted(blocks, watch, intake.rows) if how.shuffle else blocks))
    statistics, names = intake.statistics, reader.names
    if group.width == 0:
        raise ValueError(f"{reader.origin}: there are no features.")
    scaling = statistics.scaling(how.scale, sparse=group.sparse)
    classes, table = intake.classes.ordered()
    group.renumber(table)
    if scaling is None:
        found = statistics.spread(sparse=group.sparse).warning(names, ADVICE)
        if found is not None:
            warnings.warn(found, stacklevel=4)
    counts = np.zeros(len(classes), np.int64)
    np.add.at(counts, table, intake.counts[: len(table)])
    if not how.labelled:
        classes, counts = classes[:0], counts[:0]
    group.describe(statistics, scaling)
    group.conclude(
        {
            "classes": classes.tolist(),
            "class_type": classes.dtype.str,
            "class_counts": counts.tolist(),
            "names": names,
            "nonzeros": statistics.nonzeros,
            "scaled": scaling is not None,
            "shuffled": how.shuffle,
            "weighted": first.weight is not None,
            "origin": reader.origin,
        }
    )


def _counted(blocks: Iterator[Block], watch: Watch, rows: int) -> Iterator[Block]:
    written = 0
    for block in blocks:
        yield block
        written += len(block)
        watch("writing", written, written / rows)


class _Intake:
    """Turns the parts of a reader into blocks: numbers the labels, checks the values, and collects statistics."""

    def __init__(self, reader: Reader, watch: Watch) -> None:
        self.reader = reader
        self.classes = Classes()
        self.counts = np.zeros(MOST_CLASSES, np.int64)
        self.statistics = FeatureStatistics.empty(reader.width or 0)
        self._watch = watch
        self.rows = self._lines = self._parts = 0
        self._shape: tuple[Any, ...] | None = None

    def blocks(self, client: Any) -> Iterator[Block]:
        """Yield the rows in order, while the next parts are being read."""
        try:
            for part in in_order(self.reader, client):
                if part.X.shape[0]:
                    yield self._block(part)
                self.rows += part.X.shape[0]
                self._lines += part.lines
                self._parts += 1
                share = None if self.reader.count is None else self._parts / self.reader.count
                self._watch("reading", self.rows, share)
        except BadRow as error:
            column = error.column
            if self.reader.names is not None and isinstance(column, int):
                error.column = f"{column} ({self.reader.names[column]})"
            raise ValueError(error.message(self.reader.origin, self.rows, self._lines)) from None

    def _block(self, part: Part) -> Block:
        self._check(part)
        self.statistics.add(part.X)
        codes = self.classes.codes(part.labels)
        self.counts += np.bincount(codes, minlength=len(self.counts))
        if part.weight is not None:
            bad = np.flatnonzero(~(np.isfinite(part.weight) & (part.weight >= 0)))
            if len(bad):
                raise BadRow(int(bad[0]), "weight", f"the weight is {part.weight[bad[0]]}")
        return Block(part.X, codes, np.arange(self.rows, self.rows + len(codes)), part.weight)

    def _check(self, part: Part) -> None:
        """Refuse parts that do not fit the first one: a lazy array may differ from its declared type or shape."""
        rows, width = part.X.shape
        shape = (part.X.dtype, is_sparse(part.X), None if is_sparse(part.X) else width)
        self._shape = self._shape or shape
        if shape != self._shape or len(part.labels) != rows:
            found, expected = (f"{dtype} x {wide}" for dtype, _, wide in (shape, self._shape))
            raise BadRow(0, None, f"got {rows} rows of {found} with {len(part.labels)} labels, expected {expected}")


def in_order(reader: Reader, client: Any) -> Iterator[Part]:
    """Read the pieces of a reader in parallel, a few in advance, and yield the parts in order."""
    with ExitStack() as stack:
        if client is None or not reader.portable:
            slots = threads()
            submit: Any = stack.enter_context(ThreadPoolExecutor(slots, "dasksvm-reader")).submit
        else:
            slots = sum(client.nthreads().values())

            def submit(*arguments: Any) -> Any:
                return client.submit(*arguments, pure=False)

        waiting: deque[Any] = deque()
        try:
            for piece in reader.pieces():
                waiting.append(submit(reader.read, piece))
                if len(waiting) > slots:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
