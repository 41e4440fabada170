"""Chooses a worker for the coordinator, and waits until a run has the workers that it needs."""

from contextlib import suppress
from time import monotonic, sleep
from typing import Any

from distributed import Client, Future, Worker

from dasksvm import config
from dasksvm.data.sources import Examples
from dasksvm.runtime.cluster import COMPUTE, COORDINATOR, LOG_AFTER, WorkersLost, workers_of
from dasksvm.runtime.coordinator import Coordinator
from dasksvm.runtime.memory_limits import check_memory
from dasksvm.runtime.protocol import Options
from dasksvm.runtime.run_hooks import current_hooks
from dasksvm.solver.engine.learner import Learner

POLL = 0.1
# A worker that does not answer within this many seconds is not chosen.
ANSWER_TIMEOUT = 5.0


def start_coordinator(
    client: Client, run: str, learner: Learner, examples: Examples, *, copies: bool, avoid: set[str]
) -> tuple[Future, str]:
    """Create the coordinator of a run on a worker of the cluster.

    `copies` says whether it will finish copies of the model during training. A worker to avoid is only chosen if there is no
    other. Returns the future of the coordinator and the address of its worker.

    If workers offer the resources `coordinator` and `compute`, the coordinator goes to a worker with the former, and tiles to
    workers with the latter. On a cluster without these resources the coordinator goes to any worker, and tiles to the others if
    there are any.

    Raises
    ------
    WorkersLost
        If the required workers have not arrived within `dasksvm.worker-timeout`; the message says what is missing.
    RuntimeError
        If a worker has too little memory.
    """
    timeout, began, reported = config.seconds_of("worker-timeout"), monotonic(), False
    while True:
        workers = workers_of(client)
        missing = _missing(workers)
        if missing is None:
            break
        waited = monotonic() - began
        if waited > timeout:
            raise WorkersLost(f"{missing} Gave up after {timeout:g} s (dasksvm.worker-timeout).")
        if waited > LOG_AFTER and not reported:
            reported = True
            current_hooks.get().note(f"run {run} is waiting for workers, for up to {timeout:g} s: {missing}")
        current_hooks.get().raise_if_cancelled(begun=False)
        sleep(POLL)
    coordinators = workers_with(workers, COORDINATOR)
    suited = coordinators or list(workers)
    address = _least_busy(client, [each for each in suited if each not in avoid] or suited)
    check_memory(workers, address, bool(coordinators), learner, examples, copies=copies)
    options = Options(
        resources=bool(coordinators),
        late_after=config.seconds_of("late-after"),
        attempts=int(config.get("attempts")),
        least_saving=config.seconds_of("least-saving"),
    )
    key = f"dasksvm-coordinator-{run}"
    resources = {COORDINATOR: 1} if coordinators else None
    future = client.submit(
        Coordinator,
        run,
        options,
        actor=True,
        key=key,
        workers=[address],
        resources=resources,
        allow_other_workers=False,
    )
    return future, address


def workers_with(workers: dict[str, Any], resource: str) -> list[str]:
    """Return the addresses of the workers that offer a resource."""
    return [address for address, about in workers.items() if about["resources"].get(resource, 0) >= 1]


def tile_workers(workers: dict[str, Any], coordinator: str) -> list[str]:
    """Return the addresses of the compute workers of a run, given the address of its coordinator's worker."""
    if workers_with(workers, COORDINATOR):
        return workers_with(workers, COMPUTE)
    return [address for address in workers if address != coordinator] or list(workers)


def _missing(workers: dict[str, Any]) -> str | None:
    """Describe which workers are missing for a run; None if it can begin."""
    if not workers:
        return "the cluster has no workers."
    for needed, other in ((COORDINATOR, COMPUTE), (COMPUTE, COORDINATOR)):
        if workers_with(workers, other) and not workers_with(workers, needed):
            return (
                f"workers offer the resource {other!r}, but none offers {needed!r}: start one with "
                f"`dask worker ADDRESS --nthreads 1 --resources {needed}=1`, or all without resources."
            )
    return None


def _least_busy(client: Client, addresses: list[str]) -> str:
    """Choose the worker with the fewest actors among those that answer.

    Dask's resources do not help: an actor does not occupy the resource with which it was submitted.
    """
    if len(addresses) == 1:
        return addresses[0]
    actors: dict[str, int] = {}
    for address in addresses:
        # These errors come from a worker that is frozen or has just left.
        with suppress(OSError, TimeoutError, KeyError):
            actors |= client.sync(client._run, _actors, workers=[address], callback_timeout=ANSWER_TIMEOUT)
    return min(actors, key=lambda address: (actors[address], address), default=addresses[0])


def _actors(dask_worker: Worker) -> int:
    return len(dask_worker.state.actors)
