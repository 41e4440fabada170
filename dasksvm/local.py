"""The executor without a cluster: the plans of the learner on a pool of threads, one BLAS thread a tile.

It is the specification of `runtime/`: the same tiles, the same sequence, the same model, whatever the number of threads.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dasksvm.blas import one_thread
from dasksvm.solver.features import Features, Ints, Workspace
from dasksvm.solver.learner import Learner
from dasksvm.solver.messages import Plan, Progress, Result, RowsPlan, ScorePlan
from dasksvm.solver.tiles import member_rows, score


class Source(Protocol):
    """Where the examples come from."""

    def features(self, rows: Ints) -> Features:
        """Give the features of some rows, centred and converted for the kernel."""
        ...

    def labels(self, rows: Ints) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Give the signs and boxes of some rows, each of shape (P, m)."""
        ...


class LocalExecutor:
    """Run a learner's plans in this process.

    Parameters
    ----------
    learner : Learner
    source : Source
    threads : int
        Threads that compute tiles; the model does not depend on it.
    """

    def __init__(self, learner: Learner, source: Source, threads: int) -> None:
        self.learner = learner
        self.source = source
        self.threads = threads
        self._workspaces: list[Workspace] = []

    def run(self, watch: Callable[[Progress, float], bool]) -> None:
        """Execute plans until the learner is done.

        Parameters
        ----------
        watch : callable
            Told the progress and the seconds since the start, after every result and at the end; when it returns True the
            learner is asked to stop.
        """
        start = time.perf_counter()
        waiting: deque[Future[tuple[Result, Workspace]] | RowsPlan] = deque()
        with (
            one_thread(),
            ThreadPoolExecutor(self.threads, "dasksvm-tile") as pool,
            ThreadPoolExecutor(1, "dasksvm-helper") as helper,
        ):
            try:
                if self.threads > 1:
                    self.learner.share_work(partial(_with_helper, helper))
                for plan in [*self.learner.pending(), *self.learner.plans()]:
                    waiting.append(self._submit(pool, plan))
                while waiting:
                    first = waiting.popleft()
                    result, workspace = (
                        self._member_rows(pool, first) if isinstance(first, RowsPlan) else first.result()
                    )
                    progress = self.learner.take(result)
                    self._workspaces.append(workspace)
                    if watch(progress, time.perf_counter() - start):
                        self.learner.stop()
                    for plan in self.learner.plans():
                        waiting.append(self._submit(pool, plan))
                watch(self.learner.progress(), time.perf_counter() - start)
            finally:
                self.learner.share_work(map)
                pool.shutdown(wait=True, cancel_futures=True)

    def _submit(self, pool: ThreadPoolExecutor, plan: Plan) -> Future[tuple[Result, Workspace]] | RowsPlan:
        return pool.submit(self._score, plan) if isinstance(plan, ScorePlan) else plan

    def _score(self, plan: ScorePlan) -> tuple[Result, Workspace]:
        sign, bound = self.source.labels(plan.rows)
        features = self.source.features(plan.rows)
        workspace = self._workspace()
        return score(plan, self.learner.settings.kernel, features, sign, bound, workspace), workspace

    def _member_rows(self, pool: ThreadPoolExecutor, plan: RowsPlan) -> tuple[Result, Workspace]:
        workspace = self._workspace()
        return member_rows(plan, self.learner.settings.kernel, workspace, pool.map), workspace

    def _workspace(self) -> Workspace:
        """The memory of a batch already taken, if there is one."""
        try:
            return self._workspaces.pop()
        except IndexError:
            return Workspace()


def _with_helper(
    helper: ThreadPoolExecutor, work: Callable[[tuple[int, int]], None], parts: Iterable[tuple[int, int]]
) -> Iterable[None]:
    """Do the first part here and the others on the helper's thread."""
    first, *others = parts
    futures = [helper.submit(work, part) for part in others]
    try:
        work(first)
    finally:
        for future in futures:
            future.result()
    return ()
