"""Weighted sums of kernel values that the coordinator lets the workers compute in parts.

The coordinator waits for them in the middle of a round. A part that is late or lost is computed by the coordinator itself, which
has all features: the bits are the same, so nothing has to be repeated, and no loss is an error here.
"""

import asyncio
from collections.abc import Callable
from time import perf_counter

import numpy as np
from distributed import Future, get_client, get_worker

from dasksvm.runtime.protocol import CoordinatorAddress, Options, SentSums
from dasksvm.runtime.worker_tasks import compute_sums
from dasksvm.solver.blocks.keeping import cost_of_value
from dasksvm.solver.blocks.pieces import PIECE_ROWS, pieces_of, some_sums
from dasksvm.solver.kernels.features import Values
from dasksvm.solver.kernels.kernel import Kernel
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import SumsPlan

# Shared sums come before batches that are scored ahead.
PRIORITY = 10
# Parts for each thread of the workers: several, so that a thread that is still scoring a batch delays less.
PARTS = 2
# Number of sums after which workers get shares again when one of them was late.
PAUSE = 20


class SharedSums:
    """Lets workers compute sums.

    Parameters
    ----------
    coordinator : CoordinatorAddress
    options : Options
    kernel : Kernel
    slots : callable
        Returns the number of threads of the workers, 0 if there are none at the moment.
    placement : callable
        Returns where tasks are placed, as options of `Client.submit`.
    """

    def __init__(
        self,
        coordinator: CoordinatorAddress,
        options: Options,
        kernel: Kernel,
        slots: Callable[[], int],
        placement: Callable[[], dict[str, object]],
    ) -> None:
        self.coordinator, self.options, self.kernel = coordinator, options, kernel
        self._slots, self._placement = slots, placement
        self._client = get_client()
        self._workspace = Workspace()
        self._plan: SumsPlan | None = None
        self._number = self._pause = 0

    def __call__(self, plan: SumsPlan) -> Values | None:
        """Compute sums; None if it is better to compute them in the calling process."""
        assert plan.members is not None
        seconds = len(plan.order) * len(plan.support) * cost_of_value(self.kernel, plan.members) / 1e9
        slots, here = self._slots(), get_worker().state.nthreads
        self._pause -= 1
        if self._pause > 0 or not slots or seconds / here - seconds / slots < self.options.least_saved:
            return None
        pieces = pieces_of(plan)
        ends = np.unique(np.linspace(0, pieces, min(PARTS * slots, pieces) + 1).astype(np.int64))
        parts = list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))
        self._number, self._plan = self._number + 1, plan
        try:
            futures = [self._submit(part) for part in parts]
            late = perf_counter() + max(self.options.late_after, 5.0 * seconds)
            found = [self._result(future, late) for future in futures]
        finally:
            self._plan = None
        sums = np.empty((len(plan.amounts), len(plan.order)))
        for part, own in zip(parts, found, strict=True):
            if own is None:
                self._pause = PAUSE
                own = some_sums(self.kernel, plan, *part, self._workspace)
            sums[:, part[0] * PIECE_ROWS : part[1] * PIECE_ROWS] = own
        return sums

    def _submit(self, part: tuple[int, int]) -> Future:
        """Send a part to a worker."""
        key = f"dasksvm-sums-{self.coordinator.run}-{self._number}-{part[0]}"
        future: Future = self._client.submit(
            compute_sums,
            self.coordinator,
            self._number,
            *part,
            key=key,
            pure=False,
            retries=0,
            priority=PRIORITY,
            **self._placement(),
        )
        return future

    def _result(self, future: Future, late: float) -> Values | None:
        """Return the result of a part; None if it is late or lost."""
        try:
            answer = asyncio.run_coroutine_threadsafe(self._fetch(future), self._client.loop.asyncio_loop)
            result: Values | None = answer.result(timeout=max(late - perf_counter(), 0.001))
            return result
        except Exception:  # whatever happened to the worker, the coordinator computes the part
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
        bare = SumsPlan(None, plan.generation, plan.order, plan.support, plan.amounts, plan.uniform)
        return SentSums(bare, count, missing)
