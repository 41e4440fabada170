"""A cluster on this machine: one worker for the coordinator, the others for tiles, each marked with what it offers."""

import asyncio
import atexit
import gc
import logging
import signal
from copy import deepcopy
from typing import Any

import dask.config
from distributed import Client, Nanny, Scheduler, SpecCluster, Worker

from dasksvm import config

logger = logging.getLogger("dasksvm")
COORDINATOR, COMPUTE = "coordinator", "compute"
LOOPBACK = "127.0.0.1"
# The user is told of what has been waited for so many seconds.
TELL_AFTER = 10.0
# Seconds until a scheduler that took no connection is asked again.
RETRY = 0.2
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


class SchedulerSilent(SchedulerLost):
    """The scheduler is there, but has not answered for `dasksvm.scheduler-timeout`."""


class WorkersLost(RuntimeError):
    """The workers that a run needs did not come, or gave no sign of life, for `dasksvm.worker-timeout`."""


def workers_of(client: Client, patience: float | None = None) -> dict[str, Any]:
    """Tell what the scheduler knows of its workers, by address.

    Not by `client.scheduler_info`: the client asks for itself every two seconds, for no workers, and what it then hears may
    stand in place of the answer.

    Parameters
    ----------
    client : Client
    patience : float, optional
        As for `ask_scheduler`.

    Raises
    ------
    SchedulerLost
        If it does not answer.
    """
    workers: dict[str, Any] = ask_scheduler(client, "identity", patience, n_workers=-1)["workers"]
    return workers


def ask_scheduler(client: Client, operation: str, patience: float | None = None, **arguments: Any) -> Any:
    """Call an operation of the scheduler and wait for the answer, which a client's own methods do without a limit.

    Parameters
    ----------
    client : Client
        Used from a thread that is not its event loop's.
    operation : str
        As the scheduler names it among its handlers.
    patience : float, optional
        Seconds to wait; `dasksvm.scheduler-timeout` if not given, and the user is told of a long wait.
    **arguments
        Of the operation.

    Raises
    ------
    SchedulerSilent
        If it does not answer in time.
    SchedulerLost
        If the client has lost it.
    """

    async def ask() -> Any:
        while client.scheduler is not None:
            try:
                return await getattr(client.scheduler, operation)(**arguments)
            except OSError as error:
                # A frozen scheduler takes no new connection, and does not close the ones that it has.
                if client.status != "running":
                    raise SchedulerLost(f"the scheduler does not answer: {error}") from error
            await asyncio.sleep(RETRY)
        raise SchedulerLost("the scheduler is lost.")

    if client.scheduler is None:
        raise SchedulerLost("the scheduler is lost.")
    address = client.scheduler.address
    limit = config.seconds_of("scheduler-timeout") if patience is None else patience
    quiet = min(TELL_AFTER, limit / 2)
    answer = asyncio.run_coroutine_threadsafe(ask(), client.loop.asyncio_loop)
    try:
        try:
            return answer.result(quiet)
        except TimeoutError:
            if patience is None:
                # Not by the attendant: that of a job tells through the scheduler.
                logger.warning(
                    "waiting for the scheduler %s, which has not answered for %g s; after %g s this ends with an error",
                    *(address, quiet, limit),
                )
        return answer.result(limit - quiet)
    except TimeoutError:
        raise SchedulerSilent(
            f"the scheduler {address} has not answered for {limit:g} s (dasksvm.scheduler-timeout)."
        ) from None
    finally:
        answer.cancel()


class _Worker(Worker):  # type: ignore[misc]
    """A worker with these settings, whenever it is started, and without an HTTP server."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with dask.config.set(SETTINGS):
            super().__init__(*arguments, **options)

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Start none: Dask has no setting for that, and nothing here asks a worker by HTTP."""


class _WorkerProcess(_Worker):
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
    common |= {**wire, "worker_class": _WorkerProcess, "silence_logs": logging.WARNING} if processes else {}

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
