"""Large buffers that are filled piece by piece, and used again: fresh memory costs a page fault every 4096 bytes."""

import mmap
import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray


def reserve(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Make an array whose memory is taken page by page, as it is touched.

    NumPy asks for huge pages; where those have to be fetched from the host of a virtual machine, a first touch runs at
    0.5 GB/s against 3 GB/s for small pages (measured), and short trainings pay up to half of their time for it.
    """
    size = int(np.prod(shape))
    array: NDArray[Any] = np.frombuffer(_anonymous(size * dtype.itemsize), dtype, size).reshape(shape)
    return array


def _anonymous(size: int) -> mmap.mmap:
    """Map memory that belongs to this process alone."""
    private = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}
    return mmap.mmap(-1, max(size, 1), **private)


# Values of a workspace array at least: memory that is not touched costs nothing, memory that grows is touched again.
LEAST_VALUES = 1 << 24


class Workspace:
    """Memory that one thread uses again from tile to tile."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}
        self._back: deque[mmap.mmap] = deque()

    def array(self, name: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Give an uninitialised array; the one given before under this name is lost."""
        size = int(np.prod(shape))
        held = self._arrays.get(name)
        if held is None or held.size < size or held.dtype != dtype:
            held = self._arrays[name] = reserve((max(2 * size, LEAST_VALUES),), dtype)
        return held[:size].reshape(shape)

    def loan(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Give an uninitialised array whose memory comes back when nobody refers to it any more."""
        size = int(np.prod(shape))
        buffer: mmap.mmap | None = None
        while self._back and buffer is None:
            buffer = self._back.popleft()
            if len(buffer) < size * dtype.itemsize:
                buffer = None
        if buffer is None:
            buffer = _anonymous(max(2 * size, LEAST_VALUES) * dtype.itemsize)
        held: NDArray[Any] = np.frombuffer(buffer, dtype, size)
        weakref.finalize(held, self._back.append, buffer).atexit = False
        return held.reshape(shape)
