"""A cluster on this machine: one worker for the coordinator, the others for tiles, each marked with what it offers."""

import logging
from copy import deepcopy
from typing import Any

import dask.config
from distributed import Client, Nanny, Scheduler, SpecCluster, Worker

COORDINATOR, COMPUTE = "coordinator", "compute"
LOOPBACK = "127.0.0.1"
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
    """A worker with these settings, whenever it is started, and without an HTTP server."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with dask.config.set(SETTINGS):
            super().__init__(*arguments, **options)

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Start none: Dask has no setting for that, and nothing here asks a worker by HTTP."""


class _Nanny(Nanny):  # type: ignore[misc]
    """A nanny whose workers have these settings, the ones that it restarts too."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with dask.config.set(SETTINGS):
            super().__init__(*arguments, **options)
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
    host: str = LOOPBACK,
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
    host : str, default="127.0.0.1"
        Address that scheduler, workers and dashboard listen on. Whoever reaches one of them can run code as this user: with
        another address, such as "0.0.0.0", that is everyone on its network, unless connections are encrypted.
    dashboard_address : str, default=":0"
        Port of the dashboard, a free one if not given; "ADDRESS:PORT" serves it on another address than `host`.
    asynchronous : bool, default=False
        Whether the cluster is used from a coroutine.

    Returns
    -------
    SpecCluster
        Closed as a context manager; `cluster.scale(n)` leaves n - 1 workers for tiles beside the coordinator's.
    """
    if workers < 1:
        raise ValueError(f"workers must be at least 1. Got {workers!r} instead.")
    encrypted = dask.config.get("distributed.comm.require-encryption")
    wire = {"protocol": "tls://" if encrypted else "tcp://", "host": host}
    common: dict[str, Any] = {"memory_limit": memory_limit if processes else 0}
    common |= {**wire, "worker_class": _Worker, "silence_logs": logging.WARNING} if processes else {}

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
    address = wire if processes else {"protocol": "inproc://"}
    # Dask would serve a dashboard whose address is only a port on all interfaces.
    dashboard = f"{host}{dashboard_address}" if dashboard_address.startswith(":") else dashboard_address
    scheduler = {"cls": Scheduler, "options": {**address, "dashboard_address": dashboard}}
    return _Cluster(
        scheduler=scheduler, workers=specs, worker=compute, asynchronous=asynchronous, silence_logs=logging.WARNING
    )
