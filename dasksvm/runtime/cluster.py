"""A cluster on this machine: one worker for the coordinator, the others for tiles, each marked with what it offers."""

import atexit
import gc
import logging
import signal
from copy import deepcopy
from typing import Any

import dask.config
from distributed import Client, Nanny, Scheduler, SpecCluster, Worker

COORDINATOR, COMPUTE = "coordinator", "compute"
# The profiler can end a worker of Python 3.11 that runs compiled code. The environment is set before NumPy loads: huge pages
# are slow to get on virtual machines, and the buffers of kernel rows, which come and go, should not be fetched page by page
# each time.
SETTINGS: dict[str, Any] = {
    "distributed.worker.profile.enabled": False,
    "distributed.nanny.pre-spawn-environ.NUMPY_MADVISE_HUGEPAGE": 0,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 1 << 27,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 1 << 25,
}


class SchedulerLost(ConnectionError):
    """The scheduler of a cluster is gone, and the cluster with it."""


def workers_of(client: Client) -> dict[str, Any]:
    """Tell what the scheduler knows of its workers, by address.

    Not by `client.scheduler_info`: the client asks for itself every two seconds, for no workers, and what it then hears may
    stand in place of the answer.

    Raises
    ------
    SchedulerLost
        If it does not answer.
    """
    try:
        if client.scheduler is not None:
            workers: dict[str, Any] = client.sync(client.scheduler.identity, n_workers=-1)["workers"]
            return workers
    except OSError as error:
        raise SchedulerLost(f"the scheduler does not answer: {error}") from error
    raise SchedulerLost("the scheduler is lost.")


class _Worker(Worker):  # type: ignore[misc]
    """A worker with these settings, whenever it is started."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with dask.config.set(SETTINGS):
            super().__init__(*arguments, **options)


class _WorkerProcess(Worker):  # type: ignore[misc]
    """A worker in a process of its own, which ends when its nanny says so, and then at once."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # A terminal sends Ctrl-C to all processes: the one that started the cluster closes it, perhaps after a last snapshot.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # Python's last garbage collection takes seconds in a process in which numba has compiled, so long that the nanny
        # would kill the worker, with a warning. What is frozen is not looked at.
        atexit.register(gc.freeze)
        super().__init__(*arguments, **options)


class _Nanny(Nanny):  # type: ignore[misc]
    """A nanny whose workers have these settings, the ones that it restarts too."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with dask.config.set(SETTINGS):
            super().__init__(*arguments, worker_class=_WorkerProcess, **options)
            self.config: dict[str, Any] = deepcopy(self.config)


class _Cluster(SpecCluster):  # type: ignore[misc]
    """A cluster whose lost workers are their nannies' business: it would give up one that is missing now and then."""

    def _update_worker_status(self, op: str, msg: Any) -> None:
        with dask.config.set({"distributed.deploy.lost-worker-timeout": "1h"}):
            super()._update_worker_status(op, msg)


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
        Closed as a context manager; `cluster.scale(n)` leaves n - 1 workers for tiles beside the coordinator's.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1. Got {workers!r} instead.")
    common: dict[str, Any] = {"memory_limit": memory_limit if processes else 0, "dashboard": False}
    common |= {"silence_logs": logging.WARNING} if processes else {}

    def spec(threads: int, **resources: int) -> dict[str, Any]:
        return {
            "cls": _Nanny if processes else _Worker,
            "options": {**common, "nthreads": threads, "resources": resources},
        }

    compute = spec(1, compute=1)
    specs: dict[Any, Any] = {
        COORDINATOR: spec(coordinator_threads, coordinator=1),
        **dict.fromkeys(range(workers), compute),
    }
    encrypted = dask.config.get("distributed.comm.require-encryption")
    wire = {"protocol": "tls://" if encrypted else "tcp://", "host": "127.0.0.1"}
    address = wire if processes else {"protocol": "inproc://"}
    scheduler = {"cls": Scheduler, "options": {**address, "dashboard_address": dashboard_address}}
    return _Cluster(
        scheduler=scheduler, workers=specs, worker=compute, asynchronous=asynchronous, silence_logs=logging.WARNING
    )
