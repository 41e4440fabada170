"""A worker's cache of the members' features, one per run; it pulls the features that it does not have yet.

A cache belongs to a worker, not to a process: with `processes=False` several workers share a process.
"""

from asyncio import ensure_future, sleep, wait
from dataclasses import replace
from threading import Lock
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

from dask.typing import Key
from distributed import Worker, get_worker
from distributed.core import Status
from distributed.protocol import to_serialize
from distributed.utils import sync

from dasksvm.config.workspaces import Workspaces
from dasksvm.data.chunked import ChunkedRows
from dasksvm.data.sources import Examples
from dasksvm.runtime.protocol import CoordinatorAddress, RunDescription, SentSums, TaskPlans, WorkerPlan
from dasksvm.solver.kernels.features import Features, FeatureStore
from dasksvm.solver.messages import ScorePlan, SumsPlan, View

PULL_TIMEOUT = 30.0
# Seconds between checks whether a waiting task is still needed.
CHECK_INTERVAL = 0.2
# Generations of the feature store that are kept: batches in flight may still refer to the previous one.
GENERATIONS = 2
# Seconds after which an unused cache is dropped: its run or its driver has ended.
IDLE = 30.0


class MemberCache:
    """What a worker knows about a run.

    Parameters
    ----------
    coordinator : CoordinatorAddress
    description : RunDescription
    """

    def __init__(self, coordinator: CoordinatorAddress, description: RunDescription) -> None:
        self.coordinator = coordinator
        self.description = description
        self.used = monotonic()
        self._stores: dict[int, FeatureStore] = {}
        # The last sums, whose parts are several tasks.
        self._sums: tuple[int, SumsPlan] | None = None
        self._lock = Lock()
        self.workspaces = Workspaces()

    def pull(self, sequences: tuple[int, ...]) -> tuple[list[WorkerPlan], list[ScorePlan]] | None:
        """Fetch the plans of a task and the members that are missing here; None if the task is out of date."""
        with self._lock:
            held = {generation: len(store) for generation, store in self._stores.items()}
            answer: TaskPlans | None = call_coordinator(self.coordinator, "task_plans", sequences, held)
            if answer is None:
                return None
            for generation, features in answer.features.items():
                self._add(generation, features)
            plans = [ScorePlan(plan.sequence, plan.rows, self._complete(plan), plan.choice) for plan in answer.plans]
            self._drop_old_generations()
        return answer.plans, plans

    def pull_sums(self, number: int) -> SumsPlan | None:
        """Fetch the plan of sums, and the members that are missing here; None if it is out of date."""
        with self._lock:
            if self._sums is None or self._sums[0] != number:
                held = {generation: len(store) for generation, store in self._stores.items()}
                sent: SentSums | None = call_coordinator(self.coordinator, "sums_plan", number, held)
                if sent is None:
                    return None
                if sent.features is not None:
                    self._add(sent.plan.generation, sent.features)
                members: Features = self._stores[sent.plan.generation].view().part(0, sent.slots)
                self._sums = number, replace(sent.plan, members=members)
                self._drop_old_generations()
            return self._sums[1]

    def _add(self, generation: int, features: Features) -> None:
        if generation in self._stores:
            self._stores[generation].append(features)
        else:
            self._stores[generation] = FeatureStore(features)

    def _drop_old_generations(self) -> None:
        for generation in sorted(self._stores)[:-GENERATIONS]:
            del self._stores[generation]

    def _complete(self, plan: WorkerPlan) -> View:
        if not plan.slots:
            return plan.view
        members: Features = self._stores[plan.view.generation].view().part(0, plan.slots)
        return replace(plan.view, members=members)

    def examples(self, blocks: dict[int, Any]) -> Examples:
        """Return the examples of a task, which this worker reads itself or takes from the blocks sent with the task."""
        about = self.description
        source: Any = about.source if about.source is not None else _Blocks(about.chunks, blocks)
        columns: Any = about.columns
        return Examples(source, about.form, columns, about.coding, about.base)


class _Blocks(ChunkedRows):
    """Rows of chunks that were sent with a task."""

    def __init__(self, chunks: tuple[int, ...], blocks: dict[int, Any]) -> None:
        super().__init__(chunks)
        self.blocks = blocks

    def read(self, at: int) -> Any:
        return self.blocks[at]


RUNNING = (Status.init, Status.running, Status.paused, Status.closing_gracefully)
_member_caches: WeakKeyDictionary[Worker, dict[str, MemberCache]] = WeakKeyDictionary()
# Also taken on the event loop: it must not be held while something is awaited.
_lock = Lock()


def member_cache_of(coordinator: CoordinatorAddress) -> MemberCache:
    """Return this worker's cache for a run, which is made when the first task of the run arrives."""
    worker = get_worker()
    with _lock:
        cache = _member_caches.setdefault(worker, {}).get(coordinator.run)
    if cache is None:
        made = MemberCache(coordinator, call_coordinator(coordinator, "describe_run"))
        with _lock:
            cache = _member_caches[worker].setdefault(coordinator.run, made)
        if cache is made:
            worker.loop.add_callback(_drop_idle, worker, coordinator.run)
    cache.used = monotonic()
    return cache


async def _drop_idle(worker: Worker, run: str) -> None:
    """Drop a cache that has not been used for a while."""
    while worker.status in RUNNING:
        with _lock:
            runs = _member_caches.get(worker, {})
            left = runs[run].used + IDLE - monotonic()
            if left <= 0:
                del runs[run]
                return
        await sleep(left)


def call_coordinator(coordinator: CoordinatorAddress, method: str, *arguments: Any) -> Any:
    """Call an async method of a coordinator from a task.

    This does not use the actor's proxy: on a worker a proxy holds a future, which fails with the actor and keeps it alive.

    Raises
    ------
    OSError
        If the coordinator does not answer, or the result of the task is no longer needed. In that case the coordinator is
        probably lost: Dask would try to reach it for half a minute, while its successor waits for this worker.
    """
    worker = get_worker()
    task = worker.get_current_task()

    async def call() -> Any:
        wrapped = [to_serialize(argument) for argument in arguments]
        rpc = worker.rpc(coordinator.address)
        request = ensure_future(rpc.actor_execute(actor=coordinator.key, function=method, args=wrapped, kwargs={}))
        give_up = monotonic() + PULL_TIMEOUT
        while not (await wait([request], timeout=CHECK_INTERVAL))[0]:
            if monotonic() > give_up or not _is_needed(worker, task):
                request.cancel()
                raise OSError(f"the coordinator at {coordinator.address} does not answer")
        return await request

    answer = sync(worker.loop, call)
    if answer["status"] != "OK":
        raise answer["exception"]
    return answer["result"]


def _is_needed(worker: Worker, task: Key) -> bool:
    known = worker.state.tasks.get(task)
    return known is not None and known.state in ("executing", "long-running")
