"""The executor that needs no cluster: it runs the plans of the learner on a pool of threads, with one BLAS thread per tile.

It is the specification of `runtime/`: both compute the same tiles in the same sequence and give the same model, whatever the
number of threads.
"""

import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Protocol

from dasksvm.config.blas import one_thread
from dasksvm.config.workspaces import Workspaces
from dasksvm.solver.engine.choice import execute
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.preview import Finished, finished_copy, is_due
from dasksvm.solver.engine.tiles import member_rows
from dasksvm.solver.kernels.features import Features, Ints
from dasksvm.solver.messages import Plan, Progress, Result, RowsPlan, ScorePlan, Targets
from dasksvm.solver.state.expansion import Tools
from dasksvm.training.snapshots import Memo, Snapshots
from dasksvm.training.timings import PartTimer, Timings


class Source(Protocol):
    """The examples of a run."""

    def features(self, rows: Ints) -> Features:
        """Return the features of some rows, centred and converted for the kernel."""
        ...

    def targets(self, rows: Ints) -> Targets:
        """Return the labels and bounds of some rows in all P problems."""
        ...


class Evaluation(Protocol):
    """Receives finished copies of the model during training, and keeps the history."""

    every: tuple[int, ...]

    @property
    def entries(self) -> list[dict[str, Any]]:
        """The history so far."""
        ...

    def resume(self, entries: list[dict[str, Any]]) -> None:
        """Continue a history."""
        ...

    def evaluate(self, finished: Finished, seconds: float) -> bool:
        """Evaluate a copy, made each time the number of examples passes a multiple of one of `every`; True ends the run."""
        ...


