"""Weighted sums of kernel values that the coordinator lets the workers compute in parts.

The coordinator waits for them in the middle of a round. A part that is late or lost is computed by the coordinator itself, which
has all features: the bits are the same, so nothing has to be repeated, and no loss is an error here.
"""

import asyncio
import logging
from time import perf_counter

import numpy as np
from distributed import Future, get_client, get_worker

from dasksvm.runtime.protocol import SentSums
from dasksvm.runtime.task_queue import LATE_FACTOR, TaskQueue
from dasksvm.runtime.worker_tasks import compute_sums
from dasksvm.solver.blocks.pieces import PIECE_ROWS, pieces_of, some_sums
from dasksvm.solver.kernels.features import Values
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import SumsPlan

logger = logging.getLogger(__name__)
# Shared sums come before batches that are scored ahead.
PRIORITY = 10
# Parts for each thread of the workers: several, so that a thread that is still scoring a batch delays less.
PARTS = 2
# When a part was late or lost, the coordinator computes this many sums alone.
PAUSE = 20


class SharedSums:
    """Lets workers compute sums.

    Parameters
    ----------
    tasks : TaskQueue
        The queue of the run: it knows the workers, and its timings are updated.
    kernel : Kernel
    """

    def __init__(self, tasks: TaskQueue, kernel: Kernel) -> None:
        self._tasks, self._kernel = tasks, kernel
        self._client = get_client()
        self._workspace = Workspace()
        self._plan: SumsPlan | None = None
        self._number = self._pause = 0

    def __call__(self, plan: SumsPlan) -> Values | None:
        """Compute sums; None if it is better to compute them in the calling process."""
        assert plan.members is not None
        options = self._tasks.options
        seconds = len(plan.order) * len(plan.support) * self._kernel.seconds(plan.members)
        there, here = self._tasks.compute_threads(), get_worker().state.nthreads
        self._pause -= 1
        if self._pause > 0 or not there or seconds / here - seconds / there < options.least_saving:
            return None
        pieces = pieces_of(plan)
        ends = np.unique(np.linspace(0, pieces, min(PARTS * there, pieces) + 1).astype(np.int64))
        parts = list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))
        self._number, self._plan = self._number + 1, plan
        try:
            futures = [self._submit(part) for part in parts]
            late = perf_counter() + max(options.late_after, LATE_FACTOR * seconds)
            found = [self._result(future, late) for future in futures]
        finally:
            self._plan = None
        sums = np.empty((len(plan.amounts), len(plan.order)))
        for part, own in zip(parts, found, strict=True):
            if own is None:
                self._pause = PAUSE
                own = some_sums(self._kernel, plan, *part, self._workspace)
            sums[:, part[0] * PIECE_ROWS : part[1] * PIECE_ROWS] = own
        return sums

    def _submit(self, part: tuple[int, int]) -> Future:
        """Send a part to a worker."""
        coordinator = self._tasks.coordinator
        key = f"dasksvm-sums-{coordinator.run}-{self._number}-{part[0]}"
        self._tasks.timings.tasks += 1
        future: Future = self._client.submit(
            compute_sums,
            coordinator,
            self._number,
            *part,
            key=key,
            pure=False,
            retries=0,
            priority=PRIORITY,
            **self._tasks.placement(),
        )
        return future

    def _result(self, future: Future, late: float) -> Values | None:
        """Return the result of a part; None if it is late or lost."""
        try:
            answer = asyncio.run_coroutine_threadsafe(self._fetch(future), self._client.loop.asyncio_loop)
            result: Values | None = answer.result(timeout=max(late - perf_counter(), 0.001))
            self._tasks.timings.received += 0 if result is None else result.nbytes
            return result
        except Exception as error:  # whatever happened to the worker, the coordinator computes the part
            logger.info("a worker did not compute its part of some sums: %r", error)
            return None
        finally:
            future.release()

    async def _fetch(self, future: Future) -> Values | None:
        found: Values | None = await self._client.gather(future, direct=True, asynchronous=True)
        return found

    def sent(self, number: int, held: dict[int, int]) -> SentSums | None:
        """Return the plan with a number for a worker that holds features of some generations; None if it is out of date."""
        plan = self._plan
        if plan is None or plan.members is None or number != self._number:
            return None
        count, known = len(plan.members), held.get(plan.generation, 0)
        missing = plan.members.part(known, count) if count > known or plan.generation not in held else None
        bare = SumsPlan(None, plan.generation, plan.order, plan.support, plan.amounts)
        return SentSums(bare, count, missing)
