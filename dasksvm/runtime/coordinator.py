"""The actor that owns the learner: it requests tiles from the workers, applies the results in sequence, and reports.

Its synchronous methods run one at a time on the worker's actor thread. Meanwhile the async methods answer on the event loop;
they only read what has been published and does not change any more. A task must not call a synchronous method: while `advance`
waits for the task, both would wait for ever.
"""

import sys
from collections import deque
from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any
from weakref import finalize

from distributed import get_worker

from dasksvm.config.blas import one_thread
from dasksvm.data.sources import DaskSource, Examples
from dasksvm.runtime.member_cache import RUNNING
from dasksvm.runtime.memory_limits import nearly_full
from dasksvm.runtime.protocol import (
    CoordinatorAddress,
    Options,
    Report,
    RunDescription,
    SentSums,
    StartReport,
    TaskPlans,
    Turn,
    WorkerPlan,
)
from dasksvm.runtime.shared_sums import SharedSums
from dasksvm.runtime.task_queue import TaskQueue
from dasksvm.solver.engine.learner import Learner
from dasksvm.solver.engine.preview import Finished, copying, is_due
from dasksvm.solver.engine.tiles import Map, member_rows
from dasksvm.solver.kernels.features import Features
from dasksvm.solver.memory import Workspace
from dasksvm.solver.messages import Plan, Progress, RowsPlan, ScorePlan
from dasksvm.solver.state.expansion import Tools
from dasksvm.training.local_executor import map_with_helper, run_with_helper
from dasksvm.training.snapshots import Checkpoint, Memo, Snapshots
from dasksvm.training.timings import PartTimer, Timings

# Estimated seconds of kernel values in a task. Smaller tasks would suffer from the overhead of a task.
TASK_SECONDS = 0.06
# The batches of a message are freed together, so large batches should not share one.
TASK_BYTES = 32 << 20
PROFILED = (
    "the workers run Dask's statistical profiler, which on Python 3.11 can crash a worker that runs compiled code: start them "
    "with DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED=false."
)


