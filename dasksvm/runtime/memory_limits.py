"""What a run needs of the memory of each worker, said before it starts."""

from typing import Any

import numpy as np
from dask.utils import format_bytes
from distributed import Worker

from dasksvm.data.chunked import KEPT_CHUNKS
from dasksvm.data.sources import DatasetSource, Examples
from dasksvm.runtime.cluster import COMPUTE
from dasksvm.solver.engine.learner import LARGEST_BATCH, Learner

# Of its limit a worker may use so much: from there on Dask pauses it.
USABLE = 0.8
# Beyond so much a run ends: a nanny kills its worker at 95 %.
FULL = 0.9
# Of a worker that has loaded everything and compiled.
PROCESS = 250 << 20
# Batches beside those in flight: the one that is used, its rows, their columns, what is fresh.
BATCHES = 4
# Bytes that a problem keeps of a member.
PLACE = 60


def check(
    workers: dict[str, Any], coordinator: str, resources: bool, learner: Learner, examples: Examples, *, copies: bool
) -> None:
    """Raise RuntimeError, with the figures, when the run may not fit.

    Counted are the budgets for kernel rows, as far as there can be rows to fill them, and the chunks that a worker keeps. The
    members' features come on top: `max_support` bounds them.

    Parameters
    ----------
    workers : dict
        Of `client.scheduler_info()`.
    coordinator : str
        Address of the coordinator's worker.
    resources : bool
        Whether only workers with the resource `compute` score.
    learner : Learner
    examples : Examples
    copies : bool
        Whether copies are finished on the way, with kernel rows of their own.
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
    needs = {f"{KEPT_CHUNKS} chunks of rows": KEPT_CHUNKS * _chunk_bytes(examples), "a batch, twice": 2 * batch}
    for address, about in workers.items():
        if COMPUTE in about["resources"] if resources else address != coordinator:
            _compare(address, about, "worker for tiles", needs, "make the chunks of the data smaller")


def _chunk_bytes(examples: Examples) -> int:
    """Bytes of the largest chunk as it is read; 0 where that is not known before."""
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
        f"of {format_bytes(limit)}: {advice}, or give it more memory."
    )


def nearly_full(worker: Worker) -> str | None:
    """Say how much memory a worker uses when it is more than `FULL` of its limit."""
    limit = worker.memory_manager.memory_limit
    used = worker.monitor.get_process_memory()
    if not limit or used < FULL * limit:
        return None
    return f"{format_bytes(used)} of {format_bytes(limit)}"
