"""Sends batches to the workers and collects the results, each at most once, whatever happens to a worker."""

import asyncio
from collections import OrderedDict, deque
from concurrent.futures import CancelledError
from contextlib import suppress
from threading import Condition
from time import perf_counter
from typing import Any

import numpy as np
from distributed import Future, KilledWorker, get_client, get_worker
from distributed.client import FutureCancelledError
from distributed.comm import CommClosedError

from dasksvm.data.sources import DaskSource, Source
from dasksvm.runtime.cluster import COMPUTE, SchedulerLost, ask_scheduler, workers_of
from dasksvm.runtime.protocol import CoordinatorAddress, Options, Scored
from dasksvm.runtime.worker_tasks import score_batches
from dasksvm.solver.kernels.features import Ints
from dasksvm.solver.messages import CandidateBatch
from dasksvm.training.timings import Timings

# Errors that may be temporary: a lost worker, a lost connection, a chunk that cannot be read at the moment.
TEMPORARY_ERRORS = (
    OSError,
    TimeoutError,
    CommClosedError,
    CancelledError,
    FutureCancelledError,
    KilledWorker,
    asyncio.TimeoutError,
)
# A batch is late when it takes this many times as long as the recent ones did.
LATE_FACTOR = 5.0
RECENT = 32
# The limit doubles each time a batch is late again, at most this often.
DOUBLED = 5
# Seconds after which a batch is late before the first result has arrived: workers may have to compile.
FIRST_LATE_AFTER = 120.0
# Seconds for which a worker that was late gets no repeated tasks.
SUSPICION = 30.0
WORKERS_REFRESH = 2.0
STARVED_REFRESH = 0.2
# Seconds to wait for an answer from the scheduler; the run can continue without one.
ANSWER_TIMEOUT = 5.0
KEPT_BLOCKS = 3
# Large results are fetched this many batches ahead; until then they stay on the worker that computed them.
FETCHED_AHEAD = 4
FETCH_POLL = 0.005


class _Task:
    """Batches that were sent together."""

    def __init__(self, sequences: tuple[int, ...], rows: list[Ints], large: bool) -> None:
        self.sequences = sequences
        self.large = large
        self.rows = rows
        self.attempts = self.errors = 0
        self.sent = 0.0
        self.futures: dict[str, Future] = {}


