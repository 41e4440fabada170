"""Limit BLAS to one thread: with two threads the same product differs in its last bits, and so does the model."""

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
    import numpy.linalg  # noqa: F401  threadpoolctl only finds libraries that are loaded

    return ThreadpoolController()


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit BLAS to one thread while any thread of this process is inside; the last one to leave restores the limit."""
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
    """Allow the calling thread to set the number of OpenBLAS threads: since 3.7 threadpoolctl only lets the first one do so."""
    for library in _controller().lib_controllers:
        if hasattr(library, "clear_controlling_thread"):
            library.clear_controlling_thread(force=True)
