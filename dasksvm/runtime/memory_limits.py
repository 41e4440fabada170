"""Checks before a run starts that it fits into the memory of the workers, and watches the coordinator's while it runs."""

from typing import Any

import numpy as np
from dask.utils import format_bytes
from distributed import Worker

from dasksvm.data.chunked import KEPT_CHUNKS
from dasksvm.data.sources import DatasetSource, Examples
from dasksvm.runtime.cluster import COMPUTE
from dasksvm.solver.engine.learner import LARGEST_BATCH, Learner

# Share of its memory limit that a worker may use; above it Dask pauses the worker.
USABLE = 0.8
# Share above which a run is stopped; at 95 % a nanny kills its worker.
FULL = 0.9
# Memory of a worker that has loaded everything and compiled.
PROCESS = 250 << 20
# Batches in memory in addition to those in flight: the one that is applied, its rows, their columns, new rows.
BATCHES = 4
# Bytes that each problem stores per member.
PLACE = 60


def check_memory(
    workers: dict[str, Any], coordinator: str, resources: bool, learner: Learner, examples: Examples, *, copies: bool
) -> None:
    """Raise RuntimeError, with the figures, if the run may not fit.

    This counts the budgets for kernel rows, limited to the rows that can exist, and the chunks that a worker keeps. The members'
    features are not counted; `max_support` limits them.

    Parameters
    ----------
    workers : dict
        See `workers_of`.
    coordinator : str
        Address of the coordinator's worker.
    resources : bool
        Whether only workers with the resource `compute` compute tiles.
    learner : Learner
    examples : Examples
    copies : bool
        Whether copies are finished during training; these have kernel rows of their own.
    """
    settings, form = learner.settings, examples.form
    rows, value = len(examples.columns), form.dtype.itemsize
    members = int(min(rows, settings.problems * settings.max_support))
    batch = min(LARGEST_BATCH * members * value, settings.inflight_bytes // (settings.lookahead + 1))
    cache = min(settings.cache_bytes, members * members * value)
    needs = {
        "kernel rows (cache_size)": cache,
        "batches in flight (dasksvm.inflight-bytes)": batch * (settings.lookahead + BATCHES),
        "coefficients": settings.problems * members * (PLACE + 8 * (settings.lookahead + 1)),
    }
    if copies:
        needs["kernel rows of a finished copy (cache_size)"] = cache
    _compare(coordinator, workers[coordinator], "coordinator", needs, "lower cache_size or dasksvm.inflight-bytes")
    needs = {f"{KEPT_CHUNKS} chunks of rows": KEPT_CHUNKS * _chunk_bytes(examples), "two batches": 2 * batch}
    for address, about in workers.items():
        if COMPUTE in about["resources"] if resources else address != coordinator:
            _compare(address, about, "compute worker", needs, "make the chunks of the data smaller")


def _chunk_bytes(examples: Examples) -> int:
    """Return the size in bytes of the largest chunk in memory; 0 if it is not known in advance."""
    source, rows = examples.source, max(examples.source.chunks, default=0)
    if isinstance(source, DatasetSource):
        data = source.data
        value = data.dtype.itemsize + (4 if data.sparse else 0)
        return int(rows * data.nonzeros / len(data) * value)
    return 0 if source.sparse else rows * int(source.X.shape[1]) * int(source.X.dtype.itemsize)


def _compare(address: str, about: dict[str, Any], role: str, needs: dict[str, int], advice: str) -> None:
    limit = about["memory_limit"]
    needed = PROCESS + sum(needs.values())
    if not limit or needed <= USABLE * limit:
        return
    parts = ", ".join(
        f"{name} {format_bytes(int(np.ceil(size)))}" for name, size in {**needs, "the process": PROCESS}.items()
    )
    raise RuntimeError(
        f"the run needs {format_bytes(needed)} on the {role} {address} ({parts}), which may use {USABLE:.0%} of its limit "
        f"of {format_bytes(limit)}: {advice}, or give the worker more memory."
    )


def nearly_full(worker: Worker) -> str | None:
    """Describe how much memory a worker uses if that is more than `FULL` of its limit; otherwise return None."""
    limit = worker.memory_manager.memory_limit
    used = worker.monitor.get_process_memory()
    if not limit or used < FULL * limit:
        return None
    return f"{format_bytes(used)} of {format_bytes(limit)}"