class TaskQueue:
    """The tasks of a run that have been sent and not yet applied.

    Parameters
    ----------
    coordinator : CoordinatorAddress
    options : Options
    timings : Timings
        Is updated.
    source : Source
        If it is a Dask array, its chunks are computed on the cluster and sent with the tasks.
    """

    def __init__(self, coordinator: CoordinatorAddress, options: Options, timings: Timings, source: Source) -> None:
        self.coordinator, self.options, self.timings = coordinator, options, timings
        self._client = get_client()
        self._own = get_worker().address
        self._blocks = _Blocks(source, self._client, options) if isinstance(source, DaskSource) else None
        self._tasks: dict[int, _Task] = {}
        self._arrived: dict[int, CandidateBatch] = {}
        self._lost: deque[_Task] = deque()
        self._futures: set[Future] = set()
        self._failed: Exception | None = None
        self._changed = Condition()
        self._durations: deque[float] = deque(maxlen=RECENT)
        self._suspects: dict[str, float] = {}
        self._workers: dict[str, int] = {}
        self._refreshed = -np.inf
        self._needed = 0
        self._closed = False

    def starved(self) -> bool:
        """Return whether there is no compute worker. On a cluster without resources the coordinator's worker can compute."""
        return self.options.resources and not self._compute_workers(STARVED_REFRESH)

    def compute_threads(self) -> int:
        """Return the number of threads of all compute workers; 0 if there are none at the moment."""
        return sum(self._compute_workers(WORKERS_REFRESH).values())

    def slots(self) -> int:
        """Return about how many tasks run at the same time."""
        return max(self.compute_threads(), 1)

    def _compute_workers(self, age: float) -> dict[str, int]:
        """Return the number of threads of each compute worker, from information that is at most `age` seconds old."""
        if perf_counter() - self._refreshed > age:
            # If the scheduler is gone this worker ends soon, and the driver reports a frozen one. Until then keep the old state.
            with suppress(SchedulerLost):
                self._workers = {
                    address: about["nthreads"]
                    for address, about in workers_of(self._client, ANSWER_TIMEOUT).items()
                    if (COMPUTE in about["resources"] if self.options.resources else address != self._own)
                }
            self._refreshed = perf_counter()
        return self._workers

    def placement(self) -> dict[str, Any]:
        """Return the options that keep a task away from the coordinator's worker and from late workers, if there are others.

        With `allow_other_workers` Dask would ignore the resources and lose count of them.
        """
        now = perf_counter()
        # Iterate over a copy: the event loop may remove suspects at the same time.
        self._suspects = {address: until for address, until in list(self._suspects.items()) if until > now}
        if self.options.resources and not self._suspects:
            return {"resources": {COMPUTE: 1}}
        others = [address for address in self._compute_workers(0.0) if address not in self._suspects]
        if self.options.resources:
            return {"resources": {COMPUTE: 1}} | ({"workers": others} if others else {})
        return {"workers": others, "allow_other_workers": True} if others else {}

    def send(self, sequences: tuple[int, ...], rows: list[Ints], large: bool) -> None:
        """Send some batches as one task."""
        task = _Task(sequences, rows, large)
        for sequence in sequences:
            self._tasks[sequence] = task
        self._submit(task)

    def _submit(self, task: _Task) -> None:
        before = perf_counter()
        task.attempts += 1
        task.sent = before
        key = f"dasksvm-score-{self.coordinator.run}-{task.sequences[0]}-{task.attempts}"
        blocks = {} if self._blocks is None else self._blocks.of(np.concatenate(task.rows))
        future = self._client.submit(
            score_batches, self.coordinator, task.sequences, blocks, key=key, pure=False, retries=0, **self.placement()
        )
        task.futures[key] = future
        self._futures.add(future)
        asyncio.run_coroutine_threadsafe(self._collect(task, key, future), self._client.loop.asyncio_loop)
        self.timings.tasks += 1
        self.timings.repeats += task.attempts > 1
        self.timings.submitting += perf_counter() - before

    async def _collect(self, task: _Task, key: str, future: Future) -> None:
        """Fetch a result when it is ready; runs on the worker's event loop while the solver works."""
        scored: Scored | None = None
        error: Exception | None = None
        try:
            while task.large and task.sequences[0] >= self._needed + FETCHED_AHEAD and not self._closed:
                await asyncio.sleep(FETCH_POLL)
            scored = await self._client.gather(future, direct=True, asynchronous=True)
        except Exception as raised:  # handled in `wait`, on the solver's thread
            error = raised
        finally:
            task.futures.pop(key, None)
            self._futures.discard(future)
            future.release()
        with self._changed:
            if self._closed:
                return
            if scored is not None:
                self._accept(task, scored)
            elif self._is_needed(task):
                task.errors += error is not None
                if error is not None and (
                    not isinstance(error, TEMPORARY_ERRORS) or task.errors >= self.options.attempts
                ):
                    self._failed = error
                elif not task.futures:
                    self._lost.append(task)
            self._changed.notify_all()

    def _is_needed(self, task: _Task) -> bool:
        return any(self._tasks.get(sequence) is task for sequence in task.sequences)

    def _accept(self, task: _Task, scored: Scored) -> None:
        self._suspects.pop(scored.worker, None)
        self._durations.append(perf_counter() - task.sent)
        self.timings.pulling += scored.pulling
        self.timings.reading += scored.reading
        self.timings.tiling += scored.tiling
        for batch in scored.batches:
            self.timings.received += batch.rows.nbytes + sum(a.nbytes for a in batch.features.arrays().values())
            if self._tasks.get(batch.sequence) is task:
                self._arrived[batch.sequence] = batch

    def wait(self, sequence: int, deadline: float) -> CandidateBatch | None:
        """Wait for a batch until the deadline; request it again if it is late or was lost."""
        start = perf_counter()
        self._needed = sequence
        task = self._tasks[sequence]
        try:
            while perf_counter() < deadline and not self._closed:
                with self._changed:
                    if self._failed is not None:
                        raise self._failed
                    if sequence in self._arrived:
                        del self._tasks[sequence]
                        return self._arrived.pop(sequence)
                    again = self._lost.popleft() if self._lost else None
                    if again is None and task.sent + self._late_after(task) < perf_counter():
                        again = task
                    if again is None:
                        self._changed.wait(min(deadline - perf_counter(), 0.05))
                if again is not None:
                    self._repeat(again)
            return None
        finally:
            self.timings.waiting += perf_counter() - start

    def _late_after(self, task: _Task) -> float:
        """Return the seconds after which a task is late.

        They double with each attempt; otherwise tasks would pile up when all workers are stuck.
        """
        if not self._durations:
            return FIRST_LATE_AFTER
        first = max(self.options.late_after, LATE_FACTOR * float(np.median(self._durations)))
        return first * float(2 ** min(task.attempts - 1, DOUBLED))

    def _repeat(self, task: _Task) -> None:
        """Send a task again under a new key and away from the workers that have it now; later if there are no workers."""
        if self.starved():  # calls into the event loop, so the lock must not be held here
            with self._changed:
                self._lost.append(task)
                self._changed.wait(STARVED_REFRESH)
            return
        if not self._is_needed(task):
            return
        keys = list(task.futures)
        if keys:
            with suppress(SchedulerLost):
                processing = ask_scheduler(self._client, "processing", ANSWER_TIMEOUT, workers=None)
                holders = ask_scheduler(self._client, "who_has", ANSWER_TIMEOUT, keys=keys)
                late = {address for address, tasks in processing.items() if set(tasks) & set(keys)}
                late.update(address for addresses in holders.values() for address in addresses)
                self._suspects |= dict.fromkeys(late, perf_counter() + SUSPICION)
        self._submit(task)

    def close(self) -> None:
        """Drop all tasks."""
        with self._changed:
            self._closed = True
            self._tasks.clear()
            self._arrived.clear()
            self._changed.notify_all()
        # Release the futures, and do not cancel the coroutines that wait for them: Dask fetches results for all waiting
        # coroutines together, those of other runs included.
        for future in list(self._futures):
            future.release()
        if self._blocks is not None:
            self._blocks.release()


class _Blocks:
    """Chunks of a Dask array, computed on the cluster when first needed; the most recent ones are kept there."""

    def __init__(self, source: DaskSource, client: Any, options: Options) -> None:
        self._source = source
        self._client = client
        self._placement = {"resources": {COMPUTE: 1}} if options.resources else {}
        self._kept: OrderedDict[int, Future] = OrderedDict()

    def of(self, rows: Ints) -> dict[int, Future]:
        """Return the futures of the chunks that hold these rows."""
        needed = [int(at) for at in self._source.chunks_of(rows)]
        for at in needed:
            if at in self._kept and self._kept[at].status not in ("pending", "finished"):
                self._kept.pop(at).release()
            if at not in self._kept:
                self._kept[at] = self._client.compute(self._source.checked(at), **self._placement)
            self._kept.move_to_end(at)
        while len(self._kept) > max(KEPT_BLOCKS, len(needed)):
            self._kept.popitem(last=False)
        return {at: self._kept[at] for at in needed}

    def release(self) -> None:
        """Release the chunks on the cluster."""
        for future in self._kept.values():
            future.release()
        self._kept.clear()