class LocalExecutor:
    """Run a learner's plans in this process.

    Parameters
    ----------
    learner : Learner
    source : Source
    threads : int
        Threads that compute tiles; the model does not depend on it.
    memory : int, optional
        See `Learner.use_memory`.
    """

    def __init__(self, learner: Learner, source: Source, threads: int, memory: int | None = None) -> None:
        self.learner = learner
        self.source = source
        self.threads = threads
        self.memory = memory
        self.timings = Timings()
        self._workspaces = Workspaces()
        self._lock = threading.Lock()

    def run(
        self,
        watch: Callable[[Progress, float], bool],
        evaluation: Evaluation | None = None,
        snapshots: Snapshots | None = None,
    ) -> Timings:
        """Execute plans until the learner is done.

        Parameters
        ----------
        watch : callable
            Called with the progress and the seconds since the start, after every result and at the end. If it returns True,
            the learner is asked to stop.
        evaluation : Evaluation, optional
            Receives finished copies during training; the clock is paused meanwhile.
        snapshots : Snapshots, optional
            Writes the snapshots of the run, and resumes from the newest one, which replaces `learner`. Needs `evaluation`.

        Returns
        -------
        Timings
        """
        began = start = time.perf_counter()
        evaluated = 0
        if snapshots is not None and evaluation is not None:
            memo = self._resume(snapshots, evaluation)
            evaluated, start = memo.evaluated, start - memo.seconds
        if self.memory is not None:
            self.learner.use_memory(self.memory)
        waiting: deque[Future[Result] | RowsPlan] = deque()
        with (
            one_thread(),
            ThreadPoolExecutor(self.threads, "dasksvm-tile") as pool,
            ThreadPoolExecutor(1, "dasksvm-helper") as helper,
        ):
            try:
                shared = partial(run_with_helper, helper) if self.threads > 1 else map
                self.learner.use_tools(Tools(shared, observe=PartTimer(self.timings)))
                self._submit(pool, waiting, self.learner.pending())
                while waiting:
                    seen = self.learner.seen
                    progress = self._apply(pool, waiting.popleft())
                    stop = watch(progress, time.perf_counter() - start)
                    if evaluation is not None and is_due(evaluation.every, seen, progress.seen):
                        before = time.perf_counter()
                        finished = finished_copy(self.learner, pool.map)
                        stop |= evaluation.evaluate(finished, time.perf_counter() - start)
                        evaluated += 1
                        start += time.perf_counter() - before
                    seconds = time.perf_counter() - start
                    if (
                        snapshots is not None
                        and evaluation is not None
                        and snapshots.due(self.learner, seconds, stop=stop)
                    ):
                        self._write_snapshot(snapshots, Memo(evaluation.entries, evaluated, seconds))
                    if stop:
                        self.learner.stop()
                    self._submit(pool, waiting)
                watch(self.learner.progress(), time.perf_counter() - start)
            finally:
                self.learner.use_tools(Tools())
                pool.shutdown(wait=True, cancel_futures=True)
        self.timings.seconds += time.perf_counter() - began
        return self.timings

    def _resume(self, snapshots: Snapshots, evaluation: Evaluation) -> Memo:
        """Resume from the newest snapshot, if there is one."""
        self.learner, memo, texts = snapshots.begin(self.learner)
        for text in texts:
            warnings.warn(text, RuntimeWarning, stacklevel=6)
        if memo is None:
            return Memo([], 0, 0.0)
        evaluation.resume(memo.entries)
        return memo

    def _write_snapshot(self, snapshots: Snapshots, memo: Memo) -> None:
        before = time.perf_counter()
        text = snapshots.write(self.learner, memo)
        if text is not None:
            warnings.warn(text, RuntimeWarning, stacklevel=6)
        self.timings.keeping += time.perf_counter() - before

    def _submit(
        self, pool: ThreadPoolExecutor, waiting: deque[Future[Result] | RowsPlan], pending: Iterable[Plan] = ()
    ) -> None:
        """Begin to execute the plans that are pending and those that the learner makes now."""
        start = time.perf_counter()
        for plan in [*pending, *self.learner.plans()]:
            waiting.append(pool.submit(self._score, plan) if isinstance(plan, ScorePlan) else plan)
        self.timings.submitting += time.perf_counter() - start

    def _apply(self, pool: ThreadPoolExecutor, first: Future[Result] | RowsPlan) -> Progress:
        start = time.perf_counter()
        batch = None if isinstance(first, RowsPlan) else first.result()
        here = time.perf_counter()
        result = self._member_rows(pool, first) if isinstance(first, RowsPlan) else batch
        assert result is not None
        progress = self.learner.take(result)
        self.timings.waiting += here - start
        self.timings.taking += time.perf_counter() - here
        return progress

    def _score(self, plan: ScorePlan) -> Result:
        start = time.perf_counter()
        targets = self.source.targets(plan.rows)
        features = self.source.features(plan.rows)
        read = time.perf_counter()
        kernel, workspace = self.learner.settings.kernel, self._workspaces.of_this_thread()
        batch = execute(plan, kernel, features, targets, workspace, near=True)
        with self._lock:
            self.timings.reading += read - start
            self.timings.tiling += time.perf_counter() - read
        return batch

    def _member_rows(self, pool: ThreadPoolExecutor, plan: RowsPlan) -> Result:
        return member_rows(plan, self.learner.settings.kernel, self._workspaces.of_this_thread(), pool.map)


def run_with_helper(
    helper: ThreadPoolExecutor, work: Callable[[tuple[int, int]], None], parts: Iterable[tuple[int, int]]
) -> Iterable[None]:
    """Do the first part here and the others on the helper thread: two threads for `Tools.parallel_map`."""
    first, *others = parts
    futures = [helper.submit(work, part) for part in others]
    try:
        work(first)
    finally:
        for future in futures:
            future.result()
    return ()


def map_with_helper(helper: ThreadPoolExecutor, work: Callable[[int], None], items: Iterable[int]) -> Iterable[None]:
    """Do every second item on the helper thread: a `map` with two threads."""
    every = list(items)
    future = helper.submit(_do_all, work, every[1::2])
    try:
        _do_all(work, every[::2])
    finally:
        future.result()
    return ()


def _do_all(work: Callable[[int], None], items: Iterable[int]) -> None:
    for item in items:
        work(item)
