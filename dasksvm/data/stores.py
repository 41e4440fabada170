"""Zarr stores for data sets, on the local file system and at URLs.

A missing chunk is an error, and nothing that exists is replaced.
"""

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Condition
from typing import Any

from fsspec.core import url_to_fs
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import FsspecStore, LocalStore, WrapperStore

from dasksvm.data.paths import is_url

# Number of objects that are removed in parallel after a failed write.
REMOVED_AT_ONCE = 16
# Seconds to wait for objects that are being written when a write fails.
IN_FLIGHT_TIMEOUT = 60.0


def store_at(path: str) -> Store:
    """Return a store for reading a data set (see `CompleteStore`)."""
    store: Store = FsspecStore.from_url(path, read_only=True) if is_url(path) else LocalStore(path, read_only=True)
    return CompleteStore(store)


class CompleteStore(WrapperStore[Store]):
    """A store in which a missing chunk is an error.

    Zarr itself would read a missing chunk as the fill value, which may look like data. Data sets always have all their chunks.
    The check is part of reading a chunk, so it needs no additional request and also finds chunks that are lost later.
    """

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read an object; None if it is missing, which is allowed only for the metadata of groups and arrays."""
        value = await super().get(key, prototype, byte_range)
        if value is None and not key.endswith("zarr.json"):
            raise FileNotFoundError(f"{key} is missing")
        return value


class NewStore(FsspecStore):
    """A store at a URL that records which objects were written to it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.written: set[str] = set()
        self._changed = Condition()
        self._in_flight = 0
        self._abandoned = False

    async def set(self, key: str, value: Buffer, byte_range: tuple[int, int] | None = None) -> None:
        """Write an object, unless the store was abandoned."""
        with self._changed:
            if self._abandoned:
                return
            self._in_flight += 1
            self.written.add(key)
        try:
            await super().set(key, value, byte_range)
        finally:
            with self._changed:
                self._in_flight -= 1
                self._changed.notify_all()

    def abandon(self) -> None:
        """Write nothing more, and wait for the objects that are being written: there may be several when one fails."""
        with self._changed:
            self._abandoned = True
            self._changed.wait_for(lambda: self._in_flight == 0, IN_FLIGHT_TIMEOUT)


@contextmanager
def created_at(url: str) -> Iterator[NewStore]:
    """Yield a store at a URL at which nothing exists; after an error, exactly the objects written to it are removed.

    Raises
    ------
    FileExistsError
        If an object of this name, or any below it, exists.
    """
    refuse_existing_at(url)
    store: Any = NewStore.from_url(url)
    try:
        yield store
    except BaseException as error:
        try:
            store.abandon()
            _remove(url, store.written)
        except Exception as failure:
            warnings.warn(f"what was written to {url} could not be removed: {failure}", RuntimeWarning, stacklevel=4)
        if isinstance(error, FileExistsError):  # Somebody else has created it in the meantime.
            refuse_existing_at(url)
        raise


def refuse_existing_at(url: str) -> None:
    """Raise FileExistsError if an object of this name, or any below it, exists; OSError if that cannot be checked."""
    fs, path = url_to_fs(url)
    # fsspec caches listings for a while, and others may have written since.
    fs.invalidate_cache()
    try:
        fs.info(path)
    except FileNotFoundError:
        return
    except Exception as error:  # Stores raise errors of their own for credentials and connections.
        raise OSError(f"{url} cannot be written: could not check whether it exists already: {error}") from error
    raise FileExistsError(f"{url} already exists.")


def size_at(path: str) -> int:
    """Return the total size in bytes of all files below a path or a URL."""
    if not is_url(path):
        return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
    fs, root = url_to_fs(path)
    fs.invalidate_cache()
    return sum(about["size"] or 0 for about in fs.find(root, detail=True).values())


def _remove(url: str, keys: set[str]) -> None:
    """Remove objects one by one: removing a prefix, or a name that fsspec treats as a pattern, could remove others."""
    fs, path = url_to_fs(url)

    def remove(key: str) -> None:
        with suppress(FileNotFoundError):
            fs.rm_file(f"{path.rstrip('/')}/{key}")

    with ThreadPoolExecutor(REMOVED_AT_ONCE) as pool:
        list(pool.map(remove, keys))
