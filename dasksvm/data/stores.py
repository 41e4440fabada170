"""Zarr's stores for data sets at URLs: nothing that exists is replaced."""

import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

from fsspec.core import url_to_fs
from zarr.core.buffer import Buffer
from zarr.storage import FsspecStore

# Objects that are removed at a time after a write that failed.
REMOVED_AT_ONCE = 16


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
    """Raise FileExistsError if there is an object of this name, or any below it.

    Any error but "not found" is raised too: where it cannot be known what exists, nothing should be written.
    """
    fs, path = url_to_fs(url)
    # Listings that were made before are kept for a while, and others may have written since.
    fs.invalidate_cache()
    try:
        fs.info(path)
    except FileNotFoundError:
        return
    raise FileExistsError(f"{url} is there already.")


def size_at(url: str) -> int:
    """Sum up the bytes of all objects below a URL."""
    fs, path = url_to_fs(url)
    fs.invalidate_cache()
    return sum(about["size"] or 0 for about in fs.find(path, detail=True).values())


def _remove(url: str, keys: set[str]) -> None:
    """Remove some objects, one by one: a whole prefix, or a name that fsspec takes for a pattern, could be more."""
    fs, path = url_to_fs(url)

    def remove(key: str) -> None:
        with suppress(FileNotFoundError):
            fs.rm_file(f"{path.rstrip('/')}/{key}")

    with ThreadPoolExecutor(REMOVED_AT_ONCE) as pool:
        list(pool.map(remove, keys))
