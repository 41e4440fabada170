"""The members' features that a worker keeps, one replica a run; it pulls what it lacks.

A replica belongs to a worker, not to a process: with `processes=False` several workers share one.
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
from dasksvm.runtime.protocol import Introduction, Order, Orders, Post
from dasksvm.solver.kernels.features import Features, FeatureStore
from dasksvm.solver.messages import ScorePlan

PULL_TIMEOUT = 30.0
# How often a task that waits for an answer looks whether it is wanted any more.
LOOK = 0.2
# Generations of the feature store that are kept: batches in flight may still refer to the one before.
GENERATIONS = 2
# Seconds after which a replica that nobody uses is dropped: its run has ended, or its driver has.
IDLE = 30.0


class Replica:
    """What a worker knows of a run.

    Parameters
    ----------
    post : Post
    introduction : Introduction
    """

    def __init__(self, post: Post, introduction: Introduction) -> None:
        self.post = post
        self.introduction = introduction
        self.used = monotonic()
        self._stores: dict[int, FeatureStore] = {}
        self._lock = Lock()
        self.workspaces = Workspaces()

    def pull(self, sequences: tuple[int, ...]) -> tuple[list[Order], list[ScorePlan]] | None:
        """Fetch the plans of a task and the members that are missing here; None if the task is stale."""
        with self._lock:
            held = {generation: len(store) for generation, store in self._stores.items()}
            answer: Orders | None = ask(self.post, "orders", sequences, held)
            if answer is None:
                return None
            for generation, features in answer.features.items():
                if generation in self._stores:
                    self._stores[generation].append(features)
                else:
                    self._stores[generation] = FeatureStore(features)
            plans = [
                ScorePlan(order.sequence, order.rows, self._complete(order), order.choice) for order in answer.orders
            ]
            for generation in sorted(self._stores)[:-GENERATIONS]:
                del self._stores[generation]
        return answer.orders, plans

    def _complete(self, order: Order) -> Any:
        if not order.slots:
            return order.view
        members: Features = self._stores[order.view.generation].view().part(0, order.slots)
        return replace(order.view, members=members)

    def examples(self, blocks: dict[int, Any]) -> Examples:
        """Give the examples of a task: read by this worker, or from the blocks that came with the task."""
        about = self.introduction
        source: Any = about.source if about.source is not None else _Blocks(about.chunks, blocks)
        columns: Any = about.columns
        return Examples(source, about.form, columns, about.coding, about.base)


class _Blocks(ChunkedRows):
    """Rows of some chunks that are here."""

    def __init__(self, chunks: tuple[int, ...], blocks: dict[int, Any]) -> None:
        super().__init__(chunks)
        self.blocks = blocks

    def read(self, at: int) -> Any:
        return self.blocks[at]


RUNNING = (Status.init, Status.running, Status.paused, Status.closing_gracefully)
_replicas: WeakKeyDictionary[Worker, dict[str, Replica]] = WeakKeyDictionary()
# Taken on the event loop too: never held while something is awaited.
_lock = Lock()


def replica_of(post: Post) -> Replica:
    """Give this worker's replica for a run; made when the first task of the run comes."""
    worker = get_worker()
    with _lock:
        replica = _replicas.setdefault(worker, {}).get(post.run)
    if replica is None:
        made = Replica(post, ask(post, "introduction"))
        with _lock:
            replica = _replicas[worker].setdefault(post.run, made)
        if replica is made:
            worker.loop.add_callback(_drop_idle, worker, post.run)
    replica.used = monotonic()
    return replica


async def _drop_idle(worker: Worker, run: str) -> None:
    """Drop a replica when nobody has used it for a while."""
    while worker.status in RUNNING:
        with _lock:
            runs = _replicas.get(worker, {})
            left = runs[run].used + IDLE - monotonic()
            if left <= 0:
                del runs[run]
                return
        await sleep(left)


def ask(post: Post, method: str, *arguments: Any) -> Any:
    """Call an async method of a coordinator from a task.

    Not through an actor's proxy: on a worker that one holds a future, which fails with the actor and keeps it alive.

    Raises
    ------
    OSError
        If it does not answer, or if nobody wants the task's result any more: its coordinator is lost, most likely, and Dask
        would try to reach it for half a minute, in which the next one waits for this worker.
    """
    worker = get_worker()
    task = worker.get_current_task()

    async def call() -> Any:
        wrapped = [to_serialize(argument) for argument in arguments]
        rpc = worker.rpc(post.address)
        asked = ensure_future(rpc.actor_execute(actor=post.key, function=method, args=wrapped, kwargs={}))
        give_up = monotonic() + PULL_TIMEOUT
        while not (await wait([asked], timeout=LOOK))[0]:
            if monotonic() > give_up or not _is_wanted(worker, task):
                asked.cancel()
                raise OSError(f"the coordinator at {post.address} does not answer")
        return await asked

    answer = sync(worker.loop, call)
    if answer["status"] != "OK":
        raise answer["exception"]
    return answer["result"]


def _is_wanted(worker: Worker, task: Key) -> bool:
    known = worker.state.tasks.get(task)
    return known is not None and known.state in ("executing", "long-running")
