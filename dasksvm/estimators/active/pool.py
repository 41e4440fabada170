"""Parallel search of a whole pool for the rows whose labels are most useful."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dasksvm import config
from dasksvm.config import workspaces
from dasksvm.config.blas import one_thread
from dasksvm.data.sources import DaskSource, DatasetSource, Form, MemorySource, Source
from dasksvm.solver.engine.choice import bias
from dasksvm.solver.engine.selection import measure_of
from dasksvm.solver.engine.tiles import margins
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.messages import View

# Rows that are scored by one tile; rows of a piece of an array in memory, which has no chunks.
TILE_ROWS, PIECE_ROWS = 2048, 8192
# Tasks for each thread of a cluster: enough to balance the load, few enough that their overhead is negligible.
TASKS = 8


@dataclass(frozen=True)
class Search:
    """The parameters of a search of the pool.

    Attributes
    ----------
    kernel : Kernel
    form : Form
    view : View
        The expansion that scores the rows.
    criterion : str
        A selection criterion that needs no labels; the rows for which its measure is smallest are chosen.
    count : int
        Number of rows to choose.
    out : ndarray of int64
        Rows that must not be chosen, ascending.
    """

    kernel: Kernel
    form: Form
    view: View
    criterion: str
    count: int
    out: Ints


def best_rows(source: Source, search: Search, client: Any) -> Ints:
    """Find the best rows of the whole pool, the best first; each piece is searched where it is read.

    Parameters
    ----------
    source : MemorySource, DaskSource or DatasetSource
    search : Search
    client : distributed.Client or None
        With None, the threads of this process search.
    """
    starts = np.concatenate([[0], np.cumsum(source.chunks)])
    if isinstance(source, MemorySource):
        starts = np.append(np.arange(0, starts[-1], PIECE_ROWS), starts[-1])
    pieces = [(at, int(start)) for at, start in enumerate(starts[:-1]) if starts[at + 1] > start]
    if client is None:
        # One thread more than there are cores to use: a thread that reads waits for Zarr's own thread.
        with ThreadPoolExecutor(config.threads() + 1, "dasksvm-search") as pool:
            found = list(pool.map(lambda piece: _search_piece(source, piece, search), pieces))
    else:
        threads = sum(client.nthreads().values())
        found = client.compute(_lazily(source, pieces, search, threads), sync=True)
    values, ids = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return ids[np.lexsort((ids, values))][: search.count]


def _lazily(source: Source, pieces: list[tuple[int, int]], search: Search, threads: int) -> list[Any]:
    """Make a few tasks for each thread of a cluster, or one for each block of a Dask array; the search is one shared key."""
    from dask.delayed import delayed

    shared = delayed(search, pure=False)
    if isinstance(source, DaskSource):
        return [delayed(_search_rows)(source.checked(at), start, shared) for at, start in pieces]
    read = delayed(source, pure=False)
    step = max(len(pieces) // (TASKS * threads), 1)
    return [delayed(_search_pieces)(read, pieces[at : at + step], shared) for at in range(0, len(pieces), step)]


def _search_pieces(source: Source, pieces: list[tuple[int, int]], search: Search) -> tuple[NDArray[np.float64], Ints]:
    found = [_search_piece(source, piece, search) for piece in pieces]
    values, ids = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return values, ids


def _search_piece(source: Source, piece: tuple[int, int], search: Search) -> tuple[NDArray[np.float64], Ints]:
    at, start = piece
    if isinstance(source, DatasetSource):
        rows = source.data.part(at)
    else:
        rows = source.X[start : start + PIECE_ROWS] if isinstance(source, MemorySource) else source.read(at)
    return _search_rows(rows, start, search)


def _search_rows(rows: Any, start: int, search: Search) -> tuple[NDArray[np.float64], Ints]:
    """Return the smallest values of the criterion's measure among some rows of the pool, and the numbers of these rows."""
    view, count, measure = search.view, rows.shape[0], measure_of(search.criterion)
    assert view.members is not None
    value = np.empty(count)
    with one_thread():
        for top in range(0, count, TILE_ROWS):
            part = slice(top, min(top + TILE_ROWS, count))
            features = search.form.apply(rows[part])
            found = margins(search.kernel, features, view.members, view.alpha, view.order, workspaces.of_this_thread())
            value[part] = measure(found + bias(view)[:, None], np.ones_like(found)).min(axis=0)
    out = search.out[np.searchsorted(search.out, start) : np.searchsorted(search.out, start + count)] - start
    value[out] = np.inf
    left = np.flatnonzero(value < np.inf)
    if len(left) > search.count:
        left = left[np.argpartition(value[left], search.count - 1)[: search.count]]
    return value[left], start + left
