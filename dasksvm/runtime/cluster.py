"""A cluster on this machine: one worker for the coordinator, the others for tiles, each marked with what it offers."""

import logging
from typing import Any

import dask.config
from distributed import Nanny, Scheduler, SpecCluster, Worker

COORDINATOR, COMPUTE = "coordinator", "compute"
# Set before NumPy loads. Huge pages are slow to get on virtual machines, and buffers of kernel rows come and go.
ENVIRONMENT = {"NUMPY_MADVISE_HUGEPAGE": 0, "MALLOC_TRIM_THRESHOLD_": 1 << 30, "MALLOC_MMAP_THRESHOLD_": 1 << 25}


def local_cluster(
    workers: int = 2,
    *,
    processes: bool = True,
    coordinator_threads: int = 2,
    memory_limit: int | str = "auto",
    dashboard_address: str = ":0",
    asynchronous: bool = False,
) -> SpecCluster:
    """Start a scheduler, a worker for the coordinator and workers for tiles.

    Parameters
    ----------
    workers : int, default=2
        Workers for tiles, with one thread each.
    processes : bool, default=True
        Whether workers are processes of their own; False: threads of this one, which share memory.
    coordinator_threads : int, default=2
        With 2 it shares the work on its kernel rows between two threads.
    memory_limit : int or str, default="auto"
        Of each worker.
    dashboard_address : str, default=":0"
        Where the dashboard is served; a free port if not given.
    asynchronous : bool, default=False
        Whether the cluster is used from a coroutine.

    Returns
    -------
    SpecCluster
        Closed as a context manager; `cluster.scale(n)` changes the number of workers for tiles.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1. Got {workers!r} instead.")
    common: dict[str, Any] = {"memory_limit": memory_limit if processes else 0, "dashboard": False}
    common |= {"silence_logs": logging.WARNING} if processes else {}

    def spec(threads: int, **resources: int) -> dict[str, Any]:
        return {"cls": Nanny if processes else Worker, "options": {**common, "nthreads": threads, "resources": resources}}

    compute = spec(1, compute=1)
    specs = {COORDINATOR: spec(coordinator_threads, coordinator=1), **dict.fromkeys(range(workers), compute)}
    address = {"protocol": "tcp://", "host": "127.0.0.1"} if processes else {"protocol": "inproc://"}
    scheduler = {"cls": Scheduler, "options": {**address, "dashboard_address": dashboard_address}}
    environment = {f"distributed.nanny.pre-spawn-environ.{name}": value for name, value in ENVIRONMENT.items()}
    with dask.config.set({"distributed.worker.profile.enabled": False, **environment}):
        return SpecCluster(
            scheduler=scheduler, workers=specs, worker=compute, asynchronous=asynchronous, silence_logs=logging.WARNING
        )
