"""A cluster on this machine: one worker for the coordinator and compute workers, each marked with its role as a resource."""

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
# Seconds of waiting after which a run logs what it is waiting for.
LOG_AFTER = 10.0
# Seconds before the next attempt when the scheduler accepts no connection.
RETRY = 0.2
# On Python 3.11 the profiler can crash a worker that runs compiled code. The environment variables must be set before NumPy is
# loaded: huge pages are slow to get on virtual machines, and malloc should keep the memory of kernel rows, which are allocated
# and freed all the time, instead of getting it page by page from the system again.
SETTINGS: dict[str, Any] = {
    "distributed.worker.profile.enabled": False,
    "distributed.nanny.pre-spawn-environ.NUMPY_MADVISE_HUGEPAGE": 0,
    "distributed.nanny.pre-spawn-environ.MALLOC_TRIM_THRESHOLD_": 1 << 27,
    "distributed.nanny.pre-spawn-environ.MALLOC_MMAP_THRESHOLD_": 1 << 25,
}


class SchedulerLost(ConnectionError):
    """The connection to the scheduler is lost, and with it the cluster."""


class SchedulerSilent(SchedulerLost):
    """The scheduler is connected but has not answered for `dasksvm.scheduler-timeout`."""


class WorkersLost(RuntimeError):
    """The workers that a run needs did not arrive, or gave no sign of life, for `dasksvm.worker-timeout`."""


def workers_of(client: Client, timeout: float | None = None) -> dict[str, Any]:
    """Return what the scheduler knows about its workers, by address.

    This does not use `client.scheduler_info`: the client refreshes that every two seconds without the workers, and such a
    refresh can replace the answer.

    Parameters
    ----------
    client : Client
    timeout : float, optional
        See `ask_scheduler`.

    Raises
    ------
    SchedulerLost
        If the scheduler does not answer.
    """
    workers: dict[str, Any] = ask_scheduler(client, "identity", timeout, n_workers=-1)["workers"]
    return workers


def ask_scheduler(client: Client, operation: str, timeout: float | None = None, **arguments: Any) -> Any:
    """Call an operation of the scheduler and wait for the answer, with a timeout; the methods of a client have none.

    Parameters
    ----------
    client : Client
        Must not be called from the thread of its event loop.
    operation : str
        Name of the scheduler's handler.
    timeout : float, optional
        Seconds to wait. If not given, this is `dasksvm.scheduler-timeout`, and a long wait is logged.
    **arguments
        Arguments of the operation.

    Raises
    ------
    SchedulerSilent
        If the scheduler does not answer in time.
    SchedulerLost
        If the client has lost its connection to the scheduler.
    """

    async def ask_until_answered() -> Any:
        while client.scheduler is not None:
            try:
                return await getattr(client.scheduler, operation)(**arguments)
            except OSError as error:
                # A frozen scheduler accepts no new connections and does not close the existing ones.
                if client.status != "running":
                    raise SchedulerLost(f"the scheduler does not answer: {error}") from error
            await asyncio.sleep(RETRY)
        raise SchedulerLost("the connection to the scheduler is lost.")

    if client.scheduler is None:
        raise SchedulerLost("the connection to the scheduler is lost.")
    address = client.scheduler.address
    limit = config.seconds_of("scheduler-timeout") if timeout is None else timeout
    quiet = min(LOG_AFTER, limit / 2)
    answer = asyncio.run_coroutine_threadsafe(ask_until_answered(), client.loop.asyncio_loop)
    try:
        try:
            return answer.result(quiet)
        except TimeoutError:
            if timeout is None:
                # Logged directly, not through the hooks of the run: those of a job send messages through the scheduler.
                logger.warning(
                    "waiting for the scheduler %s, which has not answered for %g s; giving up after %g s",
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
    """A worker with `SETTINGS`, even if it is started later, and without an HTTP server."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with dask.config.set(SETTINGS):
            super().__init__(*arguments, **options)

    def start_http_server(self, *_: Any, **__: Any) -> None:
        """Start no HTTP server: nothing here uses it, and Dask has no setting to turn it off."""


class _WorkerProcess(_Worker):
    """A worker in its own process, which exits only when its nanny says so, and then quickly."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        # A terminal sends Ctrl-C to all processes. The one that started the cluster closes it, perhaps after a last snapshot.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        # The garbage collection at exit takes seconds in a process in which numba has compiled: so long that the nanny would
        # kill the worker with a warning. Frozen objects are not collected.
        atexit.register(gc.freeze)
        super().__init__(*arguments, **options)


class _Nanny(Nanny):  # type: ignore[misc]
    """A nanny that starts and restarts its workers with `SETTINGS`."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        with dask.config.set(SETTINGS):
            super().__init__(*arguments, **options)
            self.config: dict[str, Any] = deepcopy(self.config)


class _Cluster(SpecCluster):  # type: ignore[misc]
    """A cluster that leaves lost workers to their nannies; SpecCluster would remove a worker that is missing for a while."""

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
    """Start a scheduler, a worker for the coordinator, and compute workers on this machine.

    Parameters
    ----------
    workers : int, default=2
        Number of compute workers. Each has one thread.
    processes : bool, default=True
        Whether each worker is a separate process. If False, workers are threads of this process and share its memory.
    coordinator_threads : int, default=2
        Threads of the coordinator's worker. With 2, the coordinator divides the work on its kernel rows between two threads.
    memory_limit : int or str, default="auto"
        Memory limit of each worker.
    host : str, default="127.0.0.1"
        Address that the scheduler, the workers and the dashboard listen on. Anyone who can connect to one of them can run code as
        this user. With another address, such as "0.0.0.0", that is everyone on the network, unless connections are encrypted.
    dashboard_address : str, default=":0"
        Port of the dashboard; ":0" is any free port. "ADDRESS:PORT" serves the dashboard on another address than `host`.
    asynchronous : bool, default=False
        Whether the cluster is used from a coroutine.

    Returns
    -------
    SpecCluster
        Use it as a context manager to close it. After `cluster.scale(n)` there are n - 1 compute workers, as one of the n workers
        is the coordinator's.
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
    # If the address is only a port, Dask would serve the dashboard on all interfaces.
    dashboard = f"{host}{dashboard_address}" if dashboard_address.startswith(":") else dashboard_address
    scheduler = {"cls": Scheduler, "options": {**address, "dashboard_address": dashboard}}
    return _Cluster(
        scheduler=scheduler, workers=specs, worker=compute, asynchronous=asynchronous, silence_logs=logging.WARNING
    )