class Coordinator:
    """Runs a learner as an actor on one worker of the cluster.

    Parameters
    ----------
    run : str
    options : Options
    """

    def __init__(self, run: str, options: Options) -> None:
        self.options = options
        self.address = CoordinatorAddress(run, get_worker().address, f"dasksvm-coordinator-{run}")
        self.timings = Timings()
        self._timer = PartTimer(self.timings)
        self._published: dict[int, Plan] = {}
        self._unsent: list[ScorePlan] = []
        self._queue: deque[Plan] = deque()
        self._seconds = 0.0
        self._progress: Progress | None = None
        self._workspace = Workspace()
        self._map: Map = map
        self._closed = False
        # The copy that is being finished, and whether one was sent to the driver that has not been answered yet.
        self._copying: Generator[None, None, Finished] | None = None
        self._copying_seconds = 0.0
        self._awaiting_verdict = False
        self._start_report: StartReport | None = None
        self._last_report: tuple[int, Report] | None = None
        self._snapshots: Snapshots | None = None

    # Called by the driver, one at a time

    def begin(
        self, learner: Learner, examples: Examples, every: tuple[int, ...], checkpoint: Checkpoint | None
    ) -> StartReport:
        """Take over a learner that has been fed, at whatever point it is, or resume from the newest snapshot.

        Each time the number of examples passes a multiple of one of `every`, a finished copy is sent to the driver.
        """
        if self._start_report is not None:
            return self._start_report
        memo: Memo | None = None
        texts: list[str] = []
        if checkpoint is not None:
            self._snapshots = Snapshots(checkpoint)
            try:
                learner, memo, texts = self._snapshots.begin(learner)
            except Exception as error:  # raised by the driver
                return StartReport(0, None, [], error)
        self.learner, self.examples, self.every = learner, examples, every
        try:
            self._tasks = TaskQueue(self.address, self.options, self.timings, examples.source)
            self._sums = SharedSums(self._tasks, learner.settings.kernel)
            # A lost driver cannot close the dispatch, which could then wait for tasks of lost workers.
            finalize(self, self._tasks.close).atexit = False
            self._publish_plans([*learner.pending(), *learner.plans()])
        except Exception as error:
            _raise_if_closing(error)
            raise
        if sys.version_info[:2] == (3, 11) and "profile" in get_worker().periodic_callbacks:
            texts = [*texts, PROFILED]
        self._start_report = StartReport(learner.applied, memo, texts, None)
        return self._start_report

    def advance(self, turn: Turn) -> Report:
        """Continue for a while; errors of the run are sent in the report, so that they differ from a lost worker."""
        if self._last_report is None or self._last_report[0] != turn.number:
            self._last_report = turn.number, self._advance(turn)
        return self._last_report[1]

    def _advance(self, turn: Turn) -> Report:
        start = perf_counter()
        entries: list[Progress] = []
        error: Exception | None = None
        warning: str | None = None
        finished: Finished | None = None
        cores = get_worker().state.nthreads
        with one_thread(), ThreadPoolExecutor(1, "dasksvm-helper") if cores > 1 else nullcontext() as helper:
            try:
                here = map if helper is None else partial(run_with_helper, helper)
                self.learner.use_tools(Tools(here, self._sums, self._timer))
                self._map = map if helper is None else partial(map_with_helper, helper)
                warning = self._write_snapshot(turn.memo)
                self._stop_at(turn.stop)
                if self._awaiting_verdict:
                    self._awaiting_verdict = False
                    self._request_plans()
                deadline = perf_counter() + turn.seconds
                while not self._closed and finished is None and perf_counter() < deadline:
                    self._stop_at(turn.stop)
                    if self._copying is not None:
                        finished = self._continue_copy()
                    elif self._queue:
                        progress = self._step(deadline)
                        if progress is not None:
                            entries.append(progress)
                    else:
                        break
            except Exception as raised:  # reported to the driver, which raises it
                _raise_if_closing(raised)
                # The run is over, and there may be no driver left that closes it.
                self._tasks.close()
                # The frames of a traceback would keep this object alive.
                error = raised.with_traceback(None)
            finally:
                self.learner.use_tools(Tools())
        taken = perf_counter() - start
        self._seconds += taken
        self._awaiting_verdict |= finished is not None
        done = not self._queue and self._copying is None and not self._awaiting_verdict
        if done:
            entries.append(self.learner.progress())
        return Report(
            entries,
            done,
            waiting=not done and not entries and not self._awaiting_verdict and self._copying is None,
            error=error,
            warning=warning or (None if done else self._watch_memory()),
            timings=replace(self.timings, seconds=self._seconds),
            finished=finished,
            finishing=self._copying_seconds,
            due=not done and self._snapshot_due(turn.clock + taken),
            stopped=self.learner.stopped,
        )

    def _stop_at(self, applied: int | None) -> None:
        """Stop the learner once it has applied this many results, but not while a copy of it is being finished."""
        late = applied is not None and self.learner.applied >= applied
        if late and self._copying is None and not self.learner.stopped:
            self.learner.stop()

    def _snapshot_due(self, clock: float) -> bool:
        """Return whether a snapshot is due and possible: not while a copy is being finished or evaluated."""
        return (
            self._snapshots is not None
            and self._copying is None
            and not self._awaiting_verdict
            and self._snapshots.due(self.learner, clock)
        )

    def _write_snapshot(self, memo: Memo | None) -> str | None:
        """Write a snapshot together with the driver's memo; return a warning for the user if that fails."""
        if memo is None or self._snapshots is None or self._copying is not None or self.learner.stopped:
            return None
        before = perf_counter()
        text = self._snapshots.write(self.learner, memo)
        self.timings.keeping += perf_counter() - before
        return text

    def _watch_memory(self) -> str | None:
        """Stop the run before the worker reaches its memory limit."""
        used = nearly_full(get_worker())
        if used is None or self.learner.stopped:
            return None
        self.learner.stop()
        kept = self.learner.progress().members
        return (
            f"the coordinator's worker uses {used} of memory while it keeps {kept} examples: the run stops here, with a "
            "model of the examples seen so far."
        )

    def conclude(self) -> Learner:
        """Return the learner without its kernel rows."""
        self.learner.expansion.release_rows()
        return self.learner

    def _step(self, deadline: float) -> Progress | None:
        """Apply the next result if it arrives in time."""
        first, seen = self._queue[0], self.learner.seen
        if isinstance(first, RowsPlan):
            before = perf_counter()
            progress = self.learner.take(member_rows(first, self.learner.settings.kernel, self._workspace, self._map))
        else:
            if self._unsent and self._unsent[0] is first:
                self._send(everything=True)
            batch = self._tasks.wait(first.sequence, deadline)
            before = perf_counter()
            if batch is None:
                return None
            progress = self.learner.take(batch)
        self._queue.popleft()
        del self._published[first.sequence]
        self.timings.taking += perf_counter() - before
        if is_due(self.every, seen, progress.seen):
            self._copying, self._copying_seconds = copying(self.learner, lambda *given: self._map(*given)), 0.0
        else:
            self._request_plans()
        self._progress = progress
        return progress

    def _request_plans(self) -> None:
        before = perf_counter()
        new = self.learner.plans()
        self.timings.submitting += perf_counter() - before
        self._publish_plans(new)

    def _continue_copy(self) -> Finished | None:
        """Continue to finish the copy; the learner waits for it and for the driver's answer."""
        assert self._copying is not None
        before = perf_counter()
        try:
            next(self._copying)
        except StopIteration as end:
            self._copying = None
            copied: Finished = end.value
            return copied
        finally:
            self._copying_seconds += perf_counter() - before
        return None

    def _publish_plans(self, plans: list[Plan]) -> None:
        """Publish new plans and send those that fill a task; the last plans of a pass are sent even if they do not."""
        for plan in plans:
            self._published[plan.sequence] = plan
            self._queue.append(plan)
            if isinstance(plan, ScorePlan):
                self._unsent.append(plan)
        self._send(everything=not plans)

    def _send(self, everything: bool) -> None:
        """Send the waiting plans in groups; with `everything`, also a last group that does not fill a task."""
        while self._unsent:
            count = next(
                (n for n in range(1, len(self._unsent)) if self._fills_a_task(self._unsent[:n])), len(self._unsent)
            )
            group = self._unsent[:count]
            if not everything and not self._fills_a_task(group):
                return
            del self._unsent[:count]
            rows = [plan.rows - self.examples.base for plan in group]
            self._tasks.send(tuple(plan.sequence for plan in group), rows, _bytes(group) >= TASK_BYTES)

    def _fills_a_task(self, group: list[ScorePlan]) -> bool:
        """Return whether a group of plans is large enough for a task.

        A task has as many plans as leave two tasks for every worker, more if their tiles are small, and fewer if their rows
        take many bytes.
        """
        values = [len(plan.rows) * len(plan.view.order) for plan in group]
        members = group[0].view.members
        if _bytes(group) >= TASK_BYTES:
            return True
        lookahead = self.learner.settings.lookahead
        if len(group) < max(lookahead // (2 * self._tasks.slots()), 1):
            return False
        seconds = 0.0 if members is None else sum(values) * self.learner.settings.kernel.seconds(members)
        return seconds >= TASK_SECONDS or len(group) >= lookahead // 2

    # Called at any time, by workers and others

    async def describe_run(self) -> RunDescription:
        """Return what a worker needs before its first tile."""
        examples = self.examples
        reads = not isinstance(examples.source, DaskSource)
        return RunDescription(
            kernel=self.learner.settings.kernel,
            form=examples.form,
            chunks=examples.source.chunks,
            base=examples.base,
            coding=examples.coding,
            source=examples.source if reads else None,
            columns=examples.columns if reads else None,
        )

    async def task_plans(self, sequences: tuple[int, ...], held: dict[int, int]) -> TaskPlans | None:
        """Return the plans of a task with the members that the worker does not have yet; None if a plan is out of date."""
        plans = [self._published.get(sequence) for sequence in sequences]
        found: list[WorkerPlan] = []
        stores: dict[int, Features] = {}
        for plan in plans:
            if not isinstance(plan, ScorePlan) or self._closed:
                return None
            members, generation = plan.view.members, plan.view.generation
            if members is not None and len(members) >= len(stores.get(generation, ())):
                stores[generation] = members
            targets = self.examples.targets(plan.rows) if isinstance(self.examples.source, DaskSource) else None
            slots = 0 if members is None else len(members)
            found.append(
                WorkerPlan(plan.sequence, plan.rows, replace(plan.view, members=None), slots, targets, plan.choice)
            )
        missing = {
            generation: members.part(held.get(generation, 0), len(members))
            for generation, members in stores.items()
            if len(members) > held.get(generation, 0) or generation not in held
        }
        return TaskPlans(found, missing)

    async def sums_plan(self, number: int, held: dict[int, int]) -> SentSums | None:
        """Return the sums with a number, with the members that the worker does not have yet; None if they are out of date."""
        return None if self._closed else self._sums.sent(number, held)

    async def status(self) -> dict[str, Any]:
        """Return the state of the run."""
        progress = {} if self._progress is None else self._progress.as_dict()
        return {"run": self.address.run, "queued": len(self._queue), "closed": self._closed, **progress}

    async def close(self) -> None:
        """Send no more tasks, and drop those that are running."""
        self._closed = True
        if hasattr(self, "_tasks"):
            self._tasks.close()


def _raise_if_closing(error: Exception) -> None:
    """Report a closing worker as a lost coordinator.

    A closing worker closes its client first, after which every call fails. The driver takes a RuntimeError for the loss of the
    coordinator.
    """
    if get_worker().status not in RUNNING:
        raise RuntimeError(f"its worker is closing: {error}") from error


def _bytes(group: list[ScorePlan]) -> int:
    """Return the size in bytes of the kernel rows of some plans."""
    members = group[0].view.members
    size = 4 if members is None else members.dtype.itemsize
    return size * sum(plan.most_results * len(plan.view.order) for plan in group)
