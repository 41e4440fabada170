"""Zarr's stores for data sets, on the local file system and at URLs: no chunk is invented, and nothing is replaced."""

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from fsspec.core import url_to_fs
from zarr.abc.store import ByteRequest, Store
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import FsspecStore, LocalStore, WrapperStore

from dasksvm.data.paths import is_url

# Objects that are removed at a time after a write that failed.
REMOVED_AT_ONCE = 16


def store_at(path: str) -> Store:
    """Make the store of a data set that is read: see `CompleteStore`."""
    store: Store = FsspecStore.from_url(path, read_only=True) if is_url(path) else LocalStore(path, read_only=True)
    return CompleteStore(store)


class CompleteStore(WrapperStore[Store]):
    """A store in which a chunk that is missing is an error.

    Zarr takes it for one that has nothing but the fill value, which may look like data. Data sets have all their chunks. The
    chunk is looked for by reading it, so this costs no request, and holds for chunks that are lost after the data set was opened.
    """

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Read an object; of those that may be missing, which describe groups and arrays, None says that one is."""
        value = await super().get(key, prototype, byte_range)
        if value is None and not key.endswith("zarr.json"):
            raise FileNotFoundError(f"{key} is missing")
        return value


class NewStore(FsspecStore):
    """A store at a URL that remembers what was written to it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.written: set[str] = set()

    async def set(self, key: str, value: Buffer, byte_range: tuple[int, int] | None = None) -> None:
        """Write an object."""
        self.written.add(key)
        await super().set(key, value, byte_range)


@contextmanager
def created_at(url: str) -> Iterator[NewStore]:
    """Give a store at a URL where nothing exists; after an error, what was written to it is removed, and nothing else.

    Raises
    ------
    FileExistsError
        If there is an object of this name, or any below it.
    """
    refuse_existing_at(url)
    store: Any = NewStore.from_url(url)
    try:
        yield store
    except BaseException as error:
        try:
            _remove(url, store.written)
        except Exception as failure:
            warnings.warn(f"what was written to {url} could not be removed: {failure}", RuntimeWarning, stacklevel=4)
        if isinstance(error, FileExistsError):  # It came to exist since.
            refuse_existing_at(url)
        raise


def refuse_existing_at(url: str) -> None:
    """Raise FileExistsError if there is an object of this name, or any below it; OSError if that cannot be found out."""
    fs, path = url_to_fs(url)
    # Listings that were made before are kept for a while, and others may have written since.
    fs.invalidate_cache()
    try:
        fs.info(path)
    except FileNotFoundError:
        return
    except Exception as error:  # Stores have errors of their own, for credentials and connections.
        raise OSError(f"{url} cannot be written: it is not known whether it exists: {error}") from error
    raise FileExistsError(f"{url} is there already.")


def size_at(path: str) -> int:
    """Sum up the bytes of all files below a path or a URL."""
    if not is_url(path):
        return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
    fs, root = url_to_fs(path)
    fs.invalidate_cache()
    return sum(about["size"] or 0 for about in fs.find(root, detail=True).values())


def _remove(url: str, keys: set[str]) -> None:
    """Remove some objects, one by one: a whole prefix, or a name that fsspec takes for a pattern, could be more."""
    fs, path = url_to_fs(url)

    def remove(key: str) -> None:
        with suppress(FileNotFoundError):
            fs.rm_file(f"{path.rstrip('/')}/{key}")

    with ThreadPoolExecutor(REMOVED_AT_ONCE) as pool:
        list(pool.map(remove, keys))
