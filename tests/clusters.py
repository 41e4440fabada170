"""Clusters and data sets for tests."""

import hashlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import dask.config
import numpy as np
from distributed import Client, WorkerPlugin
from distributed.utils import get_mp_context

from dasksvm import Dataset, LaSVC
from dasksvm.model.kernel_model import KernelModel
from dasksvm.runtime import local_cluster, workers_of

# Processes are forked from one that has imported these modules, so a killed worker is back in a tenth of the time.
FORKED = {"distributed.worker.multiprocessing-method": "forkserver"}
IMPORTED = ["distributed", "dasksvm", "dasksvm.runtime.worker_tasks", "dasksvm.runtime.driver"]


@contextmanager
def cluster(workers: int = 2, *, processes: bool = False, **options: Any) -> Iterator[Client]:
    # With several clusters in one process, clients may restore this setting in the wrong order, so that it would stay set.
    with dask.config.set(FORKED, scheduler=None):
        if processes:
            get_mp_context().set_forkserver_preload(IMPORTED)
        with (
            local_cluster(workers, processes=processes, **options) as made,
            Client(made, direct_to_workers=True) as client,
        ):
            yield client


def recovered(client: Client, workers: int) -> Client:
    """Wait until as many workers answer as before the last kill, and none of its tasks are left.

    The scheduler still counts a killed worker until it notices.
    """
    wait_for(lambda: len(client.run(os.getpid, on_error="ignore")) == workers)
    left_over(client)
    return client


def noisy(path: Path, rows: int = 4000, width: int = 30, **options: Any) -> Dataset:
    """Create a data set of two overlapping classes."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, width)).astype(np.float32)
    y = np.where(X[:, 0] + X[:, 1] ** 2 + 0.3 * rng.normal(size=rows) > 1, "above", "below")
    return Dataset.create(path, X, y, **({"random_state": 0, "chunk_rows": 700} | options))


def solver(**parameters: Any) -> LaSVC:
    return LaSVC(**({"C": 3.0, "random_state": 1} | parameters))


def digest(model: LaSVC) -> str:
    parts = (model.support_, model.dual_coef_, model.intercept_, model.support_vectors_)
    return hashlib.sha256(b"".join(np.ascontiguousarray(part).tobytes() for part in parts)).hexdigest()


def same(one: KernelModel, other: KernelModel) -> bool:
    parts = ("support_vectors", "coefficients", "intercepts", "classes")
    return all(np.array_equal(getattr(one, part), getattr(other, part)) for part in parts)


def history(model: LaSVC) -> list[dict[str, Any]]:
    return [{name: value for name, value in entry.items() if name != "seconds"} for entry in model.history_]


def compute_workers(client: Client) -> list[str]:
    return [address for address, about in workers_of(client).items() if "compute" in about["resources"]]


def coordinator_worker(client: Client) -> str:
    (address,) = (address for address, about in workers_of(client).items() if "coordinator" in about["resources"])
    return address


def send(client: Client, address: str, number: signal.Signals) -> int:
    """Send a signal to the process of a worker; return its pid."""
    pid = client.run(os.getpid, workers=[address])[address]
    os.kill(pid, number)
    return int(pid)


def sabotage(sequence: int, number: int = signal.SIGKILL) -> None:
    """Run this on a worker: it gets the signal in the middle of its first task for a batch numbered `sequence` or higher."""
    from dasksvm.runtime import worker_tasks

    execute = worker_tasks.execute

    def fatal(plan: Any, *arguments: Any) -> Any:
        if plan.sequence >= sequence:
            worker_tasks.execute = execute
            os.kill(os.getpid(), number)
        return execute(plan, *arguments)

    worker_tasks.execute = fatal


class Brake(WorkerPlugin):
    """Makes workers, those that are restarted too, take at least this long for each batch.

    Tests interfere with runs, which would be over too soon on a fast machine.

    Parameters
    ----------
    seconds : float
    """

    name = "brake"

    def __init__(self, seconds: float = 0.1) -> None:
        self.seconds = seconds

    def setup(self, worker: Any) -> None:
        """Slow down the tasks of a worker's process."""
        from dasksvm.runtime import worker_tasks

        if hasattr(worker_tasks, "braked"):
            return
        worker_tasks.braked, execute = True, worker_tasks.execute

        def slow(plan: Any, *arguments: Any) -> Any:
            time.sleep(self.seconds)
            return execute(plan, *arguments)

        worker_tasks.execute = slow


def wait_for(condition: Callable[[], Any]) -> None:
    give_up = time.monotonic() + 90
    while not condition():
        assert time.monotonic() < give_up
        time.sleep(0.02)


def left_over(client: Client) -> Any:
    """Return what the scheduler and the workers still hold after a run; nothing should be left after a moment."""

    def known(dask_scheduler: Any) -> list[str]:
        return [
            f"{key}: {task.state}, for {[client.client_key for client in task.who_wants or ()]}"
            for key, task in dask_scheduler.tasks.items()
        ]

    def held(dask_worker: Any) -> tuple[int, int]:
        return len(dask_worker.state.actors), len(dask_worker.data)

    give_up = time.monotonic() + 5
    while True:
        found = client.run_on_scheduler(known), set(client.run(held).values())
        if found == ([], {(0, 0)}) or time.monotonic() > give_up:
            return found
        time.sleep(0.05)


def quick(**settings: Any) -> Any:
    """Return settings for tests that wait for a late batch."""
    return dask.config.set({"dasksvm.late-after": "300ms"} | settings)


class Processes:
    """A scheduler and two workers, started from the command line as users do."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "scheduler.json"
        options = ["--scheduler-file", str(self.file)]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        environment = os.environ | {"DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "false"}

        def start(*arguments: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "distributed.cli." + arguments[0], *arguments[1:], *options]
            return subprocess.Popen(command, env=environment, **quiet)

        self.scheduler = start("dask_scheduler", "--port", "0", "--dashboard-address", ":0")
        roles = ["coordinator=1", "compute=1"]
        self.workers = [
            start("dask_worker", "--nthreads", "1", "--no-nanny", "--no-dashboard", "--resources", role)
            for role in roles
        ]
        while not self.file.exists():
            time.sleep(0.05)

    def stop(self) -> None:
        for process in (self.scheduler, *self.workers):
            process.kill()
        for process in (self.scheduler, *self.workers):
            process.wait(20)
