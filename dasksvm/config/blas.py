"""One BLAS thread a tile: the same product on two threads gives other last bits, and so another model."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import ThreadpoolController

_lock = Lock()
_users = 0
_limit: Any = None


@cache
def _controller() -> ThreadpoolController:
    import numpy.linalg  # noqa: F401  BLAS must be loaded to be found

    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Hold BLAS at one thread while any thread of this process is in here; the last one out restores it."""
    global _users, _limit
    with _lock:
        if _users == 0:
            _claim()
            _limit = _controller().limit(limits=1, user_api="blas")
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                _claim()
                _limit.restore_original_limits()
                _claim()


def _claim() -> None:
    """Let this thread set the number of OpenBLAS's threads: from 3.7 on threadpoolctl heeds the first one that did, only."""
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)
