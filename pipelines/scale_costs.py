"""What `pipelines.scale` is fed with: costs measured in isolation in one process, and on a cluster that does nothing else."""

import asyncio
import json
import os
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import psutil
from distributed import Client, get_client, get_worker
from distributed.utils import sync
from numpy.typing import NDArray

from dasksvm.runtime import local_cluster
from dasksvm.runtime.cluster import COMPUTE
from dasksvm.runtime.cluster import COORDINATOR as COORDINATES
from dasksvm.runtime.member_cache import call_coordinator
from dasksvm.runtime.protocol import CoordinatorAddress
from pipelines.scale_values import ValueCosts, bookkeeping_costs, inner_costs, value_costs

# Bytes that are sent to measure the bandwidth; repetitions of one message, and messages sent together.
BYTES, REPEATS, TOGETHER = 32 << 20, 30, 200
# Seconds in which an idle cluster is watched.
IDLE = 3.0


@dataclass(frozen=True)
class MessageCosts:
    """What messages between processes cost, in seconds.

    Attributes
    ----------
    task : float
        From sending a task that does nothing to having its result.
    submit : float
        Of the thread that sends a task.
    task_each, call_each : float
        Of each task or direct call, if many are sent at the same time.
    call : float
        From a direct call between two workers to its answer.
    byte : float
        Of each byte that a direct call returns.
    task_cpu : float
        CPU time of all processes together for a task that does nothing.
    idle : float
        Cores that the processes of a cluster need while there is nothing to do.
    """

    task: float
    submit: float
    task_each: float
    call: float
    call_each: float
    byte: float
    task_cpu: float
    idle: float


@dataclass(frozen=True)
class Costs:
    """All costs that the model is fed with.

    Attributes
    ----------
    values : dict of int to ValueCosts
        By the number of features.
    inner : dict of int to float
        Seconds of a step within a working set, by its size.
    bookkeeping : tuple of float
        Seconds of the learner for each result, and for each member.
    messages : MessageCosts
    cores : int
        Of the machine.
    """

    values: dict[int, ValueCosts]
    inner: dict[int, float]
    bookkeeping: tuple[float, float]
    messages: MessageCosts
    cores: int

    def inner_step(self, size: int) -> float:
        """Return the seconds of a step: between the sizes that were measured by a line, beyond them in proportion."""
        sizes = sorted(self.inner)
        within = min(max(size, sizes[0]), sizes[-1])
        return float(np.interp(within, sizes, [self.inner[each] for each in sizes])) * size / within

    def as_json(self) -> dict[str, Any]:
        """Return the costs as JSON can hold them."""
        found: dict[str, Any] = json.loads(json.dumps(asdict(self)))
        return found

    @classmethod
    def of_json(cls, found: dict[str, Any]) -> "Costs":
        """Read the costs from what `as_json` returned."""
        return cls(
            {int(width): ValueCosts(**each) for width, each in found["values"].items()},
            {int(size): float(seconds) for size, seconds in found["inner"].items()},
            (float(found["bookkeeping"][0]), float(found["bookkeeping"][1])),
            MessageCosts(**found["messages"]),
            int(found["cores"]),
        )


def measure_costs(widths: Sequence[int]) -> Costs:
    """Measure everything on this machine, which should do nothing else."""
    values = {width: value_costs(width) for width in widths}
    return Costs(values, inner_costs(), bookkeeping_costs(), message_costs(), len(os.sched_getaffinity(0)))


def message_costs() -> MessageCosts:
    """Measure messages on a cluster of this machine with one compute worker."""
    with local_cluster(1) as cluster, Client(cluster, direct_to_workers=True) as client:
        time.sleep(IDLE)  # until everything has started
        before = cpu_seconds()
        time.sleep(IDLE)
        idle = (cpu_seconds() - before) / IDLE
        before = cpu_seconds()
        for number in range(REPEATS):
            client.submit(_nothing, number, pure=False, resources={COMPUTE: 1}).result()
        task_cpu = (cpu_seconds() - before) / REPEATS
        echo = client.submit(Echo, actor=True, resources={COORDINATES: 1}).result()
        address = client.who_has()[echo.key][0]
        tasks = client.submit(_time_tasks, resources={COORDINATES: 1}, pure=False).result()
        to = CoordinatorAddress("costs", address, echo.key)
        calls = client.submit(_time_calls, to, resources={COMPUTE: 1}, pure=False).result()
    return MessageCosts(**tasks, **calls, task_cpu=task_cpu, idle=idle)


def cpu_seconds() -> float:
    """Return the CPU time of this process and those that it has started."""
    own = psutil.Process()
    return sum(sum(process.cpu_times()[:2]) for process in (own, *own.children(recursive=True)))


class Echo:
    """An actor that answers calls as a coordinator does, on the event loop of its worker."""

    def __init__(self) -> None:
        self._values = np.ones(BYTES, np.uint8)

    async def give(self, count: int) -> NDArray[np.uint8]:
        """Return some bytes."""
        return self._values[:count]


def _nothing(number: int) -> int:
    """Do nothing, as a task."""
    return number


def _time_tasks() -> dict[str, float]:
    """Measure tasks that a worker sends to another, as a coordinator does."""
    client = get_client()

    def send(number: int) -> Any:
        return client.submit(_nothing, number, pure=False, resources={COMPUTE: 1})

    def fetch(futures: list[Any]) -> None:
        answer = client.gather(futures, direct=True, asynchronous=True)
        asyncio.run_coroutine_threadsafe(answer, client.loop.asyncio_loop).result()

    alone = []
    for number in range(REPEATS):
        start = time.perf_counter()
        fetch([send(number)])
        alone.append(time.perf_counter() - start)
    start = time.perf_counter()
    futures = [send(number) for number in range(TOGETHER)]
    sent = time.perf_counter() - start
    fetch(futures)
    taken = time.perf_counter() - start
    return {"task": statistics.median(alone), "submit": sent / TOGETHER, "task_each": taken / TOGETHER}


def _time_calls(to: CoordinatorAddress) -> dict[str, float]:
    """Measure direct calls from a task to an actor, and the bandwidth of their answers."""
    worker = get_worker()

    async def all_at_once() -> None:
        call = worker.rpc(to.address).actor_execute
        await asyncio.gather(
            *(call(actor=to.key, function="give", args=[0], kwargs={}) for _ in range(TOGETHER)),
        )

    def seconds(count: int, repeats: int) -> float:
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            call_coordinator(to, "give", count)
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    alone, large = seconds(0, REPEATS), seconds(BYTES, REPEATS // 3)
    sync(worker.loop, all_at_once)  # opens the connections
    start = time.perf_counter()
    sync(worker.loop, all_at_once)
    together = (time.perf_counter() - start) / TOGETHER
    return {"call": alone, "call_each": together, "byte": max(large - alone, 0.0) / BYTES}
